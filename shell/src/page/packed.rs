//! Written by `cargo xtask page`, not by hand: what goes with `page.html.gz`. Must not know anything else.

/// The value of `ETag`, quotes included.
pub const ETAG: &str = "\"2dc6499ee2df19b5\"";

/// The value of `Content-Security-Policy`.
pub const CSP: &str = "default-src 'none'; \
    script-src 'sha256-nfmFC9HXC7IyyHpAYsGukhh8hffywbi5P+juKndIJ3E='; \
    style-src 'sha256-D/TNQgLb8T9+IxE3V8uzdGlPn2w2IxqVGPs+xgAWBh4='; \
    connect-src 'self'; \
    img-src data: blob:; \
    base-uri 'none'; \
    form-action 'none'; \
    frame-ancestors 'none'; \
    require-trusted-types-for 'script'; \
    trusted-types 'none'";
