//! Which template a model file carries. Must not know how any of them is rendered.

use crate::search::split_at_first;
use core::fmt;

/// A published chat template that [`crate::chat::render`] reproduces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// Qwen2.5 and Qwen2.5-Coder, Instruct.
    Qwen2_5,
    /// Qwen3 with switchable thinking (dense and mixture of experts).
    Qwen3,
    /// Qwen3-VL-Instruct.
    Qwen3Vl,
}

/// What is known about a template that none of the families reproduces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum UnknownTemplate {
    /// It does not write ChatML turns (`<|im_start|>`): another model family, or no template.
    NotChatMl,
    /// ChatML, but not one of ours: a thinking-only or a coder variant, or a model's own.
    OtherChatMl,
}

impl fmt::Display for UnknownTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotChatMl => write!(f, "the chat template is not ChatML"),
            Self::OtherChatMl => write!(f, "the chat template is a ChatML variant that is not supported"),
        }
    }
}

impl core::error::Error for UnknownTemplate {}

impl Family {
    /// Recognises a template (`tokenizer.chat_template` of a GGUF file) by what it does, so
    /// that reformatted copies and small revisions are still found:
    ///
    /// | Family | must contain | must not contain |
    /// |---|---|---|
    /// | all | `<\|im_start\|>`, `<tool_call>`, `arguments`, `tojson` | `<function=` (XML calls) |
    /// | `Qwen3Vl` | `<\|image_pad\|>`, `<\|video_pad\|>` | `<think>` (the thinking variant) |
    /// | `Qwen3` | `reasoning_content`, `enable_thinking`, `multi_step_tool` | picture placeholders |
    /// | `Qwen2_5` | `You are Qwen, created by Alibaba Cloud` | `<think>`, picture placeholders |
    ///
    /// Later revisions of the Qwen3 template, which take missing content for an empty string,
    /// are recognised as `Qwen3`; ours keeps the error of the first one.
    ///
    /// # Errors
    /// [`UnknownTemplate`]; a caller may then fall back to [`Family::of_architecture`] and
    /// should say so to its user.
    pub fn detect(template: &str) -> Result<Family, UnknownTemplate> {
        let has = |needle: &str| split_at_first(template, needle).is_some();
        if !has("<|im_start|>") {
            return Err(UnknownTemplate::NotChatMl);
        }
        if !has("<tool_call>") || !has("arguments") || !has("tojson") || has("<function=") {
            return Err(UnknownTemplate::OtherChatMl);
        }
        let thinks = has("<think>");
        match (has("<|image_pad|>"), has("<|video_pad|>")) {
            (true, true) if !thinks => Ok(Family::Qwen3Vl),
            (false, false) if thinks => {
                if has("reasoning_content") && has("enable_thinking") && has("multi_step_tool") {
                    Ok(Family::Qwen3)
                } else {
                    Err(UnknownTemplate::OtherChatMl)
                }
            }
            (false, false) if has("You are Qwen, created by Alibaba Cloud") => Ok(Family::Qwen2_5),
            _ => Err(UnknownTemplate::OtherChatMl),
        }
    }

    /// The fallback for files whose template is missing or unknown, from `general.architecture`.
    ///
    /// Right about the turns and the tool format, which all variants of an architecture share;
    /// a variant's default system prompt or thinking prefix is lost.
    pub fn of_architecture(architecture: &str) -> Option<Family> {
        match architecture {
            "qwen2" => Some(Family::Qwen2_5),
            "qwen3" | "qwen3moe" => Some(Family::Qwen3),
            "qwen3vl" | "qwen3vlmoe" => Some(Family::Qwen3Vl),
            _ => None,
        }
    }
}
