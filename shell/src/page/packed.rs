//! Written by `cargo xtask page`, not by hand: what goes with `page.html.gz`. Must not know anything else.

/// The value of `ETag`, quotes included.
pub const ETAG: &str = "\"5a7c24d3db0ca2d6\"";

/// The value of `Content-Security-Policy`.
pub const CSP: &str = "default-src 'none'; \
    script-src 'sha256-JGGNuomhsAMhX9/mkMK11QbzkuG9zSMxmbEVL4CItJ4='; \
    style-src 'sha256-KGAiy9iPxI/kGkCDvkn8/0EG+9s4+A3dEpzTLTUODJ4='; \
    connect-src 'self'; \
    img-src data: blob:; \
    base-uri 'none'; \
    form-action 'none'; \
    frame-ancestors 'none'; \
    require-trusted-types-for 'script'; \
    trusted-types 'none'";
