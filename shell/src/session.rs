//! One engine with its memory, its threads and one sequence: what every command computes with.
//! Must not know text.

use crate::cpus::{self, Cpus};
use crate::failure::Failure;
use crate::loader::Model;
use crate::map;
use crate::memory::{self, Budget};
use crate::pool::Pool;
use crate::setup::Setup;
use crate::signal;
use crate::trace::{self, log};
use core::time::Duration;
use kinglet_core::config::Config;
use kinglet_core::token::TokenizerRequirements;
use kinglet_core::{
    Chunk, Engine, ForwardError, Limits, LogitRow, Logits, Memory, Requirements, SeqId, Workers,
};
use std::time::Instant;

/// Context where neither the user nor the model says less.
pub const DEFAULT_CTX: usize = 8192;
/// Fewer tokens at a time would read weights more often than they are used.
const LEAST_BATCH: usize = 64;
/// How long a batch may take where somebody waits for progress or Ctrl-C.
const PATIENCE: Duration = Duration::from_secs(2);

/// The limits that `setup` means for a model.
pub fn limits(setup: &Setup, config: &Config) -> Limits {
    let max_seq = setup.ctx.unwrap_or(DEFAULT_CTX.min(config.train_ctx));
    Limits {
        max_seq,
        kv_tokens: max_seq,
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
pub fn budget(model: &Model, config: &Config, limits: &Limits) -> Result<Budget, Failure> {
    let need = Requirements::of(config, limits).map_err(Failure::new)?;
    let tokenizer = TokenizerRequirements::of(&model.gguf).map_or(0, |t| t.index + t.scratch);
    Ok(Budget {
        weights: model.bytes.len(),
        kv: need.kv,
        scratch: need.scratch,
        index: need.index.saturating_add(tokenizer),
    })
}

/// An engine at work on one sequence.
pub struct Session {
    engine: Engine<'static>,
    pool: Pool,
    seq: SeqId,
    limits: Limits,
    /// The tokens whose keys and values are in the sequence; room for the whole context.
    tokens: Vec<u32>,
    /// Logits after the last token.
    logits: Vec<f32>,
    /// See [`Session::be_responsive`].
    responsive: bool,
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
        let budget = budget(model, &config, &limits)?;
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
        let seq = engine.open().map_err(Failure::new)?;
        Ok(Session {
            pool: start_pool(setup)?,
            seq,
            limits,
            tokens: Vec::with_capacity(limits.max_seq),
            logits: vec![0.0; config.vocab],
            responsive: false,
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

    /// Continues the sequence by a prompt, a batch at a time; logits are those of its last token.
    /// `progress` hears how many tokens are done. Ctrl-C is looked for between batches; what was
    /// computed until then stays.
    ///
    /// # Errors
    /// The prompt does not fit (found before any work), Ctrl-C, a fault of the engine.
    pub fn prefill(&mut self, tokens: &[u32], progress: &mut dyn FnMut(usize)) -> Result<(), Failure> {
        let logits = &mut Vec::new();
        core::mem::swap(logits, &mut self.logits);
        let done = self.feed(tokens, Logits::Last, progress, &mut |_, row| logits.copy_from_slice(row));
        core::mem::swap(logits, &mut self.logits);
        done
    }

    /// As [`Session::prefill`], but hands the logits of every position to `sink`, in order.
    ///
    /// # Errors
    /// As there.
    pub fn score(&mut self, tokens: &[u32], sink: &mut dyn FnMut(LogitRow, &[f32])) -> Result<(), Failure> {
        self.feed(tokens, Logits::All, &mut |_| {}, sink)
    }

    fn feed(
        &mut self,
        tokens: &[u32],
        logits: Logits,
        progress: &mut dyn FnMut(usize),
        sink: &mut dyn FnMut(LogitRow, &[f32]),
    ) -> Result<(), Failure> {
        self.fits(tokens.len())?;
        let vocab = self.config().vocab;
        if let Some(&token) = tokens.iter().find(|t| **t as usize >= vocab) {
            return Err(forward_failure(ForwardError::UnknownToken { token, vocab }));
        }
        log!(debug, "prompt: {=usize} tokens", tokens.len());
        let most = self.limits.max_batch;
        let mut size = if self.responsive { most.min(LEAST_BATCH) } else { most };
        let mut left = tokens;
        while !left.is_empty() {
            if signal::interrupted() {
                return Err(Failure::Interrupted);
            }
            let (batch, rest) = left.split_at(size.min(left.len()));
            let wanted = if logits == Logits::Last && !rest.is_empty() { Logits::None } else { logits };
            let chunk = Chunk { seq: self.seq, tokens: batch, logits: wanted };
            let start = Instant::now();
            self.engine.forward(&self.pool, &[chunk], sink).map_err(forward_failure)?;
            self.tokens.extend_from_slice(batch);
            left = rest;
            progress(tokens.len() - left.len());
            if self.responsive {
                size = paced(batch.len(), start.elapsed()).min(most);
            }
        }
        Ok(())
    }

    /// Checks that `more` tokens fit after those that are there.
    ///
    /// # Errors
    /// They do not; the line says what would.
    pub fn fits(&self, more: usize) -> Result<(), Failure> {
        prompt_fits(self.tokens.len() + more, self.limits.max_seq)
    }

    /// Continues the sequence by one token; logits are those after it. Allocates nothing.
    ///
    /// # Errors
    /// The context is full, or a fault of the engine.
    pub fn step(&mut self, token: u32) -> Result<(), Failure> {
        let (logits, tokens) = (&mut self.logits, [token]);
        let chunk = Chunk { seq: self.seq, tokens: &tokens, logits: Logits::Last };
        let mut sink = |_: LogitRow, row: &[f32]| logits.copy_from_slice(row);
        self.engine.forward(&self.pool, &[chunk], &mut sink).map_err(forward_failure)?;
        self.tokens.push(token);
        Ok(())
    }
}

/// How many tokens to compute next, after `tokens` took `time`: about [`PATIENCE`] worth of them.
fn paced(tokens: usize, time: Duration) -> usize {
    let worth = tokens as f64 * PATIENCE.as_secs_f64() / time.as_secs_f64().max(1e-6);
    ((worth as usize) / LEAST_BATCH * LEAST_BATCH).max(LEAST_BATCH)
}

/// Checks a prompt's length against the context, before an engine exists.
///
/// # Errors
/// It is longer; the line says what to do.
pub fn prompt_fits(tokens: usize, ctx: usize) -> Result<(), Failure> {
    if tokens <= ctx {
        return Ok(());
    }
    let enough = tokens.next_multiple_of(256);
    Err(Failure::new(format_args!(
        "the prompt has {tokens} tokens, the context holds {ctx}; \
         use --ctx {enough} or more, or a shorter prompt"
    )))
}

/// A fault of a step for the user; [`ForwardError`] says what is behind it.
fn forward_failure(e: ForwardError) -> Failure {
    match e {
        ForwardError::NonFinite { position } => Failure::new(format_args!(
            "NaN or infinity came out at position {position}: the model file holds such values or is \
             damaged; compare its checksum or get it again"
        )),
        other => Failure::new(other),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_follow_the_speed_of_the_machine() {
        assert_eq!(paced(64, Duration::from_secs(8)), 64);
        assert_eq!(paced(64, Duration::from_millis(500)), 256);
        assert!(paced(512, Duration::ZERO) > 4096);
    }

    #[test]
    fn a_prompt_that_is_too_long_is_told_the_context_it_needs() {
        assert_eq!(prompt_fits(512, 512), Ok(()));
        let Err(Failure::Failed(line)) = prompt_fits(513, 512) else { panic!() };
        assert!(line.contains("--ctx 768"), "{line}");
    }
}
