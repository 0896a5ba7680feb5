//! `kinglet serve` with tiny models: what it answers. Must not know how.

mod common;

use common::server::{Reply, Server};
use common::{qwen2, qwen3, run};
use serde_json::Value;

const CHAT: &str = "/v1/chat/completions";
const TEXT: &str = "/v1/completions";
const MESSAGES: &str = "/v1/messages";

fn start(more: &str) -> Server {
    Server::start(&format!("-m {} -t 1 --ctx 1024 {more}", qwen3()))
}

fn value(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

/// A chat of one message with more fields, greedy unless they say otherwise.
fn chat(text: &str, more: &str) -> String {
    format!(r#"{{"messages": [{{"role": "user", "content": "{text}"}}], "temperature": 0{more}}}"#)
}

/// The joined texts of a chat's stream.
fn streamed(reply: &Reply) -> String {
    let values = reply.values();
    let parts = values.iter().filter_map(|v| v["choices"][0]["delta"]["content"].as_str());
    parts.collect()
}

fn content(reply: &Value) -> &str {
    reply["choices"][0]["message"]["content"].as_str().unwrap()
}

#[test]
fn a_chat_says_what_run_says_whole_or_in_pieces() {
    for model in [qwen3(), qwen2()] {
        let server = Server::start(&format!("-m {model} -t 1 --ctx 1024"));
        let said = run(&["run", "-m", &model, "-p", "Hello you", "--temp", "0", "-n", "24", "-t", "1"]).ok();
        let body = |more: &str| chat("Hello you", &format!(r#", "max_tokens": 24{more}"#));
        let whole = server.post(CHAT, &body("")).ok();
        assert_eq!(content(&whole), said.strip_suffix('\n').unwrap());
        assert_eq!(whole["usage"]["completion_tokens"], value("24"));
        assert_eq!(whole["choices"][0]["finish_reason"], "length");
        let stream =
            server.post(CHAT, &body(r#", "stream": true, "stream_options": {"include_usage": true}"#));
        assert!(stream.head.contains("content-type: text/event-stream"), "{}", stream.head);
        assert_eq!(streamed(&stream), content(&whole));
        assert_eq!(stream.events().last().unwrap(), "[DONE]");
        let values = stream.values();
        let last = values.last().unwrap();
        assert_eq!((&last["choices"], &last["usage"]["completion_tokens"]), (&value("[]"), &value("24")));
        // The same prompt again: all but its last token was there.
        let prompt = whole["usage"]["prompt_tokens"].as_u64().unwrap();
        assert_eq!(last["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64(), Some(prompt - 1));
        assert_eq!(values[values.len() - 2]["timings"]["cache"]["source"], "ram");
        assert!(values.iter().all(|v| v["id"] == values[0]["id"] && v["model"] == whole["model"]));
    }
}

#[test]
fn a_second_turn_finds_the_first_and_other_salts_do_not() {
    let server = start("");
    let words = "one two three four five six seven eight nine ten ".repeat(4);
    let first = server.post(CHAT, &chat(&words, r#", "max_tokens": 8"#)).ok();
    assert_eq!(first["usage"]["prompt_tokens_details"]["cached_tokens"], value("0"));
    let reply = Value::from(content(&first)).to_string();
    let turns = |more: &str| {
        format!(
            r#"{{"messages": [{{"role": "user", "content": "{words}"}}, {{"role": "assistant",
                "content": {reply}}},
            {{"role": "user", "content": "and?"}}], "temperature": 0, "max_tokens": 4{more}}}"#
        )
    };
    let cached = |more: &str| {
        let reply = server.post(CHAT, &turns(more)).ok();
        (reply["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap(), reply)
    };
    let (tokens, reply) = cached("");
    assert!(tokens >= 32, "{reply}");
    let cache = &reply["timings"]["cache"];
    assert_eq!((&cache["source"], cache["tokens"].as_u64()), (&"ram".into(), Some(tokens)));
    assert_eq!(cached(r#", "cache_prompt": false"#).0, 0);
    assert_eq!(cached(r#", "cache_salt": "mine""#).0, 0);
    assert!(cached(r#", "cache_salt": "mine""#).0 > 0);
    assert_eq!(cached(r#", "cache_salt": "yours""#).0, 0);
    // Where the prompt left what was known is told, with the token's text.
    let other = server.post(CHAT, &chat(&words.replace("nine", "zero"), r#", "max_tokens": 1"#)).ok();
    let cache = &other["timings"]["cache"];
    assert!(cache["diverged_at"].as_u64().is_some() && cache["diverged_token"].is_string(), "{cache}");
    assert_eq!(server.post("/admin/api/kv/clear", "").ok()["status"], "ok");
    assert_eq!(cached("").0, 0);
}

#[test]
fn stop_strings_seeds_and_several_replies() {
    let server = start("");
    let whole = server.post(CHAT, &chat("Hi", r#", "max_tokens": 30"#)).ok();
    let text = content(&whole);
    // A string from the middle, which tokens need not end with.
    let chars: Vec<char> = text.chars().collect();
    let pairs = chars[4..].windows(2).find(|pair| !pair.contains(&'\u{FFFD}'));
    let stop: String = pairs.unwrap_or_else(|| panic!("{text}")).iter().collect();
    let at = text.find(&stop).unwrap();
    let more = format!(r#", "max_tokens": 30, "stop": ["no such text", {}]"#, Value::from(stop.as_str()));
    let cut = server.post(CHAT, &chat("Hi", &more)).ok();
    assert_eq!((content(&cut), &cut["choices"][0]["finish_reason"]), (&text[..at], &"stop".into()));
    assert!(cut["usage"]["completion_tokens"].as_u64() < whole["usage"]["completion_tokens"].as_u64());
    let stream = server.post(CHAT, &chat("Hi", &(more + r#", "stream": true"#)));
    assert_eq!(streamed(&stream), &text[..at]);

    let many = r#", "temperature": 1, "seed": 5, "max_tokens": 6"#;
    let texts = |more: &str| -> Vec<String> {
        let body = format!(r#"{{"messages": [{{"role": "user", "content": "Hi"}}]{many}{more}}}"#);
        let reply = server.post(CHAT, &body).ok();
        let choices = reply["choices"].as_array().unwrap();
        choices.iter().map(|c| String::from(c["message"]["content"].as_str().unwrap())).collect()
    };
    let three = texts(r#", "n": 3"#);
    assert_eq!(three.len(), 3);
    assert_eq!(texts(""), three[..1]);
    assert!(three[0] != three[1] || three[1] != three[2]);
    assert_eq!(texts(r#", "n": 3"#), three);
    // Forbidden is forbidden: what greedy says first never comes with its token banned.
    let top =
        server.post(TEXT, r#"{"prompt": [1, 2, 3], "temperature": 0, "max_tokens": 1, "logprobs": 2}"#).ok();
    let first = &top["choices"][0]["text"];
    let id = server.post("/tokenize", &format!(r#"{{"content": {first}}}"#)).ok()["tokens"][0].as_u64();
    if let Some(id) = id {
        let body = format!(
            r#"{{"prompt": [1, 2, 3], "temperature": 0, "max_tokens": 1, "logit_bias": {{"{id}": -100}}}}"#
        );
        assert_ne!(&server.post(TEXT, &body).ok()["choices"][0]["text"], first);
    }
}

#[test]
fn probabilities_of_tokens() {
    let server = start("");
    let reply =
        server.post(CHAT, &chat("Hi", r#", "max_tokens": 5, "logprobs": true, "top_logprobs": 3"#)).ok();
    let told = reply["choices"][0]["logprobs"]["content"].as_array().unwrap();
    assert!(!told.is_empty() && told.len() <= 5, "{reply}");
    for one in told {
        let top = one["top_logprobs"].as_array().unwrap();
        assert_eq!(top.len(), 3);
        // Greedy takes the best.
        assert_eq!(
            (&top[0]["token"], top[0]["logprob"].to_string()),
            (&one["token"], one["logprob"].to_string())
        );
        let values: Vec<f64> = top.iter().map(|t| t["logprob"].as_f64().unwrap()).collect();
        assert!(values.is_sorted_by(|a, b| a >= b) && values[0] <= 0.0, "{values:?}");
        assert_eq!(one["bytes"].as_array().unwrap().is_empty(), one["token"] == "");
    }
    let stream = server
        .post(CHAT, &chat("Hi", r#", "max_tokens": 5, "logprobs": true, "top_logprobs": 3, "stream": true"#));
    let values = stream.values();
    let parts = values.iter().filter_map(|v| v["choices"][0]["logprobs"]["content"].as_array());
    assert_eq!(&parts.flatten().cloned().collect::<Vec<_>>(), told);
    let plain = server.post(CHAT, &chat("Hi", r#", "max_tokens": 5"#)).ok();
    assert_eq!(content(&plain), content(&reply));
    assert!(plain["choices"][0]["logprobs"].is_null());
}

#[test]
fn completions_take_texts_and_ids() {
    let server = start("");
    let ids = server.post("/tokenize", r#"{"content": "Once upon a time"}"#).ok()["tokens"].to_string();
    let ask = |prompt: &str, more: &str| {
        server.post(TEXT, &format!(r#"{{"prompt": {prompt}, "temperature": 0, "max_tokens": 6{more}}}"#))
    };
    let text = |reply: &Value, i: usize| String::from(reply["choices"][i]["text"].as_str().unwrap());
    let one = text(&ask(r#""Once upon a time""#, "").ok(), 0);
    assert_eq!(text(&ask(&ids, "").ok(), 0), one);
    let both = ask(&format!(r#"["Once upon a time", "x", {ids}]"#).replace("\"x\"", &ids), "").ok();
    assert_eq!([text(&both, 0), text(&both, 1), text(&both, 2)], [one.as_str(); 3]);
    assert_eq!(both["usage"]["completion_tokens"], value("18"));
    assert_eq!(
        text(&ask(r#""Once upon a time""#, r#", "echo": true"#).ok(), 0),
        format!("Once upon a time{one}")
    );
    for (more, expected) in [("", one.clone()), (r#", "echo": true"#, format!("Once upon a time{one}"))] {
        let stream = ask(r#""Once upon a time""#, &format!(r#", "stream": true{more}"#));
        let values = stream.values();
        assert_eq!(values.iter().map(|v| text(v, 0)).collect::<String>(), expected);
        assert_eq!(values.last().unwrap()["choices"][0]["finish_reason"], "length");
    }
    // Nothing but the prompt is read.
    let none = server.post(TEXT, r#"{"prompt": "Once upon", "max_tokens": 0}"#).ok();
    assert_eq!((text(&none, 0).as_str(), &none["usage"]["completion_tokens"]), ("", &value("0")));
    let raw =
        run(&["run", "-m", &qwen3(), "--raw", "-p", "Once upon a time", "--temp", "0", "-n", "6", "-t", "1"])
            .ok();
    assert_eq!(one, raw.strip_suffix('\n').unwrap());
    let progress =
        ask(&format!("{:?}", "word ".repeat(100)), r#", "stream": true, "return_progress": true"#).values();
    let last = progress.iter().rfind(|v| v.get("prompt_progress").is_some()).unwrap();
    assert_eq!(last["prompt_progress"]["total"], last["prompt_progress"]["processed"]);
}

#[test]
fn the_other_api_answers_alike() {
    let server = start("");
    let body = |more: &str| {
        format!(
            r#"{{"messages": [{{"role": "user", "content": "Hello"}}], "temperature": 0,
                "max_tokens": 9{more}}}"#
        )
    };
    let whole = server.post(MESSAGES, &body("")).ok();
    let no_thinking = r#", "max_tokens": 9, "chat_template_kwargs": {"enable_thinking": false}"#;
    let chat = server.post(CHAT, &chat("Hello", no_thinking)).ok();
    assert_eq!(whole["content"][0]["text"].as_str(), Some(content(&chat)));
    assert_eq!((&whole["type"], &whole["stop_reason"]), (&"message".into(), &"max_tokens".into()));
    let stream = server.post(MESSAGES, &body(r#", "stream": true"#));
    let values = stream.values();
    let text: String = values.iter().filter_map(|v| v["delta"]["text"].as_str()).collect();
    assert_eq!(text, content(&chat));
    assert_eq!(values.last().unwrap()["type"], "message_stop");
    assert!(stream.body.starts_with("event: message_start\ndata: {"), "{}", stream.body);
    let count = server.post("/v1/messages/count_tokens", &body("")).ok()["input_tokens"].as_u64().unwrap();
    let usage = &whole["usage"];
    let (input, cached) =
        (usage["input_tokens"].as_u64().unwrap(), usage["cache_read_input_tokens"].as_u64().unwrap());
    assert_eq!(input + cached, count);
    assert!(values[0]["message"]["usage"]["cache_read_input_tokens"].as_u64().unwrap() > cached);
    let error = server.post(MESSAGES, r#"{"messages": []}"#);
    assert_eq!((error.status, &error.json()["type"]), (400, &"error".into()));
    assert_eq!(error.json()["error"]["type"], "invalid_request_error");
}

#[test]
fn replies_keep_to_their_form() {
    let server = start("");
    let schema = r#"{"type": "object", "properties": {"color": {"enum": ["red", "green"]},
        "n": {"type": "integer",
        "minimum": 1, "maximum": 9}}, "required": ["color", "n"]}"#;
    let format = format!(
        r#", "response_format": {{"type": "json_schema", "json_schema": {{"name": "x",
            "schema": {schema}}}}}"#
    );
    for more in ["", r#", "temperature": 1.5, "seed": 3"#] {
        let reply = server
            .post(CHAT, &chat("Hi", &format!("{format}{more}")).replacen(r#""temperature": 0, "#, "", 1))
            .ok();
        let said = serde_json::from_str::<Value>(content(&reply)).unwrap_or_else(|e| panic!("{e}: {reply}"));
        assert!(["red", "green"].contains(&said["color"].as_str().unwrap()), "{reply}");
        assert!((1..=9).contains(&said["n"].as_u64().unwrap()), "{reply}");
        assert_eq!(reply["choices"][0]["finish_reason"], "stop");
    }
    let tools = r#", "tools": [{"type": "function", "function": {"name": "paint",
        "parameters": {"type": "object",
        "properties": {"color": {"enum": ["red", "green"]}}, "required": ["color"]}}}],
            "parallel_tool_calls": false"#;
    let named = r#"{"type": "function", "function": {"name": "paint"}}"#;
    for choice in [r#""required""#, named] {
        let more = format!(r#"{tools}, "tool_choice": {choice}"#);
        let reply = server.post(CHAT, &chat("Hi", &more)).ok();
        let choice = &reply["choices"][0];
        assert_eq!(choice["finish_reason"], "tool_calls", "{reply}");
        let function = &choice["message"]["tool_calls"][0]["function"];
        assert_eq!(
            (&function["name"], choice["message"]["content"].is_null()),
            (&"paint".into(), true),
            "{reply}"
        );
        let arguments = value(function["arguments"].as_str().unwrap());
        assert!(["red", "green"].contains(&arguments["color"].as_str().unwrap()));
        let values = server.post(CHAT, &chat("Hi", &format!(r#"{more}, "stream": true"#))).values();
        let calls: Vec<&Value> = values.iter().map(|v| &v["choices"][0]["delta"]["tool_calls"][0]).collect();
        assert!(calls.iter().any(|call| call["function"]["name"] == "paint"));
        let joined: String = calls.iter().filter_map(|call| call["function"]["arguments"].as_str()).collect();
        assert_eq!(value(&joined), arguments);
    }
    let anthropic = r#"{"messages": [{"role": "user", "content": "Hi"}], "temperature": 0,
        "max_tokens": 99, "tools":
        [{"name": "paint", "input_schema": {"type": "object", "properties": {"color": {"const": "red"}},
            "required": ["color"]}}],
        "tool_choice": {"type": "tool", "name": "paint"}}"#;
    let reply = server.post(MESSAGES, anthropic).ok();
    let last = reply["content"].as_array().unwrap().last().unwrap();
    assert_eq!(
        (&last["type"], &last["input"]["color"], &reply["stop_reason"]),
        (&"tool_use".into(), &"red".into(), &"tool_use".into())
    );
    let bad = r#", "response_format": {"type": "json_schema", "json_schema": {"name": "x",
        "schema": {"type": "string", "pattern": "a+"}}}"#;
    let error = server.post(CHAT, &chat("Hi", bad));
    assert_eq!(
        (error.status, &error.json()["error"]["code"]),
        (400, &"unsupported_schema".into()),
        "{}",
        error.body
    );
}
