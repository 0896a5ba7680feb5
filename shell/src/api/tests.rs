//! Replies and events in their three shapes. Must not know sockets or engines.

use super::chat_reply::{self, ChatStream};
use super::client::{Events, Gone};
use super::message_reply::{self, MessageStream};
use super::outcome::{Call, Finish, Listener, Told, Usage, Whole};
use super::reply::Head;
use super::text_reply::{self, TextStream};
use crate::output::Piece;
use core::time::Duration;
use flate2::read::GzDecoder;
use kinglet_core::gguf::{Gguf, Meta, TensorInfo};
use kinglet_core::token::{Tokenizer, TokenizerRequirements};
use serde_json::Value;
use std::io::Read;
use std::sync::OnceLock;

/// A tokenizer of a fixture.
pub(super) fn tokenizer() -> &'static Tokenizer<'static> {
    static TOKENIZER: OnceLock<Tokenizer<'static>> = OnceLock::new();
    TOKENIZER.get_or_init(|| {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/gguf/qwen3-tiny.Q4_K_M.gguf.gz");
        let mut bytes = Vec::new();
        GzDecoder::new(&std::fs::read(path).unwrap()[..]).read_to_end(&mut bytes).unwrap();
        let bytes: &'static [u8] = bytes.leak();
        let counts = Gguf::counts(bytes).unwrap();
        let (metas, tensors) = (vec![Meta::EMPTY; counts.metas], vec![TensorInfo::EMPTY; counts.tensors]);
        let gguf = Gguf::parse(bytes, metas.leak(), tensors.leak()).unwrap();
        let region = crate::map::region(TokenizerRequirements::of(&gguf).unwrap().index).unwrap();
        Tokenizer::new(&gguf, region).unwrap()
    })
}

fn head(id: &str) -> Head {
    Head { id: String::from(id), created: 7, model: String::from("m"), tokenizer: tokenizer() }
}

/// Keeps events, each with its name.
#[derive(Default)]
struct Kept(Vec<(String, String)>);

impl Events for Kept {
    fn event(&mut self, name: &str, data: &str) -> Result<(), Gone> {
        self.0.push((String::from(name), String::from(data)));
        Ok(())
    }

    fn idle(&mut self) -> Result<(), Gone> {
        Ok(())
    }
}

impl Kept {
    /// The data of all events, read; the last one may be the mark of the end.
    fn values(&self) -> Vec<Value> {
        self.0
            .iter()
            .map(|(_, data)| serde_json::from_str(data).unwrap_or(Value::from(data.as_str())))
            .collect()
    }
}

fn value(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

fn numbers() -> Usage {
    Usage {
        prompt: 40,
        cached: 32,
        disk: 32,
        decoded: 5,
        prefill: Duration::from_millis(10),
        decode: Duration::from_millis(500),
        restore: Duration::from_micros(1500),
        first_token: Duration::from_millis(12),
        diverged: Some((33, 65)),
    }
}

fn text(text: &str) -> Piece {
    Piece::Text(String::from(text))
}

fn calls() -> Vec<Piece> {
    vec![
        Piece::Reasoning(String::from("hm")),
        text("so: "),
        Piece::ToolCall { index: 0, name: String::from("sum") },
        Piece::Arguments { index: 0, part: String::from("{\"a\":") },
        Piece::Arguments { index: 0, part: String::from(" 1}") },
    ]
}

/// A reply made of these pieces.
fn whole(pieces: &[Piece], finish: Finish) -> Whole {
    let mut whole = Whole { finish: Some(finish), usage: numbers(), ..Whole::default() };
    whole.take(pieces, &[Told { token: 65, logprob: -0.5, top: vec![(65, -0.5), (66, f32::NEG_INFINITY)] }]);
    whole
}

#[test]
fn a_chat_reply_has_usage_timings_and_calls() {
    let replies = [whole(&calls(), Finish::Calls), whole(&[text("hi")], Finish::Stop(String::from("x")))];
    let reply = value(&chat_reply::whole(&head("c"), &replies, true));
    assert_eq!(
        (&reply["id"], &reply["object"], &reply["created"]),
        (&"c".into(), &"chat.completion".into(), &7.into())
    );
    let choice = &reply["choices"][0];
    assert_eq!(
        (&choice["finish_reason"], &choice["message"]["content"]),
        (&"tool_calls".into(), &"so: ".into())
    );
    assert_eq!(choice["message"]["reasoning_content"], "hm");
    let call = &choice["message"]["tool_calls"][0];
    assert_eq!((&call["type"], &call["function"]["name"]), (&"function".into(), &"sum".into()));
    assert_eq!(call["function"]["arguments"], "{\"a\": 1}");
    let told = &choice["logprobs"]["content"][0];
    assert_eq!(told["token"].as_str().unwrap().len(), told["bytes"].as_array().unwrap().len());
    assert_eq!(told["top_logprobs"][1]["logprob"].to_string(), "-9999.0");
    assert_eq!(
        (&reply["choices"][1]["index"], &reply["choices"][1]["finish_reason"]),
        (&1.into(), &"stop".into())
    );
    assert_eq!(reply["choices"][1]["message"].get("tool_calls"), None);
    let usage = value(
        r#"{"prompt_tokens":40,"completion_tokens":10,"total_tokens":50,
            "prompt_tokens_details":{"cached_tokens":32}}"#,
    );
    assert_eq!(reply["usage"], usage);
    let timings = &reply["timings"];
    assert_eq!(
        (timings["prompt_n"].to_string(), timings["prompt_per_second"].to_string()),
        ("8".into(), "800.000".into())
    );
    assert_eq!(
        (timings["predicted_n"].to_string(), timings["predicted_ms"].to_string()),
        ("5".into(), "500.000".into())
    );
    assert_eq!(timings["cache"]["source"], "disk");
    assert_eq!(timings["cache"]["restore_ms"].to_string(), "1.500");
    assert_eq!(
        (&timings["cache"]["diverged_at"], timings["cache"]["diverged_token"].is_string()),
        (&33.into(), true)
    );
}

#[test]
fn a_chat_stream_says_what_the_whole_reply_says() {
    let (head, mut kept) = (head("c"), Kept::default());
    let mut stream = ChatStream::new(&mut kept, &head, 1, true, false);
    stream.started(0, &numbers()).unwrap();
    stream.progress(0, &numbers(), 36, Duration::from_millis(3)).unwrap();
    stream.pieces(0, &calls(), &[]).unwrap();
    stream.ended(0, &Finish::Calls, &numbers()).unwrap();
    stream.finish().unwrap();
    let events = kept.values();
    assert!(kept.0.iter().all(|(name, _)| name.is_empty()));
    assert_eq!(events.last().unwrap(), "[DONE]");
    let delta = |i: usize| &events[i]["choices"][0]["delta"];
    assert_eq!(delta(0), &value(r#"{"role":"assistant","content":""}"#));
    let progress = value(r#"{"total":40,"cache":32,"processed":36,"time_ms":3}"#);
    assert_eq!((delta(1), &events[1]["prompt_progress"]), (&value("{}"), &progress));
    assert_eq!(delta(2)["reasoning_content"], "hm");
    assert_eq!(delta(3)["content"], "so: ");
    assert_eq!(delta(4)["tool_calls"][0]["function"], value(r#"{"name":"sum","arguments":""}"#));
    assert!(delta(4)["tool_calls"][0]["id"].as_str().unwrap().starts_with("call_"));
    assert_eq!(delta(5)["tool_calls"][0]["function"]["arguments"], "{\"a\":");
    assert_eq!(events[7]["choices"][0]["finish_reason"], "tool_calls");
    assert_eq!(events[7]["timings"]["cache"]["tokens"], value("32"));
    assert!(events[..8].iter().all(|e| e["usage"].is_null() && e["object"] == "chat.completion.chunk"));
    assert_eq!((&events[8]["choices"], &events[8]["usage"]["total_tokens"]), (&value("[]"), &value("45")));
}

#[test]
fn completions_echo_and_tell_probabilities() {
    let (head, mut kept) = (head("t"), Kept::default());
    let replies = [whole(&[text("ab")], Finish::Length), whole(&[text("c")], Finish::End)];
    let echoes = [String::from("p1 "), String::from("p2 ")];
    let reply = value(&text_reply::whole(&head, &replies, 1, &echoes, true));
    assert_eq!((&reply["object"], &reply["choices"][1]["text"]), (&"text_completion".into(), &"p2 c".into()));
    assert_eq!(reply["choices"][0]["finish_reason"], "length");
    assert_eq!(reply["usage"]["prompt_tokens"], value("80"));
    let told = &reply["choices"][0]["logprobs"];
    assert_eq!((&told["token_logprobs"], &told["text_offset"]), (&value("[-0.5]"), &value("[0]")));
    assert_eq!(told["tokens"].as_array().unwrap().len(), 1);

    let mut stream = TextStream::new(&mut kept, &head, (2, 2), &echoes[..1], false, true);
    let told = [Told { token: 65, logprob: -1.0, top: Vec::new() }];
    for choice in [0, 1] {
        stream.started(choice, &numbers()).unwrap();
        stream.pieces(choice, &[text("ab")], &told).unwrap();
        stream.pieces(choice, &[text("c")], &told).unwrap();
        stream.ended(choice, &Finish::End, &numbers()).unwrap();
    }
    stream.finish().unwrap();
    let events = kept.values();
    let texts: String = events.iter().filter_map(|e| e["choices"][0]["text"].as_str()).collect();
    assert_eq!(texts, "p1 abcp1 abc");
    assert_eq!(events[2]["choices"][0]["logprobs"]["text_offset"], value("[2]"));
    assert_eq!((events.len(), events.last().unwrap()), (9, &Value::from("[DONE]")));
}

#[test]
fn messages_come_in_blocks() {
    let (head, mut kept) = (head("msg"), Kept::default());
    let mut stream = MessageStream::new(&mut kept, &head);
    stream.started(0, &numbers()).unwrap();
    stream.pieces(0, &calls(), &[]).unwrap();
    stream.ended(0, &Finish::Calls, &numbers()).unwrap();
    let names: Vec<&str> = kept.0.iter().map(|(name, _)| name.as_str()).collect();
    let block = |deltas: usize| {
        let mut names = vec!["content_block_start"];
        names.extend(vec!["content_block_delta"; deltas]);
        names.push("content_block_stop");
        names
    };
    let expected =
        [vec!["message_start"], block(1), block(1), block(2), vec!["message_delta", "message_stop"]].concat();
    assert_eq!(names, expected);
    let events = kept.values();
    assert!(events.iter().zip(&names).all(|(event, name)| event["type"] == *name));
    let usage = value(
        r#"{"input_tokens":8,"cache_read_input_tokens":32,"cache_creation_input_tokens":0,
            "output_tokens":0}"#,
    );
    assert_eq!(events[0]["message"]["usage"], usage);
    assert_eq!(events[1]["content_block"]["type"], "thinking");
    assert_eq!((&events[7]["content_block"]["name"], &events[7]["index"]), (&"sum".into(), &2.into()));
    assert_eq!(events[8]["delta"], value(r#"{"type":"input_json_delta","partial_json":"{\"a\":"}"#));
    assert_eq!(events[11]["delta"], value(r#"{"stop_reason":"tool_use","stop_sequence":null}"#));

    let reply = value(&message_reply::whole(&head, &whole(&calls(), Finish::Calls)));
    let kinds: Vec<&str> =
        reply["content"].as_array().unwrap().iter().map(|b| b["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["thinking", "text", "tool_use"]);
    assert_eq!(reply["content"][2]["input"], value(r#"{"a": 1}"#));
    let reply = value(&message_reply::whole(&head, &whole(&[], Finish::Stop(String::from("x")))));
    assert_eq!((&reply["content"][0]["text"], &reply["stop_sequence"]), (&"".into(), &"x".into()));
    // What broke off in the middle of its arguments is no JSON.
    let torn = Whole {
        calls: vec![Call { name: String::from("f"), arguments: String::from("{") }],
        ..Whole::default()
    };
    assert_eq!(value(&message_reply::whole(&head, &torn))["content"][0]["input"], value("{}"));

    // A reply of nothing is a block of nothing.
    let mut kept = Kept::default();
    let mut stream = MessageStream::new(&mut kept, &head);
    stream.started(0, &numbers()).unwrap();
    stream.ended(0, &Finish::End, &numbers()).unwrap();
    assert_eq!(kept.0.len(), 5);
}
