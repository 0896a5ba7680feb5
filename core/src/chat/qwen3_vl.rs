//! The template of Qwen3-VL-Instruct: content lists, pictures as placeholders. Must not know
//! the other families, nor what a picture becomes.

use super::text::{Out, TURN_END};
use super::{ChatError, Content, Conversation, Part, Vision};

/// Pictures so far, over the whole conversation.
struct Counts {
    numbered: bool,
    images: usize,
    videos: usize,
}

pub(super) fn render(conversation: &Conversation<'_>, out: &mut Out<'_>) -> Result<(), ChatError> {
    let messages = conversation.messages;
    let first = messages.first().ok_or(ChatError::NoMessages)?;
    if !conversation.tools.is_empty() {
        out.put(&["<|im_start|>system\n"])?;
        if first.role == "system" {
            texts(0, first.content, out)?;
            out.put(&["\n\n"])?;
        }
        out.tools(conversation.tools)?;
    } else if first.role == "system" {
        out.put(&["<|im_start|>system\n"])?;
        texts(0, first.content, out)?;
        out.put(&[TURN_END])?;
    }
    let mut counts = Counts { numbered: conversation.add_vision_id, images: 0, videos: 0 };
    for (i, message) in messages.iter().enumerate() {
        match message.role {
            "user" => {
                out.put(&["<|im_start|>user\n"])?;
                pictures(i, message.content, &mut counts, out)?;
                out.put(&[TURN_END])?;
            }
            "assistant" => {
                out.put(&["<|im_start|>assistant\n"])?;
                texts(i, message.content, out)?;
                // A list without any text counts as content here.
                out.tool_calls(i, message.tool_calls, message.content.is_truthy())?;
                out.put(&[TURN_END])?;
            }
            "tool" => {
                out.tool_response(messages, i, |out| pictures(i, message.content, &mut counts, out))?;
            }
            // Unlike the other templates, this one drops system messages after the first.
            _ => {}
        }
    }
    if conversation.add_generation_prompt {
        out.put(&["<|im_start|>assistant\n"])?;
    }
    Ok(())
}

/// The elements to go through, a string being one text. Missing content has none.
fn parts<'s, 'a>(
    index: usize,
    content: Content<'a>,
    single: &'s mut [Part<'a>; 1],
) -> Result<&'s [Part<'a>], ChatError> {
    match content {
        Content::Missing => Ok(&[]),
        Content::Null => Err(ChatError::ContentNull { message: index }),
        Content::Text(text) => {
            *single = [Part::text(text)];
            Ok(single)
        }
        Content::Parts(parts) => Ok(parts),
    }
}

/// System and assistant: text only, whatever else a part is.
fn texts(index: usize, content: Content<'_>, out: &mut Out<'_>) -> Result<(), ChatError> {
    for part in parts(index, content, &mut [Part::default()])? {
        out.put(&[part.text.unwrap_or("")])?;
    }
    Ok(())
}

/// User and tool: a part is a picture or else text.
fn pictures(
    index: usize,
    content: Content<'_>,
    counts: &mut Counts,
    out: &mut Out<'_>,
) -> Result<(), ChatError> {
    for part in parts(index, content, &mut [Part::default()])? {
        let (label, count, placeholder) = match part.vision {
            None => {
                out.put(&[part.text.unwrap_or("")])?;
                continue;
            }
            Some(Vision::Image) => {
                ("Picture ", &mut counts.images, "<|vision_start|><|image_pad|><|vision_end|>")
            }
            Some(Vision::Video) => {
                ("Video ", &mut counts.videos, "<|vision_start|><|video_pad|><|vision_end|>")
            }
        };
        *count += 1;
        if counts.numbered {
            out.put(&[label])?;
            out.put_number(*count)?;
            out.put(&[": "])?;
        }
        out.put(&[placeholder])?;
    }
    Ok(())
}
