//! Who is next: from the queue into a place of the batch, with what is cached of the prompt. Must not know
//! what is computed.

use super::leave::{End, failed};
use super::run::{Run, common};
use super::worker::Worker;
use core::cmp::Ordering;
use kinglet_core::kv::BLOCK_TOKENS;
use std::time::Instant;

/// A job waits for another that computes the same prefix if that has at least so many tokens of it to go.
const WORTH_WAITING: usize = 2 * BLOCK_TOKENS;

impl Worker {
    /// Ends the jobs whose clients have gone, and all of them once the time of the last is up.
    pub fn drop_cancelled(&mut self) {
        let cut = self.desk.state().stop.is_some_and(|end| Instant::now() >= end);
        let is_over = |run: &Run| cut || run.outbox.is_cancelled();
        let mut any = false;
        loop {
            let mut state = self.desk.state();
            let Some(i) = state.queue.iter().position(|run| is_over(run)) else { break };
            let run = state.queue.remove(i);
            drop(state);
            run.into_iter().for_each(|run| self.finish(run, End::Cancelled));
            any = true;
        }
        while let Some(i) = self.parked.iter().position(|run| is_over(run)) {
            let run = self.parked.remove(i);
            run.into_iter().for_each(|run| self.finish(run, End::Cancelled));
            any = true;
        }
        for slot in 0..self.slots.len() {
            if self.slots[slot].as_ref().is_some_and(|run| is_over(run)) {
                self.end(slot, End::Cancelled);
                any = true;
            }
        }
        self.cut = self.cut || (cut && any);
    }

    /// Gives free places to those who are next, as long as there are blocks for them.
    pub fn admit(&mut self) {
        while let Some(slot) = self.slots.iter().position(Option::is_none) {
            if self.parked.is_empty() {
                let Some(mut run) = self.desk.state().queue.pop_front() else { return };
                run.root = self.cache.root(&run.salt);
                self.parked.push_back(run);
            }
            while !self.has_room() {
                if !self.release_tails() {
                    return;
                }
            }
            let Some(mut run) = self.parked.pop_front() else { return };
            run.set_placed();
            run.behind = self.leader(&run);
            let opens = run.behind.is_none();
            self.slots[slot] = Some(run);
            self.tell_active();
            if opens {
                self.open(slot);
            }
            self.show();
        }
    }

    /// The job that is computing what `run` would compute too, and how much of it to wait for.
    fn leader(&self, run: &Run) -> Option<(u64, usize)> {
        if !run.reuse || !self.setup.cache.reuse || run.picked() > 0 {
            return None;
        }
        let reading = self
            .slots
            .iter()
            .flatten()
            .filter(|other| other.root == run.root && other.seq.is_some() && other.picked() == 0);
        let alike = reading.map(|other| {
            // The last token is computed for its logits, by everybody.
            let tokens = common(&other.tokens, &run.tokens).min(run.tokens.len().saturating_sub(1));
            (other.serial, tokens / BLOCK_TOKENS * BLOCK_TOKENS, other.fed)
        });
        let ahead = alike.filter(|(_, tokens, fed)| *tokens >= fed + WORTH_WAITING);
        ahead.max_by_key(|(_, tokens, _)| *tokens).map(|(serial, tokens, _)| (serial, tokens))
    }

    /// Opens the sequences of those who have waited long enough.
    pub fn open_ready(&mut self) {
        for slot in 0..self.slots.len() {
            let Some(run) = self.slots[slot].as_deref().filter(|run| run.seq.is_none()) else { continue };
            let waits = |(serial, tokens): (u64, usize)| {
                let mut others = self.slots.iter().flatten();
                others.any(|other| other.serial == serial && other.fed < tokens)
            };
            if run.behind.is_some_and(waits) {
                continue;
            }
            // If the one before has gone, there may be another.
            let behind = self.leader(run);
            match self.run_at(slot) {
                Some(run) if behind.is_some() => run.behind = behind,
                _ => self.open(slot),
            }
        }
    }

    /// Opens the sequence of the job in a place, with what is cached.
    fn open(&mut self, slot: usize) {
        let Worker { slots, engine, cache, .. } = self;
        let Some(run) = slots.get_mut(slot).and_then(Option::as_deref_mut) else { return };
        run.behind = None;
        let most = if run.reuse { usize::MAX } else { 0 };
        match cache.admit(engine, run.root, &run.tokens, most) {
            Err(failure) => self.end(slot, failed(failure)),
            Ok((seq, reused)) => {
                run.seq = Some(seq);
                run.fed = reused.tokens;
                let divergence = self.divergence(slot, reused.tokens);
                let Some(run) = self.run_at(slot) else { return };
                if run.set_started(reused, divergence) {
                    self.cache.tell_reused(&self.setup, &reused);
                }
            }
        }
    }

    /// Where the prompt in a place leaves the one that it follows longest.
    fn divergence(&self, slot: usize, reused: usize) -> Option<usize> {
        let run = self.slots.get(slot)?.as_deref()?;
        let running = self.slots.iter().flatten().filter(|other| other.serial != run.serial);
        let running = running.map(|other| (other.root, &other.tokens));
        let recent = self.recent.iter().map(|recent| (recent.root, &recent.tokens));
        let alike = running.chain(recent).filter(|(root, _)| *root == run.root);
        let best = alike.map(|(_, tokens)| common(tokens, &run.tokens)).max()?;
        match best.cmp(&reused) {
            // The disk knew more.
            Ordering::Less => None,
            _ => (best < run.prompt).then_some(best),
        }
    }
}
