//! The engine: one model, one KV pool, and steps over batches of tokens.
//!
//! Knows weights, kernels' entry points and the pool. Must not know text, threads or files.

mod attend;
mod cache;
mod operators;
mod output;
#[cfg(test)]
mod schedule;
pub(crate) mod scratch;
mod step;
mod tables;
mod trace;

pub use trace::{Point, Trace};

use crate::cast::{Arena, RegionError};
use crate::config::Config;
use crate::kv::{ContentId, Geometry, KvError, KvType, Pool, SeqId};
use crate::log::log;
use crate::ops::Isa;
use crate::par::Workers;
use crate::requirements::{Limits, LimitsError, Requirements};
use crate::weights::Weights;
use core::fmt;
use scratch::Scratch;

/// The regions an engine lives in; sizes from [`Requirements::of`], each aligned to
/// [`crate::cast::REGION_ALIGN`]. Their contents at first do not matter.
#[derive(Debug)]
pub struct Memory<'m> {
    /// KV blocks.
    pub kv: &'m mut [u8],
    /// Room of a step.
    pub scratch: &'m mut [u8],
    /// Block tables, and what finds blocks again.
    pub index: &'m mut [u8],
}

/// Which positions of a chunk give logits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Logits {
    /// None: for all but the last part of a prompt.
    None,
    /// The last position.
    #[default]
    Last,
    /// Every position.
    All,
}

/// Tokens that continue a sequence.
#[derive(Clone, Copy, Debug)]
pub struct Chunk<'t> {
    /// The sequence; at most one chunk of a step continues it.
    pub seq: SeqId,
    /// At least one token.
    pub tokens: &'t [u32],
    /// Which logits are wanted.
    pub logits: Logits,
}

/// Where a row of logits comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogitRow {
    /// Index of the chunk in the step.
    pub chunk: usize,
    /// Position in the sequence.
    pub position: usize,
}

/// Why an engine cannot be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum EngineError {
    /// A limit is out of range.
    Limits(LimitsError),
    /// The KV region does not fit.
    Kv(RegionError),
    /// The scratch region does not fit.
    Scratch(RegionError),
    /// The index region does not fit.
    Index(RegionError),
    /// Weights and dimensions belong to different models.
    Weights,
}

impl fmt::Display for EngineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Limits(e) => e.fmt(f),
            Self::Kv(e) => write!(f, "kv region: {e}"),
            Self::Scratch(e) => write!(f, "scratch region: {e}"),
            Self::Index(e) => write!(f, "index region: {e}"),
            Self::Weights => write!(f, "weights do not belong to this configuration"),
        }
    }
}

impl core::error::Error for EngineError {}

/// Why a step was not done. No sequence has changed then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum ForwardError {
    /// No chunk, or a chunk of no tokens.
    Empty,
    /// More tokens than a step can hold.
    BatchTooLarge {
        /// Tokens given.
        tokens: usize,
        /// Most tokens of a step.
        most: usize,
    },
    /// Two chunks continue the same sequence.
    RepeatedSequence,
    /// A token that is not in the vocabulary.
    UnknownToken {
        /// The token.
        token: u32,
        /// Size of the vocabulary.
        vocab: usize,
    },
    /// Sequence or blocks.
    Kv(KvError),
    /// NaN or infinity came out: the weights hold such values, or are no weights.
    NonFinite {
        /// Position in its sequence.
        position: usize,
    },
}

impl From<KvError> for ForwardError {
    fn from(e: KvError) -> Self {
        ForwardError::Kv(e)
    }
}

impl fmt::Display for ForwardError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => write!(f, "no tokens"),
            Self::BatchTooLarge { tokens, most } => {
                write!(f, "{tokens} tokens in a step that holds {most}")
            }
            Self::RepeatedSequence => write!(f, "a sequence appears twice in one step"),
            Self::UnknownToken { token, vocab } => {
                write!(f, "token {token} is not in the vocabulary of {vocab}")
            }
            Self::Kv(e) => e.fmt(f),
            Self::NonFinite { position } => write!(
                f,
                "NaN or infinity at position {position}: the model's weights hold such values; \
                 is the file damaged?"
            ),
        }
    }
}

impl core::error::Error for ForwardError {}

/// A model with its memory.
#[derive(Debug)]
pub struct Engine<'m> {
    config: Config,
    weights: Weights<'m, 'm>,
    limits: Limits,
    geometry: Geometry,
    isa: Isa,
    kv: &'m mut [u8],
    pool: Pool<'m>,
    scratch: Scratch<'m>,
}

impl<'m> Engine<'m> {
    /// Puts a model and its memory together. Touches nothing of the KV region.
    ///
    /// # Errors
    /// Limits out of range, a region too small or misaligned, weights of another model.
    pub fn new(
        config: Config,
        weights: Weights<'m, 'm>,
        limits: Limits,
        memory: Memory<'m>,
        isa: Isa,
    ) -> Result<Self, EngineError> {
        let made = Self::assemble(config, weights, limits, memory, isa);
        if let Err(e) = &made {
            log!(error, "no engine: {}", e);
        }
        made
    }

    fn assemble(
        config: Config,
        weights: Weights<'m, 'm>,
        limits: Limits,
        memory: Memory<'m>,
        isa: Isa,
    ) -> Result<Self, EngineError> {
        log!(
            info,
            "model: {=usize} layers, dim {=usize}, ffn {=usize}, heads {=usize} and {=usize} of {=usize}, \
             vocabulary {=usize}",
            config.n_layers,
            config.dim,
            config.ffn_dim,
            config.n_heads,
            config.n_kv_heads,
            config.head_dim,
            config.vocab
        );
        let required = Requirements::of(&config, &limits).map_err(EngineError::Limits)?;
        if !weights.fits(&config) {
            return Err(EngineError::Weights);
        }
        log!(
            info,
            "memory: kv {=u64}, scratch {=u64}, index {=u64} bytes",
            required.kv as u64,
            required.scratch as u64,
            required.index as u64
        );
        log!(
            info,
            "limits: {=usize} tokens a sequence, {=usize} a step, {=usize} sequences, KV {}",
            limits.max_seq,
            limits.max_batch,
            limits.max_seqs,
            limits.kv_type
        );
        let kv = Arena::new(memory.kv).and_then(|mut a| a.take(required.kv)).map_err(EngineError::Kv)?;
        let scratch = Scratch::new(memory.scratch, &config, &limits).map_err(EngineError::Scratch)?;
        let pool = Arena::new(memory.index)
            .and_then(|mut a| Pool::new(&mut a, limits.pool()))
            .map_err(EngineError::Index)?;
        let geometry = Geometry::of(&config, limits.kv_type);
        let mut engine = Engine { config, weights, limits, geometry, isa, kv, pool, scratch };
        engine.fill_tables();
        Ok(engine)
    }

    /// Computes what depends on the model and the limits alone.
    fn fill_tables(&mut self) {
        let (s, width, half) = (&mut self.scratch, self.config.kv_dim(), self.config.head_dim / 2);
        tables::rotary_frequencies(&self.config, s.inv_freq);
        if self.limits.kv_type == KvType::F32 {
            return;
        }
        let blocks = s.block_cos.chunks_exact_mut(half).zip(s.block_sin.chunks_exact_mut(half));
        for (i, (cos, sin)) in blocks.enumerate() {
            tables::rotary_angles(tables::block_middle(i), s.inv_freq, cos, sin);
        }
        for (i, layer) in self.weights.layers.iter().enumerate() {
            let at = i * width..(i + 1) * width;
            let out = tables::Conditioning {
                q_factor: &mut s.q_factor[at.clone()],
                k_factor: &mut s.k_factor[at.clone()],
                k_constant: &mut s.k_constant[at],
            };
            tables::conditioning(&self.config, layer, s.inv_freq, out);
        }
    }

    /// The model's dimensions.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The limits the engine was made with.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Does one step: continues every chunk's sequence by its tokens and hands the wanted logits,
    /// `[vocab]` each, to `sink`, chunk by chunk in order of position.
    ///
    /// The logits of a position depend on the tokens up to it and on nothing else.
    ///
    /// # Errors
    /// See [`ForwardError`]. All but [`ForwardError::NonFinite`] are found before any work; in every
    /// case the sequences are as they were. A NaN that only the output matrix holds is found after earlier
    /// rows have gone to `sink`.
    #[cfg_attr(kinglet_small, optimize(size))]
    pub fn forward(
        &mut self,
        workers: &dyn Workers,
        chunks: &[Chunk<'_>],
        sink: &mut dyn FnMut(LogitRow, &[f32]),
    ) -> Result<(), ForwardError> {
        self.forward_traced(workers, chunks, sink, &mut trace::Off)
    }

    /// [`Engine::forward`] that shows intermediate activations to `trace`, for tests and for finding
    /// out where two engines part.
    ///
    /// # Errors
    /// As [`Engine::forward`].
    pub fn forward_traced(
        &mut self,
        workers: &dyn Workers,
        chunks: &[Chunk<'_>],
        sink: &mut dyn FnMut(LogitRow, &[f32]),
        trace: &mut dyn Trace,
    ) -> Result<(), ForwardError> {
        let done = self.forward_checked(workers, chunks, sink, trace);
        match &done {
            Ok(()) => log!(debug, "forward: done"),
            Err(e) => log!(error, "forward: {}", e),
        }
        done
    }

    fn forward_checked(
        &mut self,
        workers: &dyn Workers,
        chunks: &[Chunk<'_>],
        sink: &mut dyn FnMut(LogitRow, &[f32]),
        trace: &mut dyn Trace,
    ) -> Result<(), ForwardError> {
        self.check(chunks)?;
        let tokens: usize = chunks.iter().map(|c| c.tokens.len()).sum();
        log!(debug, "forward: {=usize} tokens in {=usize} chunks", tokens, chunks.len());
        for chunk in chunks {
            let start = self.pool.len(chunk.seq)?;
            // Cannot fail: `check` counted the blocks of all chunks together.
            let copy = self.pool.extend(chunk.seq, chunk.tokens.len())?;
            self.copy_block(copy);
            let end = start + chunk.tokens.len();
            log!(
                debug,
                "chunk: {}, positions {=usize}..{=usize}, logits {}",
                chunk.seq,
                start,
                end,
                chunk.logits
            );
        }
        let done = self.step(workers, chunks, sink, trace);
        for chunk in chunks {
            if done.is_ok() {
                // Only now can others find the blocks: those of a failed step never are.
                self.pool.commit(chunk.seq, &mut chunk.tokens.iter().map(|t| ContentId::token(*t)))?;
            } else {
                let len = self.pool.len(chunk.seq)?;
                self.pool.truncate(chunk.seq, len - chunk.tokens.len())?;
            }
        }
        done
    }

    fn check(&self, chunks: &[Chunk<'_>]) -> Result<(), ForwardError> {
        if chunks.is_empty() || chunks.iter().any(|c| c.tokens.is_empty()) {
            return Err(ForwardError::Empty);
        }
        let tokens = chunks.iter().fold(0usize, |n, c| n.saturating_add(c.tokens.len()));
        let most = self.limits.max_batch;
        let mut needed = 0;
        for (i, chunk) in chunks.iter().enumerate() {
            needed += self.pool.blocks_to_extend(chunk.seq, chunk.tokens.len())?;
            if chunks[..i].iter().any(|c| c.seq == chunk.seq) {
                return Err(ForwardError::RepeatedSequence);
            }
            let vocab = self.config.vocab;
            if let Some(&token) = chunk.tokens.iter().find(|t| **t as usize >= vocab) {
                return Err(ForwardError::UnknownToken { token, vocab });
            }
        }
        if tokens > most {
            return Err(ForwardError::BatchTooLarge { tokens, most });
        }
        if !self.pool.has_free(needed) {
            let free = self.pool.free_blocks();
            return Err(KvError::OutOfBlocks { needed, free }.into());
        }
        Ok(())
    }
}
