//! Replies and events of `/v1/completions`. Must not know how they come about.

use super::client::{Events, Gone};
use super::json::Json;
use super::outcome::{Finish, Listener, Told, Usage, Whole};
use super::reply::{Head, progress, usage};
use crate::output::Piece;
use core::time::Duration;

const OBJECT: &str = "text_completion";

/// The end of a choice.
fn close(head: &Head, json: &mut Json, told: Option<(&[Told], usize)>, finish: Option<&str>) {
    match told {
        Some((told, offset)) => head.text_logprobs(json, told, offset),
        None => {
            json.put_raw("logprobs", "null");
        }
    }
    json.put_or_null("finish_reason", finish).close('}');
}

/// A whole reply: `n` texts to each prompt. `echoes` go in front, one for each prompt, if there are any.
pub fn whole(head: &Head, replies: &[Whole], n: usize, echoes: &[String], logprobs: bool) -> String {
    let mut json = head.open(OBJECT);
    json.key("choices").open('[');
    for (index, reply) in replies.iter().enumerate() {
        let text = [echoes.get(index / n).map_or("", String::as_str), &reply.text].concat();
        json.open('{').put_number("index", index as u64).put("text", &text);
        let told = logprobs.then_some((reply.told.as_slice(), 0));
        close(head, &mut json, told, Some(reply.finish.as_ref().map_or("stop", Finish::openai)));
    }
    json.close(']');
    let usages: Vec<Usage> = replies.iter().map(|reply| reply.usage).collect();
    usage(&mut json, &usages, n);
    if let Some(first) = usages.first() {
        head.timings(&mut json, first);
    }
    json.end()
}

/// Writes replies as they come.
pub struct TextStream<'c> {
    events: &'c mut dyn Events,
    head: &'c Head,
    n: usize,
    echoes: &'c [String],
    include_usage: bool,
    logprobs: bool,
    usages: Vec<Usage>,
    /// Characters of each text so far.
    offsets: Vec<usize>,
}

impl<'c> TextStream<'c> {
    /// For `count` replies, `n` to each prompt.
    pub fn new(
        events: &'c mut dyn Events,
        head: &'c Head,
        (count, n): (usize, usize),
        echoes: &'c [String],
        include_usage: bool,
        logprobs: bool,
    ) -> TextStream<'c> {
        let (usages, offsets) = (vec![Usage::default(); count], vec![0; count]);
        TextStream { events, head, n, echoes, include_usage, logprobs, usages, offsets }
    }

    fn piece(&self, choice: usize, text: &str, told: Option<(&[Told], usize)>, finish: Option<&str>) -> Json {
        let mut json = self.head.open(OBJECT);
        json.key("choices").open('[').open('{').put_number("index", choice as u64).put("text", text);
        close(self.head, &mut json, told, finish);
        json.close(']');
        if self.include_usage {
            json.put_raw("usage", "null");
        }
        json
    }

    /// The end of the whole stream.
    ///
    /// # Errors
    /// The client has gone.
    pub fn finish(self) -> Result<(), Gone> {
        if self.include_usage {
            let mut json = self.head.open(OBJECT);
            json.key("choices").open('[').close(']');
            usage(&mut json, &self.usages, self.n);
            self.events.event("", &json.end())?;
        }
        self.events.event("", "[DONE]")
    }
}

impl Listener for TextStream<'_> {
    fn started(&mut self, choice: usize, _usage: &Usage) -> Result<(), Gone> {
        match self.echoes.get(choice / self.n) {
            Some(echo) => self.events.event("", &self.piece(choice, echo, None, None).end()),
            None => Ok(()),
        }
    }

    fn progress(&mut self, choice: usize, usage: &Usage, done: usize, time: Duration) -> Result<(), Gone> {
        let mut json = self.piece(choice, "", None, None);
        progress(&mut json, usage, done, time);
        self.events.event("", &json.end())
    }

    fn pieces(&mut self, choice: usize, pieces: &[Piece], told: &[Told]) -> Result<(), Gone> {
        let mut left = self.logprobs.then_some(told);
        for piece in pieces {
            // Nothing else comes where tools and thinking are not looked for.
            let Piece::Text(text) = piece else { continue };
            let told = left.take().map(|told| (told, self.offsets[choice]));
            self.events.event("", &self.piece(choice, text, told, None).end())?;
            self.offsets[choice] += text.chars().count();
        }
        Ok(())
    }

    fn ended(&mut self, choice: usize, finish: &Finish, usage: &Usage) -> Result<(), Gone> {
        self.usages[choice] = *usage;
        let mut json = self.piece(choice, "", None, Some(finish.openai()));
        self.head.timings(&mut json, usage);
        self.events.event("", &json.end())
    }

    fn idle(&mut self) -> Result<(), Gone> {
        self.events.idle()
    }
}
