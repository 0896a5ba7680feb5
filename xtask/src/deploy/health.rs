//! Whether the program that was deployed works: commands run on the remote, and what each must say. Must not
//! know the service.

use super::layout::Layout;
use super::remote::Remote;
use super::script::RUN;
use crate::sh::{self, Context, Failure, Outcome};
use std::path::Path;
use std::process::{Command, Stdio};

/// Words of the smoke run on a model, after the binary and before the model: a few ids that every
/// vocabulary has, in a context that takes next to no memory. `--force`: the service may run meanwhile, with
/// the same model in the same memory.
const LOGITS: [&str; 9] = ["logits", "--hash", "--quiet", "--force", "--ctx", "64", "--ids", "1,2,3,4", "-m"];

/// A command and what the first line of its output must be.
#[derive(Debug)]
pub struct Check {
    words: Vec<String>,
    expected: Expected,
}

#[derive(Debug)]
enum Expected {
    Beginning(String),
    Line(String),
}

/// The checks of a deployed version. `version` is what `--version` must begin with, `hash` that of the
/// model's logits.
pub fn checks(layout: &Layout, runner: &[String], version: &str, hash: Option<&str>) -> Vec<Check> {
    let mut checks = vec![Check {
        words: version_words(layout, runner),
        expected: Expected::Beginning(version.to_owned()),
    }];
    if let (Some(hash), Some(model)) = (hash, &layout.model) {
        let mut words = runner.to_vec();
        words.push(layout.binary.clone());
        words.extend(LOGITS.map(str::to_owned));
        words.push(model.clone());
        checks.push(Check { words, expected: Expected::Line(hash.to_owned()) });
    }
    checks
}

fn version_words(layout: &Layout, runner: &[String]) -> Vec<String> {
    let mut words = runner.to_vec();
    words.extend([layout.binary.clone(), "--version".to_owned()]);
    words
}

/// Runs the checks and gives back what each said.
///
/// # Errors
/// The first that fails, or says something else.
pub fn check(remote: &Remote<'_>, checks: &[Check]) -> Outcome<Vec<String>> {
    let mut said = Vec::new();
    for check in checks {
        let words: Vec<&str> = check.words.iter().map(String::as_str).collect();
        let Some(output) = remote.run(&RUN, &words)? else { continue };
        let line = output.lines().next().unwrap_or("").trim();
        check.expected.of(line, &check.words)?;
        said.push(line.to_owned());
    }
    Ok(said)
}

impl Expected {
    fn of(&self, line: &str, words: &[String]) -> Outcome {
        let (fits, expected) = match self {
            Expected::Beginning(text) => (line.starts_with(text.as_str()), text),
            Expected::Line(text) => (line == text, text),
        };
        if fits {
            return Ok(());
        }
        Err(Failure::new(format!("`{}` says '{line}' instead of '{expected}'", words.join(" "))))
    }
}

/// The hash of the model's logits on this machine.
///
/// # Errors
/// kinglet cannot be built, or does not take the model.
pub fn hash_here(model: &Path) -> Outcome<String> {
    sh::run(sh::cargo().args(["build", "--release", "--package", "kinglet"]))?;
    let binary = sh::target_dir()?.join("release").join("kinglet");
    let mut command = Command::new(&binary);
    command.args(LOGITS).arg(model).stdin(Stdio::null()).stderr(Stdio::inherit());
    let output = command.output().context(format_args!("cannot start {}", binary.display()))?;
    sh::check(output.status, "kinglet logits")?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_has_a_second_check() {
        let mut layout = Layout::new("/opt/kinglet", "/etc/systemd/system");
        assert_eq!(checks(&layout, &[], "kinglet 1", None).len(), 1);
        layout.model = Some("/opt/kinglet/models/m.gguf".into());
        let all = checks(&layout, &["qemu".into()], "kinglet 1", Some("ab"));
        assert_eq!(all[0].words, ["qemu", "/opt/kinglet/bin/kinglet", "--version"]);
        assert_eq!(all[1].words.last().unwrap(), "/opt/kinglet/models/m.gguf");
    }

    #[test]
    fn what_is_said_must_be_right() {
        let words = ["kinglet".to_owned()];
        let version = Expected::Beginning("kinglet 1.0".into());
        assert!(version.of("kinglet 1.0 (aarch64)", &words).is_ok());
        assert!(version.of("kinglet 0.9", &words).unwrap_err().message.contains("kinglet 0.9"));
        let hash = Expected::Line("abc".into());
        assert!(hash.of("abc", &words).is_ok());
        assert!(hash.of("abcd", &words).is_err() && hash.of("", &words).is_err());
    }
}
