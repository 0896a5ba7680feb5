//! One engine with its memory, its threads, its cache and one sequence: what every command computes with.
//! Must not know text.

mod feed;
mod life;

pub use crate::cache::Reused;
pub(crate) use feed::forward_failure;
pub use feed::prompt_fits;

use crate::cache::Cache;
use crate::failure::Failure;
use crate::loader::Model;
use crate::parts::{self, Parts};
use crate::pool::Pool;
use crate::setup::Setup;
use kinglet_core::config::Config;
use kinglet_core::kv::BlockId;
use kinglet_core::{Engine, Limits, SeqId, Workers};

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
        let limits = parts::limits(setup, &model.config()?);
        let parts = Parts::take(model, setup, limits, 0)?;
        let pool = parts::start_pool(setup)?;
        parts.tell_ready(setup);
        let Parts { mut engine, cache, limits } = parts;
        let root = cache.root(b"");
        let seq = engine.open_under(root).map_err(Failure::new)?;
        Ok(Session {
            pool,
            cache,
            root,
            seq,
            limits,
            tokens: Vec::with_capacity(limits.max_seq),
            logits: vec![0.0; engine.config().vocab],
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
