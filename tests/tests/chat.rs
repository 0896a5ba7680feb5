//! Chat rendering against the published templates: fixtures rendered by Jinja2 itself.

use kinglet::chat_json::{self, ChatJsonError};
use kinglet::cmd_template::{self, Summary};
use kinglet_core::chat::{ChatError, Conversation, Family, Message, UnknownTemplate, render};
use serde_json::{Value, json};
use std::fmt;

const QWEN2_5: &str = include_str!("../fixtures/chat-template/qwen2.5.jinja");
const QWEN3: &str = include_str!("../fixtures/chat-template/qwen3.jinja");
const QWEN3_VL: &str = include_str!("../fixtures/chat-template/qwen3-vl-instruct.jinja");
const CASES: &str = include_str!("../fixtures/chat-template/cases.json");
const RANDOM_CASES: &str = include_str!("../fixtures/chat-template/random_cases.jsonl");

fn family(template: &str) -> Family {
    match template {
        "qwen2.5" => Family::Qwen2_5,
        "qwen3" => Family::Qwen3,
        "qwen3-vl-instruct" => Family::Qwen3Vl,
        other => panic!("no template {other}"),
    }
}

/// The class Python gives an error, where the template decides it alone.
fn python_classes(error: &ChatJsonError) -> &'static [&'static str] {
    match error {
        ChatJsonError::Chat(ChatError::NoMessages | ChatError::ContentMissing { .. }) => &["UndefinedError"],
        // A method of null or of a list is undefined, adding to it a type error.
        ChatJsonError::Chat(ChatError::ContentNull { .. }) => &["TypeError", "UndefinedError"],
        ChatJsonError::Chat(ChatError::ContentList { .. }) => &["TypeError", "UndefinedError", "ListPrinted"],
        ChatJsonError::Chat(ChatError::ArgumentsMissing { .. }) => &["TypeError"],
        _ => &[],
    }
}

fn check(name: &str, template: &str, request: &Value, case: &Value) {
    match (chat_json::render(family(template), request), case["error"].as_str()) {
        (Ok(text), None) => assert_eq!(text, case["expected"].as_str().unwrap(), "{template} {name}"),
        (Err(error), Some(class)) => {
            assert!(python_classes(&error).contains(&class), "{template} {name}: {error}, not {class}");
        }
        (ours, _) => panic!("{template} {name}: {ours:?}\ntheirs: {case}"),
    }
}

#[test]
fn every_fixture_is_rendered_as_published() {
    let fixtures: Value = serde_json::from_str(CASES).unwrap();
    let cases = fixtures["cases"].as_array().unwrap();
    assert!(cases.len() >= 93);
    for case in cases {
        let mut request = json!({"messages": case["conversation"], "tools": case["tools"]});
        for (key, value) in case["kwargs"].as_object().unwrap() {
            request[key] = value.clone();
        }
        check(case["name"].as_str().unwrap(), case["template"].as_str().unwrap(), &request, case);
    }
}

/// `KINGLET_CHAT_CASES` names another file of `random_cases.py`, for longer runs.
#[test]
fn random_conversations_are_rendered_as_by_jinja2() {
    let more = std::env::var("KINGLET_CHAT_CASES").map(|path| std::fs::read_to_string(path).unwrap());
    for (i, line) in RANDOM_CASES.lines().chain(more.as_deref().unwrap_or("").lines()).enumerate() {
        let case: Value = serde_json::from_str(line).unwrap();
        let request: Value = serde_json::from_str(case["request"].as_str().unwrap()).unwrap();
        check(&format!("line {}: {request}", i + 1), case["template"].as_str().unwrap(), &request, &case);
    }
}

#[test]
fn templates_are_recognised_by_what_they_do() {
    assert_eq!(Family::detect(QWEN2_5), Ok(Family::Qwen2_5));
    assert_eq!(Family::detect(QWEN3), Ok(Family::Qwen3));
    assert_eq!(Family::detect(QWEN3_VL), Ok(Family::Qwen3Vl));
    // A copy with other indentation and a later revision's test.
    let reformatted = QWEN3.replace("\n    ", "\n\t").replace(
        "message.role == \"user\" and not",
        "message.role == \"user\" and message.content is string and not",
    );
    assert_ne!(reformatted, QWEN3);
    assert_eq!(Family::detect(&reformatted), Ok(Family::Qwen3));
    let thinking_only = QWEN3.replace("enable_thinking", "other");
    assert_eq!(Family::detect(&thinking_only), Err(UnknownTemplate::OtherChatMl));
    let vl_thinking = QWEN3_VL.replace("assistant\\n' }}", "assistant\\n<think>\\n' }}");
    assert_eq!(Family::detect(&vl_thinking), Err(UnknownTemplate::OtherChatMl));
    let math =
        QWEN2_5.replace("You are Qwen, created by Alibaba Cloud. You are a helpful assistant.", "Reason.");
    assert_eq!(Family::detect(&math), Err(UnknownTemplate::OtherChatMl));
    let plain = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>{% endfor %}";
    assert_eq!(Family::detect(plain), Err(UnknownTemplate::OtherChatMl));
    assert_eq!(Family::detect("[INST] {{ messages[0].content }} [/INST]"), Err(UnknownTemplate::NotChatMl));
    assert_eq!(Family::detect(""), Err(UnknownTemplate::NotChatMl));
    assert_eq!(Family::of_architecture("qwen3moe"), Some(Family::Qwen3));
    assert_eq!(Family::of_architecture("llama"), None);
}

#[test]
fn tojson_prints_numbers_and_strings_as_python_does() {
    for (json, python) in [
        ("1.0", "1.0"),
        ("1e20", "1e+20"),
        ("1E-5", "1e-05"),
        ("1e16", "1e+16"),
        ("1e15", "1000000000000000.0"),
        ("123456789012345680.0", "1.2345678901234568e+17"),
        ("0.0001", "0.0001"),
        ("0.00012", "0.00012"),
        ("100.25", "100.25"),
        ("-0.0", "-0.0"),
        ("-0", "0"),
        ("0e5", "0.0"),
        ("5e-324", "5e-324"),
        ("1.7976931348623157e308", "1.7976931348623157e+308"),
        ("-1e999", "-Infinity"),
        ("123456789012345678901234567890", "123456789012345678901234567890"),
        ("9007199254740993.0", "9007199254740992.0"),
        (r#""\u0000\u001f\u007f\b\f\/<é\ud83d\ude00\u2028""#, "\"\\u0000\\u001f\u{7f}\\b\\f/<é😀\u{2028}\""),
        (r#"{"b":[1,{}],"a":[],"b2":null,"b":true}"#, r#"{"b": true, "a": [], "b2": null}"#),
    ] {
        assert_eq!(chat_json::to_json(&serde_json::from_str(json).unwrap()), python, "{json}");
    }
}

#[test]
fn wrong_types_are_errors_that_say_where() {
    for (request, text) in [
        (json!([]), "request: expected an object"),
        (json!({}), "messages: expected a list"),
        (json!({"messages": [1]}), "messages[0]: expected an object"),
        (json!({"messages": []}), "the conversation has no messages"),
        (
            json!({"messages": [{"role": "user", "content": 3}]}),
            "messages[0].content: expected a string, a list or null",
        ),
        (
            json!({"messages": [{"role": "user", "content": [{"text": "a"}, "b"]}]}),
            "messages[0].content[1]: expected an object",
        ),
        (json!({"messages": [], "tools": {}}), "tools: expected a list"),
        (json!({"messages": [], "tools": ["x"]}), "tools[0]: expected an object"),
        (json!({"messages": [], "enable_thinking": "no"}), "enable_thinking: expected true, false or null"),
        (
            json!({"messages": [{"role": "assistant", "content": "", "tool_calls": [{"name": "f"}]}]}),
            "messages[0].tool_calls[0]: arguments are missing",
        ),
    ] {
        assert_eq!(chat_json::render(Family::Qwen3Vl, &request).unwrap_err().to_string(), text);
    }
}

#[test]
fn a_writer_that_refuses_is_an_error() {
    struct Full(usize);
    impl fmt::Write for Full {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            self.0 = self.0.checked_sub(text.len()).ok_or(fmt::Error)?;
            Ok(())
        }
    }
    let messages = [Message::new("user", "Hello")];
    let conversation =
        Conversation { messages: &messages, add_generation_prompt: true, ..Conversation::default() };
    let mut text = String::new();
    render(Family::Qwen3, &conversation, &mut text).unwrap();
    assert_eq!(text, "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n");
    for room in 0..text.len() {
        assert_eq!(render(Family::Qwen3, &conversation, &mut Full(room)), Err(ChatError::Output));
    }
    assert_eq!(render(Family::Qwen3, &conversation, &mut Full(text.len())), Ok(()));
}

#[test]
fn the_template_command_answers_every_line_with_a_line() {
    let input = b"{\"messages\": [{\"role\": \"user\", \"content\": \"a\\n\\u00e9\"}]}\n\
        {\"messages\": \n\
        \n\
        {\"messages\": []}\n\
        \"\xFF\"\n\
        {\"messages\": [{\"role\": \"user\", \"content\": \"b\"}], \"add_generation_prompt\": true}";
    let mut output = Vec::new();
    let summary = cmd_template::run(Family::Qwen3, &input[..], &mut output).unwrap();
    assert_eq!(summary, Summary { lines: 6, errors: 4 });
    let output = String::from_utf8(output).unwrap();
    let lines: Vec<Value> = output.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines[0], "<|im_start|>user\na\n\u{e9}<|im_end|>\n");
    assert_eq!(lines[1]["error"], "line 2, column 12: malformed JSON: EOF while parsing a value");
    assert!(lines[2]["error"].as_str().unwrap().starts_with("line 3, column "));
    assert_eq!(lines[3]["error"], "the conversation has no messages");
    assert!(lines[4]["error"].as_str().unwrap().starts_with("line 5, column "));
    assert_eq!(lines[5], "<|im_start|>user\nb<|im_end|>\n<|im_start|>assistant\n");
    assert_eq!(lines.len(), 6);
}
