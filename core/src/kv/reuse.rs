//! Finding again what was computed: whole blocks are shared, the best partial one is copied.
//!
//! Wherever `contents` are given for a sequence, they begin with its first position; those it has already
//! are not looked at.

use super::block::{PINNED, SaveState};
use super::pool::{BlockCopy, Pool, SeqId};
use super::{BLOCK_TOKENS, BlockId, ContentId, KvError};

/// A common prefix of fewer tokens is computed again: every prompt begins with a few that all have.
pub const MIN_REUSE: usize = 16;

/// A sequence that begins with what was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admission {
    /// The sequence; its length is `reused`.
    pub seq: SeqId,
    /// Positions found, fewer than asked for.
    pub reused: usize,
}

impl Pool<'_> {
    /// Checks that a block can follow, and that `contents` fit; the length.
    fn boundary(&self, seq: SeqId, contents: usize) -> Result<usize, KvError> {
        let (len, most) = (self.len(seq)?, self.max_seq());
        if contents == 0 {
            return Err(KvError::Empty);
        }
        if contents > most {
            return Err(KvError::ContextFull { needed: contents, most });
        }
        if !len.is_multiple_of(BLOCK_TOKENS) || self.seqs[seq.0 as usize].known as usize != len {
            return Err(KvError::NotAtBoundary { len });
        }
        Ok(len)
    }

    /// Appends `block` to a sequence, which holds it already.
    fn append(&mut self, seq: SeqId, block: u32, count: usize) {
        let i = self.seqs[seq.0 as usize].len as usize / BLOCK_TOKENS;
        *self.entry_mut(seq, i) = block;
        let seq = &mut self.seqs[seq.0 as usize];
        seq.len += count as u32;
        seq.known = seq.len;
    }

    /// Appends the cached whole blocks that continue `seq` along `contents`, and returns its new length.
    ///
    /// # Errors
    /// [`KvError::UnknownSequence`], [`KvError::Empty`], [`KvError::ContextFull`],
    /// [`KvError::NotAtBoundary`].
    pub fn reuse_blocks(&mut self, seq: SeqId, contents: &[ContentId]) -> Result<usize, KvError> {
        let start = self.boundary(seq, contents.len())?;
        let mut len = start;
        while let Some(next) = contents.get(len..len + BLOCK_TOKENS) {
            let parent = self.parent(seq, len / BLOCK_TOKENS);
            let Some(block) = self.blocks.find(&parent, next).whole else { break };
            self.blocks.get_mut(block).refs += 1;
            self.append(seq, block, BLOCK_TOKENS);
            len += BLOCK_TOKENS;
        }
        for i in (start / BLOCK_TOKENS..len / BLOCK_TOKENS).rev() {
            self.blocks.promote(self.entry(seq, i));
        }
        Ok(len)
    }

    /// Appends the beginning of the block that agrees longest with `contents`, if that is `least` tokens
    /// or more (at most 31 are taken), in a block of its own; returns the new length and what is to be
    /// copied. If there is no place for a copy, it takes the cached block itself, or nothing.
    ///
    /// # Errors
    /// As [`Pool::reuse_blocks`].
    #[cfg_attr(kinglet_small, optimize(size))]
    pub fn reuse_part(
        &mut self,
        seq: SeqId,
        contents: &[ContentId],
        least: usize,
    ) -> Result<(usize, Option<BlockCopy>), KvError> {
        let len = self.boundary(seq, contents.len())?;
        let parent = self.parent(seq, len / BLOCK_TOKENS);
        let wanted = contents.get(len..).unwrap_or(&[]);
        let Some((from, count)) = self.blocks.find(&parent, wanted).part.filter(|(_, n)| *n >= least) else {
            return Ok((len, None));
        };
        // Held for the moment: the place for the copy must not be its own.
        self.blocks.get_mut(from).refs += 1;
        let reserved = self.blocks.reserve(1);
        self.blocks.get_mut(from).refs -= 1;
        if reserved.is_ok() {
            self.blocks.promote(from);
            let to = self.take_copy(from, count)?;
            self.append(seq, to, count);
            return Ok((len + count, Some(BlockCopy { from, to })));
        }
        if !self.blocks.get(from).is_idle() || self.blocks.get(from).children > 0 {
            return Ok((len, None));
        }
        self.blocks.unindex(from);
        self.blocks.get_mut(from).refs = 1;
        self.append(seq, from, count);
        Ok((len + count, None))
    }

    /// Opens a sequence with all that is cached of `contents` but the last, which has to be computed
    /// for its logits; fewer than [`MIN_REUSE`] are none. Also returns what is to be copied.
    ///
    /// # Errors
    /// [`KvError::TooManySequences`], [`KvError::Empty`], [`KvError::ContextFull`].
    pub fn admit(
        &mut self,
        root: BlockId,
        contents: &[ContentId],
    ) -> Result<(Admission, Option<BlockCopy>), KvError> {
        let most = self.max_seq();
        if contents.len() > most {
            return Err(KvError::ContextFull { needed: contents.len(), most });
        }
        let (_, before) = contents.split_last().ok_or(KvError::Empty)?;
        let seq = self.open_under(root)?;
        if before.is_empty() {
            return Ok((Admission { seq, reused: 0 }, None));
        }
        let whole = self.reuse_blocks(seq, before)?;
        let (reused, copy) = self.reuse_part(seq, before, MIN_REUSE.saturating_sub(whole).max(1))?;
        Ok((Admission { seq, reused }, copy))
    }

    /// Appends a block from elsewhere: `fill` puts the bytes for `contents`, 1 to 32, into the block whose
    /// number it gets, and says whether it could. A whole block counts as saved; if an equal one is cached,
    /// that one is taken and `fill` is not called.
    ///
    /// # Errors
    /// As [`Pool::reuse_blocks`]; [`KvError::BlockContents`], [`KvError::OutOfBlocks`].
    pub fn load(
        &mut self,
        seq: SeqId,
        contents: &[ContentId],
        fill: &mut dyn FnMut(u32) -> bool,
    ) -> Result<bool, KvError> {
        let count = contents.len();
        if count == 0 || count > BLOCK_TOKENS {
            return Err(KvError::BlockContents { found: count });
        }
        let len = self.boundary(seq, self.len(seq)? + count)?;
        let parent = self.parent(seq, len / BLOCK_TOKENS);
        if let Some(block) = self.blocks.find(&parent, contents).whole {
            self.blocks.get_mut(block).refs += 1;
            self.append(seq, block, BLOCK_TOKENS);
            self.blocks.promote(block);
            return Ok(true);
        }
        self.blocks.reserve(1)?;
        // Still blank while it is filled, so that nothing is to be undone.
        if !self.blocks.next_blank().is_some_and(fill) {
            return Ok(false);
        }
        let mut block = self.take()?;
        self.blocks.contents_mut(block)[..count].copy_from_slice(contents);
        if count == BLOCK_TOKENS {
            block = self.blocks.add_whole(block, parent);
            self.blocks.set_save_state(block, SaveState::Saved);
        }
        self.append(seq, block, count);
        Ok(true)
    }

    /// Discards all that is cached and neither held nor pinned.
    pub fn forget(&mut self) {
        for block in 0..self.blocks() as u32 {
            let idle = |block| self.record(block).is_some_and(|b| b.is_idle());
            // From where idle ones begin; below it all are.
            if idle(block) && !idle(self.blocks.get(block).parent) {
                self.blocks.discard_below(block);
                self.blocks.discard(block);
            }
        }
    }

    /// Keeps the whole blocks among the first `tokens` of a sequence from being evicted, beyond its end
    /// too; returns how many tokens they hold. Pinned blocks are not free: pin few.
    ///
    /// # Errors
    /// [`KvError::UnknownSequence`].
    pub fn pin(&mut self, seq: SeqId, tokens: usize) -> Result<usize, KvError> {
        self.len(seq)?;
        let known = self.seqs[seq.0 as usize].known as usize;
        let whole = tokens.min(known) / BLOCK_TOKENS;
        for i in 0..whole {
            let block = self.entry(seq, i);
            self.blocks.get_mut(block).flags |= PINNED;
        }
        Ok(whole * BLOCK_TOKENS)
    }

    /// Undoes every [`Pool::pin`].
    pub fn unpin_all(&mut self) {
        self.blocks.all.iter_mut().for_each(|b| b.flags &= !PINNED);
    }

    /// The name of the last whole block of a sequence, or of its root.
    ///
    /// # Errors
    /// [`KvError::UnknownSequence`].
    pub fn parent_id(&self, seq: SeqId) -> Result<BlockId, KvError> {
        self.len(seq)?;
        let known = self.seqs[seq.0 as usize].known as usize;
        Ok(self.parent(seq, known / BLOCK_TOKENS).id)
    }

    /// The name of the whole block with `contents` that could follow.
    ///
    /// # Errors
    /// [`KvError::UnknownSequence`], [`KvError::NotAtBoundary`].
    pub fn next_id(&self, seq: SeqId, contents: &[ContentId; BLOCK_TOKENS]) -> Result<BlockId, KvError> {
        let len = self.boundary(seq, 1)?;
        Ok(self.parent(seq, len / BLOCK_TOKENS).id.child(contents))
    }

    /// The contents that a sequence has, block by block; the last may be partial.
    ///
    /// # Errors
    /// [`KvError::UnknownSequence`].
    pub fn contents(&self, seq: SeqId) -> Result<impl Iterator<Item = &[ContentId]>, KvError> {
        self.len(seq)?;
        let known = self.seqs[seq.0 as usize].known as usize;
        Ok(self.table(seq)?.iter().enumerate().map_while(move |(i, block)| {
            let count = known.saturating_sub(i * BLOCK_TOKENS).min(BLOCK_TOKENS);
            (count > 0).then(|| &self.blocks.contents(*block)[..count])
        }))
    }
}
