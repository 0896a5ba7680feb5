//! The template of Qwen2.5-Instruct. Must not know the other families.

use super::text::{Out, TURN_END, text};
use super::{ChatError, Conversation};

const DEFAULT_SYSTEM: &str = "You are Qwen, created by Alibaba Cloud. You are a helpful assistant.";

pub(super) fn render(conversation: &Conversation<'_>, out: &mut Out<'_>) -> Result<(), ChatError> {
    let messages = conversation.messages;
    let first = messages.first().ok_or(ChatError::NoMessages)?;
    if !conversation.tools.is_empty() {
        out.put(&["<|im_start|>system\n"])?;
        if first.role == "system" {
            out.print(0, first.content)?;
        } else {
            out.put(&[DEFAULT_SYSTEM])?;
        }
        out.put(&["\n\n"])?;
        out.tools(conversation.tools)?;
    } else if first.role == "system" {
        out.turn("system", text(0, first.content)?)?;
    } else {
        out.turn("system", DEFAULT_SYSTEM)?;
    }
    for (i, message) in messages.iter().enumerate() {
        match message.role {
            "system" if i == 0 => {}
            "assistant" if !message.tool_calls.is_empty() => {
                out.put(&["<|im_start|>assistant"])?;
                // Only here is null content welcome.
                if message.content.is_truthy() {
                    out.put(&["\n", text(i, message.content)?])?;
                }
                for (k, &call) in message.tool_calls.iter().enumerate() {
                    out.put(&["\n"])?;
                    out.tool_call(i, k, call, true)?;
                }
                out.put(&[TURN_END])?;
            }
            "user" | "system" | "assistant" => out.turn(message.role, text(i, message.content)?)?,
            "tool" => out.tool_response(messages, i, |out| out.print(i, message.content))?,
            _ => {}
        }
    }
    if conversation.add_generation_prompt {
        out.put(&["<|im_start|>assistant\n"])?;
    }
    Ok(())
}
