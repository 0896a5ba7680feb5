//! Requests of both APIs, read. Must not know how they are answered.

use super::super::anthropic_ask::messages;
use super::*;
use kinglet_core::chat::Family::{Qwen2_5, Qwen3, Qwen3Vl};

fn value(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

#[track_caller]
fn text(ask: &Ask) -> &str {
    match ask.prompts.as_slice() {
        [Prompt::Text(text)] => text,
        other => panic!("{other:?}"),
    }
}

fn asked(text: &str) -> Ask {
    chat(&value(text), Qwen3, 100).unwrap()
}

#[track_caller]
fn refused(text: &str) -> (String, String) {
    let error = chat(&value(text), Qwen3, 100).unwrap_err();
    assert_eq!(error.status, 400, "{error:?}");
    (error.param.unwrap_or_default(), error.message)
}

const TOOLS: &str = r#""tools": [{"type": "function", "function": {"name": "sum", "parameters":
    {"type": "object", "properties": {"a": {"type": "integer"}}}}}, {"type": "function",
        "function": {"name": "now"}}]"#;

#[test]
fn chats_become_prompts() {
    let ask = asked(
        r#"{"messages": [{"role": "developer", "content": "Be brief."},
            {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}]}"#,
    );
    assert_eq!(
        text(&ask),
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\na\nb<|im_end|>\n<|im_start|>assistant\n"
    );
    assert!(ask.reasoning && ask.logprobs.is_none() && ask.form == Form::Free);
    let ask = asked(
        r#"{"messages": [{"role": "user", "content": "x"}], "logprobs": true, "top_logprobs": 3,
            "chat_template_kwargs": {"enable_thinking": false}}"#,
    );
    assert!(text(&ask).ends_with("<think>\n\n</think>\n\n"));
    assert_eq!(ask.logprobs, Some(3));
}

#[test]
fn calls_and_their_results_are_told_as_the_model_wrote_them() {
    let talk = r#"{"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": null,
        "tool_calls": [{"id": "c", "type": "function", "function": {"name": "sum",
            "arguments": "{\"a\": 1}"}}]},
        {"role": "tool", "tool_call_id": "c", "content": "1"}]}"#;
    for family in [Qwen2_5, Qwen3, Qwen3Vl] {
        let ask = chat(&value(talk), family, 100).unwrap();
        let call = "<tool_call>\n{\"name\": \"sum\", \"arguments\": {\"a\": 1}}\n</tool_call>";
        assert!(text(&ask).contains(call), "{family:?}: {}", text(&ask));
        assert!(text(&ask).contains("<tool_response>\n1\n</tool_response>"));
    }
}

#[test]
fn the_choice_of_tools_forms_the_reply() {
    let with = |more: &str| {
        asked(&format!(r#"{{"messages": [{{"role": "user", "content": "x"}}], {TOOLS}{more}}}"#))
    };
    let auto = with("");
    assert!(auto.tools && !auto.no_calls && !auto.one_call && auto.form == Form::Free);
    assert!(text(&auto).contains("# Tools"));
    let none = with(r#", "tool_choice": "none""#);
    assert!(!none.tools && none.no_calls && text(&none) == text(&auto));
    assert!(with(r#", "parallel_tool_calls": false"#).one_call);
    let Form::Calls { tools, one: false } = with(r#", "tool_choice": "required""#).form else { panic!() };
    assert_eq!(tools[1], (String::from("now"), value(r#"{"type": "object"}"#)));
    assert_eq!(tools[0].1["properties"]["a"]["type"], "integer");
    let named = with(r#", "tool_choice": {"type": "function", "function": {"name": "now"}}"#);
    assert!(
        matches!(&named.form, Form::Calls { tools, one: true } if tools.len() == 1 && tools[0].0 == "now")
    );
    // A form comes at once, unless thinking is asked for.
    assert!(text(&named).ends_with("</think>\n\n") && !named.thinks_first);
    let thinking = with(r#", "tool_choice": "required", "chat_template_kwargs": {"enable_thinking": true}"#);
    assert!(text(&thinking).ends_with("assistant\n") && thinking.thinks_first);
}

#[test]
fn forms_of_replies_are_read() {
    let form = |format: &str| {
        asked(&format!(
            r#"{{"messages": [{{"role": "user", "content": "x"}}], "response_format": {format}}}"#
        ))
        .form
    };
    assert_eq!(form(r#"{"type": "text"}"#), Form::Free);
    assert_eq!(form(r#"{"type": "json_object"}"#), Form::Object);
    let schema = Form::Schema(value(r#"{"type": "integer"}"#));
    assert_eq!(
        form(r#"{"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "integer"}}}"#),
        schema
    );
    assert_eq!(form(r#"{"type": "json_object", "schema": {"type": "integer"}}"#), schema);
}

#[test]
fn what_is_wrong_in_a_chat_is_named() {
    let user = r#"{"role": "user", "content": "x"}"#;
    for (request, param) in [
        (String::from("{}"), "messages"),
        (String::from(r#"{"messages": "x"}"#), "messages"),
        (String::from(r#"{"messages": []}"#), "messages"),
        (String::from(r#"{"messages": [5]}"#), "messages[0]"),
        (String::from(r#"{"messages": [{"content": "x"}]}"#), "messages[0].role"),
        (String::from(r#"{"messages": [{"role": "wizard", "content": "x"}]}"#), "messages[0].role"),
        (String::from(r#"{"messages": [{"role": "user"}]}"#), "messages[0].content"),
        (String::from(r#"{"messages": [{"role": "user", "content": 5}]}"#), "messages[0].content"),
        (String::from(r#"{"messages": [{"role": "user", "content": [5]}]}"#), "messages[0].content[0]"),
        (
            String::from(r#"{"messages": [{"role": "user", "content": [{"type": "text"}]}]}"#),
            "messages[0].content[0].text",
        ),
        (
            String::from(
                r#"{"messages": [{"role": "assistant", "tool_calls": [{"function": {"arguments": "{}"}}]}]}"#,
            ),
            "messages[0].tool_calls[0].function.name",
        ),
        (format!(r#"{{"messages": [{user}], "top_logprobs": 2}}"#), "top_logprobs"),
        (format!(r#"{{"messages": [{user}], "logprobs": true, "top_logprobs": 21}}"#), "top_logprobs"),
        (format!(r#"{{"messages": [{user}], "logprobs": 1}}"#), "logprobs"),
        (format!(r#"{{"messages": [{user}], "tools": {{}}}}"#), "tools"),
        (format!(r#"{{"messages": [{user}], "tools": [{{"type": "function"}}]}}"#), "tools[0].function"),
        (format!(r#"{{"messages": [{user}], "tool_choice": "required"}}"#), "tool_choice"),
        (format!(r#"{{"messages": [{user}], "tool_choice": "perhaps"}}"#), "tool_choice"),
        (
            format!(r#"{{"messages": [{user}], {TOOLS}, "tool_choice": {{"function": {{"name": "no"}}}}}}"#),
            "tool_choice",
        ),
        (
            format!(r#"{{"messages": [{user}], {TOOLS}, "response_format": {{"type": "json_object"}}}}"#),
            "response_format",
        ),
        (
            format!(r#"{{"messages": [{user}], "response_format": {{"type": "xml"}}}}"#),
            "response_format.type",
        ),
        (
            format!(r#"{{"messages": [{user}], "response_format": {{"type": "json_schema"}}}}"#),
            "response_format.json_schema",
        ),
        (
            format!(r#"{{"messages": [{user}], "chat_template_kwargs": {{"enable_thinking": 1}}}}"#),
            "chat_template_kwargs.enable_thinking",
        ),
    ] {
        let (named, message) = refused(&request);
        assert_eq!(named, param, "{request}");
        assert!(message.starts_with(param), "{message}");
    }
    let image = r#"{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}"#;
    let (param, message) = refused(&format!(r#"{{"messages": [{{"role": "user", "content": [{image}]}}]}}"#));
    assert_eq!(param, "messages[0].content[0].type");
    assert!(message.contains("no vision model is loaded"), "{message}");
}

#[test]
fn prompts_are_texts_or_ids_or_lists_of_them() {
    let prompts =
        |text: &str| completion(&value(&format!(r#"{{"prompt": {text}}}"#)), 100).map(|ask| ask.prompts);
    assert_eq!(prompts(r#""x""#), Ok(vec![Prompt::Text("x".into())]));
    assert_eq!(prompts("[1, 2]"), Ok(vec![Prompt::Ids(vec![1, 2])]));
    assert_eq!(prompts(r#"["x", [3]]"#), Ok(vec![Prompt::Text("x".into()), Prompt::Ids(vec![3])]));
    for bad in [
        "null",
        "5",
        "[]",
        "[100]",
        "[1, \"x\"]",
        "[[1.5]]",
        "[{}]",
        "[[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[]]",
    ] {
        assert_eq!(prompts(bad).unwrap_err().param.as_deref(), Some("prompt"), "{bad}");
    }
    let with = |more: &str| completion(&value(&format!(r#"{{"prompt": "x", {more}}}"#)), 100);
    let ask = with(r#""echo": true, "n": 2, "best_of": 2"#).unwrap();
    assert!(ask.echo && !ask.reasoning && !ask.tools);
    assert_eq!(with(r#""logprobs": 5"#).unwrap().logprobs, Some(5));
    for (more, param) in [
        (r#""logprobs": 21"#, "logprobs"),
        (r#""logprobs": 1, "echo": true"#, "echo"),
        (r#""suffix": "y""#, "suffix"),
        (r#""best_of": 3"#, "best_of"),
    ] {
        assert_eq!(with(more).unwrap_err().param.as_deref(), Some(param), "{more}");
    }
}

#[test]
fn the_other_api_says_the_same_in_other_words() {
    let ask = messages(
        &value(
            r#"{"model": "m", "max_tokens": 9, "system": [{"type": "text", "text": "S", "cache_control": {}}],
                "stop_sequences": ["Z"], "tools": [{"name": "sum", "description": "d",
                    "input_schema": {"type": "object"}}],
                "tool_choice": {"type": "auto", "disable_parallel_tool_use": true},
                "messages": [{"role": "user", "content": "1+1?"},
                {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm"}, {"type": "text",
                    "text": "let me see"},
                    {"type": "tool_use", "id": "t", "name": "sum", "input": {"a": 1}}]},
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t",
                    "content": [{"type": "text", "text": "2"}]},
                    {"type": "text", "text": "well?"}]}]}"#,
        ),
        Qwen3,
        100,
    )
    .unwrap();
    let same = asked(
        r#"{"messages": [{"role": "system", "content": "S"}, {"role": "user", "content": "1+1?"},
            {"role": "assistant", "content": "let me see", "reasoning_content": "hm",
             "tool_calls": [{"function": {"name": "sum", "arguments": {"a": 1}}}]},
            {"role": "tool", "content": "2"}, {"role": "user", "content": "well?"}],
            "tools": [{"type": "function", "function": {"name": "sum", "description": "d",
                "parameters": {"type": "object"}}}],
            "chat_template_kwargs": {"enable_thinking": false}}"#,
    );
    assert_eq!(text(&ask), text(&same));
    assert_eq!((ask.most, ask.stops.as_slice()), (Some(9), &[String::from("Z")][..]));
    assert!(ask.tools && ask.one_call);
    let user = r#"{"role": "user", "content": "x"}"#;
    let read = |more: &str| messages(&value(&format!(r#"{{"messages": [{user}]{more}}}"#)), Qwen3, 100);
    assert!(text(&read("").unwrap()).ends_with("</think>\n\n"));
    let thinking = read(r#", "thinking": {"type": "enabled", "budget_tokens": 1024}"#).unwrap();
    assert!(text(&thinking).ends_with("assistant\n"));
    for (more, param) in [
        (r#", "stop_sequences": 5"#, "stop_sequences"),
        (r#", "system": 5"#, "system"),
        (r#", "thinking": {"type": "maybe"}"#, "thinking.type"),
        (r#", "tools": [{"name": "x"}]"#, "tools[0].input_schema"),
        (r#", "tools": [{"type": "web_search_20250305", "name": "x"}]"#, "tools[0].type"),
        (r#", "tool_choice": {"type": "any"}"#, "tool_choice"),
    ] {
        assert_eq!(read(more).unwrap_err().param.as_deref(), Some(param), "{more}");
    }
    let formed = |more: &str| read(&format!(r#", "output_config": {{"format": {{{more}}}}}"#));
    let ask = formed(r#""type": "json_schema", "schema": {"type": "object"}"#).unwrap();
    assert_eq!(ask.form, Form::Schema(value(r#"{"type": "object"}"#)));
    assert_eq!(ask.form_field, "output_config.format");
    assert_eq!(read(r#", "output_config": {"effort": "low"}"#).unwrap().form, Form::Free);
    for (more, param) in [
        (r#""type": "xml""#, "output_config.format.type"),
        (r#""type": "json_schema""#, "output_config.format.schema"),
    ] {
        assert_eq!(formed(more).unwrap_err().param.as_deref(), Some(param), "{more}");
    }
    let both = r#", "tools": [{"name": "x", "input_schema": {}}], "output_config": {"format":
        {"type": "json_schema", "schema": {}}}"#;
    assert_eq!(read(both).unwrap_err().param.as_deref(), Some("output_config.format"));
    let image = r#"{"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]}"#;
    assert!(messages(&value(image), Qwen3, 100).unwrap_err().message.contains("no vision model"));
}
