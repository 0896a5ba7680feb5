//! Events for whoever looks at a board from outside: defmt frames with the feature `defmt`, nothing
//! without it. Where frames go is the program's business.
//!
//! `info`: once per engine. `debug`: once per step and chunk. `trace`: once per layer. `error`: what a
//! caller gets as `Err`. Numbers only, no text of users.

/// `log!(level, "text {=u32}", value, ...)`. Values are borrowed in either case, so that a feature cannot
/// make a variable unused.
#[cfg(feature = "defmt")]
macro_rules! log {
    ($level:ident, $text:literal $(, $value:expr)*) => { defmt::$level!($text $(, $value)*) };
}

/// See above.
#[cfg(not(feature = "defmt"))]
macro_rules! log {
    ($level:ident, $text:literal $(, $value:expr)*) => {{ $(let _ = &$value;)* }};
}

pub(crate) use log;
