//! Computing: prompts in batches, replies token by token. Must not know where a prompt's beginning came from.

use super::Session;
use crate::failure::Failure;
use crate::signal;
use crate::trace::log;
use core::time::Duration;
use kinglet_core::{Chunk, ForwardError, LogitRow, Logits};
use std::time::Instant;

/// Fewer tokens at a time would read weights more often than they are used.
const LEAST_BATCH: usize = 64;
/// How long a batch may take where somebody waits for progress or Ctrl-C.
const PATIENCE: Duration = Duration::from_secs(2);

impl Session {
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
            // Its blocks go to the disk while the next batch is computed.
            self.cache.save(&mut self.engine);
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
        self.cache.save(&mut self.engine);
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
pub(crate) fn forward_failure(e: ForwardError) -> Failure {
    match e {
        ForwardError::NonFinite { position } => Failure::new(format_args!(
            "NaN or infinity came out at position {position}: the model file holds such values or is \
             damaged; compare its checksum or get it again"
        )),
        other => Failure::new(other),
    }
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
