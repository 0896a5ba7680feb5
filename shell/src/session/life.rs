//! A session's sequence and the cache. Must not know what is asked.

use super::Session;
use crate::cache::Reused;
use crate::failure::Failure;
use crate::setup::Setup;
use crate::term::{StatusLine, stderr_is_terminal};
use core::time::Duration;
use std::time::Instant;

/// Waiting for the disk longer than this gets a progress line.
const PATIENCE: Duration = Duration::from_secs(1);

impl Session {
    /// Begins a prompt anew: what memory and disk have of it is taken over, and the last token is always
    /// left to be computed, for its logits. What the sequence held before stays in the cache. Goes on with
    /// [`Session::prefill`] from token `tokens` of the result.
    ///
    /// # Errors
    /// The prompt is longer than the context; none else that a correct program sees.
    pub fn begin(&mut self, ids: &[u32]) -> Result<Reused, Failure> {
        self.begin_at_most(ids, usize::MAX)
    }

    /// As [`Session::begin`], but takes over `most` tokens at most.
    ///
    /// # Errors
    /// As there.
    pub fn begin_at_most(&mut self, ids: &[u32], most: usize) -> Result<Reused, Failure> {
        super::feed::prompt_fits(ids.len(), self.limits.max_seq)?;
        self.cache.save(&mut self.engine);
        self.tail_due = false;
        self.engine.close(self.seq).map_err(Failure::new)?;
        self.tokens.clear();
        let (seq, reused) = self.cache.admit(&mut self.engine, self.root, ids, most)?;
        self.seq = seq;
        self.tokens.extend_from_slice(&ids[..reused.tokens]);
        Ok(reused)
    }

    /// Lines about what [`Session::begin`] found.
    pub fn tell_reused(&self, setup: &Setup, reused: &Reused) {
        self.cache.tell_reused(setup, reused);
    }

    /// Goes on with what is to be saved; whether anything is left to do.
    pub fn save_more(&mut self) -> bool {
        let more = self.cache.save(&mut self.engine);
        // There was no room for it when the reply ended; what comes before it goes first.
        self.tail_due = self.tail_due && !self.cache.save_tail(&self.engine, self.seq);
        more || self.tail_due
    }

    /// To be called when a reply has ended: the cache gets its last tokens. Waits for the disk only if the
    /// user wants that.
    ///
    /// # Errors
    /// With `--disk-kv-sync`, if the reply is not safe.
    pub fn settle(&mut self, setup: &Setup) -> Result<(), Failure> {
        self.save_more();
        if !self.cache.is_sync(setup) {
            self.tail_due = !self.cache.save_tail(&self.engine, self.seq);
            return Ok(());
        }
        if self.flush(setup) {
            return Ok(());
        }
        Err(self.cache.not_safe())
    }

    /// To be called before the program ends: waits until everything is on disk that can be.
    pub fn finish(&mut self, setup: &Setup) {
        self.flush(setup);
    }

    fn flush(&mut self, setup: &Setup) -> bool {
        let start = Instant::now();
        let mut line = StatusLine::new(!setup.quiet && stderr_is_terminal());
        self.cache.flush(&mut self.engine, self.seq, &mut |left| {
            if start.elapsed() > PATIENCE {
                line.show(format_args!("saving the conversation: {left} blocks left"));
            }
        })
    }
}
