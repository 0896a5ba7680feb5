//! `cargo xtask fuzz`: runs the targets of `tests/fuzz` under libFuzzer.
//!
//! The bodies are plain functions of `kinglet-tests`, so `cargo test` runs them too, on
//! seeded inputs; only this task needs nightly and cargo-fuzz.

use crate::sh::{self, Context, Failure, Outcome};
use std::ffi::OsString;
use std::fs;

const HELP: &str = "\
Usage: cargo xtask fuzz [TARGET] [--seconds N]

Runs one fuzz target, or all in turn, N seconds each (default 60). --list names them.
";

/// The task.
pub fn main(words: Vec<OsString>) -> Outcome {
    use lexopt::Arg::{Long, Value};
    use lexopt::ValueExt;
    let mut args = lexopt::Parser::from_args(words);
    let (mut wanted, mut seconds, all) = (None, 60u32, targets()?);
    while let Some(arg) = args.next()? {
        match arg {
            Long("seconds") => seconds = args.value()?.parse()?,
            Long("list") => {
                all.iter().for_each(|t| println!("{t}"));
                return Ok(());
            }
            Long("help") => {
                print!("{HELP}");
                return Ok(());
            }
            Value(target) if wanted.is_none() => wanted = Some(target.string()?),
            other => return Err(other.unexpected().into()),
        }
    }
    let run = match wanted {
        None => all,
        Some(target) if all.contains(&target) => vec![target],
        Some(target) => {
            let message = format!("no fuzz target '{target}'; there are: {}", all.join(", "));
            return Err(Failure::usage(message));
        }
    };
    require_tools()?;
    for target in run {
        let mut fuzz = std::process::Command::new("cargo");
        // Chosen by `cargo run` for us; it would override +nightly.
        fuzz.env_remove("RUSTUP_TOOLCHAIN").env_remove("CARGO").env_remove("RUSTC");
        fuzz.current_dir(sh::root().join("tests"));
        fuzz.args(["+nightly", "fuzz", "run", &target, "--", &format!("-max_total_time={seconds}")]);
        sh::run(&mut fuzz)?;
    }
    Ok(())
}

/// Names of the targets, from the files that hold them.
fn targets() -> Outcome<Vec<String>> {
    let dir = sh::root().join("tests").join("fuzz").join("fuzz_targets");
    let files = fs::read_dir(&dir).context(format_args!("cannot list {}", dir.display()))?;
    let paths = files.flatten().map(|f| f.path()).filter(|p| p.extension().is_some_and(|e| e == "rs"));
    let mut names: Vec<String> =
        paths.filter_map(|p| Some(p.file_stem()?.to_string_lossy().into_owned())).collect();
    names.sort();
    Ok(names)
}

fn require_tools() -> Outcome {
    if sh::output("rustup", &["run", "nightly", "rustc", "--version"]).is_none() {
        return Err(Failure::new("fuzzing needs a nightly compiler: rustup toolchain install nightly"));
    }
    if sh::output("cargo-fuzz", &["--version"]).is_none() {
        return Err(Failure::new("fuzzing needs cargo-fuzz: cargo install cargo-fuzz --locked"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_target_is_a_program_of_the_fuzz_manifest() {
        let manifest = fs::read_to_string(sh::root().join("tests/fuzz/Cargo.toml")).unwrap();
        let targets = targets().unwrap();
        assert!(targets.contains(&"gguf".to_owned()));
        for target in targets {
            assert!(manifest.contains(&format!("path = \"fuzz_targets/{target}.rs\"")), "{target}");
        }
    }

    #[test]
    fn unknown_targets_are_errors_that_name_the_known() {
        let failure = main(vec!["nope".into()]).unwrap_err();
        assert!(failure.message.contains("gguf"), "{failure}");
    }
}
