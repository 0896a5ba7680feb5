//! Blocks for those who keep them elsewhere, and numbers for those who watch.

use super::block::{INDEXED, NONE, PINNED, PROTECTED, SaveState};
use super::pool::{Pool, SeqId};
use super::{BLOCK_TOKENS, BlockId, ContentId, KvError};

/// A block with all that names it.
#[derive(Clone, Copy, Debug)]
pub struct BlockView<'a> {
    /// Its number, for [`Pool::set_save_state`].
    pub block: u32,
    /// The name of the block before it, or of the root.
    pub parent: BlockId,
    /// Its name.
    pub id: BlockId,
    /// Its place in its sequence: position of the first token / 32.
    pub position: usize,
    /// What its positions hold: 32, or fewer at the end of a sequence.
    pub contents: &'a [ContentId],
    /// Keys and values, in the layout of `kv/layout.rs`.
    pub bytes: &'a [u8],
}

/// How the blocks are used. `blank + cached + held = blocks`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub struct KvStats {
    /// All of them.
    pub blocks: usize,
    /// Nothing in them.
    pub blank: usize,
    /// In no sequence, but found again by their contents.
    pub cached: usize,
    /// In sequences.
    pub held: usize,
    /// Of those, the ones that only their sequence can find.
    pub private: usize,
    /// Of those, the ones in several sequences.
    pub shared: usize,
    /// Kept from being evicted.
    pub pinned: usize,
    /// Found again at least once and therefore evicted last.
    pub protected: usize,
    /// Whole, and to be saved; 0 unless saves are tracked.
    pub unsaved: usize,
    /// Evicted since the pool was made.
    pub evicted: u64,
}

/// What is known of one block.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct BlockInfo<'a> {
    /// Sequences that hold it.
    pub refs: usize,
    /// Found by its contents; if not, it is private (held) or blank.
    pub indexed: bool,
    /// Kept from being evicted.
    pub pinned: bool,
    /// Evicted after those that are not.
    pub protected: bool,
    /// Indexed blocks that follow it.
    pub children: usize,
    /// The block that it follows; `None` for the first of a sequence, and if it is not indexed.
    pub parent: Option<u32>,
    /// The name of the block that it follows, or of the root, if indexed.
    pub parent_id: BlockId,
    /// Its own, if it is whole.
    pub id: BlockId,
    /// Its place in its sequence, if indexed.
    pub position: usize,
    /// Whether it stands in a file.
    pub save: SaveState,
    /// What its positions hold, if indexed.
    pub contents: &'a [ContentId],
}

impl Pool<'_> {
    /// Whether somebody saves blocks. Without, none is counted as unsaved.
    pub fn track_saves(&mut self, on: bool) {
        self.saving = on;
    }

    /// The next block to be saved, of those whose parent needs not be any more, the one nearest to its
    /// root; costs nothing if there is none. `kv` is the region that block numbers index.
    pub fn next_unsaved<'a>(&'a self, kv: &'a [u8]) -> Option<BlockView<'a>> {
        if !self.saving || self.blocks.unsaved == 0 {
            return None;
        }
        let unsaved =
            self.blocks.numbered().filter(|(_, b)| b.is_whole() && b.save_state() == SaveState::Unsaved);
        let (block, record) = unsaved.min_by_key(|(_, b)| (b.position, b.stamp))?;
        Some(BlockView {
            block,
            parent: record.parent_id,
            id: record.id,
            position: record.position as usize,
            contents: self.blocks.contents(block),
            bytes: self.bytes(block, kv),
        })
    }

    /// The last block of a sequence if it is partial, named as one. `kv` as for [`Pool::next_unsaved`].
    ///
    /// # Errors
    /// [`KvError::UnknownSequence`].
    pub fn tail<'a>(&'a self, seq: SeqId, kv: &'a [u8]) -> Result<Option<BlockView<'a>>, KvError> {
        self.len(seq)?;
        let known = self.seqs[seq.0 as usize].known as usize;
        let (position, count) = (known / BLOCK_TOKENS, known % BLOCK_TOKENS);
        if count == 0 {
            return Ok(None);
        }
        let block = self.entry(seq, position);
        let (parent, contents) = (self.parent(seq, position).id, &self.blocks.contents(block)[..count]);
        let id = parent.child(contents);
        Ok(Some(BlockView { block, parent, id, position, contents, bytes: self.bytes(block, kv) }))
    }

    fn bytes<'a>(&self, block: u32, kv: &'a [u8]) -> &'a [u8] {
        let len = kv.len() / self.blocks();
        &kv[block as usize * len..][..len]
    }

    /// Writes down what became of a block's save; no effect if the block is another by now.
    pub fn set_save_state(&mut self, block: u32, id: &BlockId, state: SaveState) {
        if self.record(block).is_some_and(|b| b.is_whole() && b.id == *id) {
            self.blocks.set_save_state(block, state);
        }
    }

    /// Counts the blocks by their use. Looks at every block.
    pub fn stats(&self) -> KvStats {
        let mut stats = KvStats {
            blocks: self.blocks(),
            blank: self.blocks.blank(),
            unsaved: if self.saving { self.blocks.unsaved } else { 0 },
            evicted: self.blocks.evicted,
            ..KvStats::default()
        };
        for b in self.blocks.all.iter() {
            stats.cached += usize::from(b.is(INDEXED) && b.refs == 0);
            stats.held += usize::from(b.refs > 0);
            stats.private += usize::from(!b.is(INDEXED) && b.refs > 0);
            stats.shared += usize::from(b.refs > 1);
            stats.pinned += usize::from(b.is(PINNED));
            stats.protected += usize::from(b.is(PROTECTED));
        }
        stats
    }

    /// What is known of block `block`; `None` if there is none of that number.
    pub fn info(&self, block: u32) -> Option<BlockInfo<'_>> {
        let record = self.record(block)?;
        Some(BlockInfo {
            refs: record.refs as usize,
            indexed: record.is(INDEXED),
            pinned: record.is(PINNED),
            protected: record.is(PROTECTED),
            children: record.children as usize,
            parent: (record.parent != NONE).then_some(record.parent),
            parent_id: record.parent_id,
            id: record.id,
            position: record.position as usize,
            save: record.save_state(),
            contents: &self.blocks.contents(block)[..record.count as usize],
        })
    }
}
