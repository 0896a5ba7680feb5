//! Flags from a file and from the environment, for commands that run for months. Must not know the flags.
//!
//! The file has lines `flag = value`, the flag without its dashes; `flag` or `flag = true` for one that takes
//! no value, `flag = false` where it is not meant. Empty lines and those that begin with `#` are passed over.
//! The environment has `KINGLET_PORT` for `--port`, and so on.

use crate::failure::Failure;
use crate::ids::read_text;
use crate::words::{Help, Words, flags};
use std::ffi::OsString;
use std::path::Path;

/// Takes the flags in `words`.
pub type Accept<'a> = &'a mut dyn FnMut(&mut Words) -> Result<(), Failure>;

/// Takes the flags of a file.
///
/// # Errors
/// It cannot be read; a line is wrong, by its number.
pub fn file(path: &Path, words: &Words, accept: Accept<'_>) -> Result<(), Failure> {
    let text = read_text(path)?;
    for (i, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (name, value) = match line.split_once('=') {
            Some((name, value)) => (name.trim(), value.trim()),
            None => (line, "true"),
        };
        let taken = match word(name, OsString::from(value)) {
            Some(word) => accept(&mut words.instead(vec![word])),
            None => Ok(()),
        };
        taken.map_err(|failure| match failure {
            Failure::Usage(fault) => Failure::file(path, format_args!("line {i}: {fault}")),
            other => other,
        })?;
    }
    Ok(())
}

/// Takes the flags that the environment has, of those that the help text names.
///
/// # Errors
/// A value is wrong, by its variable.
pub fn environment(help: Help, words: &Words, accept: Accept<'_>) -> Result<(), Failure> {
    for flag in flags(help) {
        let name = variable(flag);
        let Some(value) = std::env::var_os(&name) else { continue };
        let Some(word) = word(flag.trim_start_matches('-'), value) else { continue };
        accept(&mut words.instead(vec![word])).map_err(|failure| match failure {
            Failure::Usage(fault) => Failure::Usage([name.as_str(), ": ", &fault].concat()),
            other => other,
        })?;
    }
    Ok(())
}

/// The variable for a flag.
pub fn variable(flag: &str) -> String {
    ["KINGLET", &flag[1..]].concat().replace('-', "_").to_ascii_uppercase()
}

/// The word of a command line; None for a flag that is not meant.
fn word(name: &str, value: OsString) -> Option<OsString> {
    let mut word = OsString::from("--");
    word.push(name);
    if value == "false" {
        return None;
    }
    if value != "true" {
        word.push("=");
        word.push(value);
    }
    Some(word)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words::Word;

    #[test]
    fn lines_are_flags() {
        let path = std::env::temp_dir().join(format!("kinglet-config-{}", std::process::id()));
        std::fs::write(
            &path,
            "# a comment\n\nport = 81\n  quiet\nforce = true\nsync=false\nalias = a b = c\n",
        )
        .unwrap();
        let words = Words::new(lexopt::Parser::from_args([""; 0]), "serve", &["--port --quiet"]);
        let mut seen = Vec::new();
        let mut accept = |words: &mut Words| {
            let Some(Word::Flag(flag)) = words.advance()? else { panic!() };
            let value = if flag == "--port" || flag == "--alias" { words.text()? } else { String::new() };
            seen.push((flag, value));
            words.advance().map(drop)
        };
        file(&path, &words, &mut accept).unwrap();
        let pair = |flag: &str, value: &str| (String::from(flag), String::from(value));
        let expected =
            [pair("--port", "81"), pair("--quiet", ""), pair("--force", ""), pair("--alias", "a b = c")];
        assert_eq!(seen, expected);
        std::fs::write(&path, "x\nport = y\n").unwrap();
        let mut accept = |words: &mut Words| {
            let Some(Word::Flag(flag)) = words.advance()? else { panic!() };
            if flag == "--port" { words.number(0..=9u16).map(drop) } else { Ok(()) }
        };
        let Err(Failure::Failed(line)) = file(&path, &words, &mut accept) else { panic!() };
        assert!(line.ends_with("line 2: serve --port: 'y' is no number from 0 to 9"), "{line}");
        std::fs::remove_file(&path).unwrap();
        assert_eq!(variable("--disk-kv-max-bytes"), "KINGLET_DISK_KV_MAX_BYTES");
    }
}
