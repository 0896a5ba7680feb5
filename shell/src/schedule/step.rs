//! One step: a token of every reply and a slice of prompts, in one batch. Must not know why jobs are there.

use super::leave::{End, failed};
use super::worker::Worker;
use super::{Event, MAX_PARALLEL};
use crate::failure::Failure;
use crate::generate::Stop;
use crate::reply::tell_prefill;
use crate::session::forward_failure;
use core::ops::Range;
use core::panic::AssertUnwindSafe;
use kinglet_core::{Chunk, LogitRow, Logits};
use std::panic::catch_unwind;
use std::time::Instant;

/// What a step computes of a job.
#[derive(Clone, Copy, Debug)]
pub(super) struct Share {
    pub slot: usize,
    /// Tokens: the next of those that wait.
    pub tokens: usize,
}

impl Worker {
    /// Computes something of every reply, and of prompts.
    pub fn step(&mut self) {
        self.open_ready();
        if !self.make_plan() {
            return;
        }
        let all: usize = self.plan.iter().map(|share| share.tokens).sum();
        let is_written = |slot: usize| self.slots[slot].as_ref().is_some_and(|run| run.is_writing());
        let written = self.plan.iter().filter(|share| is_written(share.slot)).count();
        let start = Instant::now();
        self.compute(0..self.plan.len());
        let time = start.elapsed();
        if all > written {
            self.pace.took(all - written, time);
            self.prompts.add(all - written, time);
        }
        if written > 0 {
            self.replies.add(written, time);
        }
    }

    /// Puts the next token of every reply into the plan, and behind these a slice of prompts: first of the
    /// one whose turn it is, so that a short one need not wait for the end of a long one.
    pub fn fill_plan(&mut self) {
        let Worker { slots, plan, pace, limits, turn, .. } = self;
        plan.clear();
        let pending = |slot: usize| {
            let run = slots[slot].as_deref().filter(|run| run.seq.is_some());
            run.map_or(0, |run| run.pending())
        };
        let one = (0..slots.len()).filter(|slot| pending(*slot) == 1);
        plan.extend(one.map(|slot| Share { slot, tokens: 1 }));
        let among_others = slots.iter().flatten().any(|run| run.is_writing());
        let mut left = pace.slice(among_others).min(limits.max_batch - plan.len());
        let (first, replies) = (*turn, plan.len());
        for slot in (first..first + slots.len()).map(|slot| slot % slots.len()) {
            if pending(slot) < 2 || left == 0 {
                continue;
            }
            if plan.len() == replies {
                *turn = (slot + 1) % slots.len();
            }
            let tokens = pending(slot).min(left);
            left -= tokens;
            plan.push(Share { slot, tokens });
        }
    }

    /// Computes a part of the plan. If that fails, one job after the other: only those at fault fail.
    fn compute(&mut self, part: Range<usize>) {
        let Worker { engine, pool, slots, plan, logits, vocab, .. } = self;
        let Some(shares) = plan.get(part.clone()) else { return };
        let chunk = |share: &Share| {
            let run = slots[share.slot].as_deref()?;
            let tokens = run.tokens.get(run.fed..run.fed + share.tokens)?;
            let last = run.fed + share.tokens == run.tokens.len();
            let logits = if last { Logits::Last } else { Logits::None };
            Some(Chunk { seq: run.seq?, tokens, logits })
        };
        let Some(filler) = shares.first().and_then(chunk) else { return };
        // Not a vector: a step allocates nothing.
        let mut chunks = [filler; MAX_PARALLEL];
        for (place, share) in chunks.iter_mut().zip(shares) {
            *place = chunk(share).unwrap_or(filler);
        }
        let mut sink = |at: LogitRow, row: &[f32]| {
            logits[shares[at.chunk].slot * *vocab..][..*vocab].copy_from_slice(row);
        };
        let done = engine.forward(pool, &chunks[..shares.len()], &mut sink);
        match done {
            Ok(()) => part.for_each(|i| self.advance(self.plan[i])),
            Err(_) if part.len() > 1 => part.for_each(|i| self.compute(i..i + 1)),
            Err(e) => self.end(self.plan[part.start].slot, failed(forward_failure(e))),
        }
    }

    /// A share is computed.
    fn advance(&mut self, share: Share) {
        let Some(run) = self.run_at(share.slot) else { return };
        run.fed += share.tokens;
        run.tell_progress();
        if run.pending() > 0 {
            return;
        }
        let read = (run.prompt - run.reused.tokens, run.set_read());
        if let (tokens, Some(time)) = read {
            tell_prefill(&self.setup, tokens, time);
        }
        self.pick(share.slot);
    }

    /// Picks the next token of a reply, by the logits in its place.
    fn pick(&mut self, slot: usize) {
        let Worker { slots, logits, vocab, limits, .. } = self;
        let Some(run) = slots.get_mut(slot).and_then(Option::as_deref_mut) else { return };
        if run.picked() == run.most {
            return self.end(slot, End::Stop(Stop::Length));
        }
        let row = &mut logits[slot * *vocab..][..*vocab];
        let (picker, before) = (&mut run.picker, &run.tokens[..]);
        // One reply's picker must not end the others.
        let picked = catch_unwind(AssertUnwindSafe(|| picker.pick(row, before)))
            .unwrap_or_else(|_| Err(Failure::new("internal error: no token could be picked")));
        let picked = match picked {
            Ok(picked) => picked,
            Err(failure) => return self.end(slot, failed(failure)),
        };
        let (token, ends) = (picked.token, picked.last && run.is_end);
        run.set_token();
        run.tokens.push(token);
        run.outbox.send(Event::Token(picked));
        let why = if ends {
            Stop::End(token)
        } else if run.picked() == run.most {
            Stop::Length
        } else if run.tokens.len() > limits.max_seq {
            Stop::ContextFull
        } else {
            return;
        };
        self.end(slot, End::Stop(why));
    }
}
