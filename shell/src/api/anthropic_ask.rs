//! Requests of Anthropic's API, told in the words of the other one. Must not know how they are answered.

use super::ask::{Ask, Form, stops};
use super::error::ApiError;
use super::fields::Fields;
use super::talk::{Choice, Talk, call, message, part_text, text_of};
use kinglet_core::chat::Family;
use serde_json::{Map, Value};

/// A request to `/v1/messages` or `/v1/messages/count_tokens`.
///
/// # Errors
/// The first field that is wrong.
pub fn messages(request: &Value, family: Family, vocab: usize) -> Result<Ask, ApiError> {
    let fields = Fields::of(request)?;
    let mut ask = Ask::read(&fields, vocab)?;
    ask.n = 1;
    ask.stops = stops(&fields, "stop_sequences")?;
    let mut talk = Talk::new(Vec::new());
    if let Some(system) = text_of(&fields, "system", "system")?.filter(|text| !text.is_empty()) {
        talk.messages.push(Value::Object(message("system", system)));
    }
    let list = fields.list("messages")?.ok_or_else(|| fields.wrong("messages", "is missing"))?;
    if list.is_empty() {
        return Err(fields.wrong("messages", "is empty"));
    }
    for (i, said) in list.iter().enumerate() {
        one_message(i, said, family, &mut talk.messages)?;
    }
    for (i, tool) in fields.list("tools")?.unwrap_or_default().iter().enumerate() {
        talk.tools.push(one_tool(i, tool)?);
    }
    if let Some(choice) = fields.get("tool_choice") {
        let choice = Fields::part(choice, "tool_choice.")?;
        talk.choice = match choice.text("type")? {
            Some("auto") => Choice::Auto,
            Some("any") => Choice::Required,
            Some("none") => Choice::Never,
            Some("tool") => {
                let name = choice.text("name")?.ok_or_else(|| choice.wrong("name", "is missing"))?;
                Choice::Named(String::from(name))
            }
            _ => return Err(choice.wrong("type", "must be auto, any, tool or none")),
        };
        talk.parallel = !choice.switch("disable_parallel_tool_use")?.unwrap_or(false);
    }
    if let Some(config) = fields.get("output_config") {
        talk.form = form(&Fields::part(config, "output_config.")?)?;
        ask.form_field = "output_config.format";
    }
    // Who does not ask for thinking expects none.
    talk.thinking = Some(match fields.get("thinking") {
        None => false,
        Some(value) => match Fields::part(value, "thinking.")?.text("type")? {
            Some("enabled" | "adaptive") => true,
            Some("disabled") => false,
            _ => return Err(fields.wrong("thinking.type", "must be enabled or disabled")),
        },
    });
    talk.compose(family, &mut ask)?;
    Ok(ask)
}

/// What the reply must look like.
fn form(config: &Fields<'_>) -> Result<Form, ApiError> {
    let Some(value) = config.get("format") else { return Ok(Form::Free) };
    let format = Fields::part(value, "output_config.format.")?;
    match format.text("type")? {
        Some("json_schema") => Ok(Form::Schema(format.need("schema")?.clone())),
        _ => Err(format.wrong("type", "must be json_schema")),
    }
}

fn one_message(i: usize, said: &Value, family: Family, out: &mut Vec<Value>) -> Result<(), ApiError> {
    let path = format!("messages[{i}].");
    let fields = Fields::part(said, &path)?;
    let role = match fields.text("role")? {
        Some(role @ ("user" | "assistant" | "system")) => role,
        _ => return Err(fields.wrong("role", "must be user or assistant")),
    };
    let blocks = match fields.need("content")? {
        Value::String(text) => {
            out.push(Value::Object(message(role, text.clone())));
            return Ok(());
        }
        Value::Array(blocks) => blocks,
        _ => return Err(fields.wrong("content", "must be a string or a list of blocks")),
    };
    let mut turn = Turn::default();
    for (k, block) in blocks.iter().enumerate() {
        let at = format!("messages[{i}].content[{k}]");
        one_block(&at, block, family, &mut turn, out)?;
    }
    // Results of tools come before what the user says besides.
    if turn.text.is_some() || !turn.calls.is_empty() || !turn.results {
        let mut map = message(role, turn.text.unwrap_or_default());
        if let Some(thought) = turn.thought {
            map.insert(String::from("reasoning_content"), Value::String(thought));
        }
        if !turn.calls.is_empty() {
            map.insert(String::from("tool_calls"), Value::Array(turn.calls));
        }
        out.push(Value::Object(map));
    }
    Ok(())
}

/// What the blocks of a message say.
#[derive(Default)]
struct Turn {
    text: Option<String>,
    thought: Option<String>,
    calls: Vec<Value>,
    /// Whether there were results of tools.
    results: bool,
}

fn one_block(
    at: &str,
    block: &Value,
    family: Family,
    turn: &mut Turn,
    out: &mut Vec<Value>,
) -> Result<(), ApiError> {
    let path = [at, "."].concat();
    let block = Fields::part(block, &path)?;
    match block.text("type")? {
        Some("tool_use") => {
            let name = block.text("name")?.ok_or_else(|| block.wrong("name", "is missing"))?;
            let input = block.map("input")?.cloned().unwrap_or_default();
            turn.calls.push(call(name, &Value::Object(input), family));
        }
        Some("tool_result") => {
            let text = text_of(&block, "content", &[path.as_str(), "content"].concat())?.unwrap_or_default();
            let failed = block.switch("is_error")?.unwrap_or(false);
            let text = if failed { ["Error: ", &text].concat() } else { text };
            out.push(Value::Object(message("tool", text)));
            turn.results = true;
        }
        Some("thinking") => {
            let thought = block.text("thinking")?.unwrap_or_default();
            turn.thought.get_or_insert_default().push_str(thought);
        }
        Some("redacted_thinking") => {}
        _ => {
            let text = part_text(&block)?;
            let whole = turn.text.get_or_insert_default();
            if !whole.is_empty() {
                whole.push('\n');
            }
            whole.push_str(text);
        }
    }
    Ok(())
}

/// A tool in OpenAI's form.
fn one_tool(i: usize, tool: &Value) -> Result<Value, ApiError> {
    let path = format!("tools[{i}].");
    let tool = Fields::part(tool, &path)?;
    if tool.text("type")?.is_some_and(|kind| kind != "custom") {
        return Err(tool.wrong("type", "is a tool of another server; only custom tools are known here"));
    }
    let name = tool.text("name")?.ok_or_else(|| tool.wrong("name", "is missing"))?;
    let key = |name: &str| String::from(name);
    let mut function = Map::from_iter([(key("name"), Value::String(key(name)))]);
    if let Some(text) = tool.text("description")? {
        function.insert(key("description"), Value::String(key(text)));
    }
    let schema = tool.map("input_schema")?.ok_or_else(|| tool.wrong("input_schema", "is missing"))?;
    function.insert(key("parameters"), Value::Object(schema.clone()));
    let kind = Value::String(key("function"));
    Ok(Value::Object(Map::from_iter([(key("type"), kind), (key("function"), Value::Object(function))])))
}
