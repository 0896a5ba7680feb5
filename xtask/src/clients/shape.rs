//! Whether a reply is as it is shown: `...` in a text stands for anything, a number for any number, and what
//! is not shown may be there. Must not know where either comes from.

use crate::sh::{Context, Failure, Outcome};
use serde_json::Value;

/// What stands for anything.
const ANY: &str = "...";

/// Checks a body against what is shown of it: JSON, or lines that must come in this order.
///
/// # Errors
/// The first difference.
pub fn check(shown: &str, body: &str) -> Outcome {
    if shown.starts_with('{') {
        let shown: Value = serde_json::from_str(shown).context("what is shown is no JSON")?;
        let body: Value = serde_json::from_str(body).context("the reply is no JSON")?;
        return value("", &shown, &body);
    }
    let mut lines = body.lines();
    for wanted in shown.lines().map(str::trim).filter(|line| *line != ANY && !line.is_empty()) {
        if !lines.any(|line| is_line(wanted, line)) {
            return Err(Failure::new(format!("there is no line, or none at its place: {wanted}")));
        }
    }
    Ok(())
}

/// Whether a line of a stream, or of any text, is as shown.
fn is_line(wanted: &str, line: &str) -> bool {
    let json = |line: &str| serde_json::from_str(line.strip_prefix("data: ")?).ok();
    match (json(wanted), json(line)) {
        (Some(wanted), Some(line)) => value("", &wanted, &line).is_ok(),
        _ => is_text(wanted, line),
    }
}

fn value(at: &str, shown: &Value, got: &Value) -> Outcome {
    let differ = || Err(Failure::new(format!("{at}: shown as {shown}, but it is {got}")));
    match (shown, got) {
        (Value::Object(shown), Value::Object(got)) => {
            for (key, shown) in shown {
                value(&format!("{at}.{key}"), shown, got.get(key).unwrap_or(&Value::Null))?;
            }
            Ok(())
        }
        // Nothing is left out of a list.
        (Value::Array(shown), Value::Array(got)) if shown.len() == got.len() => {
            (0..).zip(shown.iter().zip(got)).try_for_each(|(i, (s, g))| value(&format!("{at}[{i}]"), s, g))
        }
        (Value::String(shown), Value::String(got)) if is_text(shown, got) => Ok(()),
        (Value::Number(_), Value::Number(_)) => Ok(()),
        _ if shown == got => Ok(()),
        _ => differ(),
    }
}

/// Whether a text is as shown; `...` is at least one character of it.
fn is_text(shown: &str, text: &str) -> bool {
    let Some((start, rest)) = shown.split_once(ANY) else { return shown == text };
    let Some(text) = text.strip_prefix(start) else { return false };
    text.char_indices().skip(1).any(|(i, _)| is_text(rest, &text[i..])) || !text.is_empty() && rest.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_shown_may_be_there() {
        for (shown, body) in [
            (r#"{}"#, r#"{"a": 1}"#),
            (r#"{"a": 5, "b": [{"c": "x"}]}"#, r#"{"a": 7, "b": [{"c": "x", "d": 1}], "e": 2}"#),
            (r#"{"a": "...", "b": null}"#, r#"{"a": "y", "b": null}"#),
            (r#"{"a": "...ari...", "b": "P..."}"#, r#"{"a": "Paris", "b": "Paris"}"#),
            (r#"{"a": "...s"}"#, r#"{"a": "Paris"}"#),
            ("", "anything"),
            ("data: {\"a\": 1}\n...\ndata: [DONE]", "event: x\ndata: {\"a\":3,\"b\":4}\n\ndata: [DONE]\n"),
            ("one 1\ntwo 2", "zero 0\none 1\ntwo 2\n"),
        ] {
            check(shown, body).unwrap_or_else(|failure| panic!("{shown}: {failure}"));
        }
    }

    #[test]
    fn differences_are_found_and_named() {
        for (shown, body, part) in [
            (r#"{"a": {"b": "x"}}"#, r#"{"a": {"b": "y"}}"#, ".a.b"),
            (r#"{"a": 1}"#, r#"{"a": "1"}"#, ".a"),
            (r#"{"a": true}"#, r#"{"a": false}"#, ".a"),
            (r#"{"a": [1]}"#, r#"{"a": [1, 2]}"#, ".a"),
            (r#"{"a": []}"#, r#"{"a": [1]}"#, ".a"),
            (r#"{"a": "..."}"#, r#"{"a": ""}"#, ".a"),
            (r#"{"a": "..."}"#, r#"{}"#, ".a"),
            (r#"{"a": "P...x"}"#, r#"{"a": "Paris"}"#, ".a"),
            (r#"{"a": 1}"#, "no JSON", "no JSON"),
            ("two 2\none 1", "one 1\ntwo 2", "one 1"),
            ("data: {\"a\": \"x\"}", "data: {\"a\": \"y\"}", "data"),
        ] {
            let failure = check(shown, body).unwrap_err();
            assert!(failure.message.contains(part), "{failure}");
        }
    }
}
