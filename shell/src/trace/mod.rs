//! `--trace FILE`: log frames of core and shell. Must not know what they say.
//!
//! A frame names its text by a number; the texts are in the unstripped program only, which
//! `cargo xtask logs` reads them from. Built without the feature `defmt`, the program has no frames.

#[cfg(feature = "defmt")]
mod frames;

#[cfg(feature = "defmt")]
pub use frames::{finish, open};

use std::path::PathBuf;

/// The file that `--trace` names, if this program can write one.
///
/// # Errors
/// It cannot: it was built without the feature.
pub fn accepted(path: PathBuf) -> Result<PathBuf, &'static str> {
    if cfg!(feature = "defmt") {
        return Ok(path);
    }
    Err("this program was built without its log; the one that `cargo xtask cross` builds has it")
}

/// Without frames there is no file: [`accepted`] has refused it.
///
/// # Errors
/// None.
#[cfg(not(feature = "defmt"))]
pub fn open(_: &std::path::Path, _: &std::path::Path) -> Result<(), crate::failure::Failure> {
    Ok(())
}

/// Nothing was written, so nothing is missing.
#[cfg(not(feature = "defmt"))]
pub fn finish() -> Option<crate::failure::Failure> {
    None
}

/// `log!(level, "text {=u32}", value, ...)`: a frame, or nothing without the feature.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_without_frames_says_how_to_get_them() {
        let answer = accepted(PathBuf::from("t"));
        if cfg!(feature = "defmt") {
            assert_eq!(answer, Ok(PathBuf::from("t")));
        } else {
            assert!(answer.unwrap_err().contains("cargo xtask cross"));
        }
    }
}
