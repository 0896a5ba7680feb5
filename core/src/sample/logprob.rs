//! Log-probabilities of the untouched softmax (temperature 1, no penalties), as APIs report
//! them. Must not know which token was chosen.

use super::candidates::{in_ones, total};
use super::{SampleError, check_len, check_logit};

/// A token and the natural logarithm of its probability.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LogProb {
    /// The token.
    pub id: u32,
    /// At most 0.
    pub logprob: f32,
}

/// The denominator of a softmax: with it, each log-probability is a subtraction.
///
/// The sum is exact (see [`crate::sample`]), its logarithm is taken in f64 in software: every
/// machine gives the same bits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LogProbs {
    max: f32,
    log_total: f64,
}

impl LogProbs {
    /// One pass for the largest logit, one for the sum.
    ///
    /// # Errors
    /// [`SampleError::Vocabulary`], [`SampleError::NonFinite`]; [`SampleError::AllBanned`] if
    /// every logit is -infinity.
    pub fn new(logits: &[f32]) -> Result<Self, SampleError> {
        check_len(logits)?;
        let mut max = f32::NEG_INFINITY;
        for (id, &logit) in (0u32..).zip(logits) {
            check_logit(logit, id)?;
            max = crate::math::max(max, logit);
        }
        if max == f32::NEG_INFINITY {
            return Err(SampleError::AllBanned);
        }
        let total = total(logits, |&logit| logit, max, 1.0);
        Ok(LogProbs { max, log_total: libm::log(in_ones(total)) })
    }

    /// The log-probability of a token with this logit.
    pub fn of(&self, logit: f32) -> f32 {
        (f64::from(logit) - f64::from(self.max) - self.log_total) as f32
    }

    /// Fills `out` with the most probable tokens: logit descending, then id ascending. Returns
    /// how many there are, less than `out.len()` only for a small vocabulary. Meant for a few:
    /// costs O(vocab) plus O(`out.len()`) for each token that makes it into the list.
    pub fn top(&self, logits: &[f32], out: &mut [LogProb]) -> usize {
        let mut len = 0;
        // Until the end `logprob` holds the logit: rounding must not create ties.
        for (id, &logit) in (0u32..).zip(logits) {
            let place = out[..len].partition_point(|better| better.logprob >= logit);
            if place == out.len() {
                continue;
            }
            len = (len + 1).min(out.len());
            out[place..len].rotate_right(1);
            out[place] = LogProb { id, logprob: logit };
        }
        for entry in &mut out[..len] {
            entry.logprob = self.of(entry.logprob);
        }
        len
    }
}
