//! Requests of OpenAI's API: chats, and prompts to be continued. Must not know how they are answered.

use super::ask::{Ask, Form, MOST_TOP, Prompt};
use super::error::ApiError;
use super::fields::{Fields, as_ids};
use super::talk::{Choice, Talk, call, message, text_of};
use kinglet_core::chat::Family;
use serde_json::Value;

/// Most prompts of one request.
const MOST_PROMPTS: usize = 16;

/// A request to `/v1/chat/completions`.
///
/// # Errors
/// The first field that is wrong.
pub fn chat(request: &Value, family: Family, vocab: usize) -> Result<Ask, ApiError> {
    let fields = Fields::of(request)?;
    let mut ask = Ask::read(&fields, vocab)?;
    let top = fields.whole("top_logprobs", 0, MOST_TOP)?;
    if fields.switch("logprobs")?.unwrap_or(false) {
        ask.logprobs = Some(top.unwrap_or(0) as usize);
    } else if top.is_some_and(|top| top > 0) {
        return Err(fields.wrong("top_logprobs", "needs logprobs: true"));
    }
    let mut talk = conversation(&fields, family)?;
    talk.choice = choice(&fields)?;
    talk.parallel = fields.switch("parallel_tool_calls")?.unwrap_or(true);
    talk.form = form(&fields)?;
    talk.compose(family, &mut ask)?;
    Ok(ask)
}

/// Messages, tools and the switch for thinking: what makes the prompt.
///
/// # Errors
/// The first field that is wrong.
pub fn conversation(fields: &Fields<'_>, family: Family) -> Result<Talk, ApiError> {
    let list = fields.list("messages")?.ok_or_else(|| fields.wrong("messages", "is missing"))?;
    let messages = list.iter().enumerate().map(|(i, said)| one_message(i, said, family));
    let mut talk = Talk::new(messages.collect::<Result<_, _>>()?);
    talk.tools = fields.list("tools")?.unwrap_or_default().to_vec();
    if let Some(kwargs) = fields.get("chat_template_kwargs") {
        talk.thinking = Fields::part(kwargs, "chat_template_kwargs.")?.switch("enable_thinking")?;
    }
    Ok(talk)
}

fn one_message(i: usize, said: &Value, family: Family) -> Result<Value, ApiError> {
    let path = format!("messages[{i}].");
    let fields = Fields::part(said, &path)?;
    let role = match fields.text("role")?.ok_or_else(|| fields.wrong("role", "is missing"))? {
        "developer" => "system",
        role @ ("system" | "user" | "assistant" | "tool") => role,
        _ => return Err(fields.wrong("role", "must be system, developer, user, assistant or tool")),
    };
    let text = text_of(&fields, "content", &[path.as_str(), "content"].concat())?;
    if role != "assistant" {
        let text = text.ok_or_else(|| fields.wrong("content", "is missing"))?;
        return Ok(Value::Object(message(role, text)));
    }
    // A message that only calls tools has no content.
    let mut map = message(role, text.unwrap_or_default());
    if let Some(reasoning) = fields.text("reasoning_content")? {
        map.insert(String::from("reasoning_content"), Value::String(String::from(reasoning)));
    }
    let mut calls = Vec::new();
    for (k, made) in fields.list("tool_calls")?.unwrap_or_default().iter().enumerate() {
        let path = format!("messages[{i}].tool_calls[{k}].");
        let function = Fields::part(made, &path)?.need("function")?;
        let path = format!("{path}function.");
        let function = Fields::part(function, &path)?;
        let name = function.text("name")?.ok_or_else(|| function.wrong("name", "is missing"))?;
        let arguments = match function.get("arguments") {
            None => &Value::String(String::new()),
            Some(value @ (Value::String(_) | Value::Object(_))) => value,
            Some(_) => return Err(function.wrong("arguments", "must be a string with JSON in it")),
        };
        calls.push(call(name, arguments, family));
    }
    if !calls.is_empty() {
        map.insert(String::from("tool_calls"), Value::Array(calls));
    }
    Ok(Value::Object(map))
}

fn choice(fields: &Fields<'_>) -> Result<Choice, ApiError> {
    const NAME: &str = "tool_choice";
    match fields.get(NAME) {
        None => Ok(Choice::Auto),
        Some(Value::String(word)) => match word.as_str() {
            "none" => Ok(Choice::Never),
            "auto" => Ok(Choice::Auto),
            "required" => Ok(Choice::Required),
            _ => Err(fields.wrong(NAME, "must be none, auto, required or a function")),
        },
        Some(value) => {
            let function = Fields::part(value, "tool_choice.")?.need("function")?;
            let function = Fields::part(function, "tool_choice.function.")?;
            let name = function.text("name")?.ok_or_else(|| function.wrong("name", "is missing"))?;
            Ok(Choice::Named(String::from(name)))
        }
    }
}

fn form(fields: &Fields<'_>) -> Result<Form, ApiError> {
    let Some(value) = fields.get("response_format") else { return Ok(Form::Free) };
    let format = Fields::part(value, "response_format.")?;
    match format.text("type")? {
        Some("text") => Ok(Form::Free),
        Some("json_object") => match format.get("schema") {
            None => Ok(Form::Object),
            Some(schema) => Ok(Form::Schema(schema.clone())),
        },
        Some("json_schema") => {
            let schema = Fields::part(format.need("json_schema")?, "response_format.json_schema.")?;
            Ok(Form::Schema(schema.need("schema")?.clone()))
        }
        _ => Err(format.wrong("type", "must be text, json_object or json_schema")),
    }
}

/// A request to `/v1/completions`.
///
/// # Errors
/// The first field that is wrong.
pub fn completion(request: &Value, vocab: usize) -> Result<Ask, ApiError> {
    let fields = Fields::of(request)?;
    let mut ask = Ask::read(&fields, vocab)?;
    ask.prompts = prompts(&fields, vocab)?;
    ask.echo = fields.switch("echo")?.unwrap_or(false);
    ask.logprobs = match fields.get("logprobs") {
        // Some clients write the chat's switch.
        Some(Value::Bool(on)) => on.then_some(0),
        _ => fields.whole("logprobs", 0, MOST_TOP)?.map(|top| top as usize),
    };
    if ask.echo && ask.logprobs.is_some() {
        return Err(
            fields.wrong("echo", "does not go together with logprobs: those of the prompt are not kept")
        );
    }
    if fields.text("suffix")?.is_some_and(|suffix| !suffix.is_empty()) {
        return Err(
            fields.wrong("suffix", "is not supported; put the model's own FIM tokens into the prompt")
        );
    }
    if fields.whole("best_of", 1, i64::MAX)?.is_some_and(|best| best != ask.n as i64) {
        return Err(fields.wrong("best_of", "must be as n, or left out"));
    }
    Ok(ask)
}

/// A text, ids, or a list of either.
fn prompts(fields: &Fields<'_>, vocab: usize) -> Result<Vec<Prompt>, ApiError> {
    const NAME: &str = "prompt";
    let wrong = |what| fields.wrong(NAME, what);
    let list = match fields.need(NAME)? {
        Value::String(text) => return Ok(vec![Prompt::Text(text.clone())]),
        Value::Array(list) => list,
        _ => return Err(wrong("must be a string, a list of token ids, or a list of either")),
    };
    let ids =
        |list: &[Value]| as_ids(list, vocab).ok_or_else(|| wrong("holds what is no token id of this model"));
    match list.first() {
        None => Err(wrong("is empty")),
        Some(Value::Number(_)) => Ok(vec![Prompt::Ids(ids(list)?)]),
        Some(_) if list.len() > MOST_PROMPTS => Err(wrong("has more than 16 prompts")),
        Some(_) => {
            let one = |value: &Value| match value {
                Value::String(text) => Ok(Prompt::Text(text.clone())),
                Value::Array(list) => Ok(Prompt::Ids(ids(list)?)),
                _ => Err(wrong("must hold strings or lists of token ids")),
            };
            list.iter().map(one).collect()
        }
    }
}

#[cfg(test)]
#[path = "ask_tests.rs"]
mod tests;
