//! Requests for replies, from their fields to their ends. Must not know how any of it is done.

use super::ask::{Ask, Prompt};
use super::auth::salt;
use super::chat_reply::{self, ChatStream};
use super::client::{Answer, Client};
use super::error::ApiError;
use super::message_reply::{self, MessageStream};
use super::outcome::{Collector, Usage, Whole};
use super::records::Record;
use super::reply::{Head, now, unique};
use super::run::Run;
use super::served::Served;
use super::small::no_model;
use super::text_reply::{self, TextStream};
use super::{Api, Told, anthropic_ask, chat_ask};
use blake3::Hash;
use core::time::Duration;
use serde_json::Value;
use std::time::Instant;

/// The endpoints that reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `/v1/chat/completions`
    Chat,
    /// `/v1/completions`
    Text,
    /// `/v1/messages`
    Messages,
}

impl Kind {
    fn path(self) -> &'static str {
        match self {
            Kind::Chat => "/v1/chat/completions",
            Kind::Text => "/v1/completions",
            Kind::Messages => "/v1/messages",
        }
    }

    fn prefix(self) -> &'static str {
        match self {
            Kind::Chat => "chatcmpl-",
            Kind::Text => "cmpl-",
            Kind::Messages => "msg_",
        }
    }
}

/// Reads the body of a request.
pub(super) type Body<'b> = &'b dyn Fn() -> Result<Value, ApiError>;

impl Api {
    /// Replies to a request; None if the reply was a stream.
    pub(super) fn generate(
        &self,
        kind: Kind,
        body: Body<'_>,
        key: Option<Hash>,
        client: &mut Client<'_>,
        told: &mut Told,
    ) -> Result<Option<Answer>, ApiError> {
        let start = Instant::now();
        let record = told.record.insert(Record {
            id: String::new(),
            path: kind.path(),
            status: 0,
            finish: "error",
            usage: Usage::default(),
            time: Duration::ZERO,
            ended: start,
        });
        let answered = self.reply(kind, body, key, client, record, &mut told.prompt);
        record.time = start.elapsed();
        record.ended = Instant::now();
        answered
    }

    fn reply(
        &self,
        kind: Kind,
        body: Body<'_>,
        key: Option<Hash>,
        client: &mut Client<'_>,
        record: &mut Record,
        logged: &mut Option<String>,
    ) -> Result<Option<Answer>, ApiError> {
        let served = self.ready()?;
        let ask = ask(kind, body, served)?;
        if let Some(name) = &ask.model
            && self.options.strict_model
            && *name != served.name
        {
            return Err(no_model(name));
        }
        if self.options.log_prompts {
            *logged = Some(ask.prompts.iter().map(|prompt| text_of(served, prompt)).collect());
        }
        let head = Head {
            id: unique(kind.prefix()),
            created: now(),
            model: served.name.clone(),
            tokenizer: served.tokenizer,
        };
        record.id.clone_from(&head.id);
        let mut run = Run::new(served, &ask, salt(key, ask.salt.as_deref()))?;
        let done = if ask.stream {
            stream(kind, &ask, &head, &mut run, client).map(|()| None)
        } else {
            whole(kind, &ask, &head, &mut run, client).map(Some)
        };
        run.sum_up(record);
        done
    }
}

/// What is asked for. The request's JSON, which may be large, goes before the reply begins.
fn ask(kind: Kind, body: Body<'_>, served: &Served) -> Result<Ask, ApiError> {
    let request = body()?;
    match kind {
        Kind::Chat => chat_ask::chat(&request, served.family, served.vocab()),
        Kind::Text => chat_ask::completion(&request, served.vocab()),
        Kind::Messages => anthropic_ask::messages(&request, served.family, served.vocab()),
    }
}

/// The text of a prompt.
fn text_of(served: &Served, prompt: &Prompt) -> String {
    match prompt {
        Prompt::Text(text) => text.clone(),
        Prompt::Ids(ids) => served.decode(ids, false),
    }
}

/// What goes in front of replies: one text for each prompt, or none.
fn echoes(ask: &Ask, served: &Served) -> Vec<String> {
    let prompts = if ask.echo { ask.prompts.as_slice() } else { &[] };
    prompts.iter().map(|prompt| text_of(served, prompt)).collect()
}

fn stream(
    kind: Kind,
    ask: &Ask,
    head: &Head,
    run: &mut Run<'_>,
    client: &mut Client<'_>,
) -> Result<(), ApiError> {
    client.begin()?;
    let (count, usage, logprobs) = (run.count(), ask.include_usage, ask.logprobs.is_some());
    match kind {
        Kind::Chat => {
            let mut stream = ChatStream::new(client, head, count, usage, logprobs);
            run.listen(&mut stream)?;
            stream.finish()?;
        }
        Kind::Text => {
            let echoes = echoes(ask, run.served);
            let mut stream = TextStream::new(client, head, (count, ask.n), &echoes, usage, logprobs);
            run.listen(&mut stream)?;
            stream.finish()?;
        }
        Kind::Messages => run.listen(&mut MessageStream::new(client, head))?,
    }
    client.end();
    Ok(())
}

fn whole(
    kind: Kind,
    ask: &Ask,
    head: &Head,
    run: &mut Run<'_>,
    client: &mut Client<'_>,
) -> Result<Answer, ApiError> {
    let is_gone = || client.is_gone();
    let mut collector = Collector::new(run.count(), &is_gone);
    run.listen(&mut collector)?;
    let (replies, logprobs) = (collector.replies, ask.logprobs.is_some());
    Ok(Answer::json(match kind {
        Kind::Chat => chat_reply::whole(head, &replies, logprobs),
        Kind::Text => text_reply::whole(head, &replies, ask.n, &echoes(ask, run.served), logprobs),
        Kind::Messages => message_reply::whole(head, replies.first().unwrap_or(&Whole::default())),
    }))
}
