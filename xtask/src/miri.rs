//! `cargo xtask miri`: runs the small kernel tests as a CPU would that is not at hand.
//!
//! Miri interprets the intrinsics one by one, by a reading of the manuals that is not ours, and
//! finds undefined behaviour too. What the compiler makes of the same code it does not show.

use crate::sh::{self, Failure, Outcome};
use std::ffi::OsString;

const HELP: &str = "\
Usage: cargo xtask miri

Interprets the small kernel tests (tests/tests/small.rs) for an x86-64 CPU with AVX2 and AVX-512 VNNI.
Takes minutes. Needs a nightly compiler with Miri.
";

/// What the interpreted CPU has: the features of the kernels' tokens.
const FEATURES: &str = "-Ctarget-feature=+avx2,+fma,+f16c,+avx512f,+avx512bw,+avx512vl,+avx512vnni";

/// The CPU that is interpreted, whatever this machine is.
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// The task.
pub fn main(words: Vec<OsString>) -> Outcome {
    use lexopt::Arg::Long;
    let mut args = lexopt::Parser::from_args(words);
    if let Some(arg) = args.next()? {
        return match arg {
            Long("help") => {
                print!("{HELP}");
                Ok(())
            }
            other => Err(other.unexpected().into()),
        };
    }
    if sh::output("rustup", &["run", "nightly", "cargo", "miri", "--version"]).is_none() {
        return Err(Failure::new(
            "no Miri: rustup toolchain install nightly --component miri --component rust-src",
        ));
    }
    let mut miri = std::process::Command::new("cargo");
    // Chosen by `cargo run` for us; it would override +nightly.
    miri.env_remove("RUSTUP_TOOLCHAIN").env_remove("CARGO").env_remove("RUSTC");
    // Tests hold some memory to the end.
    miri.env("RUSTFLAGS", FEATURES).env("MIRIFLAGS", "-Zmiri-ignore-leaks");
    miri.current_dir(sh::root()).args(["+nightly", "miri", "test", "--target", TARGET]);
    miri.args(["--package", "kinglet-tests", "--test", "small", "--", "--nocapture"]);
    sh::run(&mut miri)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interpreted_cpu_has_what_the_token_stands_for() {
        let tokens = std::fs::read_to_string(sh::root().join("core/src/ops/isa.rs")).unwrap();
        let line = tokens.lines().find(|line| line.trim_start().starts_with("Avx512, \"x86_64\"")).unwrap();
        let features: Vec<&str> = line.split('"').skip(3).step_by(2).collect();
        assert!(features.len() > 4, "{line}");
        assert!(features.iter().all(|feature| FEATURES.contains(&format!("+{feature}"))), "{line}");
    }

    #[test]
    fn words_are_refused() {
        assert_eq!(main(vec!["more".into()]).unwrap_err().code, 2);
    }
}
