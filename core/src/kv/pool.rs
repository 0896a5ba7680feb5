//! Who owns which block: a free list, reference counts, and a block table per sequence.

use super::BLOCK_TOKENS;
use crate::cast::{Arena, RegionError};
use core::fmt;

/// A sequence of the pool. Using it after its end is an error, unless its place was taken anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct SeqId(u32);

/// Why the pool cannot do what was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum KvError {
    /// As many sequences are open as there are places.
    TooManySequences {
        /// Number of places.
        most: usize,
    },
    /// The sequence is not open.
    UnknownSequence,
    /// The sequence would become longer than the context.
    ContextFull {
        /// Tokens it would have.
        needed: usize,
        /// Tokens it can have.
        most: usize,
    },
    /// Other sequences hold the blocks that are needed.
    OutOfBlocks {
        /// Blocks needed.
        needed: usize,
        /// Blocks free.
        free: usize,
    },
}

impl fmt::Display for KvError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::TooManySequences { most } => write!(f, "all {most} sequences are in use"),
            Self::UnknownSequence => write!(f, "no such sequence"),
            Self::ContextFull { needed, most } => {
                write!(f, "{needed} tokens do not fit into a context of {most}")
            }
            Self::OutOfBlocks { needed, free } => {
                write!(f, "{needed} KV blocks are needed, {free} are free")
            }
        }
    }
}

impl core::error::Error for KvError {}

/// Marks a place without a sequence.
const CLOSED: u32 = u32::MAX;

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
        Arena::size_of::<u32>(self.blocks)
            .saturating_mul(2)
            .saturating_add(Arena::size_of::<u32>(self.seqs))
            .saturating_add(Arena::size_of::<u32>(self.seqs.saturating_mul(self.table_len())))
    }
}

/// Blocks and the sequences that hold them. Block numbers index the KV region.
#[derive(Debug)]
pub struct Pool<'m> {
    /// Numbers of free blocks, the first `n_free` count; the last freed is taken first.
    free: &'m mut [u32],
    n_free: usize,
    /// Holders of each block.
    refs: &'m mut [u32],
    /// Tokens of each sequence, or `CLOSED`.
    lens: &'m mut [u32],
    /// `[seqs, table_len]`: block numbers in order of position.
    tables: &'m mut [u32],
    shape: Shape,
}

impl<'m> Pool<'m> {
    /// All blocks free, no sequence open.
    ///
    /// # Errors
    /// The arena has too little room ([`Shape::bytes`]).
    #[inline(never)]
    pub fn new(arena: &mut Arena<'m>, shape: Shape) -> Result<Self, RegionError> {
        let free = arena.take::<u32>(shape.blocks)?;
        let refs = arena.take::<u32>(shape.blocks)?;
        let lens = arena.take::<u32>(shape.seqs)?;
        let tables = arena.take::<u32>(shape.seqs.saturating_mul(shape.table_len()))?;
        for (i, slot) in free.iter_mut().enumerate() {
            *slot = (shape.blocks - 1 - i) as u32;
        }
        refs.fill(0);
        lens.fill(CLOSED);
        tables.fill(0);
        Ok(Pool { n_free: shape.blocks, free, refs, lens, tables, shape })
    }

    /// Blocks that no sequence holds.
    pub fn free_blocks(&self) -> usize {
        self.n_free
    }

    /// All blocks.
    pub fn blocks(&self) -> usize {
        self.shape.blocks
    }

    /// Longest sequence in tokens.
    pub fn max_seq(&self) -> usize {
        self.shape.max_seq
    }

    /// Opens an empty sequence.
    ///
    /// # Errors
    /// [`KvError::TooManySequences`].
    pub fn open(&mut self) -> Result<SeqId, KvError> {
        let most = self.lens.len();
        let place = self.lens.iter().position(|l| *l == CLOSED).ok_or(KvError::TooManySequences { most })?;
        self.lens[place] = 0;
        Ok(SeqId(place as u32))
    }

    /// Ends a sequence and gives its blocks back.
    ///
    /// # Errors
    /// [`KvError::UnknownSequence`].
    pub fn close(&mut self, seq: SeqId) -> Result<(), KvError> {
        self.truncate(seq, 0)?;
        self.lens[seq.0 as usize] = CLOSED;
        Ok(())
    }

    /// Tokens of a sequence.
    ///
    /// # Errors
    /// [`KvError::UnknownSequence`].
    pub fn len(&self, seq: SeqId) -> Result<usize, KvError> {
        match self.lens.get(seq.0 as usize) {
            Some(&len) if len != CLOSED => Ok(len as usize),
            _ => Err(KvError::UnknownSequence),
        }
    }

    /// Shortens a sequence to `len` tokens (no effect if it is not longer) and frees blocks.
    ///
    /// # Errors
    /// [`KvError::UnknownSequence`].
    pub fn truncate(&mut self, seq: SeqId, len: usize) -> Result<(), KvError> {
        let old = self.len(seq)?;
        if len >= old {
            return Ok(());
        }
        for i in len.div_ceil(BLOCK_TOKENS)..old.div_ceil(BLOCK_TOKENS) {
            self.release(self.tables[seq.0 as usize * self.shape.table_len() + i]);
        }
        self.lens[seq.0 as usize] = len as u32;
        Ok(())
    }

    fn release(&mut self, block: u32) {
        let refs = &mut self.refs[block as usize];
        *refs -= 1;
        if *refs == 0 {
            self.free[self.n_free] = block;
            self.n_free += 1;
        }
    }

    /// Blocks that must be free so that `seq` can grow by `tokens`.
    ///
    /// # Errors
    /// [`KvError::UnknownSequence`], [`KvError::ContextFull`].
    pub fn blocks_to_extend(&self, seq: SeqId, tokens: usize) -> Result<usize, KvError> {
        let len = self.len(seq)?;
        let (needed, most) = (len.saturating_add(tokens), self.shape.max_seq);
        if needed > most {
            return Err(KvError::ContextFull { needed, most });
        }
        Ok(needed.div_ceil(BLOCK_TOKENS) - len.div_ceil(BLOCK_TOKENS))
    }

    /// Lengthens `seq` by `tokens`, taking blocks as needed. Nothing changes on an error.
    ///
    /// # Errors
    /// As [`Pool::blocks_to_extend`], and [`KvError::OutOfBlocks`].
    pub fn extend(&mut self, seq: SeqId, tokens: usize) -> Result<(), KvError> {
        let needed = self.blocks_to_extend(seq, tokens)?;
        if needed > self.n_free {
            return Err(KvError::OutOfBlocks { needed, free: self.n_free });
        }
        let place = seq.0 as usize;
        let len = self.lens[place] as usize;
        let first = place * self.shape.table_len() + len.div_ceil(BLOCK_TOKENS);
        for slot in first..first + needed {
            self.n_free -= 1;
            let block = self.free[self.n_free];
            self.refs[block as usize] = 1;
            self.tables[slot] = block;
        }
        self.lens[place] = (len + tokens) as u32;
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
}

#[cfg(test)]
mod tests {
    use super::*;
    extern crate std;

    #[repr(align(64))]
    struct Region([u8; 1024]);

    #[test]
    fn blocks_are_taken_shared_out_and_given_back() {
        let mut region = Region([0xAA; 1024]);
        let shape = Shape { blocks: 5, seqs: 2, max_seq: 100 };
        assert!(shape.bytes() <= 1024);
        let mut arena = Arena::new(&mut region.0[..shape.bytes()]).unwrap();
        let mut pool = Pool::new(&mut arena, shape).unwrap();
        let a = pool.open().unwrap();
        let b = pool.open().unwrap();
        assert_eq!(pool.open(), Err(KvError::TooManySequences { most: 2 }));
        pool.extend(a, 33).unwrap();
        pool.extend(b, 64).unwrap();
        assert_eq!(pool.free_blocks(), 1);
        let mut all: std::vec::Vec<u32> = pool.table(a).unwrap().to_vec();
        all.extend(pool.table(b).unwrap());
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 4);
        assert_eq!(pool.extend(b, 33), Err(KvError::OutOfBlocks { needed: 2, free: 1 }));
        assert_eq!(pool.len(b), Ok(64));
        assert_eq!(pool.extend(a, 68), Err(KvError::ContextFull { needed: 101, most: 100 }));
        pool.extend(a, 31).unwrap();
        assert_eq!(pool.free_blocks(), 1);
        pool.truncate(a, 32).unwrap();
        assert_eq!(pool.free_blocks(), 2);
        pool.close(b).unwrap();
        assert_eq!(pool.free_blocks(), 4);
        assert_eq!(pool.len(b), Err(KvError::UnknownSequence));
        assert_eq!(pool.close(b), Err(KvError::UnknownSequence));
    }
}
