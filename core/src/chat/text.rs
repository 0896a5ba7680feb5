//! What the three templates share: turns, tool definitions, tool calls, tool responses.
//! Must not know which template it writes for.

use super::{Arguments, ChatError, Content, Message, ToolCall};
use core::fmt;

const TOOLS_HEAD: &str = "# Tools\n\nYou may call one or more functions to assist with the user query.\n\n\
    You are provided with function signatures within <tools></tools> XML tags:\n<tools>";
const TOOLS_TAIL: &str = "\n</tools>\n\nFor each function call, return a json object with function name and \
    arguments within <tool_call></tool_call> XML tags:\n<tool_call>\n\
    {\"name\": <function-name>, \"arguments\": <args-json-object>}\n</tool_call><|im_end|>\n";

/// The end of every turn.
pub(super) const TURN_END: &str = "<|im_end|>\n";

/// The writer, with the templates' common pieces.
pub(super) struct Out<'w> {
    writer: &'w mut dyn fmt::Write,
}

impl<'w> Out<'w> {
    pub(super) fn new(writer: &'w mut dyn fmt::Write) -> Self {
        Out { writer }
    }

    /// Writes all pieces in order.
    pub(super) fn put(&mut self, pieces: &[&str]) -> Result<(), ChatError> {
        pieces.iter().try_for_each(|piece| self.writer.write_str(piece)).map_err(|_| ChatError::Output)
    }

    /// Writes a number.
    pub(super) fn put_number(&mut self, n: usize) -> Result<(), ChatError> {
        write!(self.writer, "{n}").map_err(|_| ChatError::Output)
    }

    /// A whole turn.
    pub(super) fn turn(&mut self, role: &str, content: &str) -> Result<(), ChatError> {
        self.put(&["<|im_start|>", role, "\n", content, TURN_END])
    }

    /// From "# Tools" to the end of the system turn.
    pub(super) fn tools(&mut self, tools: &[&str]) -> Result<(), ChatError> {
        self.put(&[TOOLS_HEAD])?;
        for tool in tools {
            self.put(&["\n", tool])?;
        }
        self.put(&[TOOLS_TAIL])
    }

    /// `{{ content }}`: prints what concatenation would refuse.
    pub(super) fn print(&mut self, index: usize, content: Content<'_>) -> Result<(), ChatError> {
        match content {
            Content::Missing => Ok(()),
            Content::Null => self.put(&["None"]),
            Content::Text(text) => self.put(&[text]),
            Content::Parts(_) => Err(ChatError::ContentList { message: index }),
        }
    }

    /// One tool call between its tags. `quote` is whether string arguments go through `tojson`.
    #[cfg_attr(kinglet_small, optimize(size))]
    pub(super) fn tool_call(
        &mut self,
        message: usize,
        call: usize,
        ToolCall { name, arguments }: ToolCall<'_>,
        quote: bool,
    ) -> Result<(), ChatError> {
        self.put(&["<tool_call>\n{\"name\": \"", name, "\", \"arguments\": "])?;
        match arguments {
            Arguments::Missing => return Err(ChatError::ArgumentsMissing { message, call }),
            Arguments::Text(text) if quote => self.json_string(text)?,
            Arguments::Text(text) | Arguments::Json(text) => self.put(&[text])?,
        }
        self.put(&["}\n</tool_call>"])
    }

    /// The calls of Qwen3 and Qwen3-VL: a newline between them, and before the first one if
    /// there is content.
    #[cfg_attr(kinglet_small, optimize(size))]
    pub(super) fn tool_calls(
        &mut self,
        index: usize,
        calls: &[ToolCall<'_>],
        after_content: bool,
    ) -> Result<(), ChatError> {
        for (i, &call) in calls.iter().enumerate() {
            if i > 0 || after_content {
                self.put(&["\n"])?;
            }
            self.tool_call(index, i, call, false)?;
        }
        Ok(())
    }

    /// A tool response; a run of them makes up one user turn.
    pub(super) fn tool_response(
        &mut self,
        messages: &[Message<'_>],
        index: usize,
        content: impl FnOnce(&mut Self) -> Result<(), ChatError>,
    ) -> Result<(), ChatError> {
        let is_tool = |i: Option<usize>| i.and_then(|i| messages.get(i)).is_some_and(|m| m.role == "tool");
        if !is_tool(index.checked_sub(1)) {
            self.put(&["<|im_start|>user"])?;
        }
        self.put(&["\n<tool_response>\n"])?;
        content(self)?;
        self.put(&["\n</tool_response>"])?;
        if !is_tool(index.checked_add(1)) {
            self.put(&[TURN_END])?;
        }
        Ok(())
    }

    /// `text` as Python's `json.dumps(text, ensure_ascii=False)` writes it.
    fn json_string(&mut self, text: &str) -> Result<(), ChatError> {
        self.put(&["\""])?;
        let mut plain = 0;
        for (i, byte) in text.bytes().enumerate() {
            let mut control = *b"\\u00__";
            let escape = match byte {
                b'"' => "\\\"",
                b'\\' => "\\\\",
                b'\n' => "\\n",
                b'\r' => "\\r",
                b'\t' => "\\t",
                0x08 => "\\b",
                0x0C => "\\f",
                0..0x20 => {
                    control[4] = b'0' + (byte >> 4);
                    control[5] = b"0123456789abcdef"[usize::from(byte & 15)];
                    core::str::from_utf8(&control).unwrap_or("")
                }
                _ => continue,
            };
            // Only ASCII is escaped, so that both cuts are character borders.
            self.put(&[&text[plain..i], escape])?;
            plain = i + 1;
        }
        self.put(&[&text[plain..], "\""])
    }
}

/// Content where the template concatenates or calls string methods.
pub(super) fn text<'a>(index: usize, content: Content<'a>) -> Result<&'a str, ChatError> {
    match content {
        Content::Missing => Err(ChatError::ContentMissing { message: index }),
        Content::Null => Err(ChatError::ContentNull { message: index }),
        Content::Text(text) => Ok(text),
        Content::Parts(_) => Err(ChatError::ContentList { message: index }),
    }
}
