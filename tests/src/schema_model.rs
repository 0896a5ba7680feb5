//! JSON schemas from a seed, documents of them, and whether a document fits, in the plainest way.
//!
//! It must not know how texts are constrained.

use crate::random_model::Rng;
use serde_json::{Map, Value, json};

/// A number below `n`.
pub fn below(rng: &mut Rng, n: usize) -> usize {
    (rng.number() >> 4) as usize % n
}

fn pick<'t>(rng: &mut Rng, of: &[&'t str]) -> &'t str {
    of[below(rng, of.len())]
}

const NAMES: [&str; 12] =
    ["a", "ab", "abc", "b", "name", "é", "éa", "quo\"te", "back\\", "line\n", "", "unit"];
const TEXTS: [&str; 9] = ["", "a", "é", "🦀x", "two words", "q\"uote\\", "\u{1}\n\t", "a/b", "0123456789"];

/// A schema that documents fit; with `$defs` in it, one of which is recursive.
pub fn random_schema(rng: &mut Rng) -> Value {
    let mut schema = part(rng, 3);
    if below(rng, 2) == 0 {
        schema = json!({"type": "object", "properties": {"x": schema, "y": part(rng, 2)}, "required": ["x"]});
    }
    if let Some(map) = schema.as_object_mut() {
        let tree = json!({
            "type": "object", "additionalProperties": false, "required": ["v"],
            "properties": {
                "v": {"type": ["integer", "null"]},
                "of": {"type": "array", "items": {"$ref": "#/$defs/tree"}, "maxItems": 2},
            },
        });
        let list = json!({"anyOf": [{"type": "null"}, {
            "type": "object", "properties": {"next": {"$ref": "#/$defs/list"}}, "required": ["next"],
        }]});
        map.insert("$defs".into(), json!({"tree": tree, "list": list}));
    }
    schema
}

fn part(rng: &mut Rng, depth: usize) -> Value {
    let kinds = if depth == 0 { 9 } else { 14 };
    match below(rng, kinds) {
        0 => json!({"type": "boolean", "title": "ignored"}),
        1 => json!({"type": ["null", "string", "number"], "maxLength": 3}),
        2 => {
            let (least, more) = (below(rng, 4), below(rng, 6));
            json!({"type": "string", "minLength": least, "maxLength": least + more})
        }
        3 => json!({"type": "string", "minLength": below(rng, 4), "format": "ignored"}),
        4 => {
            let low = below(rng, 2000) as i64 - 1000;
            json!({"type": "integer", "minimum": low, "maximum": low + below(rng, 300) as i64})
        }
        5 => json!({"type": "integer", "exclusiveMinimum": -(below(rng, 50) as i64)}),
        6 => json!({"type": "number", "minimum": 0}),
        7 => {
            let all = [
                json!("a"),
                json!("ab"),
                json!("é\n"),
                json!(1),
                json!(12),
                json!(1.5),
                json!(null),
                json!([1]),
            ];
            let some: Vec<&Value> = all.iter().filter(|_| below(rng, 2) == 0).collect();
            if some.is_empty() { json!({"const": {"k": [true, "x"]}}) } else { json!({"enum": some}) }
        }
        8 => json!({"$ref": pick(rng, &["#/$defs/tree", "#/$defs/list"])}),
        9 => json!({"anyOf": [part(rng, depth - 1), part(rng, depth - 1)]}),
        10 => json!({"allOf": [part(rng, depth - 1)], "description": "one"}),
        11 => {
            let (least, more) = (below(rng, 3), below(rng, 3));
            let items = part(rng, depth - 1);
            json!({"type": "array", "items": items, "minItems": least, "maxItems": least + more})
        }
        12 => json!({}),
        _ => object(rng, depth),
    }
}

fn object(rng: &mut Rng, depth: usize) -> Value {
    let (mut properties, mut required) = (Map::new(), Vec::new());
    for name in NAMES {
        if below(rng, 4) == 0 {
            properties.insert(name.into(), part(rng, depth - 1));
            if below(rng, 2) == 0 {
                required.push(name);
            }
        }
    }
    let mut schema = json!({"type": "object", "properties": properties, "required": required});
    match below(rng, 4) {
        0 => schema["additionalProperties"] = json!(false),
        1 => schema["additionalProperties"] = json!(true),
        2 => schema["additionalProperties"] = part(rng, depth - 1),
        _ => {}
    }
    schema
}

/// How a document is written.
struct Style {
    /// Line ends and columns for each level, or none.
    indent: Option<usize>,
    comma: &'static str,
    colon: &'static str,
}

/// The text of a document that fits `schema`, if one was found that is not too deep.
pub fn document(rng: &mut Rng, schema: &Value) -> Option<String> {
    let style = match below(rng, 4) {
        0 => Style { indent: None, comma: ",", colon: ":" },
        1 => Style { indent: None, comma: ", ", colon: ": " },
        2 => Style { indent: Some(2), comma: ",", colon: ": " },
        _ => Style { indent: Some(4), comma: ",", colon: ": " },
    };
    let mut out = String::new();
    write(rng, schema, schema, &style, 0, &mut out).then_some(out)
}

fn line(style: &Style, depth: usize, out: &mut String) {
    if let Some(columns) = style.indent {
        out.push('\n');
        out.push_str(&" ".repeat(columns * depth));
    }
}

fn text(rng: &mut Rng, least: usize, most: usize) -> String {
    let mut text = String::new();
    let wanted = least + below(rng, most - least + 1);
    while text.chars().count() < wanted {
        text.push_str(pick(rng, &TEXTS[1..]));
    }
    text.chars().take(wanted).collect()
}

fn write(rng: &mut Rng, root: &Value, schema: &Value, style: &Style, depth: usize, out: &mut String) -> bool {
    if depth > 20 {
        return false;
    }
    if let Some(pointer) = schema["$ref"].as_str() {
        return write(rng, root, root.pointer(&pointer[1..]).unwrap(), style, depth, out);
    }
    for key in ["anyOf", "oneOf", "allOf"] {
        if let Some(list) = schema[key].as_array() {
            let one = below(rng, list.len());
            return write(rng, root, &list[one], style, depth, out);
        }
    }
    if let Some(list) = schema["enum"].as_array() {
        out.push_str(&list[below(rng, list.len())].to_string());
        return true;
    }
    if let Some(value) = schema.get("const") {
        out.push_str(&value.to_string());
        return true;
    }
    let types: Vec<&str> = match &schema["type"] {
        Value::String(one) => vec![one],
        Value::Array(list) => list.iter().map(|t| t.as_str().unwrap()).collect(),
        _ => vec!["null", "boolean", "string", "number", "array", "object"],
    };
    let limit = |key: &str, default: usize| schema[key].as_u64().map_or(default, |n| n as usize);
    match types[below(rng, types.len())] {
        "null" => out.push_str("null"),
        "boolean" => out.push_str(pick(rng, &["true", "false"])),
        "number" => {
            let all =
                ["0", "7", "12.50", "0.001", "1e9", "1E+2", "2.5e-3", "9999999999999999999", "-0", "-1.5"];
            let usable = if schema.get("minimum").is_some() { &all[..8] } else { &all[..] };
            out.push_str(pick(rng, usable));
        }
        "integer" => {
            let low = schema["minimum"].as_i64().or(schema["exclusiveMinimum"].as_i64().map(|n| n + 1));
            let low = low.unwrap_or(-100_000);
            let high = schema["maximum"].as_i64().unwrap_or(low + 200_000);
            out.push_str(&(low + below(rng, (high - low + 1) as usize) as i64).to_string());
        }
        "string" => {
            let least = limit("minLength", 0);
            let text = text(rng, least, limit("maxLength", least + 5));
            let mut json = Value::from(text).to_string();
            if below(rng, 4) == 0 {
                json = json.replace('é', "\\u00e9").replace('🦀', "\\ud83e\\uDD80").replace('/', "\\/");
            }
            out.push_str(&json);
        }
        "array" => {
            let least = limit("minItems", 0);
            let most = limit("maxItems", least + 2);
            let count = if depth > 8 { least } else { least + below(rng, most - least + 1) };
            let items = schema.get("items").cloned().unwrap_or(json!({}));
            out.push('[');
            for i in 0..count {
                out.push_str(if i > 0 { style.comma } else { "" });
                line(style, depth + 1, out);
                if !write(rng, root, &items, style, depth + 1, out) {
                    return false;
                }
            }
            if count > 0 {
                line(style, depth, out);
            }
            out.push(']');
        }
        _ => return members(rng, root, schema, style, depth, out),
    }
    true
}

fn members(
    rng: &mut Rng,
    root: &Value,
    schema: &Value,
    style: &Style,
    depth: usize,
    out: &mut String,
) -> bool {
    let empty = Map::new();
    let properties = schema["properties"].as_object().unwrap_or(&empty);
    let required =
        |name: &str| schema["required"].as_array().is_some_and(|list| list.iter().any(|each| each == name));
    let optional = if depth > 8 { 0 } else { 2 };
    let mut members: Vec<(String, Value)> = Vec::new();
    for (name, value) in properties {
        if required(name) || below(rng, 2) < optional / 2 + below(rng, 2) * optional / 4 {
            members.push((name.clone(), value.clone()));
        }
    }
    let more = match schema.get("additionalProperties") {
        None if schema.get("properties").is_some() => None,
        None | Some(Value::Bool(true)) => Some(json!({})),
        Some(Value::Bool(false)) => None,
        Some(other) => Some(other.clone()),
    };
    if let Some(more) = more.filter(|_| depth < 6) {
        for name in ["a", "zz", "été", "ab ", "n"] {
            if below(rng, 4) == 0 && !properties.contains_key(name) {
                members.push((name.into(), more.clone()));
            }
        }
    }
    out.push('{');
    for (i, (name, value)) in members.iter().enumerate() {
        out.push_str(if i > 0 { style.comma } else { "" });
        line(style, depth + 1, out);
        out.push_str(&Value::from(&name[..]).to_string());
        out.push_str(style.colon);
        if !write(rng, root, value, style, depth + 1, out) {
            return false;
        }
    }
    if !members.is_empty() {
        line(style, depth, out);
    }
    out.push('}');
    true
}

/// Whether `value` fits `schema`; only for keywords that are supported.
pub fn fits(root: &Value, schema: &Value, value: &Value) -> bool {
    let schema = match schema {
        Value::Bool(all) => return *all,
        Value::Object(map) => map,
        _ => panic!("no schema: {schema}"),
    };
    let whole = |value: &Value| value.as_i64().map(i128::from).or(value.as_u64().map(i128::from));
    let len = |n: usize| Some(n as i128);
    let count = match value {
        Value::String(text) => len(text.chars().count()),
        Value::Array(list) => len(list.len()),
        _ => None,
    };
    schema.iter().all(|(key, rule)| match (&key[..], value) {
        ("$ref", _) => fits(root, root.pointer(&rule.as_str().unwrap()[1..]).unwrap(), value),
        ("anyOf" | "oneOf", _) => rule.as_array().unwrap().iter().any(|one| fits(root, one, value)),
        ("allOf", _) => rule.as_array().unwrap().iter().all(|one| fits(root, one, value)),
        ("enum", _) => rule.as_array().unwrap().contains(value),
        ("const", _) => rule == value,
        ("type", _) => match rule {
            Value::Array(list) => list.iter().any(|one| is_of(one.as_str().unwrap(), value)),
            one => is_of(one.as_str().unwrap(), value),
        },
        ("minLength", Value::String(_)) | ("minItems", Value::Array(_)) => count >= whole(rule),
        ("maxLength", Value::String(_)) | ("maxItems", Value::Array(_)) => count <= whole(rule),
        // Numbers that are not whole have only 0 as a limit here.
        ("minimum", Value::Number(n)) => match whole(value) {
            Some(n) => Some(n) >= whole(rule),
            None => n.as_f64().unwrap() >= rule.as_f64().unwrap(),
        },
        ("maximum", Value::Number(_)) => whole(value) <= whole(rule),
        ("exclusiveMinimum", Value::Number(_)) => whole(value) > whole(rule),
        ("exclusiveMaximum", Value::Number(_)) => whole(value) < whole(rule),
        ("items", Value::Array(list)) => list.iter().all(|item| fits(root, rule, item)),
        ("required", Value::Object(map)) => {
            rule.as_array().unwrap().iter().all(|name| map.contains_key(name.as_str().unwrap()))
        }
        ("properties", Value::Object(map)) => {
            let rules = rule.as_object().unwrap();
            map.iter().all(|(name, value)| rules.get(name).is_none_or(|rule| fits(root, rule, value)))
        }
        ("additionalProperties", Value::Object(map)) => {
            let declared = schema.get("properties").and_then(Value::as_object);
            let is_other = |name: &String| declared.is_none_or(|declared| !declared.contains_key(name));
            map.iter().filter(|(name, _)| is_other(name)).all(|(_, value)| fits(root, rule, value))
        }
        _ => true,
    })
}

fn is_of(name: &str, value: &Value) -> bool {
    match name {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "integer" => value.as_i64().is_some() || value.as_u64().is_some() || is_long_integer(value),
        "number" => value.is_number(),
        "boolean" => value.is_boolean(),
        _ => value.is_null(),
    }
}

/// A whole number that is too small for 64 bits: 19 digits with a minus.
fn is_long_integer(value: &Value) -> bool {
    value.is_number() && !value.to_string().contains(['.', 'e', 'E'])
}
