//! A job under way: its tokens, how far they are computed, and its clock. Must not know other jobs.

use super::status::{Slot, SlotState};
use super::ticket::Outbox;
use super::{Event, Job, Picker, Timings};
use crate::cache::Reused;
use core::time::Duration;
use kinglet_core::SeqId;
use kinglet_core::kv::BlockId;
use std::time::Instant;

/// A job under way.
pub(super) struct Run {
    /// Jobs are numbered in the order in which they came.
    pub serial: u64,
    pub outbox: Outbox,
    pub picker: Box<dyn Picker>,
    pub salt: Vec<u8>,
    pub most: usize,
    pub is_end: bool,
    pub reuse: bool,
    /// Whether the client wants [`Event::Progress`].
    progress: bool,
    /// What its sequence follows; set when it gets a slot.
    pub root: BlockId,
    /// The prompt and what was picked. Has room for the whole reply.
    pub tokens: Vec<u32>,
    /// How many of them are the prompt.
    pub prompt: usize,
    /// How many of them are in the sequence: all but those that wait for their computing.
    pub fed: usize,
    pub seq: Option<SeqId>,
    /// The job that computes the same prefix, and how much of it this one waits for.
    pub behind: Option<(u64, usize)>,
    /// What was found the first time.
    pub reused: Reused,
    submitted: Instant,
    /// When it left the queue, was told so, had its prompt read, had a token.
    placed: Option<Instant>,
    started: Option<Instant>,
    read: Option<Instant>,
    first: Option<Instant>,
}

impl Run {
    /// Takes all memory that the job will need; its reply ends at `ctx` tokens.
    pub fn new(serial: u64, job: Job, outbox: Outbox, ctx: usize) -> Run {
        let mut tokens = job.prompt;
        let prompt = tokens.len();
        // One token more than there are places can be picked.
        tokens.reserve_exact(job.most.min((ctx + 1).saturating_sub(prompt)));
        Run {
            serial,
            outbox,
            picker: job.picker,
            salt: job.salt,
            most: job.most,
            is_end: job.is_end,
            reuse: job.reuse,
            progress: job.progress,
            root: BlockId::default(),
            tokens,
            prompt,
            fed: 0,
            seq: None,
            behind: None,
            reused: Reused::default(),
            submitted: Instant::now(),
            placed: None,
            started: None,
            read: None,
            first: None,
        }
    }

    /// Tokens to be computed before the next one can be picked.
    pub fn pending(&self) -> usize {
        self.tokens.len() - self.fed
    }

    /// Tokens picked.
    pub fn picked(&self) -> usize {
        self.tokens.len() - self.prompt
    }

    /// Whether its client waits for the next token, rather than for the first.
    pub fn is_writing(&self) -> bool {
        self.picked() > 0 && self.pending() == 1
    }

    /// It has a slot.
    pub fn set_placed(&mut self) {
        self.placed.get_or_insert_with(Instant::now);
    }

    /// How long it has had one.
    pub fn time_placed(&self) -> Option<Duration> {
        self.placed.map(|at| at.elapsed())
    }

    /// It has a sequence that begins with `reused`. The first time its client is told; false later.
    pub fn set_started(&mut self, reused: Reused, divergence: Option<usize>) -> bool {
        if self.started.is_some() {
            return false;
        }
        self.reused = reused;
        self.started = Some(Instant::now());
        self.outbox.send(Event::Started { waited: self.waited(), reused, divergence });
        true
    }

    /// Until it was begun to look for what is cached.
    fn waited(&self) -> Duration {
        let until = self.started.map(|at| at.checked_sub(self.reused.time).unwrap_or(at));
        until.unwrap_or_else(Instant::now).saturating_duration_since(self.submitted)
    }

    /// Tells how much of the prompt is done, if that is wanted.
    pub fn tell_progress(&self) {
        if self.progress && self.picked() == 0 {
            self.outbox.send(Event::Progress { done: self.fed.min(self.prompt), total: self.prompt });
        }
    }

    /// The prompt is read. The first time: how long that took.
    pub fn set_read(&mut self) -> Option<Duration> {
        if self.read.is_some() {
            return None;
        }
        let now = Instant::now();
        self.read = Some(now);
        self.started.map(|at| now.saturating_duration_since(at))
    }

    /// A token comes.
    pub fn set_token(&mut self) {
        self.first.get_or_insert_with(Instant::now);
    }

    /// Where the time went until now.
    pub fn timings(&self) -> Timings {
        let now = Instant::now();
        let between = |from: Option<Instant>, to: Option<Instant>| {
            from.map_or(Duration::ZERO, |from| to.unwrap_or(now).saturating_duration_since(from))
        };
        Timings {
            prompt_tokens: self.prompt,
            cached_tokens: self.reused.tokens,
            disk_tokens: self.reused.disk,
            prefill: between(self.started, self.read),
            restore: self.reused.time,
            decode: between(self.read, None),
            decoded_tokens: self.picked(),
            waited: self.waited(),
            first_token: self.first.map_or(Duration::ZERO, |at| at.duration_since(self.submitted)),
        }
    }

    /// How it looks from outside.
    pub fn slot(&self) -> Slot {
        let state = match self.seq {
            None => SlotState::Waiting,
            Some(_) if self.is_writing() => SlotState::Decode,
            Some(_) => SlotState::Prefill,
        };
        Slot {
            state,
            serial: self.serial,
            prompt_tokens: self.prompt,
            done_tokens: self.fed,
            decoded_tokens: self.picked(),
        }
    }
}

/// How many tokens two lists begin with in common.
pub(super) fn common(a: &[u32], b: &[u32]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}
