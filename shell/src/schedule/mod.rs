//! Many prompts at once: one thread runs the engine, a batch of up to `parallel` sequences a step; more wait
//! in a bounded queue, first come first served. What a job is answered does not depend on the others.
//! Must not know text, HTTP or JSON.

mod admit;
mod desk;
mod greedy;
mod leave;
mod meter;
mod pace;
mod pulse;
mod room;
mod run;
mod status;
mod step;
mod ticket;
mod worker;

pub use greedy::Greedy;
pub use status::{KvCounts, Last, Slot, SlotState, Status, Totals};
pub use ticket::Ticket;

use crate::cache::Reused;
use crate::failure::Failure;
use crate::generate::Stop;
use crate::loader::Model;
use crate::parts::{self, Parts};
use crate::setup::Setup;
use crate::thread::Thread;
use core::time::Duration;
use desk::{Desk, Ended, hold};
use kinglet_core::Config;
use run::Run;
use std::sync::{Arc, Mutex};
use std::time::Instant;
use worker::Worker;

/// Most sequences of a batch.
pub const MAX_PARALLEL: usize = 64;
/// How long [`Scheduler::stop`] waits for the disk after the last job.
const FLUSH_PATIENCE: Duration = Duration::from_secs(20);
/// How much longer it waits for the step that runs, before it leaves the thread to itself.
const STEP_PATIENCE: Duration = Duration::from_secs(10);

/// How much is done at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Sequences computed at once: 1 to [`MAX_PARALLEL`].
    pub parallel: usize,
    /// Jobs that wait beyond those; one more is refused.
    pub queue: usize,
    /// Memory that steps alone need is given back when there was none for so long.
    pub idle_trim: Option<Duration>,
}

impl Default for Options {
    fn default() -> Self {
        Options { parallel: 4, queue: 64, idle_trim: Some(Duration::from_secs(600)) }
    }
}

/// A prompt and how it is to be answered.
pub struct Job {
    /// The prompt: at least one token.
    pub prompt: Vec<u32>,
    /// Jobs find the computed prefixes of jobs with the same salt only.
    pub salt: Vec<u8>,
    /// Tokens to pick at most; 0 reads the prompt and no more.
    pub most: usize,
    /// Picks them.
    pub picker: Box<dyn Picker>,
    /// Whether a computed prefix may be taken over.
    pub reuse: bool,
    /// Whether [`Event::Progress`] is wanted.
    pub progress: bool,
    /// Whether [`Picked::last`] ends the reply; false goes on all the same.
    pub is_end: bool,
}

/// Picks tokens. Runs on the engine's thread, so it must be quick and must not block.
pub trait Picker: Send {
    /// Picks the token that follows `before` (the prompt and what was picked) by the logits after it, which
    /// it may change.
    ///
    /// # Errors
    /// No token can be picked; the job fails with that.
    fn pick(&mut self, logits: &mut [f32], before: &[u32]) -> Result<Picked, Failure>;
}

/// A token of a reply.
#[derive(Clone, Debug, PartialEq)]
pub struct Picked {
    /// The token.
    pub token: u32,
    /// How probable it was, if that was asked for.
    pub logprob: Option<Box<Logprobs>>,
    /// Whether it ends the reply: an end token, or the last one that a constraint allows.
    pub last: bool,
}

/// Logarithms of probabilities.
#[derive(Clone, Debug, PartialEq)]
pub struct Logprobs {
    /// Of the token that was picked.
    pub logprob: f32,
    /// Of the most probable ones, the best first.
    pub top: Vec<(u32, f32)>,
}

/// What a job's client hears, in this order: `Started` once, `Progress` and `Token` as they come, and one of
/// `Ended` and `Failed` (which may also come first).
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// It left the queue.
    Started {
        /// Time in the queue.
        waited: Duration,
        /// What need not be computed.
        reused: Reused,
        /// The first position where the best match among the prompts and replies at hand differs from this
        /// prompt; `None` if there is none, or no difference, or if the disk knew more.
        divergence: Option<usize>,
    },
    /// A slice of the prompt is done.
    Progress {
        /// Tokens of the prompt done, the reused ones included.
        done: usize,
        /// Tokens of the prompt.
        total: usize,
    },
    /// The next token. The one that ends the reply comes too.
    Token(Picked),
    /// The reply is complete, or was cancelled ([`Stop::Interrupted`]).
    Ended {
        /// Why.
        why: Stop,
        /// Where the time went.
        timings: Timings,
    },
    /// There will be no more of it; a line for people.
    Failed(String),
}

/// Where the time of a job went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timings {
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Of those, the ones found in memory or on disk.
    pub cached_tokens: usize,
    /// Of those, the ones found on disk.
    pub disk_tokens: usize,
    /// Computing the rest of the prompt, with what was computed for others meanwhile.
    pub prefill: Duration,
    /// Finding and reading what was cached.
    pub restore: Duration,
    /// From the end of the prompt to the last token.
    pub decode: Duration,
    /// Tokens picked, an end token included.
    pub decoded_tokens: usize,
    /// In the queue, or waiting for another job that computed the same prefix.
    pub waited: Duration,
    /// From the submission to the first token; zero if there was none.
    pub first_token: Duration,
}

/// Why a job was not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The queue is full.
    Full {
        /// When to try again, in seconds, going by the jobs so far.
        retry_after: u64,
    },
    /// The scheduler is about to end.
    Stopping,
    /// The prompt does not fit.
    TooLong {
        /// Its tokens.
        tokens: usize,
        /// Tokens that fit.
        ctx: usize,
    },
}

/// The engine's thread and its queue. Dropping it cancels all jobs and saves what was computed.
pub struct Scheduler {
    desk: Arc<Desk>,
    thread: Mutex<Option<Thread>>,
    config: Config,
    ctx: usize,
    options: Options,
}

impl Scheduler {
    /// Takes memory and starts the threads. The cache holds `setup.cache.tokens` tokens, by default as many
    /// as the context, for all sequences together.
    ///
    /// # Errors
    /// As for [`crate::session::Session::start`]; options out of range.
    pub fn start(model: &Model, setup: &Setup, options: Options) -> Result<Scheduler, Failure> {
        let parallel = options.parallel;
        if !(1..=MAX_PARALLEL).contains(&parallel) {
            return Err(Failure::new(format_args!("{parallel} sequences at once; 1 to {MAX_PARALLEL}")));
        }
        let config = model.config()?;
        let mut limits = parts::limits(setup, &config);
        // A token of each sequence fits into a step, and sequences that ended may wait for the disk.
        limits.max_batch = limits.max_batch.max(parallel);
        limits.max_seqs = 2 * parallel;
        limits.max_logits = parallel;
        let own = parallel.saturating_mul(config.vocab).saturating_mul(size_of::<f32>());
        let parts = Parts::take(model, setup, limits, own)?;
        let desk = Arc::new(Desk::new(parallel, limits.kv_tokens));
        let (theirs, setup) = (Arc::clone(&desk), setup.clone());
        let body = move || {
            // Also when it panics: who waits for it must not wait for ever.
            let _ended = Ended(&theirs);
            // On this thread: it is the first of the pool, and may be bound to a CPU.
            let pool = match parts::start_pool(&setup) {
                Ok(pool) => pool,
                Err(failure) => return theirs.set_ready(Err(failure)),
            };
            parts.tell_ready(&setup);
            let worker = Worker::new(&theirs, parts, pool, setup, options);
            theirs.set_ready(Ok(()));
            worker.run();
        };
        let thread = Thread::start(String::from("engine"), Box::new(body))
            .map_err(|e| Failure::new(format_args!("no thread for the engine: {e}")))?;
        if let Err(failure) = desk.wait_ready() {
            thread.join();
            return Err(failure);
        }
        Ok(Scheduler { desk, thread: Mutex::new(Some(thread)), config, ctx: limits.max_seq, options })
    }

    /// Puts a job into the queue. A prompt that no engine can compute (no token, an unknown one) is accepted
    /// and fails.
    ///
    /// # Errors
    /// See [`Refused`].
    pub fn submit(&self, job: Job) -> Result<Ticket, Refused> {
        if job.prompt.len() > self.ctx {
            return Err(Refused::TooLong { tokens: job.prompt.len(), ctx: self.ctx });
        }
        let fault = self.fault(&job.prompt);
        let mut state = self.desk.state();
        if state.stop.is_some() || state.ended {
            return Err(Refused::Stopping);
        }
        if state.jobs >= self.options.parallel.saturating_add(self.options.queue) {
            state.totals.refused += 1;
            return Err(Refused::Full { retry_after: state.retry_after(self.options.parallel) });
        }
        state.totals.accepted += 1;
        let (outbox, ticket) = ticket::pair(state.totals.accepted);
        if let Some(fault) = fault {
            state.totals.failed += 1;
            drop(state);
            outbox.finish(Event::Failed(fault));
            return Ok(ticket);
        }
        state.jobs += 1;
        let run = Box::new(Run::new(state.totals.accepted, job, outbox, self.ctx));
        state.queue.push_back(run);
        drop(state);
        self.desk.wake();
        Ok(ticket)
    }

    /// What is wrong with the tokens of a prompt.
    fn fault(&self, prompt: &[u32]) -> Option<String> {
        let vocab = self.config.vocab;
        if prompt.is_empty() {
            return Some(String::from("the prompt has no tokens"));
        }
        let unknown = prompt.iter().find(|token| **token as usize >= vocab)?;
        Some(format!("token {unknown} is not in the vocabulary of {vocab}"))
    }

    /// A look at everything: jobs as of now, the rest as of the last step or a tenth of a second ago.
    pub fn status(&self) -> Status {
        self.desk.status(self.options.parallel)
    }

    /// One byte for each block of the pool: 0 free, 1 cached, 2 in one sequence, 3 in several, 4 pinned; 8
    /// more if it is saved on disk.
    pub fn kv_map(&self) -> Vec<u8> {
        hold(&self.desk.view).map.clone()
    }

    /// Forgets what is cached in memory and in no running sequence; returns when that is done, after the step
    /// that runs. What is on disk stays there.
    pub fn clear(&self) {
        let mut state = self.desk.state();
        state.clears_asked += 1;
        let mine = state.clears_asked;
        self.desk.wake();
        while state.clears_done < mine && !state.ended {
            state = self.desk.wait_news(state, Duration::from_secs(1));
        }
    }

    /// Takes no new jobs; those that are there end by themselves, or are cancelled when `patience` is over.
    /// Then saves what is to be saved and ends the thread; whether nothing was cancelled or left unsaved.
    pub fn stop(&self, patience: Duration) -> bool {
        let now = Instant::now();
        let end = now.checked_add(patience).unwrap_or(now);
        let mut state = self.desk.state();
        state.stop = Some(state.stop.map_or(end, |earlier| earlier.min(end)));
        self.desk.wake();
        let last = patience.saturating_add(FLUSH_PATIENCE).saturating_add(STEP_PATIENCE);
        while !state.ended && now.elapsed() < last {
            state = self.desk.wait_news(state, Duration::from_secs(1));
        }
        let (ended, clean) = (state.ended, state.clean);
        drop(state);
        // If it hangs, in a read of a dead disk say, it is left to itself; it keeps what it needs.
        if ended && let Some(thread) = hold(&self.thread).take() {
            thread.join();
        }
        ended && clean
    }

    /// Context length in tokens.
    pub fn ctx(&self) -> usize {
        self.ctx
    }

    /// The model's dimensions.
    pub fn config(&self) -> &Config {
        &self.config
    }
}

impl Drop for Scheduler {
    fn drop(&mut self) {
        if hold(&self.thread).is_some() {
            self.stop(Duration::ZERO);
        }
    }
}
