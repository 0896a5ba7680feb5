//! `cargo xtask tidy`: the house rules, each finding as `file:line: message`.

mod lex;
mod lists;
mod manifest;
mod source;
mod text;

use crate::sh::{self, Context, Failure, Outcome};
use core::fmt;
use std::ffi::OsString;
use std::fs;
use std::path::Path;

pub use lex::code_of;

/// Something that breaks a rule, or (as a warning) comes close to it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    file: String,
    /// From 1.
    line: usize,
    message: String,
    warning: bool,
}

impl Finding {
    fn new(file: &str, line: usize, message: impl Into<String>) -> Self {
        Finding { file: file.to_owned(), line, message: message.into(), warning: false }
    }

    fn warning(file: &str, line: usize, message: impl Into<String>) -> Self {
        Finding { warning: true, ..Finding::new(file, line, message) }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.warning { "warning: " } else { "" };
        write!(f, "{}:{}: {kind}{}", self.file, self.line, self.message)
    }
}

/// A file of the project; the path is relative to the root, with `/`.
struct Tracked {
    path: String,
    bytes: Vec<u8>,
}

impl Tracked {
    /// The text, if the file is text.
    fn text(&self) -> Option<&str> {
        core::str::from_utf8(&self.bytes).ok().filter(|t| !t.contains('\0'))
    }
}

/// The task.
pub fn main(words: Vec<OsString>) -> Outcome {
    use lexopt::Arg::Long;
    let mut args = lexopt::Parser::from_args(words);
    if let Some(arg) = args.next()? {
        let Long("help") = arg else {
            return Err(arg.unexpected().into());
        };
        println!("Usage: cargo xtask tidy\n\nChecks the house rules; see xtask/src/tidy/.");
        return Ok(());
    }
    check()
}

/// Checks all rules and prints the findings.
///
/// # Errors
/// Any finding but a warning.
pub fn check() -> Outcome {
    let files = project_files(&sh::root())?;
    let mut findings = findings(&files);
    findings.sort();
    for finding in &findings {
        println!("{finding}");
    }
    let errors = findings.iter().filter(|f| !f.warning).count();
    if errors > 0 {
        return Err(Failure::new(format!("tidy: {errors} findings in {} files", files.len())));
    }
    eprintln!("tidy: {} files are in order", files.len());
    Ok(())
}

fn findings(files: &[Tracked]) -> Vec<Finding> {
    let mut found = Vec::new();
    for file in files {
        let Some(text) = file.text() else { continue };
        if file.path.ends_with(".rs") {
            source::check(&file.path, text, &mut found);
        }
        text::check(&file.path, text, &mut found);
    }
    let sizes: Vec<(&str, u64)> = files.iter().map(|f| (f.path.as_str(), f.bytes.len() as u64)).collect();
    text::check_fixtures(&sizes, &mut found);
    source::check_allow_list(&|path| file_text(files, path), &mut found);
    manifest::check(&|path| file_text(files, path), &mut found);
    found
}

fn file_text<'a>(files: &'a [Tracked], path: &str) -> Option<&'a str> {
    files.iter().find(|f| f.path == path)?.text()
}

/// All files git tracks or would track; outside a git checkout, all but build output.
fn project_files(root: &Path) -> Outcome<Vec<Tracked>> {
    let listed = sh::output("git", &["ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
    let mut paths: Vec<String> = match listed {
        Some(list) => list.split('\0').filter(|p| !p.is_empty()).map(str::to_owned).collect(),
        None => walk(root)?,
    };
    paths.sort();
    // A conflict lists a path once per side.
    paths.dedup();
    let mut files = Vec::new();
    for path in paths {
        let full = root.join(&path);
        // Deleted but not yet committed.
        if !full.is_file() {
            continue;
        }
        let bytes = fs::read(&full).context(format_args!("cannot read {path}"))?;
        files.push(Tracked { path, bytes });
    }
    if files.is_empty() {
        return Err(Failure::new("tidy: no files found"));
    }
    Ok(files)
}

fn walk(root: &Path) -> Outcome<Vec<String>> {
    let mut folders = vec![String::new()];
    let mut paths = Vec::new();
    while let Some(folder) = folders.pop() {
        let what = format!("cannot list {folder}");
        for entry in fs::read_dir(root.join(&folder)).context(&what)? {
            let entry = entry.context(&what)?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = if folder.is_empty() { name.clone() } else { format!("{folder}/{name}") };
            match entry.file_type().context(&what)?.is_dir() {
                true if name == "target" || name == ".git" => {}
                true => folders.push(path),
                false => paths.push(path),
            }
        }
    }
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_read_like_compiler_messages() {
        assert_eq!(Finding::new("a/b.rs", 3, "bad").to_string(), "a/b.rs:3: bad");
        assert_eq!(Finding::warning("a", 1, "hm").to_string(), "a:1: warning: hm");
    }

    #[test]
    fn walking_finds_what_git_would() {
        let paths = walk(&sh::root()).unwrap();
        assert!(paths.contains(&"xtask/src/tidy/mod.rs".to_owned()));
        assert!(!paths.iter().any(|p| p.starts_with("target/")));
    }

    /// All rules together over a small project that breaks some.
    #[test]
    fn rules_are_wired_up() {
        let file = |path: &str, text: &str| Tracked { path: path.into(), bytes: text.into() };
        let files = [
            file("core/src/a.rs", "fn a() {}\n"),
            file("README.md", "x \n"),
            file("Cargo.toml", "members = [\"core\"]\n"),
            Tracked { path: "tests/fixtures/b".into(), bytes: vec![0; 26 << 20] },
        ];
        let found: Vec<String> = findings(&files).iter().map(Finding::to_string).collect();
        for (file, word) in [
            ("core/src/a.rs:1", "//!"),
            ("README.md:1", "white space"),
            ("tests/fixtures:1", "MB"),
            ("core/Cargo.toml:1", "missing"),
            ("CHANGELOG.md:1", "missing"),
            ("core/src/cast.rs:1", "allow-list"),
        ] {
            assert!(
                found.iter().any(|f| f.starts_with(file) && f.contains(word)),
                "{file} {word}: {found:#?}"
            );
        }
    }
}
