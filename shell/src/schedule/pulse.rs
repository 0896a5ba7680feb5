//! Whether the engine's thread is at work, as others see it, and what it does when there is nothing to do for
//! long: it gives memory back. Must not know jobs.

use super::Scheduler;
use super::worker::Worker;
use crate::map;
use core::sync::atomic::Ordering;
use core::time::Duration;
use std::time::Instant;

/// How long to sleep where nothing is to be done.
const SLEEP: Duration = Duration::from_secs(60);

/// Since when there was no step, and what follows from it.
pub(super) struct Idle {
    /// When memory is given back.
    after: Option<Duration>,
    since: Instant,
    /// Nothing was touched since memory was given back.
    trimmed: bool,
}

impl Idle {
    pub fn new(after: Option<Duration>) -> Idle {
        Idle { after, since: Instant::now(), trimmed: true }
    }

    /// There was a step.
    pub fn end(&mut self) {
        (self.since, self.trimmed) = (Instant::now(), false);
    }

    /// How long it is until memory is to be given back.
    fn left(&self) -> Option<Duration> {
        let after = self.after.filter(|_| !self.trimmed)?;
        Some(after.saturating_sub(self.since.elapsed()))
    }
}

impl Worker {
    /// Shows that the thread does not hang.
    pub fn beat(&self) {
        self.desk.beats.fetch_add(1, Ordering::Relaxed);
    }

    /// To be called while no job is computed: gives back what only steps need, if it is time to. How long
    /// the thread may sleep.
    pub fn trim(&mut self) -> Duration {
        match self.idle.left() {
            None => SLEEP,
            Some(left) if !left.is_zero() => left.min(SLEEP),
            Some(_) => {
                self.engine.lend_scratch(&mut map::give_back);
                // A row is read in the step that writes it.
                map::give_back(&mut self.logits);
                self.idle.trimmed = true;
                self.desk.state().totals.trims += 1;
                SLEEP
            }
        }
    }
}

impl Scheduler {
    /// A number that changes as long as the engine's thread does not hang: with each step, and with
    /// [`Scheduler::nudge`] while there is nothing to do. `None` once the thread has ended.
    pub fn beat(&self) -> Option<u64> {
        if self.desk.state().ended {
            return None;
        }
        Some(self.desk.beats.load(Ordering::Relaxed))
    }

    /// Wakes the engine's thread, for a sign of life.
    pub fn nudge(&self) {
        self.desk.wake();
    }
}
