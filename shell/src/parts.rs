//! What everything that computes is made of: memory that was checked, an engine in it, its cache, its
//! threads. Must not know how many sequences there are, or who asks.

use crate::cache::{self, Cache};
use crate::cpus::{self, Cpus};
use crate::failure::Failure;
use crate::loader::Model;
use crate::map;
use crate::memory::{self, Budget};
use crate::pool::Pool;
use crate::setup::Setup;
use crate::trace::{self, log};
use kinglet_core::config::Config;
use kinglet_core::kv::BLOCK_TOKENS;
use kinglet_core::token::TokenizerRequirements;
use kinglet_core::{Engine, Limits, Memory, Requirements};

/// Context where neither the user nor the model says less.
pub const DEFAULT_CTX: usize = 8192;

/// The limits that `setup` means for a model and one sequence.
pub fn limits(setup: &Setup, config: &Config) -> Limits {
    let max_seq = setup.ctx.unwrap_or(DEFAULT_CTX.min(config.train_ctx));
    Limits {
        max_seq,
        kv_tokens: setup.cache.tokens.unwrap_or(max_seq).max(max_seq),
        max_batch: setup.batch.min(max_seq),
        max_seqs: 1,
        max_logits: setup.logit_rows.min(setup.batch).min(max_seq),
        kv_type: setup.kv_type,
    }
}

/// The memory that `limits` mean for a model, its tokenizer included.
///
/// # Errors
/// Limits that the engine refuses.
pub fn budget(model: &Model, setup: &Setup, config: &Config, limits: &Limits) -> Result<Budget, Failure> {
    let need = Requirements::of(config, limits).map_err(Failure::new)?;
    let tokenizer = TokenizerRequirements::of(&model.gguf).map_or(0, |t| t.index + t.scratch);
    Ok(Budget {
        weights: model.bytes.len(),
        kv: need.kv,
        scratch: need.scratch.saturating_add(cache::buffer_bytes(setup, config, limits)),
        index: need.index.saturating_add(tokenizer),
    })
}

/// An engine and its cache, ready for sequences.
pub struct Parts {
    /// The engine, which tracks saves if the cache has a disk.
    pub engine: Engine<'static>,
    /// Its cache.
    pub cache: Cache,
    /// What both were made for.
    pub limits: Limits,
}

impl Parts {
    /// Opens the trace and takes memory, for `limits` and `more` bytes of the caller's own. Nothing of the
    /// model's weights is read yet.
    ///
    /// # Errors
    /// Not enough memory, a file that is no complete model, a folder of the cache that cannot be used.
    pub fn take(model: &Model, setup: &Setup, limits: Limits, more: usize) -> Result<Parts, Failure> {
        if let Some(path) = &setup.trace {
            trace::open(path, &model.path)?;
        }
        log!(
            info,
            "kinglet {=str}, numerics {=u32}",
            env!("CARGO_PKG_VERSION"),
            kinglet_core::NUMERICS_VERSION
        );
        let config = model.config()?;
        let mut budget = budget(model, setup, &config, &limits)?;
        budget.scratch = budget.scratch.saturating_add(more);
        if let Some(available) = memory::available()
            && let Err(refusal) = budget.check(available, limits.max_seq)
        {
            if !setup.force {
                return Err(Failure::new(refusal));
            }
            setup.note(format_args!("{refusal} (forced)"));
        }
        if limits.max_seq > config.train_ctx {
            let trained = config.train_ctx;
            setup.note(format_args!("the model was trained for {trained} tokens; past that it gets worse"));
        }
        let weights = model.weights(&config)?;
        let need = Requirements::of(&config, &limits).map_err(Failure::new)?;
        let memory = Memory {
            kv: region("kv", need.kv)?,
            scratch: region("scratch", need.scratch)?,
            index: region("the index", need.index)?,
        };
        log!(info, "kernels {=str}", setup.isa.name());
        let mut engine =
            Engine::new(config, weights, limits, memory, setup.isa).map_err(|e| model.fail(e))?;
        let cache = Cache::open(model, setup, &config, &limits)?;
        cache.attach(&mut engine);
        Ok(Parts { engine, cache, limits })
    }

    /// Says that everything is there.
    pub fn tell_ready(&self, setup: &Setup) {
        let (ctx, block) = (self.limits.max_seq, BLOCK_TOKENS);
        setup.tell(format_args!("inference state ready (max_seq={ctx}, kv_bs={block})"));
    }
}

fn region(what: &str, len: usize) -> Result<&'static mut [u8], Failure> {
    map::region(len).map_err(|e| {
        Failure::new(format_args!(
            "cannot map {} for {what}: {e}; use a smaller --ctx or --batch, or give the process \
             more (ulimit -v)",
            memory::megabytes(len),
        ))
    })
}

/// Starts the threads and binds them to CPUs where that is wanted or where CPUs differ. To be called on the
/// thread that will compute: it is the first of them.
///
/// # Errors
/// CPUs that may not be used; the system refuses a thread.
pub fn start_pool(setup: &Setup) -> Result<Pool, Failure> {
    let cpus = match &setup.cpus {
        None => Cpus::allowed(),
        Some(list) => Cpus::chosen(list).map_err(|id| {
            let allowed = Cpus::allowed().ids;
            Failure::new(format_args!("--cpus: CPU {id} may not be used here; these may: {allowed:?}"))
        })?,
    };
    let threads = setup.threads.unwrap_or(cpus.ids.len());
    log!(info, "{=usize} threads on {=usize} CPUs", threads, cpus.ids.len());
    let choose = setup.cpus.is_some() || cpus.uneven;
    // More threads than CPUs share them all; else thread i has the i-th fastest to itself, so that the
    // calling thread, which also does what cannot be shared, gets a fast one.
    let place = move |i: usize| {
        if choose {
            let own = if threads <= cpus.ids.len() { &cpus.ids[i..=i] } else { &cpus.ids[..] };
            // A CPU taken away in the meantime costs speed, not correctness.
            let _ = cpus::bind(own);
        }
    };
    place(0);
    Pool::new(threads, place).map_err(|e| {
        Failure::new(format_args!("cannot start {threads} threads: {e}; use a smaller --threads"))
    })
}
