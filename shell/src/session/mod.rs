//! One engine with its memory, its threads, its cache and one sequence: what every command computes with.
//! Must not know text.

mod feed;
mod life;

pub use crate::cache::Reused;
pub use feed::prompt_fits;

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
use kinglet_core::kv::{BLOCK_TOKENS, BlockId};
use kinglet_core::token::TokenizerRequirements;
use kinglet_core::{Engine, Limits, Memory, Requirements, SeqId, Workers};

/// Context where neither the user nor the model says less.
pub const DEFAULT_CTX: usize = 8192;

/// The limits that `setup` means for a model.
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

/// An engine at work on one sequence.
pub struct Session {
    engine: Engine<'static>,
    pool: Pool,
    cache: Cache,
    /// What its prompts follow.
    root: BlockId,
    seq: SeqId,
    limits: Limits,
    /// The tokens whose keys and values are in the sequence; room for the whole context.
    tokens: Vec<u32>,
    /// Logits after the last token.
    logits: Vec<f32>,
    /// See [`Session::be_responsive`].
    responsive: bool,
    /// Whether the cache has yet to get the last tokens of the reply that has ended.
    tail_due: bool,
}

impl Session {
    /// Takes memory and threads. Nothing of the model's weights is read yet.
    ///
    /// # Errors
    /// Not enough memory, CPUs that may not be used, a file that is no complete model.
    pub fn start(model: &Model, setup: &Setup) -> Result<Session, Failure> {
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
        let limits = limits(setup, &config);
        let budget = budget(model, setup, &config, &limits)?;
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
        let region = |what: &str, len| {
            map::region(len).map_err(|e| {
                Failure::new(format_args!(
                    "cannot map {} for {what}: {e}; use a smaller --ctx or --batch, or give the process \
                     more (ulimit -v)",
                    memory::megabytes(len),
                ))
            })
        };
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
        let root = cache.root(b"");
        let seq = engine.open_under(root).map_err(Failure::new)?;
        let pool = start_pool(setup)?;
        let (ctx, block) = (limits.max_seq, BLOCK_TOKENS);
        setup.tell(format_args!("inference state ready (max_seq={ctx}, kv_bs={block})"));
        Ok(Session {
            pool,
            cache,
            root,
            seq,
            limits,
            tokens: Vec::with_capacity(limits.max_seq),
            logits: vec![0.0; config.vocab],
            responsive: false,
            tail_due: false,
            engine,
        })
    }

    /// From now on a prompt is computed in batches of a second or two, so that progress is seen and
    /// Ctrl-C is answered also where a full batch takes a minute. The results are the same bits.
    pub fn be_responsive(&mut self) {
        self.responsive = true;
    }

    /// The model's dimensions.
    pub fn config(&self) -> &Config {
        self.engine.config()
    }

    /// The threads.
    pub fn workers(&self) -> &dyn Workers {
        &self.pool
    }

    /// Number of threads.
    pub fn threads(&self) -> usize {
        self.pool.count()
    }

    /// Context length in tokens.
    pub fn ctx(&self) -> usize {
        self.limits.max_seq
    }

    /// The tokens computed so far.
    pub fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// Tokens that still fit.
    pub fn room(&self) -> usize {
        self.limits.max_seq - self.tokens.len()
    }

    /// Logits after the last token.
    pub fn logits(&self) -> &[f32] {
        &self.logits
    }

    /// Forgets everything from token `len` on. Logits are those of the last step all the same: at
    /// least one token has to be computed before they mean anything again.
    ///
    /// # Errors
    /// None that a correct program sees.
    pub fn keep(&mut self, len: usize) -> Result<(), Failure> {
        if len < self.tokens.len() {
            self.engine.truncate(self.seq, len).map_err(Failure::new)?;
            self.tokens.truncate(len);
        }
        Ok(())
    }

    /// How many of `tokens`, from the first on, are computed already.
    pub fn common_prefix(&self, tokens: &[u32]) -> usize {
        self.tokens.iter().zip(tokens).take_while(|(a, b)| a == b).count()
    }
}

/// Starts the threads and binds them to CPUs where that is wanted or where CPUs differ.
fn start_pool(setup: &Setup) -> Result<Pool, Failure> {
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
