//! The engine's thread: what it has and what it does between steps. Must not know what is in a step.

use super::FLUSH_PATIENCE;
use super::Options;
use super::desk::{Desk, hold};
use super::leave::Leaving;
use super::meter::Meter;
use super::pace::Pace;
use super::pulse::Idle;
use super::run::Run;
use super::status::look;
use super::step::Share;
use crate::cache::Cache;
use crate::parts::Parts;
use crate::pool::Pool;
use crate::setup::Setup;
use core::time::Duration;
use kinglet_core::kv::BlockId;
use kinglet_core::{Engine, Limits};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

/// How often others see what is going on, at most.
const LOOK: Duration = Duration::from_millis(100);
/// How long to wait for the disk at a time, where a new job may come any moment.
const TICK: Duration = Duration::from_millis(10);
/// How long to sleep where there is nothing to do, but the disk may be tried again.
const NAP: Duration = Duration::from_secs(1);
/// The tokens of a job that is over.
pub(super) struct Recent {
    pub root: BlockId,
    pub tokens: Vec<u32>,
}

/// Everything that the thread has.
pub(super) struct Worker {
    pub desk: Arc<Desk>,
    pub engine: Engine<'static>,
    pub cache: Cache,
    pub pool: Pool,
    pub limits: Limits,
    pub setup: Setup,
    pub vocab: usize,
    /// A job in each place of the batch.
    pub slots: Vec<Option<Box<Run>>>,
    /// Logits for each place, `[slots, vocab]`.
    pub logits: Vec<f32>,
    /// Jobs that are next but find no room, or had to give it up; the first first. Those of the queue come
    /// after them.
    pub parked: VecDeque<Box<Run>>,
    /// Sequences of jobs that are over, but not for the disk.
    pub leaving: Vec<Leaving>,
    /// The latest jobs that are over.
    pub recent: Vec<Recent>,
    pub pace: Pace,
    /// The place whose prompt is computed next.
    pub turn: usize,
    /// What is in the step.
    pub plan: Vec<Share>,
    pub prompts: Meter,
    pub replies: Meter,
    /// Whether a job was cancelled because of [`super::Scheduler::stop`].
    pub cut: bool,
    pub idle: Idle,
    looked: Instant,
}

impl Worker {
    pub fn new(desk: &Arc<Desk>, parts: Parts, pool: Pool, setup: Setup, options: Options) -> Worker {
        let parallel = options.parallel;
        let vocab = parts.engine.config().vocab;
        let mut worker = Worker {
            desk: Arc::clone(desk),
            engine: parts.engine,
            cache: parts.cache,
            pool,
            limits: parts.limits,
            setup,
            vocab,
            slots: (0..parallel).map(|_| None).collect(),
            logits: vec![0.0; parallel * vocab],
            parked: VecDeque::with_capacity(parallel + 1),
            leaving: Vec::with_capacity(parallel + 1),
            recent: Vec::new(),
            pace: Pace::default(),
            turn: 0,
            plan: Vec::with_capacity(parallel),
            prompts: Meter::default(),
            replies: Meter::default(),
            cut: false,
            idle: Idle::new(options.idle_trim),
            looked: Instant::now(),
        };
        hold(&worker.desk.view).folder = worker.cache.store().map(|store| store.folder().to_string());
        worker.show();
        worker
    }

    /// Works until [`super::Scheduler::stop`].
    pub fn run(mut self) {
        loop {
            self.beat();
            self.clear();
            self.drop_cancelled();
            self.admit();
            if self.slots.iter().all(Option::is_none) {
                if self.rest() { continue } else { break }
            }
            self.step();
            self.idle.end();
            self.settle();
            if self.looked.elapsed() >= LOOK {
                self.show();
            }
        }
        let clean = !self.cut && self.engine.stats().unsaved == 0 && self.leaving.is_empty();
        self.show();
        self.desk.state().clean = clean;
    }

    /// Does what [`super::Scheduler::clear`] asked for.
    fn clear(&mut self) {
        let asked = {
            let state = self.desk.state();
            if state.clears_asked == state.clears_done {
                return;
            }
            state.clears_asked
        };
        self.release_tails();
        self.engine.forget();
        self.recent.clear();
        self.show();
        self.desk.state().clears_done = asked;
        self.desk.tell();
    }

    /// Nothing is to be computed: saves what there is, and waits. Whether to go on.
    fn rest(&mut self) -> bool {
        let more = self.settle() || self.waits_for_disk();
        if !more || self.looked.elapsed() >= LOOK {
            self.show();
        }
        let trim_in = if more { TICK } else { self.trim() };
        let desk = Arc::clone(&self.desk);
        let state = desk.state();
        if !state.queue.is_empty() || state.clears_asked != state.clears_done {
            return true;
        }
        let mut most = match self.cache.store() {
            _ if more => TICK,
            Some(_) => NAP.min(trim_in),
            None => trim_in,
        };
        if let Some(stop) = state.stop {
            if !more || stop.elapsed() > FLUSH_PATIENCE {
                return false;
            }
            most = TICK;
        }
        desk.sleep(state, most);
        true
    }

    /// Shows others how things are.
    pub fn show(&mut self) {
        let mut view = hold(&self.desk.view);
        view.kv = look(&self.engine, &mut view.map);
        for (slot, run) in view.slots.iter_mut().zip(&self.slots) {
            *slot = run.as_ref().map_or_else(Default::default, |run| run.slot());
        }
        view.store = self.cache.store().map(|store| store.status());
        (view.prompt_rate, view.decode_rate) = (self.prompts.rate(), self.replies.rate());
        self.looked = Instant::now();
    }

    /// The job in a place.
    pub fn run_at(&mut self, slot: usize) -> Option<&mut Run> {
        self.slots.get_mut(slot)?.as_deref_mut()
    }
}
