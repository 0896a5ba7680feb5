//! `template`: renders chats line by line, for comparison with other implementations.
//! Must not know models or tokens.

use crate::chat_json;
use crate::lines::read_line;
use kinglet_core::chat::Family;
use kinglet_core::search::split_at_last;
use serde_json::Value;
use std::io::{self, BufRead, Write};

/// What [`run`] saw.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Lines read.
    pub lines: u64,
    /// Lines answered with an error.
    pub errors: u64,
}

/// Reads one chat a line (see [`chat_json::render`]) and answers each with one line: the
/// rendered text as a JSON string, or `{"error": ".."}`. A line that is no JSON, an empty one
/// included, is an error that names its number; the next line is read as if nothing was.
///
/// # Errors
/// Of `input` and `output` only.
pub fn run(family: Family, mut input: impl BufRead, mut output: impl Write) -> io::Result<Summary> {
    let mut summary = Summary::default();
    let mut line = Vec::new();
    loop {
        if !read_line(&mut input, &mut line)? {
            return Ok(summary);
        }
        summary.lines += 1;
        let answer = match answer(family, summary.lines, &line) {
            Ok(text) => chat_json::to_json(&Value::String(text)),
            Err(error) => {
                summary.errors += 1;
                format!("{{\"error\": {}}}", chat_json::to_json(&Value::String(error)))
            }
        };
        output.write_all(answer.as_bytes())?;
        output.write_all(b"\n")?;
        // Whoever is at the other end may wait for this answer before asking again.
        output.flush()?;
    }
}

fn answer(family: Family, number: u64, line: &[u8]) -> Result<String, String> {
    // With its line break, serde_json would count a second line.
    let line = line.trim_ascii_end();
    let request: Value = serde_json::from_slice(line).map_err(|error| {
        let text = error.to_string();
        let reason = split_at_last(&text, " at line ").map_or(text.as_str(), |(reason, _)| reason);
        format!("line {number}, column {}: malformed JSON: {reason}", error.column())
    })?;
    chat_json::render(family, &request).map_err(|error| error.to_string())
}
