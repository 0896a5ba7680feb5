//! Blocks as conversations: who follows whom, and what is shared. Must not know files.
//!
//! Everything is added up along the tree, once for each block: heads may be shared by thousands.

use super::catalogue::Block;
use crate::store::HITS_MOST;
use crate::store::medium::Time;
use core::cmp::Ordering;
use kinglet_core::kv::BlockId;

/// A block that follows none of those at hand.
const NONE: u32 = u32::MAX;

/// What is known of a block from where it stands.
#[derive(Clone, Copy, Debug)]
pub struct Node {
    /// The block before it.
    up: u32,
    /// Conversations that it belongs to.
    pub uses: u32,
    /// Whether the chain does not reach back to its first block.
    pub orphan: bool,
    /// Whether the block before it is there, but has another position than the one before.
    pub misplaced: bool,
    /// Tokens up to its end.
    pub tokens: u64,
    /// Blocks up to it.
    pub blocks: u32,
    /// Bytes of their files.
    pub bytes: u64,
    /// Bytes of those that belong to other conversations too.
    pub shared: u64,
    /// The last use of those that do not.
    pub used: Time,
    /// The most hits of those.
    pub hits: u32,
}

/// The blocks of one fingerprint, chained.
#[derive(Debug)]
pub struct Chains {
    /// One for each block, in the blocks' order.
    pub nodes: Vec<Node>,
    /// Blocks by id.
    by_id: Vec<u32>,
    /// Blocks, parents before children.
    order: Vec<u32>,
}

/// The numbers below `len` in an order. One copy of the machinery for all orders.
pub fn sorted(len: usize, compare: &dyn Fn(usize, usize) -> Ordering) -> Vec<u32> {
    let mut order: Vec<u32> = (0..len as u32).collect();
    order.sort_unstable_by(|a, b| compare(*a as usize, *b as usize).then(a.cmp(b)));
    order
}

/// Finds `id` among blocks that are in the order of their ids.
fn find(blocks: &[Block], by_id: &[u32], id: &BlockId) -> Option<u32> {
    let at = by_id.binary_search_by(|i| blocks[*i as usize].header.id().cmp(id)).ok()?;
    Some(by_id[at])
}

impl Chains {
    /// Chains `blocks`.
    pub fn of(blocks: &[Block]) -> Chains {
        let by_id = sorted(blocks.len(), &|a, b| blocks[a].header.id().cmp(blocks[b].header.id()));
        let order =
            sorted(blocks.len(), &|a, b| blocks[a].header.position().cmp(&blocks[b].header.position()));
        let mut nodes: Vec<Node> = blocks.iter().map(|block| first(blocks, &by_id, block)).collect();
        for i in 0..nodes.len() {
            // A block that another one follows is no end.
            let up = nodes[i].up;
            if up != NONE {
                nodes[up as usize].uses = 0;
            }
        }
        for &i in order.iter().rev() {
            let Node { up, uses, .. } = nodes[i as usize];
            if up != NONE {
                nodes[up as usize].uses += uses;
            }
        }
        for &i in &order {
            let node = nodes[i as usize];
            let up = nodes.get(node.up as usize).copied();
            nodes[i as usize] = add(node, up);
        }
        Chains { nodes, by_id, order }
    }

    /// The block with this id.
    pub fn find(&self, blocks: &[Block], id: &BlockId) -> Option<u32> {
        find(blocks, &self.by_id, id)
    }

    /// All blocks, parents before children.
    pub fn parents_first(&self) -> impl DoubleEndedIterator<Item = u32> {
        self.order.iter().copied()
    }

    /// The block before block `i`, if it is there.
    pub fn parent(&self, i: u32) -> Option<u32> {
        Some(self.nodes[i as usize].up).filter(|up| *up != NONE)
    }

    /// The last blocks of all conversations.
    pub fn ends(&self) -> Vec<u32> {
        let mut ends = vec![true; self.nodes.len()];
        self.nodes.iter().filter(|node| node.up != NONE).for_each(|node| ends[node.up as usize] = false);
        (0..ends.len() as u32).filter(|i| ends[*i as usize]).collect()
    }

    /// The blocks of the conversation that ends in `last`, from the first.
    pub fn chain(&self, last: u32) -> Vec<u32> {
        let mut chain = Vec::new();
        let mut at = last;
        while let Some(node) = self.nodes.get(at as usize) {
            chain.push(at);
            at = node.up;
        }
        chain.reverse();
        chain
    }

    /// The blocks of all conversations that end in `ends`, parents before children.
    pub fn chains(&self, ends: &[u32]) -> Vec<u32> {
        let mut needed = vec![false; self.nodes.len()];
        ends.iter().for_each(|end| needed[*end as usize] = true);
        for &i in self.order.iter().rev() {
            if let Some(up) = self.parent(i) {
                needed[up as usize] |= needed[i as usize];
            }
        }
        self.parents_first().filter(|i| needed[*i as usize]).collect()
    }

    /// The blocks that belong to no conversation but those that end in `ends`, children before parents.
    pub fn only_of(&self, ends: &[u32]) -> Vec<u32> {
        let mut uses = vec![0; self.nodes.len()];
        ends.iter().for_each(|end| uses[*end as usize] = 1);
        let mut only = Vec::new();
        for &i in self.order.iter().rev() {
            let node = &self.nodes[i as usize];
            if uses[i as usize] == node.uses {
                only.push(i);
            }
            if node.up != NONE {
                uses[node.up as usize] += uses[i as usize];
            }
        }
        only
    }
}

/// A node that knows the block before it and its own numbers.
fn first(blocks: &[Block], by_id: &[u32], block: &Block) -> Node {
    let header = &block.header;
    let parent = find(blocks, by_id, header.parent());
    // So there are no circles: positions grow along every chain.
    let follows = |up: &u32| {
        let up = &blocks[*up as usize].header;
        up.is_whole() && up.position().checked_add(1) == Some(header.position())
    };
    let up = parent.filter(follows);
    Node {
        up: up.unwrap_or(NONE),
        uses: 1,
        orphan: up.is_none() && (header.position() > 0 || parent.is_some()),
        misplaced: up.is_none() && parent.is_some(),
        tokens: header.count() as u64,
        blocks: 1,
        bytes: block.bytes,
        shared: 0,
        used: block.mtime,
        hits: hits(block.mtime),
    }
}

/// The numbers of a node together with those before it.
fn add(node: Node, up: Option<Node>) -> Node {
    let before = up.unwrap_or(Node { tokens: 0, blocks: 0, bytes: 0, shared: 0, orphan: false, ..node });
    let bytes = before.bytes + node.bytes;
    // What is before a shared block is shared too.
    let own = before.uses == node.uses;
    Node {
        orphan: node.orphan || before.orphan,
        tokens: before.tokens + node.tokens,
        blocks: before.blocks + 1,
        bytes,
        shared: if node.uses > 1 { bytes } else { before.shared },
        used: if own { node.used.max(before.used) } else { node.used },
        hits: if own { node.hits.max(before.hits) } else { node.hits },
        ..node
    }
}

/// How often a file was of use: the nanoseconds of its time count that (`core/src/kv/FORMAT.md`).
fn hits(mtime: Time) -> u32 {
    // More than that is no count: somebody else has set the time.
    if mtime.nanos > HITS_MOST { 0 } else { mtime.nanos }
}
