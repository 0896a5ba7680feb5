//! What the engine's thread shares with the others: the queue, their wishes, and numbers. Must not know the
//! engine.

use super::run::Run;
use super::status::{KvCounts, Last, Slot, Status, Totals};
use crate::failure::Failure;
use crate::store;
use core::sync::atomic::AtomicU64;
use core::time::Duration;
use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::Instant;

/// Finished jobs that are remembered.
const LAST: usize = 16;
/// The longest time after which a client is told to come again, in seconds.
const LONGEST_RETRY: u64 = 120;

/// Locks; a poisoned lock is as good as any: what it guards is never half-changed.
pub(super) fn hold<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|e| e.into_inner())
}

/// Jobs and wishes.
#[derive(Default)]
pub(super) struct State {
    /// Jobs that nobody has looked at, the first first.
    pub queue: VecDeque<Box<Run>>,
    /// Jobs accepted and not over.
    pub jobs: usize,
    /// Of those, the ones that have a slot, or wait for the disk only.
    pub active: usize,
    pub totals: Totals,
    pub last: VecDeque<Last>,
    /// Mean time of a job with a slot, the latest counting most.
    job_time: Duration,
    /// Once set, there are no new jobs; from that moment on those that are there are cancelled.
    pub stop: Option<Instant>,
    pub clears_asked: u64,
    pub clears_done: u64,
    /// Whether the thread is at work, or why not.
    ready: Option<Result<(), Failure>>,
    /// The thread has ended.
    pub ended: bool,
    /// It had nothing to cancel, and nothing is unsaved.
    pub clean: bool,
}

impl State {
    /// Seconds until a place in the queue is likely to be free.
    pub fn retry_after(&self, parallel: usize) -> u64 {
        let over = self.jobs.saturating_sub(parallel).max(1) as u64;
        let seconds = (self.job_time.as_millis() as u64).saturating_mul(over) / (1000 * parallel as u64);
        (seconds + 1).min(LONGEST_RETRY)
    }

    /// Counts a job that is over after `time` in its slot.
    pub fn count(&mut self, last: Last, cancelled: bool, time: Option<Duration>) {
        let (totals, timings) = (&mut self.totals, &last.timings);
        match last.why {
            None => totals.failed += 1,
            Some(_) if cancelled => totals.cancelled += 1,
            Some(_) => totals.ended += 1,
        }
        self.jobs -= 1;
        if let Some(time) = time {
            totals.prompt_tokens += timings.prompt_tokens as u64;
            totals.cached_tokens += timings.cached_tokens as u64;
            totals.disk_tokens += timings.disk_tokens as u64;
            totals.decoded_tokens += timings.decoded_tokens as u64;
            totals.prefill += timings.prefill;
            totals.decode += timings.decode;
            self.job_time = if self.job_time.is_zero() { time } else { (self.job_time * 7 + time) / 8 };
        }
        if self.last.len() == LAST {
            self.last.pop_front();
        }
        self.last.push_back(last);
    }
}

/// The engine as it was when it last looked up.
#[derive(Default)]
pub(super) struct View {
    pub kv: KvCounts,
    pub map: Vec<u8>,
    pub slots: Vec<Slot>,
    pub store: Option<store::Status>,
    pub folder: Option<String>,
    pub prompt_rate: f64,
    pub decode_rate: f64,
}

/// The meeting place.
pub(super) struct Desk {
    state: Mutex<State>,
    /// For the engine's thread: there is something to do.
    work: Condvar,
    /// For everybody else.
    news: Condvar,
    pub view: Mutex<View>,
    /// Passes of the engine's thread through its loop.
    pub beats: AtomicU64,
}

impl Desk {
    pub fn new(parallel: usize, kv_tokens: usize) -> Desk {
        let state = State { last: VecDeque::with_capacity(LAST), ..State::default() };
        let view = View {
            map: Vec::with_capacity(kv_tokens.div_ceil(kinglet_core::kv::BLOCK_TOKENS)),
            slots: vec![Slot::default(); parallel],
            ..View::default()
        };
        Desk {
            state: Mutex::new(state),
            work: Condvar::new(),
            news: Condvar::new(),
            view: Mutex::new(view),
            beats: AtomicU64::new(0),
        }
    }

    /// The state, locked. Nobody does anything slow meanwhile.
    pub fn state(&self) -> MutexGuard<'_, State> {
        hold(&self.state)
    }

    /// Wakes the engine's thread.
    pub fn wake(&self) {
        self.work.notify_one();
    }

    /// For the engine's thread: sleeps until it is woken.
    pub fn sleep(&self, state: MutexGuard<'_, State>, most: Duration) {
        drop(self.work.wait_timeout(state, most));
    }

    /// Tells everybody who waits that the state has changed.
    pub fn tell(&self) {
        self.news.notify_all();
    }

    /// Waits until [`Desk::tell`], or a while.
    pub fn wait_news<'a>(&self, state: MutexGuard<'a, State>, most: Duration) -> MutexGuard<'a, State> {
        self.news.wait_timeout(state, most).unwrap_or_else(|e| e.into_inner()).0
    }

    pub fn set_ready(&self, ready: Result<(), Failure>) {
        self.state().ready = Some(ready);
        self.tell();
    }

    /// Waits until the thread is at work.
    pub fn wait_ready(&self) -> Result<(), Failure> {
        let mut state = self.state();
        loop {
            if let Some(ready) = state.ready.take() {
                return ready;
            }
            if state.ended {
                return Err(Failure::new("the engine has ended"));
            }
            state = self.wait_news(state, Duration::from_secs(1));
        }
    }

    pub fn status(&self, parallel: usize) -> Status {
        let view = hold(&self.view);
        let (kv, slots, store, folder) = (view.kv, view.slots.clone(), view.store, view.folder.clone());
        let (prompt_rate, decode_rate) = (view.prompt_rate, view.decode_rate);
        drop(view);
        let state = self.state();
        Status {
            parallel,
            active: state.active,
            queued: state.jobs - state.active,
            stopping: state.stop.is_some() || state.ended,
            totals: state.totals,
            prompt_rate,
            decode_rate,
            kv,
            store,
            folder,
            slots,
            last: state.last.iter().copied().collect(),
        }
    }
}

/// Says when the thread is done. Jobs that are left fail.
pub(super) struct Ended<'a>(pub &'a Desk);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.ended = true;
        state.jobs = 0;
        state.active = 0;
        let left = core::mem::take(&mut state.queue);
        drop(state);
        drop(left);
        self.0.tell();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::Stop;
    use crate::schedule::Timings;

    fn last(why: Option<Stop>) -> Last {
        Last { serial: 1, why, timings: Timings::default(), ended: Instant::now() }
    }

    #[test]
    fn who_is_refused_is_told_to_come_again_by_the_length_of_the_jobs() {
        let mut state = State { jobs: 1000, ..State::default() };
        assert_eq!(state.retry_after(4), 1);
        state.count(last(Some(Stop::Length)), false, Some(Duration::from_secs(8)));
        state.jobs = 12;
        assert_eq!(state.retry_after(4), 17);
        state.jobs = 4000;
        assert_eq!(state.retry_after(4), LONGEST_RETRY);
    }

    #[test]
    fn every_end_is_counted_once_and_some_are_remembered() {
        let mut state = State { jobs: 40, ..State::default() };
        for _ in 0..10 {
            state.count(last(None), false, None);
            state.count(last(Some(Stop::Length)), false, None);
            state.count(last(Some(Stop::Interrupted)), true, None);
        }
        let totals = &state.totals;
        assert_eq!((totals.failed, totals.ended, totals.cancelled), (10, 10, 10));
        assert_eq!((state.jobs, state.last.len()), (10, LAST));
    }
}
