//! A conversation with its tools, as both APIs mean it, and the prompt that it is for a model. Must not know
//! HTTP.

use super::ask::{Ask, Form, Prompt};
use super::error::ApiError;
use super::fields::Fields;
use crate::chat_json::{self, ChatJsonError};
use crate::failure::Failure;
use kinglet_core::chat::{ChatError, Family};
use serde_json::{Map, Value};

/// What is said where a picture comes.
pub const NO_IMAGES: &str = "images cannot be read: no vision model is loaded";

/// Which tools may be called.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    /// None, though the model knows them.
    Never,
    /// As the model likes.
    #[default]
    Auto,
    /// At least one.
    Required,
    /// This one.
    Named(String),
}

/// A conversation.
#[derive(Debug)]
pub struct Talk {
    /// Messages with `role` and text as `content`, as templates read them.
    pub messages: Vec<Value>,
    /// Tools in OpenAI's form.
    pub tools: Vec<Value>,
    /// Which of them may be called.
    pub choice: Choice,
    /// Whether there may be several calls in a reply.
    pub parallel: bool,
    /// Whether the model thinks first, where it can.
    pub thinking: Option<bool>,
    /// What the reply must look like.
    pub form: Form,
}

impl Talk {
    /// The messages alone.
    pub fn new(messages: Vec<Value>) -> Talk {
        let (tools, choice) = (Vec::new(), Choice::Auto);
        Talk { messages, tools, choice, parallel: true, thinking: None, form: Form::Free }
    }

    /// Makes it the prompt of `ask`.
    ///
    /// # Errors
    /// Tools that make no sense; what the template refuses.
    pub fn compose(mut self, family: Family, ask: &mut Ask) -> Result<(), ApiError> {
        let tools = self.tools.iter().enumerate().map(|(i, tool)| described(i, tool));
        let tools = tools.collect::<Result<Vec<_>, ApiError>>()?;
        if tools.is_empty() && matches!(self.choice, Choice::Required | Choice::Named(_)) {
            return Err(ApiError::field("tool_choice", "there are no tools"));
        }
        if !tools.is_empty() && self.choice != Choice::Never && self.form != Form::Free {
            let what = "a form of the reply and tools do not go together; use tool_choice none";
            return Err(ApiError::field(ask.form_field, what));
        }
        ask.tools = !tools.is_empty() && self.choice != Choice::Never;
        ask.no_calls = !tools.is_empty() && self.choice == Choice::Never;
        ask.one_call = !self.parallel;
        match &self.choice {
            Choice::Required => self.form = Form::Calls { tools, one: !self.parallel },
            Choice::Named(name) => {
                let named: Vec<_> = tools.into_iter().filter(|(tool, _)| tool == name).collect();
                if named.is_empty() {
                    return Err(ApiError::field("tool_choice", "there is no tool of that name"));
                }
                self.form = Form::Calls { tools: named, one: true };
            }
            Choice::Never | Choice::Auto => {}
        }
        let thinks = family == Family::Qwen3;
        // A reply in a form comes at once, unless thinking is asked for by name.
        let is_formed = self.form != Form::Free;
        let thinking = if is_formed && self.thinking != Some(true) { Some(false) } else { self.thinking };
        ask.reasoning = thinks;
        ask.thinks_first = is_formed && thinks && thinking == Some(true);
        ask.form = core::mem::replace(&mut self.form, Form::Free);
        self.thinking = thinking;
        ask.prompts = vec![Prompt::Text(self.prompt(family)?)];
        Ok(())
    }

    /// The prompt for the model's answer.
    ///
    /// # Errors
    /// What the template refuses.
    pub fn prompt(self, family: Family) -> Result<String, ApiError> {
        let mut request = Map::new();
        request.insert(String::from("messages"), Value::Array(self.messages));
        request.insert(String::from("tools"), Value::Array(self.tools));
        request.insert(String::from("enable_thinking"), self.thinking.map_or(Value::Null, Value::Bool));
        request.insert(String::from("add_generation_prompt"), Value::Bool(true));
        chat_json::render(family, &Value::Object(request)).map_err(refused)
    }
}

fn refused(error: ChatJsonError) -> ApiError {
    match error {
        ChatJsonError::Shape { path, expected } => ApiError::field(&path, &["expected ", expected].concat()),
        ChatJsonError::Chat(ChatError::NoMessages) => ApiError::field("messages", "is empty"),
        ChatJsonError::Chat(error) => {
            let message = Failure::new(error).line();
            ApiError { param: Some(String::from("messages")), ..ApiError::new(400, message) }
        }
    }
}

/// Name and argument schema of a tool in OpenAI's form.
fn described(i: usize, tool: &Value) -> Result<(String, Value), ApiError> {
    let path = format!("tools[{i}].");
    let tool = Fields::part(tool, &path)?;
    if tool.text("type")?.is_some_and(|kind| kind != "function") {
        return Err(tool.wrong("type", "must be \"function\""));
    }
    let path = format!("tools[{i}].function.");
    let function = Fields::part(tool.need("function")?, &path)?;
    let name = function.text("name")?.filter(|name| !name.is_empty());
    let name = name.ok_or_else(|| function.wrong("name", "is missing"))?;
    function.text("description")?;
    let schema = function.map("parameters")?.cloned().unwrap_or_else(|| {
        let kind = Value::String(String::from("object"));
        Map::from_iter([(String::from("type"), kind)])
    });
    Ok((String::from(name), Value::Object(schema)))
}

/// A message as templates read it.
pub fn message(role: &str, content: String) -> Map<String, Value> {
    let pair = |key: &str, value: String| (String::from(key), Value::String(value));
    Map::from_iter([pair("role", String::from(role)), pair("content", content)])
}

/// A call in a message of the assistant. Arguments that are text go into the prompt as their family writes
/// them: Qwen2.5 would put a text into quotes, so it gets what the text says; the others get the text, so
/// that the prompt repeats what the model once wrote.
pub fn call(name: &str, arguments: &Value, family: Family) -> Value {
    let arguments = match arguments {
        Value::String(text) if text.trim().is_empty() => Value::Object(Map::new()),
        Value::String(text) if family == Family::Qwen2_5 => {
            serde_json::from_slice(text.as_bytes()).unwrap_or_else(|_| arguments.clone())
        }
        other => other.clone(),
    };
    let name = Value::String(String::from(name));
    Value::Object(Map::from_iter([(String::from("name"), name), (String::from("arguments"), arguments)]))
}

/// Text that may be a list of parts, which are joined line by line; None: there is no content.
///
/// # Errors
/// Another type; a part that is no text.
pub fn text_of(fields: &Fields<'_>, name: &str, at: &str) -> Result<Option<String>, ApiError> {
    let list = match fields.get(name) {
        None => return Ok(None),
        Some(Value::String(text)) => return Ok(Some(text.clone())),
        Some(Value::Array(list)) => list,
        Some(_) => return Err(fields.wrong(name, "must be a string or a list of parts")),
    };
    let mut whole = String::new();
    for (k, part) in list.iter().enumerate() {
        let path = format!("{at}[{k}].");
        let part = Fields::part(part, &path)?;
        if k > 0 {
            whole.push('\n');
        }
        whole.push_str(part_text(&part)?);
    }
    Ok(Some(whole))
}

/// The text of a part.
///
/// # Errors
/// It is a picture, or another thing that is no text.
pub fn part_text<'v>(part: &Fields<'v>) -> Result<&'v str, ApiError> {
    match part.text("type")? {
        Some("text" | "input_text" | "output_text") | None => {
            part.text("text")?.ok_or_else(|| part.wrong("text", "is missing"))
        }
        Some("image_url" | "image" | "input_image") => {
            Err(part.wrong("type", NO_IMAGES).coded("no_vision_model"))
        }
        Some(_) => Err(part.wrong("type", "must be \"text\": nothing else can be read")),
    }
}
