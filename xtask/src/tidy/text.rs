//! Rules for all text files: no machine's paths, no registry's host, clean Markdown,
//! and the size of the fixtures.

use super::Finding;
use super::lists::{FIXTURE_BYTES_MOST, HOSTS, PATHS};

const FIXTURES: &str = "tests/fixtures/";
/// Text fixtures above this size are data (vocabularies, corpora): what they contain was
/// not written by us and may look like anything.
const FIXTURE_TEXT_BYTES: usize = 64 << 10;

/// Checks one file.
pub fn check(path: &str, text: &str, found: &mut Vec<Finding>) {
    let is_data = path.starts_with(FIXTURES) && text.len() > FIXTURE_TEXT_BYTES;
    // Cargo writes the registry's name into its lock file.
    let is_lock = path.ends_with(".lock");
    for (i, line) in text.lines().enumerate() {
        if path.ends_with(".md") && line.ends_with([' ', '\t']) {
            found.push(Finding::new(path, i + 1, "white space at the end of the line"));
        }
        if is_data || is_lock {
            continue;
        }
        if let Some(host) = HOSTS.iter().find(|host| line.contains(**host)) {
            found.push(Finding::new(path, i + 1, format!("names a package registry's host ({host})")));
        }
        if let Some(start) = PATHS.iter().find(|start| has_path(line, start)) {
            found.push(Finding::new(path, i + 1, format!("a path of one machine ({start}...)")));
        }
    }
}

/// Whether `start` stands at the beginning of a path rather than inside one.
fn has_path(line: &str, start: &str) -> bool {
    let inside = |c: char| c.is_alphanumeric() || "._-/}*~".contains(c);
    line.match_indices(start).any(|(i, _)| !line[..i].chars().next_back().is_some_and(inside))
}

/// Checks the sum of the fixtures' sizes.
pub fn check_fixtures(sizes: &[(&str, u64)], found: &mut Vec<Finding>) {
    let sum: u64 = sizes.iter().filter(|(path, _)| path.starts_with(FIXTURES)).map(|(_, len)| len).sum();
    if sum > FIXTURE_BYTES_MOST {
        let message = format!("{} MB of fixtures; {} MB at most", sum >> 20, FIXTURE_BYTES_MOST >> 20);
        found.push(Finding::new(FIXTURES.trim_end_matches('/'), 1, message));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<(usize, String)> {
        let mut found = Vec::new();
        check(path, text, &mut found);
        found.into_iter().map(|f| (f.line, f.message)).collect()
    }

    #[test]
    fn white_space_in_markdown() {
        assert_eq!(found("a.md", "x\ny \nz\t\n").len(), 2);
        assert_eq!(found("a.md", "x\n\n  y\n"), []);
        assert_eq!(found("a.txt", "x \n"), []);
    }

    #[test]
    fn every_host_is_found() {
        for host in HOSTS {
            let all = found("a.toml", &format!("\nurl = \"https://{host}/x\""));
            assert!(all.len() == 1 && all[0].0 == 2 && all[0].1.contains(host), "{all:?}");
            assert_eq!(found("Cargo.lock", host), []);
        }
        assert_eq!(found("a.md", "https://github.com/rust-lang/rust"), []);
    }

    #[test]
    fn every_path_is_found() {
        for start in PATHS {
            for line in [format!("{start}x"), format!("cd {start}x"), format!("(\"{start}\")")] {
                let all = found(".ci/run", &line);
                assert!(all.len() == 1 && all[0].0 == 1, "{line}: {all:?}");
            }
            for line in [format!("https://a.b{start}x"), format!("core{start}x"), format!("${{DIR}}{start}x")]
            {
                assert_eq!(found("a.md", &line), [], "{line}");
            }
        }
    }

    #[test]
    fn large_fixtures_are_data() {
        let path = format!("{} ", PATHS[0]).repeat(FIXTURE_TEXT_BYTES / 4);
        assert_eq!(found("tests/fixtures/vocab.json", &path), []);
        assert_eq!(found("tests/fixtures/README.txt", PATHS[0]).len(), 1);
        assert_eq!(found("tests/data/vocab.json", &path).len(), 1);
    }

    #[test]
    fn fixtures_have_a_limit() {
        let check = |sizes: &[(&str, u64)]| {
            let mut found = Vec::new();
            check_fixtures(sizes, &mut found);
            found.len()
        };
        let half = FIXTURE_BYTES_MOST / 2;
        assert_eq!(check(&[("tests/fixtures/a", half), ("tests/fixtures/b", half), ("core/c", 9)]), 0);
        assert_eq!(check(&[("tests/fixtures/a", half), ("tests/fixtures/b/c", half + 1)]), 1);
    }
}
