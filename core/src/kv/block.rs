//! What is known of each block, and its life: blank, private, indexed, and blank again.
//!
//! A *private* block belongs to one sequence, which writes to it. An *indexed* one is found by its parent
//! and its contents ([`super::index`]) and does not change any more; sequences share it, and without any
//! it stays until its place is needed ([`super::lru`]). Must not know sequences.

use super::{BLOCK_TOKENS, BlockId, ContentId, KvError};
use crate::cast::{Arena, RegionError};

/// No block.
pub(super) const NONE: u32 = u32::MAX;

/// Whether a whole block stands in a file as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum SaveState {
    /// It does not.
    #[default]
    Unsaved,
    /// It is on its way.
    Staged,
    /// It does.
    Saved,
}

/// Found by its parent and contents.
pub(super) const INDEXED: u8 = 1;
/// In the protected segment.
pub(super) const PROTECTED: u8 = 2;
/// Not to be evicted.
pub(super) const PINNED: u8 = 4;

const STAGED: u8 = 8;
const SAVED: u8 = 16;

/// What is known of a block besides its contents: a line of the CPU's cache.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Block {
    /// Its name, if indexed and whole.
    pub(super) id: BlockId,
    /// The parent's name, or that of the root.
    pub(super) parent_id: BlockId,
    /// When it was used last.
    pub(super) stamp: u64,
    /// The block before it, or `NONE`; as long as this one is indexed, that one is.
    pub(super) parent: u32,
    /// The next block of its chain in the index, or `NONE`.
    pub(super) next: u32,
    /// Sequences that hold it.
    pub(super) refs: u32,
    /// Indexed blocks whose parent it is.
    pub(super) children: u32,
    /// Its place in its sequence.
    pub(super) position: u32,
    /// Positions with contents, if indexed.
    pub(super) count: u8,
    /// `INDEXED` and so on.
    pub(super) flags: u8,
    /// To fill the line.
    unused: [u8; 2],
}

impl Block {
    pub(super) const BLANK: Block = Block {
        id: BlockId([0; 16]),
        parent_id: BlockId([0; 16]),
        stamp: 0,
        parent: NONE,
        next: NONE,
        refs: 0,
        children: 0,
        position: 0,
        count: 0,
        flags: 0,
        unused: [0; 2],
    };

    pub(super) const fn is(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// Indexed and full.
    pub(super) const fn is_whole(&self) -> bool {
        self.is(INDEXED) && self.count as usize == BLOCK_TOKENS
    }

    /// Only the index holds it, so that its place can be had once its children's are.
    pub(super) const fn is_idle(&self) -> bool {
        self.is(INDEXED) && self.refs == 0 && !self.is(PINNED)
    }

    /// Of a whole block.
    pub(super) const fn save_state(&self) -> SaveState {
        match self.flags & (STAGED | SAVED) {
            0 => SaveState::Unsaved,
            STAGED => SaveState::Staged,
            _ => SaveState::Saved,
        }
    }
}

/// What a block follows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parent {
    /// A whole indexed block, or `NONE` for the root.
    pub block: u32,
    /// Its name.
    pub id: BlockId,
}

/// All blocks: their records, contents, index and order of use.
#[derive(Debug)]
pub(super) struct Blocks<'m> {
    pub all: &'m mut [Block],
    /// `[blocks, 32]`.
    pub contents: &'m mut [ContentId],
    /// The index: first block of each chain, or `NONE`; a power of two of them.
    pub heads: &'m mut [u32],
    /// Numbers of blank blocks, the first `n_blank` count; the last freed is taken first.
    blank: &'m mut [u32],
    n_blank: usize,
    /// The last stamp given.
    pub clock: u64,
    /// Blocks with `PROTECTED`.
    pub protected: usize,
    /// Whole blocks with `SaveState::Unsaved`.
    pub unsaved: usize,
    /// Blocks evicted so far.
    pub evicted: u64,
}

impl<'m> Blocks<'m> {
    const fn chains(blocks: usize) -> usize {
        match blocks.checked_next_power_of_two() {
            Some(n) => n,
            None => usize::MAX,
        }
    }

    /// Bytes that [`Blocks::new`] takes; saturates.
    pub const fn bytes(blocks: usize) -> usize {
        Arena::size_of::<Block>(blocks)
            .saturating_add(Arena::size_of::<ContentId>(blocks.saturating_mul(BLOCK_TOKENS)))
            .saturating_add(Arena::size_of::<u32>(Self::chains(blocks)))
            .saturating_add(Arena::size_of::<u32>(blocks))
    }

    /// All of them blank.
    pub fn new(arena: &mut Arena<'m>, blocks: usize) -> Result<Self, RegionError> {
        let all = arena.take::<Block>(blocks)?;
        let contents = arena.take::<ContentId>(blocks.saturating_mul(BLOCK_TOKENS))?;
        let heads = arena.take::<u32>(Self::chains(blocks))?;
        let blank = arena.take::<u32>(blocks)?;
        all.fill(Block::BLANK);
        contents.fill(ContentId::default());
        heads.fill(NONE);
        for (slot, block) in blank.iter_mut().zip((0..blocks as u32).rev()) {
            *slot = block;
        }
        let n_blank = blocks;
        Ok(Blocks { all, contents, heads, blank, n_blank, clock: 0, protected: 0, unsaved: 0, evicted: 0 })
    }

    pub fn get(&self, block: u32) -> &Block {
        &self.all[block as usize]
    }

    pub fn get_mut(&mut self, block: u32) -> &mut Block {
        &mut self.all[block as usize]
    }

    /// All 32 contents of a block, of which the first [`Block::count`] count if it is indexed.
    pub fn contents(&self, block: u32) -> &[ContentId] {
        &self.contents[block as usize * BLOCK_TOKENS..][..BLOCK_TOKENS]
    }

    pub fn contents_mut(&mut self, block: u32) -> &mut [ContentId] {
        &mut self.contents[block as usize * BLOCK_TOKENS..][..BLOCK_TOKENS]
    }

    /// Number of blank blocks.
    pub fn blank(&self) -> usize {
        self.n_blank
    }

    /// Blocks that can be had: the blank, and those only the index holds. The children of an idle block
    /// are idle, since who holds or pins a block does so with all before it.
    pub fn free(&self) -> usize {
        self.n_blank + self.all.iter().filter(|b| b.is_idle()).count()
    }

    /// Sees to it that `needed` blocks are blank, evicting others. Nothing changes on an error.
    #[cfg_attr(kinglet_small, optimize(size))]
    pub fn reserve(&mut self, needed: usize) -> Result<(), KvError> {
        if needed > self.n_blank {
            let free = self.free();
            if needed > free {
                return Err(KvError::OutOfBlocks { needed, free });
            }
        }
        while self.n_blank < needed {
            let free = self.n_blank;
            let victim = self.victim().ok_or(KvError::OutOfBlocks { needed, free })?;
            self.evicted += 1;
            self.discard(victim);
        }
        Ok(())
    }

    /// The blank block that [`Blocks::take`] would take.
    pub fn next_blank(&self) -> Option<u32> {
        self.n_blank.checked_sub(1).map(|last| self.blank[last])
    }

    /// Makes a blank block private, held once; `None` if there is none ([`Blocks::reserve`]).
    pub fn take(&mut self) -> Option<u32> {
        let block = self.next_blank()?;
        self.n_blank -= 1;
        *self.get_mut(block) = Block { refs: 1, ..Block::BLANK };
        Some(block)
    }

    /// Makes a private block blank.
    pub fn give_back(&mut self, block: u32) {
        *self.get_mut(block) = Block::BLANK;
        self.blank[self.n_blank] = block;
        self.n_blank += 1;
    }

    /// One holder less of an indexed block.
    pub fn release(&mut self, block: u32) {
        self.get_mut(block).refs -= 1;
        if self.get(block).refs == 0 {
            self.touch(block);
        }
    }

    /// Indexes a private block that has become full; returns it, or the equal one that is indexed
    /// already and is held instead.
    #[cfg_attr(kinglet_small, optimize(size))]
    pub fn add_whole(&mut self, block: u32, parent: Parent) -> u32 {
        let found = self.find(&parent, self.contents(block));
        if let Some(other) = found.whole {
            self.give_back(block);
            self.get_mut(other).refs += 1;
            self.touch(other);
            return other;
        }
        self.discard_prefixes(&parent, block, BLOCK_TOKENS);
        let id = parent.id.child(self.contents(block));
        self.get_mut(block).id = id;
        self.index(block, parent, BLOCK_TOKENS);
        self.unsaved += 1;
        block
    }

    /// Indexes the first `count` positions, 1 to 31, of a private block that its sequence leaves; or
    /// makes it blank if another block has them too.
    pub fn add_part(&mut self, block: u32, parent: Parent, count: usize) {
        let found = self.find(&parent, &self.contents(block)[..count]);
        if let Some((other, common)) = found.part
            && common == count
        {
            self.touch(other);
            return self.give_back(block);
        }
        self.discard_prefixes(&parent, block, count);
        self.index(block, parent, count);
        self.get_mut(block).refs = 0;
    }

    fn index(&mut self, block: u32, parent: Parent, count: usize) {
        let position = match parent.block {
            NONE => 0,
            before => {
                let before = self.get_mut(before);
                before.children += 1;
                before.position + 1
            }
        };
        let record = self.get_mut(block);
        record.parent = parent.block;
        record.parent_id = parent.id;
        record.position = position;
        record.count = count as u8;
        record.flags = INDEXED;
        self.link(block);
        self.touch(block);
    }

    /// Makes an indexed block private again. It must have no children.
    pub fn unindex(&mut self, block: u32) {
        self.unlink(block);
        let record = *self.get(block);
        debug_assert_eq!(record.children, 0);
        if record.parent != NONE {
            self.get_mut(record.parent).children -= 1;
        }
        if record.is_whole() && record.save_state() == SaveState::Unsaved {
            self.unsaved -= 1;
        }
        self.protected -= usize::from(record.is(PROTECTED));
        *self.get_mut(block) = Block { refs: record.refs, ..Block::BLANK };
    }

    /// Makes an indexed block without holders and children blank.
    pub fn discard(&mut self, block: u32) {
        self.unindex(block);
        self.give_back(block);
    }

    /// Writes down whether a whole block is in a file.
    pub fn set_save_state(&mut self, block: u32, state: SaveState) {
        let record = self.get_mut(block);
        let before = record.save_state();
        record.flags = record.flags & !(STAGED | SAVED)
            | match state {
                SaveState::Unsaved => 0,
                SaveState::Staged => STAGED,
                SaveState::Saved => SAVED,
            };
        self.unsaved -= usize::from(before == SaveState::Unsaved);
        self.unsaved += usize::from(state == SaveState::Unsaved);
    }
}
