//! Values as Python writes them: the templates' `tojson`, and what `{{ value }}` prints.
//! Must not know chats.

use crate::decimal;
use serde_json::{Number, Value};
use std::borrow::Cow;

/// What `{{ value }}` prints; none for lists and objects.
pub(crate) fn printed(value: &Value) -> Option<Cow<'_, str>> {
    match value {
        Value::Null => Some("None".into()),
        Value::Bool(true) => Some("True".into()),
        Value::Bool(false) => Some("False".into()),
        Value::Number(n) => Some(python_number(n, "inf").into()),
        Value::String(s) => Some(s.as_str().into()),
        Value::Array(_) | Value::Object(_) => None,
    }
}

/// `value` as the templates' `tojson` writes it, which is Python's
/// `json.dumps(value, ensure_ascii=False)`: `", "` and `": "`, keys in their order, no HTML
/// escapes, numbers as Python prints them.
pub fn to_json(value: &Value) -> String {
    let mut out = String::new();
    push_json(value, &mut out);
    out
}

/// Recursive: serde_json has limited the depth when it parsed.
fn push_json(value: &Value, out: &mut String) {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(b) => out.push_str(if *b { "true" } else { "false" }),
        Value::Number(n) => out.push_str(&python_number(n, "Infinity")),
        Value::String(s) => push_json_string(s, out),
        Value::Array(list) => {
            out.push('[');
            for (i, item) in list.iter().enumerate() {
                out.push_str(if i > 0 { ", " } else { "" });
                push_json(item, out);
            }
            out.push(']');
        }
        Value::Object(map) => {
            out.push('{');
            for (i, (key, item)) in map.iter().enumerate() {
                out.push_str(if i > 0 { ", " } else { "" });
                push_json_string(key, out);
                out.push_str(": ");
                push_json(item, out);
            }
            out.push('}');
        }
    }
}

/// A text in its quotes.
pub(crate) fn push_json_string(text: &str, out: &mut String) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\0'..' ' => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            _ => out.push(c),
        }
    }
    out.push('"');
}

/// A number as Python reads and prints it: integers of any size digit by digit, everything
/// with a point or an exponent as the `repr` of a float.
fn python_number(number: &Number, infinity: &str) -> String {
    let text = number.as_str();
    if !text.contains(['.', 'e', 'E']) {
        return if text == "-0" { "0".into() } else { text.into() };
    }
    let value = decimal::parse_f64(text).unwrap_or(f64::NAN);
    let sign = if value.is_sign_negative() { "-" } else { "" };
    if value.is_infinite() {
        return format!("{sign}{infinity}");
    }
    // Both languages print the shortest digits that read back as the same number; they differ
    // in where the point goes.
    let (digits, exponent) = decimal::shortest(value);
    let len = digits.len() as i32;
    let body = if !(-4..16).contains(&exponent) {
        let (first, rest) = digits.split_at(1);
        let point = if rest.is_empty() { "" } else { "." };
        let mark = if exponent < 0 { '-' } else { '+' };
        format!("{first}{point}{rest}e{mark}{:02}", exponent.abs())
    } else if exponent < 0 {
        format!("0.{}{digits}", "0".repeat((-exponent - 1) as usize))
    } else if exponent + 1 >= len {
        format!("{digits}{}.0", "0".repeat((exponent + 1 - len) as usize))
    } else {
        let (whole, fraction) = digits.split_at((exponent + 1) as usize);
        format!("{whole}.{fraction}")
    };
    format!("{sign}{body}")
}
