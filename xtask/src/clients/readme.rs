//! The README's examples of the server, as they stand there. Must not know how they are run.
//!
//! An example is a command in a block of shell that begins with `curl`, and the comment right behind it: the
//! status, then a JSON body or lines. One without that comment is an error, so that none goes untested.

use crate::sh::{Failure, Outcome};

/// What the examples call the server.
pub const ADDRESS: &str = "127.0.0.1:8080";
/// How the server is started in them; flags may follow.
const START: &str = "kinglet serve -m model.gguf";

/// A command and what it gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Example {
    /// Line of the README, from 1.
    pub line: usize,
    /// The command, as it stands there.
    pub command: String,
    /// HTTP's number.
    pub status: u16,
    /// What is shown of the reply.
    pub shown: String,
}

/// The flags behind the model of the first command that starts a server.
///
/// # Errors
/// There is none.
pub fn start_flags(text: &str) -> Outcome<Vec<String>> {
    let line = shell_lines(text).find_map(|(_, line)| line.strip_prefix(START));
    let rest = line.ok_or(Failure::new(format!("README.md has no `{START}`")))?;
    let rest = rest.split('#').next().unwrap_or("");
    Ok(rest.split_whitespace().map(String::from).collect())
}

/// All examples.
///
/// # Errors
/// One without a status behind it, or that asks another server.
pub fn examples(text: &str) -> Outcome<Vec<Example>> {
    let mut lines = shell_lines(text).peekable();
    let mut found = Vec::new();
    while let Some((line, first)) = lines.next() {
        if !first.starts_with("curl ") {
            continue;
        }
        let mut command = String::from(first);
        while let Some((_, more)) = lines.next_if(|(_, more)| !more.is_empty() && !more.starts_with("# ")) {
            command.push('\n');
            command.push_str(more);
        }
        let mut shown = String::new();
        while let Some((_, comment)) = lines.next_if(|(_, comment)| comment.starts_with("# ")) {
            shown.push_str(&comment[2..]);
            shown.push('\n');
        }
        let wrong = |what: &str| Failure::new(format!("README.md:{line}: {what}"));
        let (status, shown) = shown.split_once(' ').unwrap_or((shown.trim(), ""));
        let status = status.parse().map_err(|_| wrong("no comment `# STATUS REPLY` behind this example"))?;
        if !command.contains(ADDRESS) {
            return Err(wrong("this example does not ask the server of the others"));
        }
        found.push(Example { line, command, status, shown: String::from(shown.trim()) });
    }
    Ok(found)
}

/// The lines of all blocks of shell, with their numbers; an empty one between blocks.
fn shell_lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut inside = false;
    (1..).zip(text.lines()).filter_map(move |(number, line)| {
        if line.starts_with("```") {
            inside = !inside && line == "```sh";
            return Some((number, ""));
        }
        inside.then_some((number, line))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
# Title
curl 127.0.0.1:8080/not-in-a-block
```sh
kinglet serve -m model.gguf --parallel 2   # starts it
# A comment first.
curl http://127.0.0.1:8080/a -d '{
  \"b\": 1}'
# 200 {\"c\":
#  2}
curl http://127.0.0.1:8080/d
# 204
```
```text
curl 127.0.0.1:8080/other-language
```
";

    #[test]
    fn examples_are_found_with_their_replies() {
        let found = examples(TEXT).unwrap();
        let first = Example {
            line: 6,
            command: String::from("curl http://127.0.0.1:8080/a -d '{\n  \"b\": 1}'"),
            status: 200,
            shown: String::from("{\"c\":\n 2}"),
        };
        assert_eq!(found[0], first);
        assert_eq!((found.len(), found[1].status, found[1].shown.as_str()), (2, 204, ""));
        assert_eq!(start_flags(TEXT).unwrap(), ["--parallel", "2"]);
    }

    #[test]
    fn an_example_that_could_not_be_checked_is_an_error() {
        for text in ["```sh\ncurl 127.0.0.1:8080/a\n```", "```sh\ncurl localhost/a\n# 200 {}\n```"] {
            assert!(examples(text).is_err(), "{text}");
        }
        assert!(start_flags("kinglet serve -m model.gguf").is_err());
    }

    #[test]
    fn the_readme_shows_what_it_should() {
        let text = include_str!("../../../README.md");
        start_flags(text).unwrap();
        let found = examples(text).unwrap();
        for path in [
            "/health",
            "/v1/models",
            "/v1/chat/completions",
            "/v1/completions",
            "/v1/messages",
            "/v1/embeddings",
            "/admin/api/status",
            "/metrics",
        ] {
            assert!(found.iter().any(|example| example.command.contains(path)), "{path}");
        }
        for part in ["\"stream\": true", "\"tools\"", "json_schema"] {
            assert!(found.iter().any(|example| example.command.contains(part)), "{part}");
        }
    }
}
