//! The engine's sequences and its cache: thin over the pool, which knows blocks by number only; here are
//! their bytes.

use super::Engine;
use crate::kv::pool::BlockCopy;
use crate::kv::{
    Admission, BLOCK_TOKENS, BlockId, BlockView, ContentId, KvError, KvStats, Pool, SaveState, SeqId,
};
use crate::log::log;

impl<'m> Engine<'m> {
    /// The block pool, to look at.
    pub fn pool(&self) -> &Pool<'m> {
        &self.pool
    }

    /// Opens an empty sequence under the default root.
    ///
    /// # Errors
    /// [`KvError::TooManySequences`].
    pub fn open(&mut self) -> Result<SeqId, KvError> {
        self.pool.open()
    }

    /// Opens an empty sequence; it shares blocks with sequences of the same root only.
    ///
    /// # Errors
    /// [`KvError::TooManySequences`].
    pub fn open_under(&mut self, root: BlockId) -> Result<SeqId, KvError> {
        self.pool.open_under(root)
    }

    /// Ends a sequence. What was computed stays cached until its place is needed.
    ///
    /// # Errors
    /// [`KvError::UnknownSequence`].
    pub fn close(&mut self, seq: SeqId) -> Result<(), KvError> {
        self.pool.close(seq)
    }

    /// Tokens of a sequence so far.
    ///
    /// # Errors
    /// [`KvError::UnknownSequence`].
    pub fn len(&self, seq: SeqId) -> Result<usize, KvError> {
        self.pool.len(seq)
    }

    /// Shortens a sequence to `len` tokens.
    ///
    /// # Errors
    /// [`KvError::UnknownSequence`].
    pub fn truncate(&mut self, seq: SeqId, len: usize) -> Result<(), KvError> {
        self.pool.truncate(seq, len)
    }

    /// Opens a sequence with all that is cached of `contents` but the last, which has to be computed for
    /// its logits. Fewer than [`crate::kv::MIN_REUSE`] positions count as none.
    ///
    /// # Errors
    /// [`KvError::TooManySequences`], [`KvError::Empty`], [`KvError::ContextFull`].
    pub fn admit(&mut self, root: BlockId, contents: &[ContentId]) -> Result<Admission, KvError> {
        let (admission, copy) = self.pool.admit(root, contents)?;
        self.copy_block(copy);
        log!(debug, "admitted: {=usize} positions, {=usize} cached", contents.len(), admission.reused);
        Ok(admission)
    }

    /// Appends the cached whole blocks that continue `seq`, whose length is a multiple of 32, along
    /// `contents`, and returns its new length. `contents` begin with the sequence's first position; those
    /// it has already are not looked at.
    ///
    /// # Errors
    /// [`KvError::UnknownSequence`], [`KvError::Empty`], [`KvError::ContextFull`],
    /// [`KvError::NotAtBoundary`].
    pub fn reuse_blocks(&mut self, seq: SeqId, contents: &[ContentId]) -> Result<usize, KvError> {
        self.pool.reuse_blocks(seq, contents)
    }

    /// Appends a copy of the beginning of the cached block that agrees longest with `contents` (as for
    /// [`Engine::reuse_blocks`]) after `seq`, and returns the new length: 0 to 31 positions more.
    ///
    /// # Errors
    /// As [`Engine::reuse_blocks`].
    pub fn reuse_part(&mut self, seq: SeqId, contents: &[ContentId]) -> Result<usize, KvError> {
        let (len, copy) = self.pool.reuse_part(seq, contents, 1)?;
        self.copy_block(copy);
        Ok(len)
    }

    /// Appends a block from elsewhere to `seq`, whose length is a multiple of 32: `fill` puts the bytes
    /// for the next `contents`, 1 to 32, into a block's memory, and says whether it could; if not, nothing
    /// changes and `false` is returned. What is in the memory before is rubbish.
    ///
    /// A whole block counts as saved, and is not asked for if it is cached already.
    ///
    /// # Errors
    /// As [`Engine::reuse_blocks`]; [`KvError::BlockContents`], [`KvError::OutOfBlocks`].
    pub fn load(
        &mut self,
        seq: SeqId,
        contents: &[ContentId],
        fill: &mut dyn FnMut(&mut [u8]) -> bool,
    ) -> Result<bool, KvError> {
        let Engine { pool, kv, geometry, .. } = self;
        let len = geometry.block_bytes();
        pool.load(seq, contents, &mut |block| fill(&mut kv[block as usize * len..][..len]))
    }

    /// The name of the last whole block of a sequence, or of its root.
    ///
    /// # Errors
    /// [`KvError::UnknownSequence`].
    pub fn parent_id(&self, seq: SeqId) -> Result<BlockId, KvError> {
        self.pool.parent_id(seq)
    }

    /// The name of the whole block with `contents` that could follow `seq`.
    ///
    /// # Errors
    /// [`KvError::UnknownSequence`], [`KvError::NotAtBoundary`].
    pub fn next_id(&self, seq: SeqId, contents: &[ContentId; BLOCK_TOKENS]) -> Result<BlockId, KvError> {
        self.pool.next_id(seq, contents)
    }

    /// Says whether somebody saves blocks; off at first. Without, none is counted as unsaved.
    pub fn track_saves(&mut self, on: bool) {
        self.pool.track_saves(on);
    }

    /// A whole block to be saved, parents before their children; costs nothing if there is none.
    pub fn next_unsaved(&self) -> Option<BlockView<'_>> {
        self.pool.next_unsaved(self.kv)
    }

    /// The last block of a sequence, if it is partial.
    ///
    /// # Errors
    /// [`KvError::UnknownSequence`].
    pub fn tail(&self, seq: SeqId) -> Result<Option<BlockView<'_>>, KvError> {
        self.pool.tail(seq, self.kv)
    }

    /// Writes down what became of a block's save; no effect if the block is another by now.
    pub fn set_save_state(&mut self, block: u32, id: &BlockId, state: SaveState) {
        self.pool.set_save_state(block, id, state);
    }

    /// Forgets all that is cached and neither in a sequence nor pinned.
    pub fn forget(&mut self) {
        self.pool.forget();
    }

    /// Keeps the whole blocks among the first `tokens` of a sequence cached, beyond its end too; returns
    /// how many tokens they hold. Pinned blocks are not free: pin few.
    ///
    /// # Errors
    /// [`KvError::UnknownSequence`].
    pub fn pin(&mut self, seq: SeqId, tokens: usize) -> Result<usize, KvError> {
        self.pool.pin(seq, tokens)
    }

    /// Undoes every [`Engine::pin`].
    pub fn unpin_all(&mut self) {
        self.pool.unpin_all();
    }

    /// How the blocks are used.
    pub fn stats(&self) -> KvStats {
        self.pool.stats()
    }

    /// Does what the pool asked for. All bytes of the block: what is behind its contents is read by nobody,
    /// since a position depends on those up to it only.
    pub(super) fn copy_block(&mut self, copy: Option<BlockCopy>) {
        if let Some(BlockCopy { from, to }) = copy {
            let len = self.geometry.block_bytes();
            let from = from as usize * len;
            self.kv.copy_within(from..from + len, to as usize * len);
        }
    }
}
