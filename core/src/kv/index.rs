//! Finds the blocks that follow a block: a hash table by the parent's id, whose chains are walked.
//!
//! The hash only leads to a chain. What is on it is compared: the parent's number (the root's id for the
//! first block of a sequence), then content by content. So no collision, however made, gives a wrong block.

use super::block::{Blocks, NONE, Parent};
use super::{BLOCK_TOKENS, BlockId, ContentId};

/// What follows a block along wanted contents.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Found {
    /// The whole block that has exactly the next 32 contents.
    pub whole: Option<u32>,
    /// The block that has most of them, from the first on, and how many: 1 to 31.
    pub part: Option<(u32, usize)>,
}

impl Blocks<'_> {
    fn chain(&self, parent: &BlockId) -> usize {
        let id = &parent.0;
        // Ids are hashes; any of their bytes do. The number of chains is a power of two.
        let word = u64::from_le_bytes([id[0], id[1], id[2], id[3], id[4], id[5], id[6], id[7]]);
        word as usize & (self.heads.len() - 1)
    }

    /// Puts a block on the chain of its parent.
    pub fn link(&mut self, block: u32) {
        let chain = self.chain(&self.get(block).parent_id);
        self.get_mut(block).next = self.heads[chain];
        self.heads[chain] = block;
    }

    /// Takes a block off its chain.
    pub fn unlink(&mut self, block: u32) {
        let (chain, next) = (self.chain(&self.get(block).parent_id), self.get(block).next);
        if self.heads[chain] == block {
            self.heads[chain] = next;
            return;
        }
        let mut at = self.heads[chain];
        while at != NONE {
            let record = self.get_mut(at);
            if record.next == block {
                record.next = next;
                return;
            }
            at = record.next;
        }
    }

    /// The indexed blocks that follow `parent`, whole and partial, the latest first.
    pub fn children<'s>(&'s self, parent: &'s Parent) -> impl Iterator<Item = u32> + 's {
        let mut at = self.heads[self.chain(&parent.id)];
        core::iter::from_fn(move || {
            while at != NONE {
                let (block, record) = (at, self.get(at));
                at = record.next;
                if record.parent == parent.block && record.parent_id == parent.id {
                    return Some(block);
                }
            }
            None
        })
    }

    /// Looks for what follows `parent` along `wanted`, of which the first 32 count.
    #[cfg_attr(kinglet_small, optimize(size))]
    pub fn find(&self, parent: &Parent, wanted: &[ContentId]) -> Found {
        let mut found = Found::default();
        let mut most = 0;
        for block in self.children(parent) {
            let contents = &self.contents(block)[..self.get(block).count as usize];
            let common = contents.iter().zip(wanted).take_while(|(a, b)| a == b).count();
            if common == BLOCK_TOKENS {
                found.whole = Some(block);
            }
            let common = common.min(BLOCK_TOKENS - 1);
            if common > most {
                most = common;
                found.part = Some((block, common));
            }
        }
        found
    }

    /// Discards partial blocks that hold no more than the beginning of `block`.
    #[cfg_attr(kinglet_small, optimize(size))]
    pub fn discard_prefixes(&mut self, parent: &Parent, block: u32, count: usize) {
        let is_prefix = |pool: &Self, other: u32| {
            let n = pool.get(other).count as usize;
            n < count && pool.contents(other)[..n] == pool.contents(block)[..n]
        };
        loop {
            let other = self.children(parent).find(|other| is_prefix(self, *other));
            let Some(other) = other else { return };
            self.discard(other);
        }
    }

    /// Discards the children of a block, and theirs; nobody may hold them.
    pub fn discard_below(&mut self, block: u32) {
        let mut at = block;
        loop {
            let here = Parent { block: at, id: self.get(at).id };
            let child = self.children(&here).next();
            if let Some(child) = child {
                at = child;
            } else if at == block {
                return;
            } else {
                let parent = self.get(at).parent;
                self.discard(at);
                at = parent;
            }
        }
    }
}
