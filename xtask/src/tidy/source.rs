//! Rules for Rust source: module comments, length, `unsafe`, marks of unfinished work.

use super::Finding;
use super::lex::{Kind, code_of, only, words};
use super::lists::{COLUMNS_MOST, LINES_MOST, LINES_WARN, MACROS_FORBIDDEN, MARKS_FORBIDDEN, UNSAFE_ALLOWED};

/// Checks one file.
pub fn check(path: &str, source: &str, found: &mut Vec<Finding>) {
    module_comment(path, source, found);
    length(path, source, found);
    columns(path, source, found);
    let code = code_of(source);
    if !UNSAFE_ALLOWED.contains(&path) {
        unsafe_code(path, &code, found);
    }
    unfinished(path, &code, &only(source, |kind| kind != Kind::Literal), found);
}

/// A file on the list that needs no `unsafe` would let it come back unseen.
pub fn check_allow_list<'a>(text: &dyn Fn(&str) -> Option<&'a str>, found: &mut Vec<Finding>) {
    for path in UNSAFE_ALLOWED {
        let has_unsafe = text(path).is_some_and(|source| code_of(source).lines().any(names_unsafe));
        if !has_unsafe {
            found.push(Finding::new(path, 1, "has no `unsafe`: take it off tidy's allow-list"));
        }
    }
}

fn module_comment(path: &str, source: &str, found: &mut Vec<Finding>) {
    let first = source.lines().next().unwrap_or("");
    if first.strip_prefix("//!").is_none_or(|text| text.trim().is_empty()) {
        found.push(Finding::new(path, 1, "the first line must be `//!` and say what the module is for"));
    }
}

fn length(path: &str, source: &str, found: &mut Vec<Finding>) {
    let lines = source.lines().count();
    if lines > LINES_MOST {
        found.push(Finding::new(path, lines, format!("{lines} lines; {LINES_MOST} at most")));
    } else if lines > LINES_WARN {
        found.push(Finding::warning(path, lines, format!("{lines} lines; split it above {LINES_WARN}")));
    }
}

fn columns(path: &str, source: &str, found: &mut Vec<Finding>) {
    for (i, line) in source.lines().enumerate() {
        let width = line.chars().count();
        // An address cannot be broken.
        let address = line.trim_start().starts_with("//") && line.contains("://");
        if width > COLUMNS_MOST && !address {
            found.push(Finding::new(path, i + 1, format!("{width} columns; {COLUMNS_MOST} at most")));
        }
    }
}

fn names_unsafe(line: &str) -> bool {
    words(line).any(|(word, _)| word == "unsafe")
}

fn unsafe_code(path: &str, code: &str, found: &mut Vec<Finding>) {
    let mut lint_level = "";
    for (i, line) in code.lines().enumerate() {
        if names_unsafe(line) {
            found.push(Finding::new(path, i + 1, "`unsafe` outside tidy's allow-list"));
        }
        for (word, _) in words(line) {
            match word {
                "allow" | "expect" | "warn" | "deny" | "forbid" => lint_level = word,
                "unsafe_code" if matches!(lint_level, "allow" | "expect" | "warn") => {
                    let message = format!("`{lint_level}(unsafe_code)` outside tidy's allow-list");
                    found.push(Finding::new(path, i + 1, message));
                }
                _ => {}
            }
        }
    }
}

fn unfinished(path: &str, code: &str, code_and_comments: &str, found: &mut Vec<Finding>) {
    for (i, line) in code.lines().enumerate() {
        for (word, end) in words(line) {
            if MACROS_FORBIDDEN.contains(&word) && line[end..].trim_start().starts_with('!') {
                found.push(Finding::new(path, i + 1, format!("`{word}!` left in")));
            }
        }
    }
    for (i, line) in code_and_comments.lines().enumerate() {
        for (word, _) in words(line) {
            if MARKS_FORBIDDEN.contains(&word) {
                found.push(Finding::new(path, i + 1, format!("{word} left in: do it or write an issue")));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The findings in a file with a proper first line, as `line: message`.
    fn found(body: &str) -> Vec<String> {
        found_at("core/src/x.rs", &format!("//! Text.\n{body}"))
    }

    fn found_at(path: &str, source: &str) -> Vec<String> {
        let mut found = Vec::new();
        check(path, source, &mut found);
        found.iter().map(|f| format!("{}: {}", f.line, f.message)).collect()
    }

    fn assert_one(body: &str, line: usize, word: &str) {
        let all = found(body);
        assert!(
            all.len() == 1 && all[0].starts_with(&format!("{line}: ")) && all[0].contains(word),
            "{all:?}"
        );
    }

    #[test]
    fn first_line() {
        for bad in ["", "//!\n", "// x\n", "fn a() {}\n", "\n//! late\n", "#![no_std]\n//! late\n"] {
            assert_eq!(found_at("a.rs", bad).len(), 1, "{bad:?}");
        }
        assert_eq!(found("fn a() {}\n"), [""; 0]);
    }

    #[test]
    fn file_length() {
        assert_eq!(found(&"\n".repeat(LINES_WARN - 1)).len(), 0);
        assert_one(&"\n".repeat(LINES_WARN), LINES_WARN + 1, "split");
        assert_one(&"\n".repeat(LINES_MOST), LINES_MOST + 1, "at most");
        let mut list = Vec::new();
        length("a.rs", &"\n".repeat(LINES_MOST), &mut list);
        assert!(list[0].warning);
        list.clear();
        length("a.rs", &"\n".repeat(LINES_MOST + 1), &mut list);
        assert!(!list[0].warning);
    }

    #[test]
    fn line_length() {
        let line = |n: usize| format!("// {}", "é".repeat(n - 3));
        assert_eq!(found(&line(COLUMNS_MOST)).len(), 0);
        assert_one(&line(COLUMNS_MOST + 1), 2, "columns");
        assert_eq!(found(&format!("// https://{}", "x".repeat(200))).len(), 0);
        assert_one(&format!("let s = \"https://{}\";", "x".repeat(200)), 2, "columns");
    }

    #[test]
    fn unsafe_only_where_listed() {
        assert_one("unsafe { x() }", 2, "unsafe");
        assert_one("\nunsafe impl A for B {}", 3, "unsafe");
        assert_one("#![allow(unsafe_code)]", 2, "allow(unsafe_code)");
        assert_one("#[expect(\n    unsafe_code,\n    reason = \"r\"\n)]", 3, "expect(unsafe_code)");
        assert_eq!(found("#![deny(unsafe_code)]\n#![forbid(unsafe_code)]"), [""; 0]);
        assert_eq!(found("// unsafe\nlet s = \"unsafe { }\"; // allow(unsafe_code)"), [""; 0]);
        assert_eq!(found("let unsafe_thing = unsafety;"), [""; 0]);
        assert_eq!(found_at(UNSAFE_ALLOWED[0], "//! T.\n#![allow(unsafe_code)]\nunsafe {}"), [""; 0]);
    }

    #[test]
    fn the_list_holds_only_files_that_need_it() {
        let check = |source: Option<&'static str>| {
            let mut found = Vec::new();
            check_allow_list(&|_| source, &mut found);
            found.len()
        };
        assert_eq!(check(Some("unsafe fn a() {}")), 0);
        assert_eq!(check(Some("// unsafe")), UNSAFE_ALLOWED.len());
        assert_eq!(check(None), UNSAFE_ALLOWED.len());
    }

    #[test]
    fn unfinished_work() {
        for name in MACROS_FORBIDDEN {
            assert_one(&format!("{name}!()"), 2, name);
            assert_one(&format!("std::{name} !()"), 2, name);
            assert_eq!(found(&format!("// {name}!()\nlet s = \"{name}!\"; let {name} = 1;")), [""; 0]);
        }
        for mark in MARKS_FORBIDDEN {
            assert_one(&format!("// {mark}: later"), 2, mark);
            assert_one(&format!("/* a\n {mark} */"), 3, mark);
            assert_eq!(found(&format!("let s = \"{mark}\"; // {mark}S")), [""; 0]);
        }
    }
}
