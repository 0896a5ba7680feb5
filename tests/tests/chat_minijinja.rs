//! Chat rendering against the published templates run by a second engine, `minijinja`, on
//! generated conversations.
//!
//! minijinja iterates null as an empty list, where Jinja2 fails: null content is left to the
//! fixtures of `chat.rs`. So are lists that would be printed.

use kinglet::chat_json::{self, ChatJsonError};
use kinglet_core::chat::{ChatError, Family};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Enumerator, Object, ObjectRepr, ValueKind};
use minijinja::{Environment, Error, ErrorKind};
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::{Config, RngSeed};
use serde_json::ser::{Formatter, Serializer};
use serde_json::{Value, json};
use std::io::{self, Write};
use std::sync::Arc;

/// A list or an object, in the order of its keys, that keeps what `tojson` needs.
#[derive(Debug)]
struct Json(Value);

impl Object for Json {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        if self.0.is_array() { ObjectRepr::Seq } else { ObjectRepr::Map }
    }

    fn get_value(self: &Arc<Self>, key: &minijinja::Value) -> Option<minijinja::Value> {
        match &self.0 {
            Value::Array(list) => list.get(key.as_usize()?).map(engine_value),
            Value::Object(map) => map.get(key.as_str()?).map(engine_value),
            _ => None,
        }
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        match &self.0 {
            Value::Array(list) => Enumerator::Seq(list.len()),
            Value::Object(map) => {
                Enumerator::Values(map.keys().map(|k| minijinja::Value::from(k.as_str())).collect())
            }
            _ => Enumerator::NonEnumerable,
        }
    }
}

fn engine_value(value: &Value) -> minijinja::Value {
    match value {
        Value::Null => minijinja::Value::from(()),
        Value::Bool(b) => (*b).into(),
        Value::Number(n) => n.as_i64().map_or_else(|| n.as_f64().unwrap().into(), Into::into),
        Value::String(s) => s.as_str().into(),
        Value::Array(_) | Value::Object(_) => minijinja::Value::from_object(Json(value.clone())),
    }
}

/// serde_json's own writer with Python's separators: shares no code with the shell's.
struct PythonSpaces;

impl Formatter for PythonSpaces {
    fn begin_array_value<W: ?Sized + Write>(&mut self, w: &mut W, first: bool) -> io::Result<()> {
        w.write_all(if first { b"" } else { b", " })
    }

    fn begin_object_key<W: ?Sized + Write>(&mut self, w: &mut W, first: bool) -> io::Result<()> {
        w.write_all(if first { b"" } else { b", " })
    }

    fn begin_object_value<W: ?Sized + Write>(&mut self, w: &mut W) -> io::Result<()> {
        w.write_all(b": ")
    }
}

fn tojson(value: minijinja::Value) -> Result<minijinja::Value, Error> {
    let json = match (value.downcast_object_ref::<Json>(), value.kind()) {
        (Some(json), _) => json.0.clone(),
        (_, ValueKind::None) => Value::Null,
        (_, ValueKind::Bool) => value.is_true().into(),
        (_, ValueKind::String) => value.as_str().unwrap().into(),
        (_, ValueKind::Number) => i64::try_from(value).unwrap().into(),
        (_, kind) => return Err(Error::new(ErrorKind::InvalidOperation, format!("{kind} is no JSON"))),
    };
    let mut text = Vec::new();
    serde::Serialize::serialize(&json, &mut Serializer::with_formatter(&mut text, PythonSpaces)).unwrap();
    Ok(minijinja::Value::from_safe_string(String::from_utf8(text).unwrap()))
}

fn environment() -> Environment<'static> {
    let mut env = Environment::new();
    env.set_syntax(SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build().unwrap());
    env.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
    env.add_filter("tojson", tojson);
    env.add_template("Qwen2_5", include_str!("../fixtures/chat-template/qwen2.5.jinja")).unwrap();
    env.add_template("Qwen3", include_str!("../fixtures/chat-template/qwen3.jinja")).unwrap();
    env.add_template("Qwen3Vl", include_str!("../fixtures/chat-template/qwen3-vl-instruct.jinja")).unwrap();
    env
}

fn text() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        6 => select(vec![
            "", "Hello", " ", "\n", "\n\n", "<think>", "</think>", "<think>\nhm\n</think>\n\n", "é北😀", "\"\\",
            "\u{1}\t\r\n", "<&>'", "{{ 7 }}{% raw %}", "<|im_end|>\n", "\u{2028}\u{200b}", "text", "image",
        ]).prop_map(str::to_owned),
        1 => ".{0,8}",
    ];
    let plain = prop::collection::vec(piece, 0..5).prop_map(|pieces| pieces.concat());
    (plain, 0..8).prop_map(|(text, k)| match k {
        0 => format!("<tool_response>{text}</tool_response>"),
        1 => format!("<tool_response>{text}"),
        _ => text,
    })
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        text().prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((text(), inner), 0..4)
                .prop_map(|items| Value::Object(items.into_iter().collect())),
        ]
    })
}

/// An object with those keys whose value is there.
fn object<const N: usize>(items: [(&str, Option<Value>); N]) -> Value {
    Value::Object(items.into_iter().filter_map(|(k, v)| Some((k.to_owned(), v?))).collect())
}

fn part() -> impl Strategy<Value = Value> {
    let kind =
        select(vec![None, Some("text"), Some("image"), Some("image_url"), Some("video"), Some("audio")]);
    let maybe = |chance: f64| prop::option::weighted(chance, text().prop_map(Value::from));
    (kind, maybe(0.7), maybe(0.2), maybe(0.1), maybe(0.15)).prop_map(|(kind, text, image, url, video)| {
        let kind = kind.map(Value::from);
        object([("type", kind), ("text", text), ("image", image), ("image_url", url), ("video", video)])
    })
}

fn tool_call() -> impl Strategy<Value = Value> {
    let arguments = prop_oneof![
        text().prop_map(Value::from),
        value(),
        value().prop_map(|v| json!({ "city": v, "unit": "celsius" }))
    ];
    (text(), prop::option::weighted(0.97, arguments), 0..4).prop_map(|(name, arguments, wrap)| {
        let call = object([("name", Some(name.into())), ("arguments", arguments)]);
        if wrap == 0 { call } else { json!({ "type": "function", "id": "c", "function": call }) }
    })
}

fn message(parts: bool) -> impl Strategy<Value = Value> {
    let role = select(vec!["system", "user", "user", "assistant", "assistant", "tool", "tool", "developer"]);
    let list = prop::collection::vec(part(), 0..4).prop_map(Value::from);
    let content = (text(), list, 0..3, 0..40).prop_map(move |(text, list, which, missing)| match which {
        _ if missing == 0 => None,
        0 if parts => Some(list),
        _ => Some(text.into()),
    });
    let reasoning = prop::option::weighted(0.3, prop::option::weighted(0.9, text()).prop_map(Value::from));
    let calls = prop_oneof![
        2 => Just(None),
        1 => prop::collection::vec(tool_call(), 0..4).prop_map(|calls| Some(Value::from(calls))),
    ];
    (role, content, reasoning, calls).prop_map(|(role, content, reasoning, calls)| {
        object([
            ("role", Some(role.into())),
            ("content", content),
            ("reasoning_content", reasoning),
            ("tool_calls", calls),
        ])
    })
}

fn request(parts: bool) -> impl Strategy<Value = Value> {
    let tool = (text(), value()).prop_map(|(name, parameters)| {
        json!({ "type": "function", "function": { "name": name, "parameters": parameters } })
    });
    let tools = prop::option::weighted(0.4, prop::collection::vec(tool, 0..3).prop_map(Value::from));
    let switch = || prop::option::of(any::<bool>().prop_map(Value::from));
    let messages = prop::collection::vec(message(parts), 0..9).prop_map(|messages| Some(messages.into()));
    (messages, tools, switch(), switch(), switch()).prop_map(|(messages, tools, thinking, prompt, ids)| {
        object([
            ("messages", messages),
            ("tools", tools),
            ("enable_thinking", thinking),
            ("add_generation_prompt", prompt),
            ("add_vision_id", ids),
        ])
    })
}

fn compare(family: Family) {
    let env = environment();
    let template = env.get_template(&format!("{family:?}")).unwrap();
    let config = Config {
        cases: 1500,
        rng_seed: RngSeed::Fixed(20_250_911),
        failure_persistence: None,
        ..Config::default()
    };
    // Lists are frequent where they are welcome, and a test of errors elsewhere.
    let lists = (0..10).prop_map(move |k| family == Family::Qwen3Vl || k == 0);
    proptest!(config, |(request in lists.prop_flat_map(request))| {
        let theirs = template.render(engine_value(&request));
        match (chat_json::render(family, &request), theirs) {
            (Ok(ours), Ok(theirs)) => prop_assert_eq!(ours, theirs),
            (Err(_), Err(_)) => {}
            // minijinja prints it.
            (Err(ChatJsonError::Chat(ChatError::ContentList { .. })), Ok(_)) => {}
            (ours, theirs) => prop_assert!(false, "{:?}\n{:?}", ours, theirs),
        }
    });
}

#[test]
fn qwen2_5_equals_the_template() {
    compare(Family::Qwen2_5);
}

#[test]
fn qwen3_equals_the_template() {
    compare(Family::Qwen3);
}

#[test]
fn qwen3_vl_equals_the_template() {
    compare(Family::Qwen3Vl);
}
