//! Replies and events of Anthropic's `/v1/messages`. Must not know how they come about.

use super::client::{Events, Gone};
use super::json::Json;
use super::outcome::{Finish, Listener, Told, Usage, Whole};
use super::reply::{Head, unique};
use crate::output::Piece;
use core::time::Duration;

/// Tokens of the prompt as this API counts them: those from the cache are not among the others.
fn usage(json: &mut Json, usage: &Usage, output: usize) {
    json.key("usage").open('{').put_number("input_tokens", usage.prompt.saturating_sub(usage.cached) as u64);
    json.put_number("cache_read_input_tokens", usage.cached as u64);
    json.put_number("cache_creation_input_tokens", 0).put_number("output_tokens", output as u64).close('}');
}

fn stop(json: &mut Json, finish: Option<&Finish>) {
    json.put_or_null("stop_reason", finish.map(Finish::anthropic));
    let text = match finish {
        Some(Finish::Stop(text)) => Some(text.as_str()),
        _ => None,
    };
    json.put_or_null("stop_sequence", text);
}

fn open(json: &mut Json, head: &Head) {
    json.put("id", &head.id).put("type", "message").put("role", "assistant").put("model", &head.model);
}

/// A whole reply.
pub fn whole(head: &Head, reply: &Whole) -> String {
    let mut json = Json::object();
    open(&mut json, head);
    json.key("content").open('[');
    if !reply.reasoning.is_empty() {
        json.open('{')
            .put("type", "thinking")
            .put("thinking", &reply.reasoning)
            .put("signature", "")
            .close('}');
    }
    if !reply.text.is_empty() || reply.calls.is_empty() {
        json.open('{').put("type", "text").put("text", &reply.text).close('}');
    }
    for call in &reply.calls {
        json.open('{').put("type", "tool_use").put("id", &unique("toolu_")).put("name", &call.name);
        // What was made is JSON, unless it broke off.
        let is_json = serde_json::from_slice::<serde_json::Value>(call.arguments.as_bytes()).is_ok();
        json.put_raw("input", if is_json { &call.arguments } else { "{}" }).close('}');
    }
    json.close(']');
    stop(&mut json, reply.finish.as_ref());
    usage(&mut json, &reply.usage, reply.usage.decoded);
    head.timings(&mut json, &reply.usage);
    json.end()
}

/// The kinds of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Block {
    Text,
    Thinking,
    Call(usize),
}

/// Writes a reply as it comes.
pub struct MessageStream<'c> {
    events: &'c mut dyn Events,
    head: &'c Head,
    /// The block that is open, if one is.
    block: Option<Block>,
    /// Blocks so far, this one not counted.
    blocks: u64,
}

impl<'c> MessageStream<'c> {
    /// For one reply.
    pub fn new(events: &'c mut dyn Events, head: &'c Head) -> MessageStream<'c> {
        MessageStream { events, head, block: None, blocks: 0 }
    }

    /// Ends the block that is open.
    fn close_block(&mut self) -> Result<(), Gone> {
        if self.block.take().is_some() {
            let mut json = Json::object();
            json.put("type", "content_block_stop").put_number("index", self.blocks);
            self.blocks += 1;
            self.events.event("content_block_stop", &json.end())?;
        }
        Ok(())
    }

    /// Begins a block unless it is the one that is open.
    fn open_block(&mut self, block: Block, name: &str) -> Result<(), Gone> {
        if self.block == Some(block) {
            return Ok(());
        }
        self.close_block()?;
        self.block = Some(block);
        let mut json = Json::object();
        json.put("type", "content_block_start").put_number("index", self.blocks);
        json.key("content_block").open('{');
        match block {
            Block::Text => json.put("type", "text").put("text", ""),
            Block::Thinking => json.put("type", "thinking").put("thinking", "").put("signature", ""),
            Block::Call(_) => json
                .put("type", "tool_use")
                .put("id", &unique("toolu_"))
                .put("name", name)
                .put_raw("input", "{}"),
        };
        json.close('}');
        self.events.event("content_block_start", &json.end())
    }

    fn delta(&mut self, kind: &str, key: &str, text: &str) -> Result<(), Gone> {
        let mut json = Json::object();
        json.put("type", "content_block_delta").put_number("index", self.blocks);
        json.key("delta").open('{').put("type", kind).put(key, text).close('}');
        self.events.event("content_block_delta", &json.end())
    }
}

impl Listener for MessageStream<'_> {
    fn started(&mut self, _choice: usize, so_far: &Usage) -> Result<(), Gone> {
        let mut json = Json::object();
        json.put("type", "message_start").key("message").open('{');
        open(&mut json, self.head);
        json.key("content").open('[').close(']');
        stop(&mut json, None);
        usage(&mut json, so_far, 0);
        json.close('}');
        self.events.event("message_start", &json.end())
    }

    fn progress(&mut self, _: usize, _: &Usage, _: usize, _: Duration) -> Result<(), Gone> {
        self.events.event("ping", r#"{"type":"ping"}"#)
    }

    fn pieces(&mut self, _choice: usize, pieces: &[Piece], _told: &[Told]) -> Result<(), Gone> {
        for piece in pieces {
            match piece {
                Piece::Text(text) => {
                    self.open_block(Block::Text, "")?;
                    self.delta("text_delta", "text", text)?;
                }
                Piece::Reasoning(text) => {
                    self.open_block(Block::Thinking, "")?;
                    self.delta("thinking_delta", "thinking", text)?;
                }
                Piece::ToolCall { index, name } => self.open_block(Block::Call(*index), name)?,
                Piece::Arguments { part, .. } => self.delta("input_json_delta", "partial_json", part)?,
            }
        }
        Ok(())
    }

    fn ended(&mut self, _choice: usize, finish: &Finish, at_end: &Usage) -> Result<(), Gone> {
        if self.block.is_none() && self.blocks == 0 {
            self.open_block(Block::Text, "")?;
        }
        self.close_block()?;
        let mut json = Json::object();
        json.put("type", "message_delta").key("delta").open('{');
        stop(&mut json, Some(finish));
        json.close('}');
        usage(&mut json, at_end, at_end.decoded);
        self.head.timings(&mut json, at_end);
        self.events.event("message_delta", &json.end())?;
        self.events.event("message_stop", r#"{"type":"message_stop"}"#)
    }

    fn idle(&mut self) -> Result<(), Gone> {
        self.events.idle()
    }
}
