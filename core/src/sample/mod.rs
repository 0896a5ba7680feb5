//! From logits to the next token: bias, penalties, filters, draw. Must not know text, models
//! or clocks.
//!
//! The chain is llama.cpp's with its default samplers, in this order:
//!
//! 1. `logit_bias` is added to the logits.
//! 2. Penalties, on tokens among the last `last_n`: a positive logit is divided by
//!    `repetition_penalty`, another multiplied with it; then
//!    `n * frequency_penalty + presence_penalty` is taken off a token that occurs n times.
//! 3. If `temperature` is 0: the largest logit, the smallest id among equals. Done.
//! 4. `top_k`: the k largest logits stay.
//! 5. `top_p`: of the softmax of those, the shortest prefix that sums up to at least `top_p`.
//! 6. `min_p`: those whose probability is at least `min_p` times the largest.
//! 7. `temperature`: logits are divided by it.
//! 8. A draw from the softmax.
//!
//! Steps 4 to 6 keep at least one token. "Largest" always means logit descending, then id
//! ascending.
//!
//! **One answer.** A softmax weight is `trunc(exp((logit - max) / temperature) * 2^40)`, an
//! integer, with the `exp` of the numerics contract. Sums of weights are therefore exact and
//! their order is free, so that nothing has to be sorted for the sake of a sum; what is
//! rounded away lies below 2^-40 of the best token's probability. The random numbers are
//! integers too ([`rng`]). Same logits, parameters, seed and draw: same token, everywhere.

mod candidates;
mod logprob;
mod params;
pub mod rng;

use crate::cast::{Arena, RegionError};
use candidates::{Candidates, id_of, key, logit_of, weight};
use core::fmt;

pub use logprob::{LogProb, LogProbs};
pub use params::{ParamError, Params};

/// Largest vocabulary: the sum of that many weights still fits 64 bits.
pub const MAX_VOCAB: usize = 1 << 23;

/// Why no token could be chosen. The sampler's state is as before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SampleError {
    /// A parameter is out of its range.
    Params(ParamError),
    /// There are no logits, or more than [`MAX_VOCAB`].
    Vocabulary {
        /// Number of logits.
        len: usize,
    },
    /// The scratch is for a smaller vocabulary.
    ScratchTooSmall {
        /// Number of logits.
        needed: usize,
        /// Vocabulary of the scratch.
        got: usize,
    },
    /// A logit is NaN or +infinity, as given or after bias and penalties.
    NonFinite {
        /// Its token.
        id: u32,
    },
    /// A bias for a token that does not exist.
    UnknownBias {
        /// The token.
        id: u32,
    },
    /// Every logit is -infinity: all tokens are banned.
    AllBanned,
}

impl fmt::Display for SampleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Params(error) => error.fmt(f),
            Self::Vocabulary { len } => write!(f, "{len} logits: at least 1, at most {MAX_VOCAB}"),
            Self::ScratchTooSmall { needed, got } => {
                write!(f, "scratch for {got} tokens, {needed} logits")
            }
            Self::NonFinite { id } => write!(f, "the logit of token {id} is not finite"),
            Self::UnknownBias { id } => write!(f, "logit_bias for token {id}, which does not exist"),
            Self::AllBanned => write!(f, "every token is banned"),
        }
    }
}

impl core::error::Error for SampleError {}

impl From<ParamError> for SampleError {
    fn from(error: ParamError) -> Self {
        Self::Params(error)
    }
}

/// Working memory, shared by any number of sequences.
#[derive(Debug)]
pub struct Scratch<'a> {
    /// Candidates, one key per token.
    keys: &'a mut [u64],
    /// Occurrences in the penalty window; all zero between calls.
    counts: &'a mut [u32],
}

impl<'a> Scratch<'a> {
    /// Bytes that [`Scratch::new`] needs for a vocabulary of `vocab` tokens; saturates.
    pub const fn bytes(vocab: usize) -> usize {
        Arena::size_of::<u64>(vocab).saturating_add(Arena::size_of::<u32>(vocab))
    }

    /// Takes its arrays from a region.
    ///
    /// # Errors
    /// [`RegionError`] if the region is misaligned or smaller than [`Scratch::bytes`].
    pub fn new(region: &'a mut [u8], vocab: usize) -> Result<Self, RegionError> {
        let mut arena = Arena::new(region)?;
        let keys = arena.take(vocab)?;
        let counts: &mut [u32] = arena.take(vocab)?;
        counts.fill(0);
        Ok(Scratch { keys, counts })
    }
}

/// The random state of one sequence: a seed and how often it was asked. Save both, and
/// [`Sampler::restore`] continues where it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sampler {
    seed: u64,
    draws: u64,
}

impl Sampler {
    /// Starts at the first draw of `seed`.
    pub const fn new(seed: u64) -> Self {
        Self::restore(seed, 0)
    }

    /// Continues after `draws` draws.
    pub const fn restore(seed: u64, draws: u64) -> Self {
        Sampler { seed, draws }
    }

    /// The seed.
    pub const fn seed(&self) -> u64 {
        self.seed
    }

    /// Draws so far: one per token, none per greedy token.
    pub const fn draws(&self) -> u64 {
        self.draws
    }

    /// Chooses the next token. `params.seed` is not read here: it is for [`Sampler::new`].
    ///
    /// `logits`: `[vocab]`. `recent`: the tokens so far, oldest first, of which the penalties see
    /// the last `last_n` (prompt included or not, as the caller likes; llama.cpp includes it);
    /// ids beyond the vocabulary are passed over. Costs O(vocab + last_n), and O(k log k) for
    /// the k tokens among which the draw falls.
    ///
    /// # Errors
    /// [`SampleError`].
    pub fn sample(
        &mut self,
        params: &Params<'_>,
        logits: &[f32],
        recent: &[u32],
        scratch: &mut Scratch<'_>,
    ) -> Result<u32, SampleError> {
        params.validate()?;
        let greedy = params.temperature == 0.0;
        let window = &recent[recent.len().saturating_sub(params.window())..];
        if greedy && window.is_empty() && params.logit_bias.is_empty() {
            return argmax(logits);
        }
        check_len(logits)?;
        let got = scratch.keys.len();
        let needed = logits.len();
        let keys = scratch.keys.get_mut(..needed).ok_or(SampleError::ScratchTooSmall { needed, got })?;
        let counts = &mut scratch.counts[..needed];
        for (id, (slot, &logit)) in (0u32..).zip(keys.iter_mut().zip(logits)) {
            *slot = checked_key(logit, id)?;
        }
        bias(keys, params.logit_bias)?;
        penalize(keys, counts, window, params)?;
        if greedy {
            let best = keys.iter().copied().min().unwrap_or(u64::MAX);
            return if logit_of(best) == f32::NEG_INFINITY {
                Err(SampleError::AllBanned)
            } else {
                Ok(id_of(best))
            };
        }
        let chosen = draw(keys, params, rng::word(self.seed, self.draws))?;
        self.draws = self.draws.wrapping_add(1);
        Ok(chosen)
    }
}

/// The largest logit, the smallest id among equals.
///
/// # Errors
/// [`SampleError::Vocabulary`], [`SampleError::NonFinite`], [`SampleError::AllBanned`].
pub fn argmax(logits: &[f32]) -> Result<u32, SampleError> {
    check_len(logits)?;
    let (mut best, mut max) = (None, f32::NEG_INFINITY);
    for (id, &logit) in (0u32..).zip(logits) {
        check_logit(logit, id)?;
        if logit > max {
            (best, max) = (Some(id), logit);
        }
    }
    best.ok_or(SampleError::AllBanned)
}

fn check_len(logits: &[f32]) -> Result<(), SampleError> {
    let len = logits.len();
    if (1..=MAX_VOCAB).contains(&len) { Ok(()) } else { Err(SampleError::Vocabulary { len }) }
}

/// -infinity is welcome: a banned token.
fn check_logit(logit: f32, id: u32) -> Result<(), SampleError> {
    if logit < f32::INFINITY { Ok(()) } else { Err(SampleError::NonFinite { id }) }
}

fn checked_key(logit: f32, id: u32) -> Result<u64, SampleError> {
    check_logit(logit, id)?;
    Ok(key(logit, id))
}

/// Step 1. Several biases of one token add up, in their order.
fn bias(keys: &mut [u64], biases: &[(u32, f32)]) -> Result<(), SampleError> {
    for &(id, bias) in biases {
        let slot = keys.get_mut(id as usize).ok_or(SampleError::UnknownBias { id })?;
        *slot = checked_key(logit_of(*slot) + bias, id)?;
    }
    Ok(())
}

/// Step 2, in two passes over the window: count, then apply once per token and reset the count.
/// `keys`, `counts`: [vocab].
fn penalize(
    keys: &mut [u64],
    counts: &mut [u32],
    window: &[u32],
    params: &Params<'_>,
) -> Result<(), SampleError> {
    for &id in window {
        if let Some(count) = counts.get_mut(id as usize) {
            *count = count.saturating_add(1);
        }
    }
    let mut result = Ok(());
    for &id in window {
        let (Some(count), Some(slot)) = (counts.get_mut(id as usize), keys.get_mut(id as usize)) else {
            continue;
        };
        let n = core::mem::take(count);
        if n == 0 {
            continue;
        }
        let logit = logit_of(*slot);
        let repeat = params.repetition_penalty;
        let repeated = if logit <= 0.0 { logit * repeat } else { logit / repeat };
        let taken = n as f32 * params.frequency_penalty + params.presence_penalty;
        match checked_key(repeated - taken, id) {
            Ok(key) => *slot = key,
            // The remaining counts must be reset all the same.
            Err(error) => result = result.and(Err(error)),
        }
    }
    result
}

/// Steps 4 to 8 with one random `word`.
fn draw(keys: &mut [u64], params: &Params<'_>, word: u64) -> Result<u32, SampleError> {
    let mut candidates = Candidates::top(keys, params.top_k as usize);
    let best = candidates.get(0).ok_or(SampleError::AllBanned)?;
    let max = logit_of(best);
    if max == f32::NEG_INFINITY {
        return Err(SampleError::AllBanned);
    }
    if params.top_p < 1.0 {
        let enough = f64::from(params.top_p) * candidates.total(max, 1.0) as f64;
        let mut sum = 0;
        candidates.keep_until(|key| {
            sum += weight(logit_of(key), max, 1.0);
            sum as f64 >= enough
        });
    }
    if params.min_p > 0.0 {
        candidates.keep_while(|key| crate::math::exp(logit_of(key) - max) >= params.min_p);
    }
    let total = candidates.total(max, params.temperature);
    // The best token weighs 2^40, hence 0 <= target < total.
    let target = ((u128::from(total) * u128::from(word)) >> 64) as u64;
    let mut sum = 0;
    candidates.keep_until(|key| {
        sum += weight(logit_of(key), max, params.temperature);
        sum > target
    });
    Ok(candidates.last().map_or(id_of(best), id_of))
}
