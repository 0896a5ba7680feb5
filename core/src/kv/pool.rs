//! Sequences: a table of blocks for each, shared with others as far as they are alike.
//!
//! Knows which blocks a sequence has and when they may be written; `block.rs` knows what becomes of a block,
//! and who has the bytes copies and fills them.

use super::block::{Block, Blocks, INDEXED, NONE, PINNED, Parent};
use super::{BLOCK_TOKENS, BlockId, ContentId, KvError};
use crate::cast::{Arena, RegionError};

/// A sequence of the pool. Using it after its end is an error, unless its place was taken anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct SeqId(pub(super) u32);

/// Marks a place without a sequence.
const CLOSED: u32 = u32::MAX;

/// A place for a sequence.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Seq {
    /// What its first block follows.
    pub(super) root: BlockId,
    /// Tokens, or `CLOSED`.
    pub(super) len: u32,
    /// Tokens whose contents are known: all, but during a step. What lies behind is in private blocks.
    pub(super) known: u32,
}

/// Sizes of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Number of blocks.
    pub blocks: usize,
    /// Places for sequences.
    pub seqs: usize,
    /// Longest sequence in tokens.
    pub max_seq: usize,
}

impl Shape {
    const fn table_len(&self) -> usize {
        self.max_seq.div_ceil(BLOCK_TOKENS)
    }

    /// Bytes that [`Pool::new`] takes from its arena; saturates.
    pub const fn bytes(&self) -> usize {
        Blocks::bytes(self.blocks)
            .saturating_add(Arena::size_of::<Seq>(self.seqs))
            .saturating_add(Arena::size_of::<u32>(self.seqs.saturating_mul(self.table_len())))
    }
}

/// A block whose bytes are to be copied to another, before anything else is asked of the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct BlockCopy {
    /// The block that has them.
    pub from: u32,
    /// The block that needs them.
    pub to: u32,
}

/// Blocks, the sequences that hold them, and the index that finds them again. Block numbers index the
/// KV region.
#[derive(Debug)]
pub struct Pool<'m> {
    pub(super) blocks: Blocks<'m>,
    pub(super) seqs: &'m mut [Seq],
    /// `[seqs, table_len]`: block numbers in order of position.
    pub(super) tables: &'m mut [u32],
    pub(super) shape: Shape,
    /// Whether anybody saves blocks.
    pub(super) saving: bool,
}

impl<'m> Pool<'m> {
    /// All blocks blank, no sequence open.
    ///
    /// # Errors
    /// The arena has too little room ([`Shape::bytes`]), or there are more blocks than numbers.
    #[inline(never)]
    #[cfg_attr(kinglet_small, optimize(size))]
    pub fn new(arena: &mut Arena<'m>, shape: Shape) -> Result<Self, RegionError> {
        if shape.blocks.max(shape.max_seq).max(shape.seqs) >= NONE as usize {
            return Err(RegionError::BufferTooSmall { needed: usize::MAX, got: 0 });
        }
        let blocks = Blocks::new(arena, shape.blocks)?;
        let seqs = arena.take::<Seq>(shape.seqs)?;
        let tables = arena.take::<u32>(shape.seqs.saturating_mul(shape.table_len()))?;
        seqs.fill(Seq { root: BlockId::default(), len: CLOSED, known: 0 });
        tables.fill(NONE);
        Ok(Pool { blocks, seqs, tables, shape, saving: false })
    }

    /// Blocks that can be had: blank, or cached and neither held nor pinned. Looks at every block.
    pub fn free_blocks(&self) -> usize {
        self.blocks.free()
    }

    /// Whether `needed` blocks can be had; seldom looks at every block.
    pub fn has_free(&self, needed: usize) -> bool {
        needed <= self.blocks.blank() || needed <= self.blocks.free()
    }

    /// All blocks.
    pub fn blocks(&self) -> usize {
        self.shape.blocks
    }

    /// Longest sequence in tokens.
    pub fn max_seq(&self) -> usize {
        self.shape.max_seq
    }

    /// Opens an empty sequence under the default root.
    ///
    /// # Errors
    /// [`KvError::TooManySequences`].
    pub fn open(&mut self) -> Result<SeqId, KvError> {
        self.open_under(BlockId::default())
    }

    /// Opens an empty sequence; it shares blocks with sequences of the same root only.
    ///
    /// # Errors
    /// [`KvError::TooManySequences`].
    pub fn open_under(&mut self, root: BlockId) -> Result<SeqId, KvError> {
        let most = self.seqs.len();
        let place =
            self.seqs.iter().position(|s| s.len == CLOSED).ok_or(KvError::TooManySequences { most })?;
        self.seqs[place] = Seq { root, len: 0, known: 0 };
        Ok(SeqId(place as u32))
    }

    /// Ends a sequence. Its blocks stay cached, the partial last one too, until their places are needed.
    ///
    /// # Errors
    /// [`KvError::UnknownSequence`].
    pub fn close(&mut self, seq: SeqId) -> Result<(), KvError> {
        self.truncate(seq, 0)?;
        self.seqs[seq.0 as usize].len = CLOSED;
        Ok(())
    }

    /// Tokens of a sequence.
    ///
    /// # Errors
    /// [`KvError::UnknownSequence`].
    pub fn len(&self, seq: SeqId) -> Result<usize, KvError> {
        match self.seqs.get(seq.0 as usize) {
            Some(seq) if seq.len != CLOSED => Ok(seq.len as usize),
            _ => Err(KvError::UnknownSequence),
        }
    }

    /// Shortens a sequence to `len` tokens (no effect if it is not longer). The blocks it leaves stay
    /// cached, as after [`Pool::close`].
    ///
    /// # Errors
    /// [`KvError::UnknownSequence`].
    #[cfg_attr(kinglet_small, optimize(size))]
    pub fn truncate(&mut self, seq: SeqId, len: usize) -> Result<(), KvError> {
        let old = self.len(seq)?;
        if len >= old {
            return Ok(());
        }
        // The last first: parents must not be older than their children.
        for i in (len.div_ceil(BLOCK_TOKENS)..old.div_ceil(BLOCK_TOKENS)).rev() {
            self.leave(seq, i);
        }
        let seq = &mut self.seqs[seq.0 as usize];
        seq.len = len as u32;
        seq.known = seq.known.min(len as u32);
        Ok(())
    }

    /// Gives up the last block of a sequence, `i`.
    fn leave(&mut self, seq: SeqId, i: usize) {
        let block = self.entry(seq, i);
        let count = (self.seqs[seq.0 as usize].known as usize).saturating_sub(i * BLOCK_TOKENS);
        if self.blocks.get(block).is(INDEXED) {
            self.blocks.release(block);
        } else if count > 0 {
            let parent = self.parent(seq, i);
            self.blocks.add_part(block, parent, count);
        } else {
            self.blocks.give_back(block);
        }
    }

    /// Blocks that must be free so that `seq` can grow by `tokens`: new ones, and one to copy a block to
    /// that others hold or that is pinned.
    ///
    /// # Errors
    /// [`KvError::UnknownSequence`], [`KvError::ContextFull`].
    pub fn blocks_to_extend(&self, seq: SeqId, tokens: usize) -> Result<usize, KvError> {
        let len = self.len(seq)?;
        let (needed, most) = (len.saturating_add(tokens), self.shape.max_seq);
        if needed > most {
            return Err(KvError::ContextFull { needed, most });
        }
        let copies = tokens > 0 && self.indexed_tail(seq, len).is_some_and(|block| self.must_copy(block));
        Ok(needed.div_ceil(BLOCK_TOKENS) - len.div_ceil(BLOCK_TOKENS) + usize::from(copies))
    }

    /// The block that a sequence of `len` tokens would write to next although it is indexed.
    fn indexed_tail(&self, seq: SeqId, len: usize) -> Option<u32> {
        let block = (!len.is_multiple_of(BLOCK_TOKENS)).then(|| self.entry(seq, len / BLOCK_TOKENS))?;
        self.blocks.get(block).is(INDEXED).then_some(block)
    }

    fn must_copy(&self, block: u32) -> bool {
        let record = self.blocks.get(block);
        record.refs > 1 || record.is(PINNED)
    }

    /// Lengthens `seq` by `tokens`, all in blocks of its own, evicting others as needed. What the
    /// positions hold is not known before [`Pool::commit`]. Nothing changes on an error.
    ///
    /// # Errors
    /// As [`Pool::blocks_to_extend`], and [`KvError::OutOfBlocks`].
    #[cfg_attr(kinglet_small, optimize(size))]
    pub fn extend(&mut self, seq: SeqId, tokens: usize) -> Result<Option<BlockCopy>, KvError> {
        let needed = self.blocks_to_extend(seq, tokens)?;
        let len = self.len(seq)?;
        let tail = self.indexed_tail(seq, len).filter(|_| tokens > 0);
        let copies = match tail {
            Some(tail) if self.must_copy(tail) => true,
            // What is cached behind it stays if there is room for a copy. Afterwards as many blocks are free
            // as without one, since the original is; other chunks of a step can count on theirs.
            Some(tail) if self.blocks.get(tail).children > 0 && self.has_free(needed + 1) => {
                self.blocks.reserve(needed + 1)?;
                true
            }
            _ => false,
        };
        self.blocks.reserve(needed)?;
        let mut copy = None;
        if let Some(from) = tail {
            if copies {
                let to = self.take_copy(from, len % BLOCK_TOKENS)?;
                *self.entry_mut(seq, len / BLOCK_TOKENS) = to;
                self.blocks.release(from);
                copy = Some(BlockCopy { from, to });
            } else {
                // If it had children, they were all that was free and are evicted now.
                self.blocks.unindex(from);
            }
        }
        for i in len.div_ceil(BLOCK_TOKENS)..(len + tokens).div_ceil(BLOCK_TOKENS) {
            *self.entry_mut(seq, i) = self.take()?;
        }
        self.seqs[seq.0 as usize].len += tokens as u32;
        Ok(copy)
    }

    /// Takes a block that was reserved.
    pub(super) fn take(&mut self) -> Result<u32, KvError> {
        self.blocks.take().ok_or(KvError::OutOfBlocks { needed: 1, free: 0 })
    }

    /// Takes a block that was reserved, with the first `count` contents of another.
    #[cfg_attr(kinglet_small, optimize(size))]
    pub(super) fn take_copy(&mut self, from: u32, count: usize) -> Result<u32, KvError> {
        let to = self.take()?;
        let mut contents = [ContentId::default(); BLOCK_TOKENS];
        contents[..count].copy_from_slice(&self.blocks.contents(from)[..count]);
        self.blocks.contents_mut(to).copy_from_slice(&contents);
        Ok(to)
    }

    /// Says what the positions hold that [`Pool::extend`] added, in order, once their bytes are there.
    /// Blocks that become full are shared from then on: if an equal one is there already, the sequence
    /// has that one now. Contents for more positions than there are, are not looked at.
    ///
    /// # Errors
    /// [`KvError::UnknownSequence`].
    #[cfg_attr(kinglet_small, optimize(size))]
    pub fn commit(
        &mut self,
        seq: SeqId,
        contents: &mut dyn Iterator<Item = ContentId>,
    ) -> Result<(), KvError> {
        let len = self.len(seq)?;
        for at in self.seqs[seq.0 as usize].known as usize..len {
            let Some(content) = contents.next() else { break };
            let (i, t) = (at / BLOCK_TOKENS, at % BLOCK_TOKENS);
            let block = self.entry(seq, i);
            self.blocks.contents_mut(block)[t] = content;
            self.seqs[seq.0 as usize].known += 1;
            if t + 1 == BLOCK_TOKENS {
                let parent = self.parent(seq, i);
                *self.entry_mut(seq, i) = self.blocks.add_whole(block, parent);
            }
        }
        Ok(())
    }

    /// The block numbers of a sequence, by position.
    ///
    /// # Errors
    /// [`KvError::UnknownSequence`].
    pub fn table(&self, seq: SeqId) -> Result<&[u32], KvError> {
        let blocks = self.len(seq)?.div_ceil(BLOCK_TOKENS);
        Ok(&self.tables[seq.0 as usize * self.shape.table_len()..][..blocks])
    }

    pub(super) fn entry(&self, seq: SeqId, i: usize) -> u32 {
        self.tables[seq.0 as usize * self.shape.table_len() + i]
    }

    pub(super) fn entry_mut(&mut self, seq: SeqId, i: usize) -> &mut u32 {
        &mut self.tables[seq.0 as usize * self.shape.table_len() + i]
    }

    /// What block `i` of a sequence follows; all before it are committed.
    pub(super) fn parent(&self, seq: SeqId, i: usize) -> Parent {
        match i.checked_sub(1).map(|before| self.entry(seq, before)) {
            None => Parent { block: NONE, id: self.seqs[seq.0 as usize].root },
            Some(block) => Parent { block, id: self.blocks.get(block).id },
        }
    }

    pub(super) fn record(&self, block: u32) -> Option<&Block> {
        self.blocks.all.get(block as usize)
    }
}
