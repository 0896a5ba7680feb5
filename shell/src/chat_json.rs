//! Chats as JSON: OpenAI-style messages into the core's types.
//! Must not know how a template looks; only, per family, what it reads.
//!
//! Values are treated as Jinja treats them (null prints as `None`, a missing key is
//! undefined, unknown roles and keys are passed over). Refused although Jinja would print
//! *something*: content that is neither string, list nor null; content parts that are no
//! objects; a name or text that is a list or an object; switches that are no booleans.
//! JSON itself is stricter than Python's reader: no `NaN`, no lone surrogates, at most 128
//! levels. A `{"$serde_json::private::Number": ..}` object is read as a number.

use crate::decimal;
use crate::tojson::printed;
use core::fmt;
use kinglet_core::chat::{
    self, Arguments, ChatError, Content, Conversation, Family, Message, Part, ToolCall,
};
use serde_json::{Map, Value};
use std::borrow::Cow;

pub use crate::tojson::to_json;

/// Why a JSON value is not a chat that can be rendered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChatJsonError {
    /// A value of the wrong type.
    Shape {
        /// Where, such as `messages[2].content`.
        path: String,
        /// What belongs there.
        expected: &'static str,
    },
    /// The template raises an error.
    Chat(ChatError),
}

impl fmt::Display for ChatJsonError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shape { path, expected } => write!(f, "{path}: expected {expected}"),
            Self::Chat(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for ChatJsonError {}

impl From<ChatError> for ChatJsonError {
    fn from(error: ChatError) -> Self {
        Self::Chat(error)
    }
}

fn shape(path: impl Into<String>, expected: &'static str) -> ChatJsonError {
    ChatJsonError::Shape { path: path.into(), expected }
}

/// Renders `{"messages": [..], "tools": [..], "enable_thinking": .., "add_generation_prompt": ..,
/// "add_vision_id": ..}`. All but `messages` may be missing or null; the switches are then off,
/// as they are for `apply_chat_template`.
///
/// # Errors
/// [`ChatJsonError`].
pub fn render(family: Family, request: &Value) -> Result<String, ChatJsonError> {
    let request = request.as_object().ok_or_else(|| shape("request", "an object"))?;
    let messages =
        request.get("messages").and_then(Value::as_array).ok_or_else(|| shape("messages", "a list"))?;
    let prepared = messages
        .iter()
        .enumerate()
        .map(|(i, message)| prepare(family, i, message))
        .collect::<Result<Vec<_>, _>>()?;
    let parts: Vec<Vec<Part<'_>>> = prepared.iter().map(Prepared::parts).collect();
    let calls: Vec<Vec<ToolCall<'_>>> = prepared.iter().map(Prepared::calls).collect();
    let messages: Vec<Message<'_>> = prepared
        .iter()
        .zip(&parts)
        .zip(&calls)
        .map(|((message, parts), tool_calls)| Message {
            role: message.role,
            content: if message.is_list { Content::Parts(parts) } else { message.content },
            reasoning: message.reasoning,
            tool_calls,
        })
        .collect();
    let tools = tools(request)?;
    let tools: Vec<&str> = tools.iter().map(String::as_str).collect();
    let conversation = Conversation {
        messages: &messages,
        tools: &tools,
        enable_thinking: switch(request, "enable_thinking")?,
        add_generation_prompt: switch(request, "add_generation_prompt")? == Some(true),
        add_vision_id: switch(request, "add_vision_id")? == Some(true),
    };
    let mut text = String::new();
    chat::render(family, &conversation, &mut text)?;
    Ok(text)
}

fn switch(request: &Map<String, Value>, key: &'static str) -> Result<Option<bool>, ChatJsonError> {
    match request.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Bool(on)) => Ok(Some(*on)),
        Some(_) => Err(shape(key, "true, false or null")),
    }
}

fn tools(request: &Map<String, Value>) -> Result<Vec<String>, ChatJsonError> {
    match request.get("tools") {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::Array(tools)) => tools
            .iter()
            .enumerate()
            .map(|(i, tool)| match tool {
                Value::Object(_) => Ok(to_json(tool)),
                _ => Err(shape(format!("tools[{i}]"), "an object")),
            })
            .collect(),
        Some(_) => Err(shape("tools", "a list")),
    }
}

/// A message with everything that had to be computed; the core's types borrow from it.
struct Prepared<'v> {
    role: &'v str,
    /// Unless `is_list`.
    content: Content<'v>,
    is_list: bool,
    parts: Vec<(Option<chat::Vision>, Option<Cow<'v, str>>)>,
    reasoning: Option<&'v str>,
    calls: Vec<(Cow<'v, str>, PreparedArguments<'v>)>,
}

enum PreparedArguments<'v> {
    Missing,
    Text(&'v str),
    Json(String),
}

impl Prepared<'_> {
    fn parts(&self) -> Vec<Part<'_>> {
        self.parts.iter().map(|(vision, text)| Part { vision: *vision, text: text.as_deref() }).collect()
    }

    fn calls(&self) -> Vec<ToolCall<'_>> {
        let borrow = |(name, arguments)| -> ToolCall<'_> {
            let (name, arguments): (&Cow<'_, str>, &PreparedArguments<'_>) = (name, arguments);
            let arguments = match arguments {
                PreparedArguments::Missing => Arguments::Missing,
                PreparedArguments::Text(text) => Arguments::Text(text),
                PreparedArguments::Json(json) => Arguments::Json(json),
            };
            ToolCall { name, arguments }
        };
        self.calls.iter().map(|(name, arguments)| borrow((name, arguments))).collect()
    }
}

fn prepare(family: Family, i: usize, message: &Value) -> Result<Prepared<'_>, ChatJsonError> {
    let message = message.as_object().ok_or_else(|| shape(format!("messages[{i}]"), "an object"))?;
    let role = message.get("role").and_then(Value::as_str).unwrap_or("");
    let mut prepared = Prepared {
        role,
        content: Content::Missing,
        is_list: false,
        parts: Vec::new(),
        reasoning: None,
        calls: Vec::new(),
    };
    if !matches!(role, "system" | "user" | "assistant" | "tool") {
        return Ok(prepared);
    }
    match message.get("content") {
        None => {}
        Some(Value::Null) => prepared.content = Content::Null,
        Some(Value::String(text)) => prepared.content = Content::Text(text),
        Some(Value::Array(list)) => {
            prepared.is_list = true;
            for (k, part) in list.iter().enumerate() {
                // The other families do not look into a list.
                let part = if family == Family::Qwen3Vl { content_part(i, k, part)? } else { (None, None) };
                prepared.parts.push(part);
            }
        }
        Some(_) => return Err(shape(format!("messages[{i}].content"), "a string, a list or null")),
    }
    if role == "assistant" {
        if family == Family::Qwen3 {
            prepared.reasoning = match message.get("reasoning_content") {
                None | Some(Value::Null) => None,
                Some(Value::String(text)) => Some(text),
                Some(_) => {
                    return Err(shape(format!("messages[{i}].reasoning_content"), "a string or null"));
                }
            };
        }
        match message.get("tool_calls") {
            None => {}
            Some(Value::Array(calls)) => {
                for (k, call) in calls.iter().enumerate() {
                    prepared.calls.push(tool_call(family, i, k, call)?);
                }
            }
            Some(other) if !is_truthy(other) => {}
            Some(_) => return Err(shape(format!("messages[{i}].tool_calls"), "a list or null")),
        }
    }
    Ok(prepared)
}

fn content_part(
    i: usize,
    k: usize,
    part: &Value,
) -> Result<(Option<chat::Vision>, Option<Cow<'_, str>>), ChatJsonError> {
    let path = || format!("messages[{i}].content[{k}]");
    let part = part.as_object().ok_or_else(|| shape(path(), "an object"))?;
    let kind = part.get("type").and_then(Value::as_str);
    let vision = if kind == Some("image") || part.contains_key("image") || part.contains_key("image_url") {
        Some(chat::Vision::Image)
    } else if kind == Some("video") || part.contains_key("video") {
        Some(chat::Vision::Video)
    } else {
        None
    };
    let text = match part.get("text") {
        None => None,
        Some(text) => Some(printed(text).ok_or_else(|| shape(path() + ".text", "a string"))?),
    };
    Ok((vision, text))
}

fn tool_call(
    family: Family,
    i: usize,
    k: usize,
    call: &Value,
) -> Result<(Cow<'_, str>, PreparedArguments<'_>), ChatJsonError> {
    // Calls come wrapped in `function` (OpenAI) or flat. The templates differ in the test:
    // "is it defined" in Qwen2.5, "is it true" in the others.
    let call = match call.get("function") {
        Some(function) if family == Family::Qwen2_5 || is_truthy(function) => function,
        _ => call,
    };
    let name = match call.get("name") {
        None => Cow::Borrowed(""),
        Some(name) => printed(name).ok_or_else(|| {
            shape(format!("messages[{i}].tool_calls[{k}]: name of the function"), "a string")
        })?,
    };
    let arguments = match call.get("arguments") {
        None => PreparedArguments::Missing,
        Some(Value::String(text)) => PreparedArguments::Text(text),
        Some(other) => PreparedArguments::Json(to_json(other)),
    };
    Ok((name, arguments))
}

/// Python's `bool(value)`.
fn is_truthy(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(b) => *b,
        Value::Number(n) => decimal::parse_f64(n.as_str()) != Some(0.0),
        Value::String(s) => !s.is_empty(),
        Value::Array(list) => !list.is_empty(),
        Value::Object(map) => !map.is_empty(),
    }
}
