//! Bodies of requests from bytes to JSON. Must not know what they ask for.

use super::error::ApiError;
use serde_json::Value;

/// Most values in a body. Each takes some hundred bytes once it is read, however short it was: a list of ones
/// that is as long as a body may be would take a gigabyte.
const MOST_VALUES: usize = 1 << 19;

/// The JSON of a body.
///
/// # Errors
/// It is none; it has too many values.
pub fn parse(body: &[u8]) -> Result<Value, ApiError> {
    if most_values(body) > MOST_VALUES {
        return Err(ApiError::new(413, "the body has more than 524288 values"));
    }
    serde_json::from_slice(body)
        .map_err(|e| ApiError::new(400, ["the body is no JSON: ", &e.to_string()].concat()))
}

/// How many values there are at most: each but the first comes behind a comma, a colon or a bracket.
fn most_values(body: &[u8]) -> usize {
    let (mut count, mut in_text, mut is_escaped) = (1, false, false);
    for &byte in body {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = in_text,
            b'"' => in_text = !in_text,
            b',' | b':' | b'[' | b'{' if !in_text => count += 1,
            _ => {}
        }
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_bounded_and_texts_are_not() {
        let list = |n: usize| format!("[{}1]", "1,".repeat(n));
        assert!(parse(list(MOST_VALUES - 2).as_bytes()).is_ok());
        assert_eq!(parse(list(MOST_VALUES).as_bytes()).unwrap_err().status, 413);
        assert_eq!(parse("[[],".repeat(MOST_VALUES).as_bytes()).unwrap_err().status, 413);
        let text =
            format!(r#"{{"a": "{}", "b": "\"{}\\"}}"#, ",".repeat(MOST_VALUES), "[{".repeat(MOST_VALUES));
        assert!(parse(text.as_bytes()).is_ok());
        assert_eq!(most_values(br#"{"a": ["\\", 1, "\"[,"], "b": {}}"#), 9);
    }

    #[test]
    fn what_is_no_json_is_refused() {
        for bad in ["", "{", "[1,]", "\"\\ud800\"", "\"\u{0}\"", "01", "NaN", "{\"a\":1}x"] {
            assert_eq!(parse(bad.as_bytes()).unwrap_err().status, 400, "{bad}");
        }
        assert_eq!(parse(b"\"\xFF\"").unwrap_err().status, 400);
        assert_eq!(parse("[".repeat(100_000).as_bytes()).unwrap_err().status, 400);
    }
}
