//! A pool beside the plainest model of it: lists of contents, and a stamp for each position in place of
//! keys and values, which says everything the position depends on.
//!
//! Every wrong block, lost block or write to a shared block shows as a wrong stamp or a wrong count.

use kinglet_core::kv::pool::BlockCopy;
use kinglet_core::kv::{BLOCK_TOKENS, BlockId, ContentId, Pool, SeqId};
use std::collections::{HashMap, HashSet};

/// Bytes of a block in the model: a stamp of 8 bytes for each position.
pub const BLOCK_BYTES: usize = BLOCK_TOKENS * 8;

/// A stamp that no position has: of steps that fail, and of memory that was never written.
pub const RUBBISH: u64 = u64::MAX;

/// An open sequence as it should be.
#[derive(Clone, Debug)]
pub struct Expected {
    /// Its id.
    pub id: SeqId,
    /// What it began with.
    pub root: BlockId,
    /// What its positions hold, as far as the pool was told.
    pub contents: Vec<ContentId>,
    /// Its length.
    pub len: usize,
}

/// Where an indexed block stands: its root, and all contents from the first position to its end.
type Path = (BlockId, Vec<ContentId>);

/// A block before an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Before {
    path: Path,
    refs: usize,
    pinned: bool,
}

/// A pool, its bytes, and what should be in them.
pub struct PoolModel<'m> {
    /// What is tested.
    pub pool: Pool<'m>,
    /// `[blocks, BLOCK_BYTES]`.
    pub kv: Vec<u8>,
    /// The open sequences.
    pub seqs: Vec<Expected>,
}

impl<'m> PoolModel<'m> {
    /// Around a pool without sequences.
    pub fn new(pool: Pool<'m>) -> Self {
        let kv = vec![0xFF; pool.blocks() * BLOCK_BYTES];
        PoolModel { pool, kv, seqs: Vec::new() }
    }

    fn place(&self, seq: SeqId, at: usize) -> usize {
        let block = self.pool.table(seq).unwrap()[at / BLOCK_TOKENS] as usize;
        block * BLOCK_BYTES + at % BLOCK_TOKENS * 8
    }

    /// Writes a position's stamp, as a step does.
    pub fn write(&mut self, seq: SeqId, at: usize, stamp: u64) {
        let place = self.place(seq, at);
        self.kv[place..place + 8].copy_from_slice(&stamp.to_le_bytes());
    }

    /// Copies a block, as the engine does.
    pub fn copy(&mut self, copy: Option<BlockCopy>) {
        if let Some(BlockCopy { from, to }) = copy {
            assert_ne!(from, to);
            let from = from as usize * BLOCK_BYTES;
            self.kv.copy_within(from..from + BLOCK_BYTES, to as usize * BLOCK_BYTES);
        }
    }

    /// Writes and commits `contents` to positions that the sequence has been extended by.
    pub fn commit(&mut self, index: usize, contents: &[ContentId]) {
        let seq = self.seqs[index].clone();
        let all = [&seq.contents[..], contents].concat();
        let stamps = stamps(&seq.root, &all);
        for (at, stamp) in stamps.iter().enumerate().skip(seq.contents.len()) {
            self.write(seq.id, at, *stamp);
        }
        self.pool.commit(seq.id, &mut contents.iter().copied()).unwrap();
        self.seqs[index].contents = all;
    }

    /// The indexed blocks and where they stand. Checks the links between them on the way.
    pub fn paths(&self) -> HashMap<u32, Path> {
        let numbers = 0..self.pool.blocks() as u32;
        let mut paths = HashMap::new();
        for block in numbers {
            let info = self.pool.info(block).unwrap();
            if !info.indexed {
                assert_eq!(
                    (info.children, info.parent, info.pinned, info.protected),
                    (0, None, false, false)
                );
                continue;
            }
            let (mut at, mut chain) = (info, vec![info.contents]);
            while let Some(parent) = at.parent {
                let before = self.pool.info(parent).unwrap();
                assert!(before.indexed && before.contents.len() == BLOCK_TOKENS, "{block} lost its parent");
                assert_eq!((before.id, before.position + 1), (at.parent_id, at.position));
                assert!(before.refs >= at.refs, "who holds a block holds its parent");
                assert!(before.pinned || !at.pinned);
                at = before;
                chain.push(at.contents);
            }
            assert_eq!(at.position, 0);
            chain.reverse();
            paths.insert(block, (at.parent_id, chain.concat()));
        }
        paths
    }

    /// What [`PoolModel::check`] compares with after the next operation.
    pub fn before(&self) -> HashMap<u32, Before> {
        let with_use = |(block, path)| {
            let info = self.pool.info(block).unwrap();
            (block, Before { path, refs: info.refs, pinned: info.pinned })
        };
        self.paths().into_iter().map(with_use).collect()
    }

    /// The block of a sequence that its next position is in, if that is no new one.
    pub fn tail(&self, seq: &Expected) -> Option<u32> {
        self.pool.table(seq.id).unwrap().get(seq.len / BLOCK_TOKENS).copied()
    }

    /// Checks everything there is. `before`: as the blocks were; `written`: the blocks that a sequence may
    /// have taken out of the index since then, to write to them.
    ///
    /// # Panics
    /// If something is not as it should be.
    pub fn check(&self, before: &HashMap<u32, Before>, written: &[u32]) {
        let paths = self.paths();
        self.check_sequences(&paths);
        self.check_counts(&paths);
        // The bytes of what can be found are those of its contents.
        for (block, (root, contents)) in &paths {
            let own = self.pool.info(*block).unwrap().contents.len();
            let stamps = stamps(root, contents);
            let bytes: Vec<u8> =
                stamps[contents.len() - own..].iter().flat_map(|s| s.to_le_bytes()).collect();
            let at = *block as usize * BLOCK_BYTES;
            assert!(self.kv[at..at + own * 8] == bytes, "block {block} holds something else");
        }
        for (block, was) in before {
            if paths.get(block) == Some(&was.path) {
                continue;
            }
            assert!(!was.pinned, "pinned block {block} is gone");
            let taken_back = was.refs == 1 && written.contains(block);
            assert!(was.refs == 0 || taken_back, "block {block} is gone, which a sequence held");
        }
    }

    fn check_sequences(&self, paths: &HashMap<u32, Path>) {
        for seq in &self.seqs {
            assert_eq!(self.pool.len(seq.id), Ok(seq.len));
            let known: Vec<ContentId> = self.pool.contents(seq.id).unwrap().flatten().copied().collect();
            assert!(known == seq.contents, "a sequence has other contents");
            for (at, stamp) in stamps(&seq.root, &seq.contents).iter().enumerate() {
                let place = self.place(seq.id, at);
                assert_eq!(self.kv[place..place + 8], stamp.to_le_bytes(), "position {at}");
            }
            for (i, block) in self.pool.table(seq.id).unwrap().iter().enumerate() {
                let end = (i + 1) * BLOCK_TOKENS;
                if end <= seq.contents.len() {
                    assert_eq!(paths.get(block), Some(&(seq.root, seq.contents[..end].to_vec())));
                }
                if end > seq.contents.len() && seq.len > seq.contents.len() {
                    assert!(!paths.contains_key(block), "a block that is being written is indexed");
                }
            }
        }
    }

    fn check_counts(&self, paths: &HashMap<u32, Path>) {
        let stats = self.pool.stats();
        assert_eq!(stats.blank + stats.cached + stats.held, self.pool.blocks());
        let mut holders = vec![0; self.pool.blocks()];
        for seq in &self.seqs {
            let table = self.pool.table(seq.id).unwrap();
            assert_eq!(table.len(), seq.len.div_ceil(BLOCK_TOKENS));
            table.iter().for_each(|block| holders[*block as usize] += 1);
        }
        let (mut unsaved, mut free) = (0, stats.blank);
        for (block, holders) in (0..).zip(&holders) {
            let info = self.pool.info(block).unwrap();
            assert_eq!(info.refs, *holders, "holders of block {block}");
            let followers = paths.keys().filter(|b| self.pool.info(**b).unwrap().parent == Some(block));
            assert_eq!(info.children, followers.count());
            assert!(info.indexed || info.refs <= 1);
            let whole = info.contents.len() == BLOCK_TOKENS;
            assert!(info.contents.is_empty() != info.indexed);
            assert!(whole || !info.indexed || (info.refs == 0 && info.children == 0));
            unsaved += usize::from(whole && info.save == kinglet_core::kv::SaveState::Unsaved);
            free += usize::from(info.indexed && info.refs == 0 && !info.pinned);
        }
        assert!(stats.unsaved == unsaved || stats.unsaved == 0);
        assert_eq!(self.pool.free_blocks(), free);
        assert!(stats.protected <= self.pool.blocks() * 3 / 4);
        let distinct: HashSet<&Path> = paths.values().collect();
        assert_eq!(distinct.len(), paths.len(), "two blocks for the same contents");
    }

    /// How much of `contents`, from `len` on, can be had in whole blocks, and how much more in part.
    pub fn findable(&self, root: BlockId, contents: &[ContentId], len: usize) -> (usize, usize) {
        let paths = self.paths();
        let whole: HashSet<&Path> =
            paths.values().filter(|path| path.1.len().is_multiple_of(BLOCK_TOKENS)).collect();
        let mut at = len;
        while at + BLOCK_TOKENS <= contents.len()
            && whole.contains(&(root, contents[..at + BLOCK_TOKENS].to_vec()))
        {
            at += BLOCK_TOKENS;
        }
        let common = |path: &Path| {
            let begin = (path.1.len() - 1) / BLOCK_TOKENS * BLOCK_TOKENS;
            if path.0 != root || begin != at || path.1[..at] != contents[..at] {
                return 0;
            }
            path.1[at..].iter().zip(&contents[at..]).take_while(|(a, b)| a == b).count()
        };
        let part = paths.values().map(common).max().unwrap_or(0);
        (at, part.min(BLOCK_TOKENS - 1))
    }
}

/// For each position a number that depends on the root and on all contents up to it.
pub fn stamps(root: &BlockId, contents: &[ContentId]) -> Vec<u64> {
    let mut state = u64::from(root.0[0]) << 32;
    let next = |content: &ContentId| {
        state = (state ^ content.bits()).wrapping_add(0x9E37_79B9_7F4A_7C15);
        state = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        state ^= state >> 27;
        state
    };
    contents.iter().map(next).collect()
}
