//! Replies and events of `/v1/chat/completions`. Must not know how they come about.

use super::client::{Events, Gone};
use super::json::Json;
use super::outcome::{Finish, Listener, Told, Usage, Whole};
use super::reply::{Head, progress, unique, usage};
use crate::output::Piece;
use core::time::Duration;

/// A whole reply.
pub fn whole(head: &Head, replies: &[Whole], logprobs: bool) -> String {
    let mut json = head.open("chat.completion");
    json.key("choices").open('[');
    for (index, reply) in (0u64..).zip(replies) {
        json.open('{').put_number("index", index).key("message").open('{').put("role", "assistant");
        // A message that only calls tools has no content.
        let silent = reply.text.is_empty() && !reply.calls.is_empty();
        json.put_or_null("content", (!silent).then_some(&*reply.text));
        if !reply.reasoning.is_empty() {
            json.put("reasoning_content", &reply.reasoning);
        }
        if !reply.calls.is_empty() {
            json.key("tool_calls").open('[');
            for call in &reply.calls {
                json.open('{').put("id", &unique("call_")).put("type", "function").key("function").open('{');
                json.put("name", &call.name).put("arguments", &call.arguments).close('}').close('}');
            }
            json.close(']');
        }
        json.close('}');
        if logprobs {
            head.chat_logprobs(&mut json, &reply.told);
        } else {
            json.put_raw("logprobs", "null");
        }
        json.put("finish_reason", reply.finish.as_ref().map_or("stop", Finish::openai)).close('}');
    }
    json.close(']');
    let usages: Vec<Usage> = replies.iter().map(|reply| reply.usage).collect();
    usage(&mut json, &usages, replies.len());
    if let Some(first) = usages.first() {
        head.timings(&mut json, first);
    }
    json.end()
}

/// Writes replies as they come.
pub struct ChatStream<'c> {
    events: &'c mut dyn Events,
    head: &'c Head,
    include_usage: bool,
    logprobs: bool,
    usages: Vec<Usage>,
}

impl<'c> ChatStream<'c> {
    /// For `n` replies.
    pub fn new(
        events: &'c mut dyn Events,
        head: &'c Head,
        n: usize,
        include_usage: bool,
        logprobs: bool,
    ) -> ChatStream<'c> {
        ChatStream { events, head, include_usage, logprobs, usages: vec![Usage::default(); n] }
    }

    /// A piece up to its `delta`, whose content comes next.
    fn open(&self, choice: usize) -> Json {
        let mut json = self.head.open("chat.completion.chunk");
        json.key("choices").open('[').open('{').put_number("index", choice as u64).key("delta").open('{');
        json
    }

    /// Ends `delta` and the choice.
    fn close(&self, json: &mut Json, told: Option<&[Told]>, finish: Option<&str>) {
        json.close('}');
        match told {
            Some(told) => self.head.chat_logprobs(json, told),
            None => {
                json.put_raw("logprobs", "null");
            }
        }
        json.put_or_null("finish_reason", finish).close('}').close(']');
        if self.include_usage {
            json.put_raw("usage", "null");
        }
    }

    /// The end of the whole stream.
    ///
    /// # Errors
    /// The client has gone.
    pub fn finish(self) -> Result<(), Gone> {
        if self.include_usage {
            let mut json = self.head.open("chat.completion.chunk");
            json.key("choices").open('[').close(']');
            usage(&mut json, &self.usages, self.usages.len());
            if let Some(first) = self.usages.first() {
                self.head.timings(&mut json, first);
            }
            self.events.event("", &json.end())?;
        }
        self.events.event("", "[DONE]")
    }
}

impl Listener for ChatStream<'_> {
    fn started(&mut self, choice: usize, _usage: &Usage) -> Result<(), Gone> {
        let mut json = self.open(choice);
        json.put("role", "assistant").put("content", "");
        self.close(&mut json, None, None);
        self.events.event("", &json.end())
    }

    fn progress(&mut self, choice: usize, usage: &Usage, done: usize, time: Duration) -> Result<(), Gone> {
        let mut json = self.open(choice);
        self.close(&mut json, None, None);
        progress(&mut json, usage, done, time);
        self.events.event("", &json.end())
    }

    fn pieces(&mut self, choice: usize, pieces: &[Piece], told: &[Told]) -> Result<(), Gone> {
        let mut told = self.logprobs.then_some(told);
        for piece in pieces {
            let mut json = self.open(choice);
            let mut probabilities = None;
            match piece {
                Piece::Text(text) => {
                    json.put("content", text);
                    probabilities = told.take();
                }
                Piece::Reasoning(text) => {
                    json.put("reasoning_content", text);
                }
                Piece::ToolCall { index, name } => {
                    json.key("tool_calls").open('[').open('{').put_number("index", *index as u64);
                    json.put("id", &unique("call_")).put("type", "function").key("function").open('{');
                    json.put("name", name).put("arguments", "").close('}').close('}').close(']');
                }
                Piece::Arguments { index, part } => {
                    json.key("tool_calls").open('[').open('{').put_number("index", *index as u64);
                    json.key("function").open('{').put("arguments", part).close('}').close('}').close(']');
                }
            }
            self.close(&mut json, probabilities, None);
            self.events.event("", &json.end())?;
        }
        Ok(())
    }

    fn ended(&mut self, choice: usize, finish: &Finish, usage: &Usage) -> Result<(), Gone> {
        self.usages[choice] = *usage;
        let mut json = self.open(choice);
        self.close(&mut json, None, Some(finish.openai()));
        self.head.timings(&mut json, usage);
        self.events.event("", &json.end())
    }

    fn idle(&mut self) -> Result<(), Gone> {
        self.events.idle()
    }
}
