//! `cargo xtask page`: packs the server's page, and `page-test`: drives it in a real browser.
//!
//! The page is one HTML file. Packed it is shorter by indentation and comments, compressed, and stands beside
//! a generated file with what the server must say about it: an ETag and a policy that names its script and
//! style by their hashes. Must not know the server: it and the page meet in `page-test --server`.

mod base64;
mod browser;
mod fake;
mod looks;
mod replies;
mod scenes;
mod stage;
mod status;
mod wire;

use crate::sh::{self, Context, Failure, Outcome};
use flate2::read::GzDecoder;
use flate2::{Compression, GzBuilder};
use sha2::{Digest, Sha256};
use std::ffi::OsString;
use std::fs;
use std::io::{Read, Write};

pub use browser::{has_browser, has_driver};
pub use stage::main as test;

/// Debian's package of the browser.
pub const BROWSER_PACKAGE: &str = "chromium";
/// Debian's package of the program that steers it.
pub const DRIVER_PACKAGE: &str = "chromium-driver";

/// Most bytes of the packed page.
const BYTES_MOST: usize = 24 << 10;

const SOURCE: &str = "shell/src/page/page.html";
const PACKED: &str = "shell/src/page/page.html.gz";
const FACTS: &str = "shell/src/page/packed.rs";

const HELP: &str = "\
Usage: cargo xtask page [--check]

Packs shell/src/page/page.html into page.html.gz and packed.rs beside it.

  --check   write nothing; fail if they are not what page.html gives
";

/// The task.
pub fn main(words: Vec<OsString>) -> Outcome {
    use lexopt::Arg::Long;
    let mut args = lexopt::Parser::from_args(words);
    let mut only_check = false;
    while let Some(arg) = args.next()? {
        match arg {
            Long("check") => only_check = true,
            Long("help") => {
                print!("{HELP}");
                return Ok(());
            }
            other => return Err(other.unexpected().into()),
        }
    }
    if only_check {
        return check();
    }
    let page = Page::read()?;
    let bytes = page.compressed()?;
    fs::write(sh::root().join(PACKED), &bytes).context(format_args!("cannot write {PACKED}"))?;
    fs::write(sh::root().join(FACTS), page.facts()).context(format_args!("cannot write {FACTS}"))?;
    eprintln!("page: {} bytes, packed {} of at most {BYTES_MOST}", page.text.len(), bytes.len());
    Ok(())
}

/// Whether the packed page and its facts are those of `page.html`.
///
/// # Errors
/// They are not, or the page is too large.
pub fn check() -> Outcome {
    let page = Page::read()?;
    let stale =
        |file: &str| Failure::new(format!("{file} is not what {SOURCE} gives: run `cargo xtask page`"));
    let bytes = fs::read(sh::root().join(PACKED)).context(format_args!("cannot read {PACKED}"))?;
    within_limit(bytes.len())?;
    // Unpacked, as another version of the compressor may give other bytes.
    let mut text = String::new();
    GzDecoder::new(&bytes[..]).read_to_string(&mut text).context(format_args!("cannot unpack {PACKED}"))?;
    if text != page.text {
        return Err(stale(PACKED));
    }
    let facts = fs::read_to_string(sh::root().join(FACTS)).context(format_args!("cannot read {FACTS}"))?;
    if facts != page.facts() {
        return Err(stale(FACTS));
    }
    eprintln!("page: {} bytes packed, of at most {BYTES_MOST}", bytes.len());
    Ok(())
}

fn within_limit(bytes: usize) -> Outcome {
    if bytes > BYTES_MOST {
        return Err(Failure::new(format!("the packed page has {bytes} bytes; {BYTES_MOST} at most")));
    }
    Ok(())
}

/// The page as it is served.
struct Page {
    /// Without indentation and comments.
    text: String,
    /// The header `Content-Security-Policy`, by directive.
    policy: Vec<String>,
}

impl Page {
    fn read() -> Outcome<Page> {
        let source =
            fs::read_to_string(sh::root().join(SOURCE)).context(format_args!("cannot read {SOURCE}"))?;
        Page::of(&source)
    }

    fn of(source: &str) -> Outcome<Page> {
        let text = shortened(source)?;
        let script = hash_of(only_part(&text, "script")?);
        let style = hash_of(only_part(&text, "style")?);
        let policy = [
            "default-src 'none'".to_owned(),
            format!("script-src '{script}'"),
            format!("style-src '{style}'"),
            "connect-src 'self'".to_owned(),
            "img-src data: blob:".to_owned(),
            "base-uri 'none'".to_owned(),
            "form-action 'none'".to_owned(),
            "frame-ancestors 'none'".to_owned(),
            // A slip that made markup of text would throw instead.
            "require-trusted-types-for 'script'".to_owned(),
            "trusted-types 'none'".to_owned(),
        ];
        Ok(Page { text, policy: policy.into() })
    }

    /// The same bytes every time: no name, no time of day.
    fn compressed(&self) -> Outcome<Vec<u8>> {
        let mut packer = GzBuilder::new().mtime(0).write(Vec::new(), Compression::best());
        packer.write_all(self.text.as_bytes()).context("cannot compress")?;
        let bytes = packer.finish().context("cannot compress")?;
        within_limit(bytes.len())?;
        Ok(bytes)
    }

    fn etag(&self) -> String {
        let digest = Sha256::digest(self.text.as_bytes());
        digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect()
    }

    /// The generated Rust file.
    fn facts(&self) -> String {
        format!(
            "//! Written by `cargo xtask page`, not by hand: what goes with `page.html.gz`. Must not know \
             anything else.\n\n\
             /// The value of `ETag`, quotes included.\n\
             pub const ETAG: &str = \"\\\"{}\\\"\";\n\n\
             /// The value of `Content-Security-Policy`.\n\
             pub const CSP: &str = \"{}\";\n",
            self.etag(),
            self.policy.join("; \\\n    ")
        )
    }
}

/// The page without indentation, empty lines, and lines that hold nothing but a comment.
fn shortened(source: &str) -> Outcome<String> {
    let mut text = String::with_capacity(source.len());
    for (i, line) in source.lines().enumerate() {
        let line = line.trim();
        // Indentation inside of a template string would be content.
        if line.matches('`').count() % 2 == 1 && !is_comment(line) {
            let message = "a template string over several lines would be changed by packing";
            return Err(Failure::new(format!("{SOURCE}:{}: {message}", i + 1)));
        }
        if !line.is_empty() && !is_comment(line) {
            text.push_str(line);
            text.push('\n');
        }
    }
    Ok(text)
}

fn is_comment(line: &str) -> bool {
    line.starts_with("//")
        || (line.starts_with("/*") && line.ends_with("*/"))
        || (line.starts_with("<!--") && line.ends_with("-->"))
}

/// What stands in the one element of that name, which has no attributes.
fn only_part<'t>(text: &'t str, name: &str) -> Outcome<&'t str> {
    let (open, close) = (format!("<{name}>"), format!("</{name}>"));
    let wrong = || Failure::new(format!("{SOURCE} must have exactly one {open} and {close}"));
    let (_, rest) = text.split_once(&open).ok_or_else(wrong)?;
    let (part, rest) = rest.split_once(&close).ok_or_else(wrong)?;
    if rest.contains(&format!("<{name}")) {
        return Err(wrong());
    }
    Ok(part)
}

/// A hash as a policy names it.
fn hash_of(part: &str) -> String {
    format!("sha256-{}", base64::encode(&Sha256::digest(part.as_bytes())))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: &str = "<!doctype html>\n<!-- c -->\n<style>\n  a {\n    b: c;\n  }\n  /* c */\n</style>\n\
                         <script>\n  // c\n  let a = `b`;\n\n</script>\n";

    #[test]
    fn packing_leaves_what_counts() {
        let page = Page::of(SMALL).unwrap();
        assert_eq!(
            page.text,
            "<!doctype html>\n<style>\na {\nb: c;\n}\n</style>\n<script>\nlet a = `b`;\n</script>\n"
        );
        assert!(page.policy[1].starts_with("script-src 'sha256-"), "{:?}", page.policy);
        assert!(page.policy[1].contains(&hash_of("\nlet a = `b`;\n")), "{:?}", page.policy);
        assert_eq!(page.compressed().unwrap(), Page::of(SMALL).unwrap().compressed().unwrap());
        let mut back = String::new();
        GzDecoder::new(&page.compressed().unwrap()[..]).read_to_string(&mut back).unwrap();
        assert_eq!(back, page.text);
    }

    #[test]
    fn hashes_are_those_of_the_standard() {
        // The example of the specification of content security policies.
        let hash = hash_of("alert('Hello, world.');");
        assert_eq!(hash, "sha256-qznLcsROx4GACP2dm0UCKCzCG+HiZ1guq6ZZDob/Tng=");
    }

    #[test]
    fn what_packing_would_break_is_refused() {
        assert!(Page::of(&SMALL.replace("`b`", "`b\n  c`")).is_err());
        assert!(Page::of(&SMALL.replace("</script>", "</script><script>x</script>")).is_err());
        assert!(Page::of(&SMALL.replace("<style>", "<style media=print>")).is_err());
        assert!(within_limit(BYTES_MOST).is_ok() && within_limit(BYTES_MOST + 1).is_err());
    }

    #[test]
    fn the_committed_page_is_packed() {
        check().unwrap();
    }
}
