//! The template of Qwen3: reasoning of earlier turns is dropped, that of the running one
//! kept. Must not know the other families.

use super::text::{Out, TURN_END, text};
use super::{ChatError, Conversation, Message};
use crate::search::{split_at_first, split_at_last};

pub(super) fn render(conversation: &Conversation<'_>, out: &mut Out<'_>) -> Result<(), ChatError> {
    let messages = conversation.messages;
    let first = messages.first().ok_or(ChatError::NoMessages)?;
    if !conversation.tools.is_empty() {
        out.put(&["<|im_start|>system\n"])?;
        if first.role == "system" {
            out.put(&[text(0, first.content)?, "\n\n"])?;
        }
        out.tools(conversation.tools)?;
    } else if first.role == "system" {
        out.turn("system", text(0, first.content)?)?;
    }
    let last_query = last_query(messages)?;
    for (i, message) in messages.iter().enumerate() {
        match message.role {
            "system" if i == 0 => {}
            "user" | "system" => out.turn(message.role, text(i, message.content)?)?,
            "assistant" => assistant(messages, i, message, i > last_query, out)?,
            "tool" => out.tool_response(messages, i, |out| out.print(i, message.content))?,
            _ => {}
        }
    }
    if conversation.add_generation_prompt {
        out.put(&["<|im_start|>assistant\n"])?;
        if conversation.enable_thinking == Some(false) {
            out.put(&["<think>\n\n</think>\n\n"])?;
        }
    }
    Ok(())
}

/// Index of the last user message that is not a tool response in disguise; of the last
/// message if there is none. What follows it is one step of several with tools.
fn last_query(messages: &[Message<'_>]) -> Result<usize, ChatError> {
    for (i, message) in messages.iter().enumerate().rev() {
        if message.role == "user" {
            let content = text(i, message.content)?;
            if !(content.starts_with("<tool_response>") && content.ends_with("</tool_response>")) {
                return Ok(i);
            }
        }
    }
    Ok(messages.len() - 1)
}

fn assistant(
    messages: &[Message<'_>],
    index: usize,
    message: &Message<'_>,
    current: bool,
    out: &mut Out<'_>,
) -> Result<(), ChatError> {
    let whole = text(index, message.content)?;
    let (reasoning, content) = match message.reasoning {
        Some(reasoning) => (reasoning, whole),
        None => split_reasoning(whole),
    };
    out.put(&["<|im_start|>assistant\n"])?;
    let last = index + 1 == messages.len();
    if current && (last || !reasoning.is_empty()) {
        let reasoning = reasoning.trim_matches('\n');
        out.put(&["<think>\n", reasoning, "\n</think>\n\n", content.trim_start_matches('\n')])?;
    } else {
        out.put(&[content])?;
    }
    out.tool_calls(index, message.tool_calls, !content.is_empty())?;
    out.put(&[TURN_END])
}

/// Reasoning and answer of a text with think tags: the answer follows the last closing tag;
/// the reasoning ends before the first one and starts after the last opening tag before it.
fn split_reasoning(whole: &str) -> (&str, &str) {
    const OPEN: &str = "<think>";
    const CLOSE: &str = "</think>";
    let (Some((before, _)), Some((_, after))) = (split_at_first(whole, CLOSE), split_at_last(whole, CLOSE))
    else {
        return ("", whole);
    };
    let before = before.trim_end_matches('\n');
    let reasoning = split_at_last(before, OPEN).map_or(before, |(_, reasoning)| reasoning);
    (reasoning.trim_start_matches('\n'), after.trim_start_matches('\n'))
}
