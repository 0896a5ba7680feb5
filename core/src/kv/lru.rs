//! Which cached block goes when a place is needed: the one used longest ago, of two segments.
//!
//! A block begins on probation and is protected once a later admission finds it. Those on probation go
//! first, so that prompts that come once, however many, do not push out a conversation that goes on. Only
//! leaves go, so that what is left can still be found from the root. Scans are linear: a block stands
//! for 32 tokens, whose computing takes longer by far.

use super::block::{Blocks, PROTECTED};

impl Blocks<'_> {
    /// Blocks that the protected segment holds at most.
    fn most_protected(&self) -> usize {
        self.all.len() / 4 * 3 + self.all.len() % 4 * 3 / 4
    }

    /// Makes a block the one used last.
    pub fn touch(&mut self, block: u32) {
        self.clock += 1;
        self.get_mut(block).stamp = self.clock;
    }

    /// A block was found again: it is protected from now on, and the oldest of those that are too many
    /// are not any more. Of a sequence the last block is to be promoted first, so that it is older.
    pub fn promote(&mut self, block: u32) {
        self.touch(block);
        let record = self.get_mut(block);
        if !record.is(PROTECTED) {
            record.flags |= PROTECTED;
            self.protected += 1;
        }
        while self.protected > self.most_protected() {
            // Blocks in use need no protection now, but those that are not need it less.
            let protected = self.numbered().filter(|(_, b)| b.is(PROTECTED));
            let Some((oldest, _)) = protected.min_by_key(|(_, b)| (b.refs > 0, b.stamp)) else { return };
            self.get_mut(oldest).flags &= !PROTECTED;
            self.protected -= 1;
            self.touch(oldest);
        }
    }

    /// The block to evict: unreferenced, not pinned, without children.
    pub fn victim(&self) -> Option<u32> {
        let leaves = self.numbered().filter(|(_, b)| b.is_idle() && b.children == 0);
        leaves.min_by_key(|(_, b)| (b.is(PROTECTED), b.stamp)).map(|(block, _)| block)
    }

    /// All records with their numbers.
    pub fn numbered(&self) -> impl Iterator<Item = (u32, &super::block::Block)> {
        (0..).zip(self.all.iter())
    }
}
