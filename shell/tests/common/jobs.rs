//! Jobs for a scheduler, the same by a session, and a picker that holds the engine up. Must not know what is
//! tested.
#![allow(dead_code, reason = "each test file uses a part of it")]

use core::time::Duration;
use kinglet::cache::Reused;
use kinglet::failure::Failure;
use kinglet::generate::{self, Choose, Stop};
use kinglet::loader::Model;
use kinglet::sampling::{Chooser, Sampling};
use kinglet::schedule::{Event, Greedy, Job, Options, Picked, Picker, Scheduler, Status, Ticket, Timings};
use kinglet::session::Session;
use kinglet::setup::Setup;
use kinglet::words::{Word, Words};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};

/// Longer than anything takes.
pub const LONG: Duration = Duration::from_secs(120);

pub fn open(model: &str) -> Model {
    Model::open(Path::new(model)).unwrap()
}

pub fn setup(ctx: usize) -> Setup {
    Setup { ctx: Some(ctx), threads: Some(1), quiet: true, ..Setup::default() }
}

pub fn on_disk(ctx: usize, dir: &Path) -> Setup {
    let mut setup = setup(ctx);
    setup.cache.disk = Some(dir.to_path_buf());
    setup
}

pub fn start(model: &Model, setup: &Setup, parallel: usize, queue: usize) -> Scheduler {
    Scheduler::start(model, setup, Options { parallel, queue, ..Options::default() }).unwrap()
}

pub fn job(prompt: &[u32], most: usize) -> Job {
    let picker = Box::new(Greedy::default());
    let (prompt, salt) = (prompt.to_vec(), Vec::new());
    Job { prompt, salt, most, picker, reuse: true, progress: false, is_end: true }
}

/// What came of a job.
#[derive(Debug, Default)]
pub struct Reply {
    pub reused: Reused,
    pub divergence: Option<usize>,
    pub progress: Vec<(usize, usize)>,
    pub tokens: Vec<u32>,
    /// Why it ended, or the line of its failure.
    pub end: Option<Result<Stop, String>>,
    pub timings: Timings,
}

/// Waits for the end of a job.
#[track_caller]
pub fn reply(ticket: &Ticket) -> Reply {
    let mut reply = Reply::default();
    let mut started = false;
    while reply.end.is_none() {
        match ticket.next(LONG).expect("an event in time") {
            Event::Started { reused, divergence, .. } => {
                assert!(!core::mem::replace(&mut started, true), "started twice");
                (reply.reused, reply.divergence) = (reused, divergence);
            }
            Event::Progress { done, total } => reply.progress.push((done, total)),
            Event::Token(picked) => {
                assert!(started);
                reply.tokens.push(picked.token);
            }
            Event::Ended { why, timings } => (reply.end, reply.timings) = (Some(Ok(why)), timings),
            Event::Failed(line) => reply.end = Some(Err(line)),
        }
    }
    assert_eq!(ticket.next(Duration::ZERO), None, "nothing comes after the end");
    reply
}

#[track_caller]
pub fn ask(scheduler: &Scheduler, job: Job) -> Reply {
    reply(&scheduler.submit(job).unwrap())
}

/// The same by a session, alone.
pub fn alone(
    session: &mut Session,
    prompt: &[u32],
    most: usize,
    chooser: &mut dyn Choose,
) -> (Vec<u32>, Stop) {
    let reused = session.begin(prompt).unwrap();
    session.prefill(&prompt[reused.tokens..], &mut |_| {}).unwrap();
    let mut tokens = Vec::new();
    let mut emit = |token| {
        tokens.push(token);
        Ok(())
    };
    let reply = generate::generate(session, most, chooser, &|_| false, &mut emit).unwrap();
    (tokens, reply.stop)
}

/// Picks as the command line does.
pub struct Sampled(pub Chooser);

impl Picker for Sampled {
    fn pick(&mut self, logits: &mut [f32], before: &[u32]) -> Result<Picked, Failure> {
        let token = self.0.choose(logits, before)?;
        Ok(Picked { token, logprob: None, last: false })
    }
}

pub fn chooser(seed: usize, vocab: usize, setup: &Setup) -> Chooser {
    let seed = seed.to_string();
    let flags = ["--seed", &seed, "--temp", "1.5", "--top-k", "0", "--repeat-penalty", "1.2"];
    let mut words = Words::new(lexopt::Parser::from_args(flags), "test", &[]);
    let mut sampling = Sampling::default();
    while let Some(Word::Flag(flag)) = words.advance().unwrap() {
        assert!(sampling.accept(&flag, &mut words).unwrap());
    }
    sampling.start(vocab, setup).unwrap()
}

/// A picker that holds the engine up until it is let go, and writes down that it was asked.
#[derive(Clone, Default)]
pub struct Gate {
    name: usize,
    shared: Arc<(Mutex<GateState>, Condvar)>,
}

#[derive(Default)]
struct GateState {
    asked: Vec<usize>,
    open: usize,
}

impl Gate {
    pub fn named(&self, name: usize) -> Gate {
        Gate { name, shared: Arc::clone(&self.shared) }
    }

    /// Lets `n` more picks of all its copies through.
    pub fn let_go(&self, n: usize) {
        self.shared.0.lock().unwrap().open += n;
        self.shared.1.notify_all();
    }

    /// Waits until so many picks were asked for; who asked.
    pub fn asked(&self, n: usize) -> Vec<usize> {
        let state = self.shared.0.lock().unwrap();
        let (state, late) =
            self.shared.1.wait_timeout_while(state, LONG, |state| state.asked.len() < n).unwrap();
        assert!(!late.timed_out());
        state.asked.clone()
    }
}

impl Picker for Gate {
    fn pick(&mut self, logits: &mut [f32], before: &[u32]) -> Result<Picked, Failure> {
        let mut state = self.shared.0.lock().unwrap();
        state.asked.push(self.name);
        self.shared.1.notify_all();
        state = self.shared.1.wait_while(state, |state| state.open == 0).unwrap();
        state.open -= 1;
        drop(state);
        Greedy::default().pick(logits, before)
    }
}

pub fn gated(gate: &Gate, name: usize, prompt: &[u32], most: usize) -> Job {
    Job { picker: Box::new(gate.named(name)), ..job(prompt, most) }
}

/// A status in which the numbers add up.
#[track_caller]
pub fn status(scheduler: &Scheduler) -> Status {
    let status = scheduler.status();
    let (totals, kv) = (&status.totals, &status.kv);
    let over = totals.ended + totals.cancelled + totals.failed;
    assert_eq!(totals.accepted, over + (status.active + status.queued) as u64, "{status:?}");
    assert_eq!(kv.blocks, kv.free + kv.cached + kv.private + kv.shared, "{kv:?}");
    status
}
