//! ChatML rendering: a conversation to the prompt text that the published Qwen templates give.
//!
//! Byte for byte what Jinja makes of those templates, errors included, but written by hand:
//! no template engine, no allocation, one pass over the text. Must not know tokens, JSON
//! parsers or the engine.
//!
//! Deliberate difference: where a template would print a *list* (Qwen2.5 and Qwen3 with a
//! list as the content of a tool message, or of the system message of Qwen2.5 with tools),
//! Jinja writes Python's notation of it, which no model was trained on. That is
//! [`ChatError::ContentList`] here.

mod family;
mod qwen2_5;
mod qwen3;
mod qwen3_vl;
mod text;

use core::fmt;

pub use family::{Family, UnknownTemplate};
use text::Out;

/// The content of a message, as far as the templates tell values apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Content<'a> {
    /// The message has no `content` at all.
    #[default]
    Missing,
    /// `content` is null.
    Null,
    /// `content` is a string.
    Text(&'a str),
    /// `content` is a list of parts.
    Parts(&'a [Part<'a>]),
}

impl Content<'_> {
    /// What `if content` means in a template.
    const fn is_truthy(&self) -> bool {
        match self {
            Content::Missing | Content::Null => false,
            Content::Text(text) => !text.is_empty(),
            Content::Parts(parts) => !parts.is_empty(),
        }
    }
}

/// What a content part shows besides text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vision {
    /// Its `type` is `image`, or it has a key `image` or `image_url`.
    Image,
    /// Not an image, and its `type` is `video` or it has a key `video`.
    Video,
}

/// One element of a content list.
///
/// A part can have both members: user and tool messages then show the picture, system and
/// assistant messages the text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Part<'a> {
    /// The picture, if it is one.
    pub vision: Option<Vision>,
    /// The value of its key `text`, if it has that key.
    pub text: Option<&'a str>,
}

impl<'a> Part<'a> {
    /// A still picture.
    pub const IMAGE: Part<'static> = Part { vision: Some(Vision::Image), text: None };
    /// A video.
    pub const VIDEO: Part<'static> = Part { vision: Some(Vision::Video), text: None };

    /// A piece of text.
    pub const fn text(text: &'a str) -> Self {
        Part { vision: None, text: Some(text) }
    }
}

/// The arguments of a tool call. The templates treat strings and other values differently.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Arguments<'a> {
    /// There are none: an error in every template.
    #[default]
    Missing,
    /// A string, usually with JSON in it (the OpenAI form). Qwen3 and Qwen3-VL write it as it
    /// is; Qwen2.5 writes it as a JSON string, quotes and escapes included.
    Text(&'a str),
    /// Any other value, already in the notation of the templates' `tojson`.
    Json(&'a str),
}

/// One call of a tool by the assistant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ToolCall<'a> {
    /// Name of the function. Written without escapes, as the templates do.
    pub name: &'a str,
    /// Its arguments.
    pub arguments: Arguments<'a>,
}

/// One message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Message<'a> {
    /// `system`, `user`, `assistant` or `tool`. The templates pass over messages of any other
    /// role without a word; whoever wants an error checks first.
    pub role: &'a str,
    /// What is said.
    pub content: Content<'a>,
    /// `reasoning_content`, if it is there and not null. Only Qwen3 reads it: without it the
    /// reasoning is taken from the think tags of `content`.
    pub reasoning: Option<&'a str>,
    /// Calls made by an assistant message.
    pub tool_calls: &'a [ToolCall<'a>],
}

impl<'a> Message<'a> {
    /// A message with text and nothing else.
    pub const fn new(role: &'a str, text: &'a str) -> Self {
        Message { role, content: Content::Text(text), reasoning: None, tool_calls: &[] }
    }
}

/// Everything a template reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Conversation<'a> {
    /// The messages in order; at least one.
    pub messages: &'a [Message<'a>],
    /// Tool definitions, each as JSON in the notation of the templates' `tojson`: `", "` and
    /// `": "` between items, keys in their order, non-ASCII characters and `<`, `>`, `&` as they are.
    pub tools: &'a [&'a str],
    /// Qwen3: `Some(false)` closes the thinking block in advance; the rest changes nothing.
    pub enable_thinking: Option<bool>,
    /// Ends the prompt with the opening of the assistant's turn.
    pub add_generation_prompt: bool,
    /// Qwen3-VL: numbers the pictures (`Picture 1: `).
    pub add_vision_id: bool,
}

/// Why a conversation cannot be rendered. `message` counts from zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ChatError {
    /// There is no message.
    NoMessages,
    /// A message without content where the template needs one.
    ContentMissing {
        /// Which message.
        message: usize,
    },
    /// Null content where the template needs text or a list.
    ContentNull {
        /// Which message.
        message: usize,
    },
    /// A list where the template needs text.
    ContentList {
        /// Which message.
        message: usize,
    },
    /// A tool call without arguments.
    ArgumentsMissing {
        /// Which message.
        message: usize,
        /// Which of its calls.
        call: usize,
    },
    /// The output refused more text.
    Output,
}

impl fmt::Display for ChatError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoMessages => write!(f, "the conversation has no messages"),
            Self::ContentMissing { message } => write!(f, "messages[{message}]: content is missing"),
            Self::ContentNull { message } => write!(f, "messages[{message}]: content is null"),
            Self::ContentList { message } => {
                write!(f, "messages[{message}]: content is a list, this model's template takes text")
            }
            Self::ArgumentsMissing { message, call } => {
                write!(f, "messages[{message}].tool_calls[{call}]: arguments are missing")
            }
            Self::Output => write!(f, "the output refused the text"),
        }
    }
}

impl core::error::Error for ChatError {}

/// Writes the prompt for `conversation` as the template of `family` does, in time linear in
/// the text.
///
/// # Errors
/// Where the template raises an exception; see [`ChatError`]. What was written until then is
/// worthless: templates give all or nothing, a writer cannot take back.
#[cfg_attr(kinglet_small, optimize(size))]
pub fn render(
    family: Family,
    conversation: &Conversation<'_>,
    out: &mut dyn fmt::Write,
) -> Result<(), ChatError> {
    let mut out = Out::new(out);
    match family {
        Family::Qwen2_5 => qwen2_5::render(conversation, &mut out),
        Family::Qwen3 => qwen3::render(conversation, &mut out),
        Family::Qwen3Vl => qwen3_vl::render(conversation, &mut out),
    }
}
