//! The page that the server shows at `/`: conversations, and a view of the cache and of the last requests.
//!
//! One file without outside parts, embedded as `cargo xtask page` packs it. Must not know HTTP, nor the API
//! that the page asks.

mod packed;

/// The page and its `ETag`, quotes included. The bytes are HTML in UTF-8, compressed with gzip: they must be
/// sent with `Content-Encoding: gzip`, `Content-Type: text/html; charset=utf-8` and [`csp`].
pub fn html() -> (&'static [u8], &'static str) {
    (include_bytes!("page.html.gz"), packed::ETAG)
}

/// The value of `Content-Security-Policy` for the page: its own script and style, by their hashes, may run;
/// it may ask its own server, and show images that it holds itself; nothing else.
pub fn csp() -> &'static str {
    packed::CSP
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn the_page_needs_nothing_from_outside() {
        let (bytes, etag) = html();
        assert!(bytes.len() <= 24 << 10, "{}", bytes.len());
        assert!(etag.len() == 18 && etag.starts_with('"') && etag.ends_with('"'), "{etag}");
        let mut text = String::new();
        flate2::read::GzDecoder::new(bytes).read_to_string(&mut text).unwrap();
        assert!(text.starts_with("<!doctype html>") && text.ends_with("</html>\n"));
        for forbidden in ["src=\"", "href=\"http", "@import", "url(", "style=\"", "innerHTML", "outerHTML"] {
            assert!(!text.contains(forbidden), "{forbidden}");
        }
    }

    #[test]
    fn the_policy_allows_nothing_by_default() {
        let directives: Vec<&str> = csp().split("; ").collect();
        assert_eq!(directives[0], "default-src 'none'");
        for directive in
            ["base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'", "connect-src 'self'"]
        {
            assert!(directives.contains(&directive), "{directive}");
        }
        assert!(!csp().contains("unsafe") && !csp().contains('*') && !csp().contains("http"));
        assert_eq!(csp().matches("'sha256-").count(), 2);
        assert!(csp().is_ascii() && !csp().contains('\n'));
    }
}
