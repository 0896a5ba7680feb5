//! Blocks on their way to the writer: a fixed number of buffers, and what is known of them.
//!
//! The engine's thread copies a block into a free buffer and goes on; it never waits for more than the copy
//! of a few words. A buffer is free again when the engine has taken the answer. Must not know files.

use super::status::Pause;
use core::time::Duration;
use kinglet_core::kv::{BlockId, Header};
use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::Instant;

/// What became of a block that was staged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is on disk, and durable.
    Saved,
    /// It is not; it may be offered again.
    Later,
    /// It cannot be saved, whatever the disk does: something else has its name.
    Never,
}

/// An answer to [`super::Store::stage`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finished {
    /// The caller's number of the block.
    pub block: u32,
    /// Its id.
    pub id: BlockId,
    /// What became of it.
    pub outcome: Outcome,
}

/// A block as it goes into its file.
pub struct Slot {
    /// The caller's number of the block.
    pub block: u32,
    /// `None` only until the slot is first used.
    pub header: Option<Header>,
    /// Room for a whole block; the payload is at its front.
    pub payload: Vec<u8>,
}

/// Which slots wait for what.
pub struct State {
    free: Vec<usize>,
    staged: VecDeque<usize>,
    /// Slots that the writer has taken and not yet reported.
    writing: usize,
    done: VecDeque<(usize, Finished)>,
    /// Why nothing is written.
    pub paused: Option<Pause>,
    /// Whether one block may be tried in spite of the pause.
    pub trial: bool,
    /// Set once, when the store is dropped.
    pub quit: bool,
    /// Set once, by the writer.
    pub ended: bool,
    /// Whether the writer is asked to look at its clock.
    woken: bool,
}

impl State {
    fn room(&self) -> bool {
        let open = match self.paused {
            None => true,
            Some(_) => self.trial && self.pending() == 0,
        };
        open && !self.free.is_empty() && !self.quit && !self.ended
    }

    /// Blocks that are staged and not yet answered.
    pub fn pending(&self) -> usize {
        self.staged.len() + self.writing
    }
}

/// The slots.
pub struct Ring {
    state: Mutex<State>,
    slots: Vec<Mutex<Slot>>,
    /// For the writer: something is staged, or the store ends.
    work: Condvar,
    /// For everybody else: something is answered.
    news: Condvar,
}

/// Locks; a poisoned lock is as good as any: what it guards is never half-changed.
pub fn hold<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|e| e.into_inner())
}

impl Ring {
    /// `slots` buffers of `block_bytes` each. All that is ever allocated.
    pub fn new(slots: usize, block_bytes: usize) -> Ring {
        let slot = |_| Mutex::new(Slot { block: 0, header: None, payload: vec![0; block_bytes] });
        let state = State {
            free: (0..slots).collect(),
            staged: VecDeque::with_capacity(slots),
            writing: 0,
            done: VecDeque::with_capacity(slots),
            paused: None,
            trial: false,
            quit: false,
            ended: false,
            woken: false,
        };
        Ring {
            state: Mutex::new(state),
            slots: (0..slots).map(slot).collect(),
            work: Condvar::new(),
            news: Condvar::new(),
        }
    }

    /// Number of slots.
    pub fn slots(&self) -> usize {
        self.slots.len()
    }

    /// The state, locked. Nobody does anything slow meanwhile.
    pub fn state(&self) -> MutexGuard<'_, State> {
        hold(&self.state)
    }

    /// Whether [`Ring::stage`] would find a slot.
    pub fn room(&self) -> bool {
        self.state().room()
    }

    /// Has `fill` fill a slot, and hands it to the writer if that returns true.
    pub fn stage(&self, fill: &mut dyn FnMut(&mut Slot) -> bool) -> bool {
        let slot = {
            let mut state = self.state();
            if state.room() { state.free.pop() } else { None }
        };
        let Some(slot) = slot else { return false };
        // Not under the lock: this copies a whole block.
        let filled = fill(&mut hold(&self.slots[slot]));
        let mut state = self.state();
        if filled {
            state.staged.push_back(slot);
            self.work.notify_one();
        } else {
            state.free.push(slot);
        }
        filled
    }

    /// The next answer, which frees its slot.
    pub fn finished(&self) -> Option<Finished> {
        let mut state = self.state();
        let (slot, finished) = state.done.pop_front()?;
        state.free.push(slot);
        Some(finished)
    }

    /// For the writer: the block that was staged first.
    pub fn take(&self) -> Option<usize> {
        let mut state = self.state();
        let slot = state.staged.pop_front()?;
        state.writing += 1;
        Some(slot)
    }

    /// For the writer: a block that it has taken.
    pub fn slot(&self, slot: usize) -> MutexGuard<'_, Slot> {
        hold(&self.slots[slot])
    }

    /// For the writer: the answer to a block that it has taken.
    pub fn report(&self, slot: usize, outcome: Outcome) {
        let finished = {
            let slot = self.slot(slot);
            let id = slot.header.as_ref().map_or(BlockId::default(), |header| *header.id());
            Finished { block: slot.block, id, outcome }
        };
        let mut state = self.state();
        state.writing -= 1;
        state.done.push_back((slot, finished));
        self.news.notify_all();
    }

    /// For the writer: sleeps until something is staged, the store ends, it is woken, or `patience` is over.
    pub fn sleep(&self, patience: Option<Duration>) {
        let mut state = self.state();
        if state.staged.is_empty() && !state.quit && !state.woken {
            state = match patience {
                None => self.work.wait(state).unwrap_or_else(|e| e.into_inner()),
                Some(patience) => {
                    self.work.wait_timeout(state, patience).unwrap_or_else(|e| e.into_inner()).0
                }
            };
        }
        state.woken = false;
    }

    /// Wakes the writer, to look at its clock or to end.
    pub fn wake(&self) {
        self.state().woken = true;
        self.work.notify_one();
    }

    /// Tells everybody who waits that the state has changed.
    pub fn tell(&self) {
        self.news.notify_all();
    }

    /// Waits until `ready`, at most for `patience`; whether it became so.
    pub fn wait(&self, patience: Duration, ready: &dyn Fn(&State) -> bool) -> bool {
        let start = Instant::now();
        let mut state = self.state();
        loop {
            if ready(&state) {
                return true;
            }
            let left = patience.saturating_sub(start.elapsed());
            if left.is_zero() {
                return false;
            }
            state = self.news.wait_timeout(state, left).unwrap_or_else(|e| e.into_inner()).0;
        }
    }

    /// Waits until there is an answer, or none to come.
    pub fn wait_for_answer(&self, patience: Duration) -> bool {
        self.wait(patience, &|state| !state.done.is_empty() || state.pending() == 0)
    }

    /// Waits until there is an answer or room.
    pub fn wait_for_news(&self, patience: Duration) -> bool {
        self.wait(patience, &|state| !state.done.is_empty() || state.room())
    }
}
