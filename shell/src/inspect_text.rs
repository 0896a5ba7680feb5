//! The report of `inspect` as text. Must not know where its numbers come from.

use crate::cmd_inspect::SHOWN_CHARS;
use crate::decimal::{fixed, parse_f64};
use crate::memory::megabytes;
use core::fmt::Write as _;
use serde_json::Value;

/// The whole report.
pub fn render(report: &Value) -> String {
    let mut out = String::new();
    head(&mut out, report);
    metadata(&mut out, &report["metadata"]);
    tensors(&mut out, report);
    memory(&mut out, &report["memory"]);
    out
}

fn head(out: &mut String, report: &Value) {
    let line = |out: &mut String, name: &str, text: &str| {
        let _ = writeln!(out, "{name:<12}{text}");
    };
    line(out, "file", &shown(&report["file"]));
    line(out, "name", &shown(&report["name"]));
    let parameters = fixed(number(&report["parameters"]) / 1e6, 1);
    line(out, "size", &format!("{}, {parameters} M parameters", bytes(&report["bytes"])));
    match report["runs_not_because"].as_str() {
        None => line(out, "runs", "yes"),
        Some(reason) => line(out, "runs", &format!("no: {reason}")),
    }
    let tokenizer = &report["tokenizer"];
    line(
        out,
        "tokenizer",
        &match tokenizer["missing"].as_str() {
            Some(reason) => format!("none: {reason}"),
            None => format!("{} tokens, end tokens {}", tokenizer["tokens"], tokenizer["ends"]),
        },
    );
    let template = &report["template"];
    let family = template["family"].as_str().unwrap_or("none");
    let reason = template["guessed_because"].as_str().or(template["missing"].as_str());
    line(out, "template", &reason.map_or(family.to_string(), |reason| format!("{family} ({reason})")));
    if let Some(dimensions) = report["dimensions"].as_object() {
        out.push_str("\nDimensions\n");
        for (name, value) in dimensions {
            let _ = writeln!(out, "  {name:<18}{}", shown(value));
        }
    }
}

fn metadata(out: &mut String, metadata: &Value) {
    let Some(entries) = metadata.as_object() else { return };
    let _ = writeln!(out, "\nMetadata ({})", entries.len());
    for (key, value) in entries {
        let _ = writeln!(out, "  {:<38} {}", printable(key), shown(value));
    }
}

fn tensors(out: &mut String, report: &Value) {
    let Some(tensors) = report["tensors"].as_array() else { return };
    let _ = writeln!(out, "\nTensors ({})", tensors.len());
    for tensor in tensors {
        let shape: Vec<String> =
            tensor["shape"].as_array().into_iter().flatten().map(Value::to_string).collect();
        let _ = writeln!(
            out,
            "  {:<34} {:<7} {:>16} {:>12} bytes",
            shown(&tensor["name"]),
            shown(&tensor["type"]),
            shape.join(" x "),
            tensor["bytes"].to_string(),
        );
    }
    out.push_str("\nTypes\n");
    for row in report["types"].as_array().into_iter().flatten() {
        let _ = writeln!(
            out,
            "  {:<7} {:>5} tensors {:>10} {:>7} bits per weight",
            shown(&row["type"]),
            row["tensors"].to_string(),
            bytes(&row["bytes"]),
            fixed(number(&row["bits_per_weight"]), 3),
        );
    }
}

fn memory(out: &mut String, rows: &Value) {
    let Some(rows) = rows.as_array() else { return };
    out.push_str("\nMemory\n");
    let heads = ["context", "kv type", "kv", "scratch", "index", "weights", "total"];
    let _ = writeln!(out, "{}", heads.map(|head| format!("{head:>10}")).concat());
    for row in rows {
        let _ = write!(out, "{:>10}{:>10}", shown(&row["ctx"]), shown(&row["kv_type"]));
        for part in ["kv", "scratch", "index", "weights", "total"] {
            let _ = write!(out, "{:>10}", bytes(&row[part]));
        }
        out.push('\n');
    }
}

/// A number of the report; its own `as_f64` would bring std's way of reading floats.
fn number(value: &Value) -> f64 {
    value.as_number().and_then(|number| parse_f64(number.as_str())).unwrap_or(0.0)
}

fn bytes(value: &Value) -> String {
    megabytes(value.as_u64().unwrap_or(0) as usize)
}

/// Text with its control characters escaped: a file is not to be trusted with a terminal.
fn printable(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '\'' | '"' | '\\' => out.push(c),
            _ => out.extend(c.escape_debug()),
        }
    }
    out
}

/// A value on one line, cut if it is long.
fn shown(value: &Value) -> String {
    let whole = match value {
        Value::String(text) => printable(text),
        Value::Object(map) if map.contains_key("first") => {
            let first = map["first"].to_string();
            format!("{} ... ({} in all)", first.trim_end_matches(']'), map["length"])
        }
        other => other.to_string(),
    };
    match whole.char_indices().nth(SHOWN_CHARS) {
        None => whole,
        Some((end, _)) => format!("{}... ({} bytes)", &whole[..end], whole.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn values_stay_on_one_short_line() {
        assert_eq!(shown(&json!("a\n\u{1b}[31m")), "a\\n\\u{1b}[31m");
        assert_eq!(shown(&json!({"length": 9, "first": [1, 2]})), "[1,2 ... (9 in all)");
        assert!(shown(&json!("x".repeat(500))).ends_with("... (500 bytes)"));
    }
}
