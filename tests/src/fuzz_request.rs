//! Fuzzing of requests for replies: arbitrary bytes, and requests made of the fields and values that mean
//! something, sound or not. Whatever is let through must be within the limits that the engine trusts.
//!
//! `cargo test` calls it on seeded inputs, `cargo xtask fuzz request` under libFuzzer.

use kinglet::api::anthropic_ask::messages;
use kinglet::api::ask::{Ask, Form, MOST_CHOICES, MOST_TOP, Prompt};
use kinglet::api::body::parse;
use kinglet::api::chat_ask::{chat, completion, conversation};
use kinglet::api::error::{ApiError, Manner};
use kinglet::api::fields::Fields;
use kinglet::constrain::Grammar;
use kinglet_core::chat::Family;
use kinglet_core::sample::Params;
use serde_json::Value;

/// Tokens of the model that is asked.
const VOCAB: usize = 300;

/// Fields that some request has, the most often needed ones more often.
const NAMES: [&str; 40] = [
    "messages",
    "messages",
    "messages",
    "prompt",
    "prompt",
    "max_tokens",
    "max_completion_tokens",
    "n",
    "temperature",
    "top_p",
    "min_p",
    "top_k",
    "seed",
    "stop",
    "stop_sequences",
    "stream",
    "stream_options",
    "logprobs",
    "top_logprobs",
    "logit_bias",
    "presence_penalty",
    "repetition_penalty",
    "repeat_last_n",
    "tools",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "response_format",
    "chat_template_kwargs",
    "system",
    "thinking",
    "echo",
    "suffix",
    "best_of",
    "cache_salt",
    "ignore_eos",
    "model",
    "return_progress",
    "a",
    "$serde_json::private::Number",
];

/// Values for them.
const VALUES: [&str; 60] = [
    r#"[{"role": "user", "content": "Hi"}]"#,
    r#"[{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image_url"}]}]"#,
    r#"[{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{\"a\": 1}"}}]}]"#,
    r#"[{"role": "assistant", "tool_calls":[{"function": {"name": "f", "arguments": "["}}],"content":null}]"#,
    r#"[{"role": "user", "content": [{"type": "tool_result", "content": "x", "is_error": true}]}]"#,
    r#"[{"role": "assistant", "content": [{"type": "tool_use", "name": "f", "input": {"a": [1e999]}}]}]"#,
    r#"[{"role": "assistant", "reasoning_content": "", "content":""},{"role": "tool", "content": "\u0000"}]"#,
    r#"[{"role": "system", "content": "\ud83d\ude00"}, {"role": "system", "content": "a"}]"#,
    r#"[{"role": "user"}]"#,
    r#"[{"role": "root", "content": "a"}]"#,
    r#"[{"content": "a"}, 1]"#,
    r#"[{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]"#,
    r#"[{"type": "function", "function": {"name": "f", "parameters": {"type": "string"}}}]"#,
    r##"[{"name": "f", "input_schema": {"type": "object", "properties": {"a": {"$ref": "#"}}}}]"##,
    r#"[{"function": {"name": ""}}]"#,
    r#"{"type": "function", "function": {"name": "f"}}"#,
    r#"{"type": "tool", "name": "f", "disable_parallel_tool_use": true}"#,
    r#"{"type": "any"}"#,
    r#"{"type": "json_object"}"#,
    r#"{"type": "json_object", "schema": {"enum": []}}"#,
    r#"{"type": "json_schema", "json_schema": {"schema": {"type": "integer", "minimum": -5}}}"#,
    r##"{"type": "json_schema", "json_schema": {"schema": {"anyOf": [{"$ref": "#"}]}}}"##,
    r#"{"type": "enabled"}"#,
    r#"{"enable_thinking": true}"#,
    r#"{"include_usage": true}"#,
    r#"{"1": 100, "299": -100}"#,
    r#"{"300": 1}"#,
    r#"{"-0": 1, "+1": 2, "01": 3}"#,
    r#"{"1": 1e39}"#,
    r#"{"$serde_json::private::Number": "1e5"}"#,
    r#"{"$serde_json::private::Number": "x"}"#,
    r#"{"$serde_json::private::Number": 1}"#,
    "[1, 2, 3]",
    "[[1], \"a\", [299]]",
    "[300]",
    "[-1]",
    "[[]]",
    "[\"\"]",
    "[\"a\", \"\\u0000\"]",
    "[]",
    "{}",
    "\"\"",
    "\"auto\"",
    "\"required\"",
    "\"\\ud800\"",
    "true",
    "false",
    "null",
    "0",
    "-0",
    "1",
    "-1",
    "0.5",
    "2.0",
    "1e-400",
    "1e400",
    "-1e38",
    "9223372036854775807",
    "18446744073709551616",
    "1.00000000000000000000000000000000000001",
];

/// What the inputs reached.
#[derive(Debug, Default)]
pub struct Seen {
    /// Inputs that were JSON.
    pub json: usize,
    /// Requests that were let through, in each of the three ways to ask.
    pub asks: [usize; 3],
    /// Fields that were said to be wrong.
    pub wrong: Vec<String>,
}

/// Reads `data` as a request, then one that is made of names and values chosen by its bytes in turn.
///
/// # Panics
/// A reader panics, or lets something through that it should not.
pub fn fuzz_request(data: &[u8]) -> Seen {
    let mut seen = Seen::default();
    check(data, &mut seen);
    let mut made = String::from("{");
    for pair in data.chunks_exact(2) {
        let name = NAMES[usize::from(pair[0]) % NAMES.len()];
        let value = VALUES[usize::from(pair[1]) % VALUES.len()];
        made += &format!("{}\"{name}\": {value}", if made.len() > 1 { ", " } else { "" });
    }
    check((made + "}").as_bytes(), &mut seen);
    seen
}

fn check(bytes: &[u8], seen: &mut Seen) {
    let request = match parse(bytes) {
        Ok(request) => request,
        Err(error) => return check_error(&error, seen),
    };
    seen.json += 1;
    for family in [Family::Qwen2_5, Family::Qwen3, Family::Qwen3Vl] {
        let ways =
            [chat(&request, family, VOCAB), completion(&request, VOCAB), messages(&request, family, VOCAB)];
        for (way, asked) in ways.into_iter().enumerate() {
            match asked {
                Ok(ask) => {
                    seen.asks[way] += 1;
                    check_ask(&ask);
                }
                Err(error) => check_error(&error, seen),
            }
        }
        let prompt = Fields::of(&request).and_then(|fields| conversation(&fields, family)?.prompt(family));
        if let Err(error) = prompt {
            check_error(&error, seen);
        }
    }
}

/// Clients are told what is wrong, in a few words, and in JSON.
fn check_error(error: &ApiError, seen: &mut Seen) {
    assert!([400, 413].contains(&error.status), "{error:?}");
    assert!(!error.message.is_empty() && error.message.chars().count() <= 1000, "{error:?}");
    for manner in [Manner::OpenAi, Manner::Anthropic] {
        let body: Value = serde_json::from_str(&error.body(manner)).unwrap();
        assert_eq!(body["error"]["message"], *error.message);
    }
    if let Some(param) = &error.param {
        assert!(error.message.contains(param.as_str()), "{error:?}");
        seen.wrong.push(param.clone());
    }
}

/// What the engine's thread and the writers of replies trust.
fn check_ask(ask: &Ask) {
    assert!((1..=MOST_CHOICES as usize).contains(&ask.n));
    assert!((1..=16).contains(&ask.prompts.len()));
    for prompt in &ask.prompts {
        match prompt {
            Prompt::Text(_) => {}
            Prompt::Ids(ids) => assert!(ids.iter().all(|&id| (id as usize) < VOCAB)),
        }
    }
    assert!(ask.bias.iter().all(|&(id, bias)| (id as usize) < VOCAB && bias.abs() <= 100.0));
    assert_eq!(Params { logit_bias: &ask.bias, ..ask.params }.validate(), Ok(()));
    assert!(ask.stops.len() <= 16 && ask.stops.iter().all(|stop| (1..=4096).contains(&stop.len())));
    assert!(ask.logprobs.is_none_or(|top| top <= MOST_TOP as usize));
    let grammar = match &ask.form {
        Form::Free | Form::Object => return,
        Form::Schema(schema) => Grammar::schema(schema),
        Form::Calls { tools, one } => {
            assert!(!tools.is_empty());
            Grammar::tool_calls(tools, true, *one)
        }
    };
    if let Err(error) = grammar {
        assert!(!error.to_string().is_empty());
    }
}
