//! How jobs end, and what is saved of them. Must not know how they were computed.

use super::Event;
use super::run::Run;
use super::status::Last;
use super::worker::{Recent, Worker};
use crate::cache::{self, Answer};
use crate::failure::Failure;
use crate::generate::Stop;
use core::time::Duration;
use kinglet_core::SeqId;
use std::time::Instant;

/// Jobs over whose tokens are compared with new prompts.
const RECENT: usize = 8;
/// How long to wait for the disk at a time, where nothing else can be done.
const TICK: Duration = Duration::from_millis(20);

/// The sequence of a job that is over: kept until its tail is handed to the disk, or, where the reply waits
/// for that, until all of it is safe.
pub(super) struct Leaving {
    seq: SeqId,
    /// Who waits.
    waits: Option<Waits>,
}

/// A reply that is complete only when it is safe on the disk.
struct Waits {
    run: Box<Run>,
    why: Stop,
    /// Marks of the cache: when it ended, and when its tail and all before it had been handed over.
    from: u64,
    to: Option<u64>,
    has_tail: bool,
}

/// What becomes of a job.
pub(super) enum End {
    Stop(Stop),
    Cancelled,
    Failed(String),
}

impl Worker {
    /// Ends the job in a place.
    pub fn end(&mut self, slot: usize, end: End) {
        let Some(mut run) = self.slots.get_mut(slot).and_then(Option::take) else { return };
        let seq = run.seq.take();
        let mut waits = None;
        let over = match end {
            End::Stop(why) if seq.is_some() && self.cache.is_sync(&self.setup) => {
                let from = self.cache.staged();
                waits = Some(Waits { run, why, from, to: None, has_tail: true });
                None
            }
            end => Some((run, end)),
        };
        if let Some(seq) = seq {
            // Those that wait are never too many: each was in a place of the batch.
            while self.leaving.len() >= self.slots.len() && (self.release_tails() || self.wait_leaving()) {}
            self.leaving.push(Leaving { seq, waits });
            self.settle();
        }
        if let Some((run, end)) = over {
            self.finish(run, end);
        }
    }

    /// Tells a job's client and the numbers that it is over.
    pub fn finish(&mut self, run: Box<Run>, end: End) {
        let (timings, time) = (run.timings(), run.time_placed());
        let (why, cancelled) = match &end {
            End::Stop(why) => (Some(*why), false),
            End::Cancelled => (Some(Stop::Interrupted), true),
            End::Failed(_) => (None, false),
        };
        let active = self.active();
        // First: who hears of the end may look at once.
        self.show();
        let mut state = self.desk.state();
        state.active = active;
        state.count(Last { serial: run.serial, why, timings, ended: Instant::now() }, cancelled, time);
        drop(state);
        let Run { outbox, root, tokens, .. } = *run;
        if time.is_some() {
            if self.recent.len() == RECENT {
                self.recent.remove(0);
            }
            self.recent.push(Recent { root, tokens });
        }
        outbox.finish(match (end, why) {
            (End::Failed(line), _) => Event::Failed(line),
            (_, why) => Event::Ended { why: why.unwrap_or(Stop::Interrupted), timings },
        });
    }

    /// Jobs that have a place, or wait for the disk.
    fn active(&self) -> usize {
        self.slots.iter().flatten().count() + self.leaving.iter().filter(|l| l.waits.is_some()).count()
    }

    /// The number of active jobs has changed, though none is over.
    pub fn tell_active(&self) {
        self.desk.state().active = self.active();
    }

    /// Goes on with what is to be saved, and lets go of sequences of which nothing is left to do; whether the
    /// disk is at work.
    pub fn settle(&mut self) -> bool {
        let more = self.cache.save(&mut self.engine);
        let mut i = 0;
        while i < self.leaving.len() {
            match self.settle_one(i) {
                None => i += 1,
                Some(safe) => {
                    let Leaving { seq, waits } = self.leaving.remove(i);
                    self.close(seq);
                    if let Some(Waits { run, why, .. }) = waits {
                        let end = if safe { End::Stop(why) } else { failed(self.cache.not_safe()) };
                        self.finish(run, end);
                    }
                }
            }
        }
        more
    }

    /// Whether nothing is left to do for a sequence that leaves, and then whether it is safe, which matters
    /// to those who wait only.
    fn settle_one(&mut self, i: usize) -> Option<bool> {
        let Worker { leaving, engine, cache, .. } = self;
        let Leaving { seq, waits } = leaving.get_mut(i)?;
        let Some(waits) = waits else { return cache.save_tail(engine, *seq).then_some(false) };
        waits.has_tail = waits.has_tail && !cache.save_tail(engine, *seq);
        if waits.to.is_none() && !waits.has_tail && cache::is_staged(engine, *seq) {
            waits.to = Some(cache.staged());
        }
        match waits.to.map_or(Answer::Pending, |to| cache.answers(waits.from, to)) {
            Answer::Pending => {}
            // What is not saved then was refused before.
            Answer::Saved => return Some(cache::is_saved(engine, *seq)),
            Answer::Refused => return Some(false),
            // Something of it, or of another, is to be written again.
            Answer::Later => (waits.from, waits.to, waits.has_tail) = (cache.staged(), None, true),
        }
        let status = cache.store()?.status();
        (status.paused.is_some() && !status.trial).then_some(false)
    }

    /// Whether sequences that leave may go on doing so.
    pub fn waits_for_disk(&self) -> bool {
        let paused = self.cache.store().is_some_and(|store| store.status().paused.is_some());
        !self.leaving.is_empty() && !paused
    }

    /// Lets go of sequences whose tails wait for the disk, for the blocks that they hold; whether there were
    /// any.
    pub fn release_tails(&mut self) -> bool {
        let before = self.leaving.len();
        let mut i = 0;
        while i < self.leaving.len() {
            if self.leaving[i].waits.is_some() {
                i += 1;
            } else {
                let seq = self.leaving.remove(i).seq;
                self.close(seq);
            }
        }
        self.leaving.len() < before
    }

    /// Waits a little for sequences that replies wait for; whether there are any.
    pub fn wait_leaving(&mut self) -> bool {
        let any = !self.leaving.is_empty();
        if any && let Some(store) = self.cache.store() {
            store.wait_for_answer(TICK);
            self.settle();
        }
        any
    }

    /// Ends a sequence; what it has stays cached.
    pub fn close(&mut self, seq: SeqId) {
        // It is open: sequences are closed here only.
        let _ = self.engine.close(seq);
    }
}

/// A job's end by a failure.
pub(super) fn failed(failure: Failure) -> End {
    End::Failed(match failure {
        Failure::Failed(line) | Failure::Usage(line) => line,
        Failure::Interrupted | Failure::PipeClosed => String::from("interrupted"),
        Failure::Help(text) => text.concat(),
    })
}
