//! Fuzzing of the block pool: any operations in any order, against a plain model of it.
//!
//! `cargo test` calls it on seeded inputs, `cargo xtask fuzz pool` under libFuzzer.

use crate::pool_model::{BLOCK_BYTES, Expected, PoolModel, RUBBISH, stamps};
use kinglet_core::cast::{Arena, REGION_ALIGN};
use kinglet_core::kv::pool::Shape;
use kinglet_core::kv::{BLOCK_TOKENS, BlockId, ContentId, KvError, MIN_REUSE, Pool, SaveState, SeqId};

/// Most operations of a run.
const OPERATIONS: usize = 200;

/// What lies around the pool's memory.
const CANARY: u8 = 0xC5;

/// How often things happened that are rare or impossible if the inputs are no use.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen {
    /// Positions found again.
    pub reused: usize,
    /// Blocks evicted.
    pub evicted: u64,
    /// Blocks in several sequences, after each operation.
    pub shared: usize,
    /// Blocks copied, to be written or in part.
    pub copied: usize,
    /// Operations refused for want of blocks.
    pub out_of_blocks: usize,
}

/// Runs the operations that `data` says.
///
/// # Panics
/// The pool panics or breaks one of its promises.
pub fn fuzz_pool(data: &[u8]) -> Seen {
    let mut bytes = data;
    let mut next = || take(&mut bytes);
    let shape = Shape { blocks: 1 + next() % 14, seqs: 1 + next() % 4, max_seq: 1 + (next() + 40) % 260 };
    let len = shape.bytes();
    let mut memory = vec![CANARY; len + 3 * REGION_ALIGN];
    let start = REGION_ALIGN + memory.as_ptr().align_offset(REGION_ALIGN);
    let mut arena = Arena::new(&mut memory[start..start + len]).unwrap();
    let pool = Pool::new(&mut arena, shape).unwrap();
    let mut run = Run { model: PoolModel::new(pool), past: Vec::new(), seen: Seen::default() };
    for _ in 0..OPERATIONS {
        if bytes.is_empty() {
            break;
        }
        run.operation(&mut bytes);
    }
    run.seen.evicted = run.model.pool.stats().evicted;
    let seen = run.seen;
    assert!(memory[..start].iter().chain(&memory[start + len..]).all(|b| *b == CANARY));
    seen
}

struct Run<'m> {
    model: PoolModel<'m>,
    /// Contents that sequences had: what is asked for again.
    past: Vec<Vec<ContentId>>,
    seen: Seen,
}

fn take(bytes: &mut &[u8]) -> usize {
    let Some((first, rest)) = bytes.split_first() else { return 0 };
    *bytes = rest;
    usize::from(*first)
}

fn root(n: usize) -> BlockId {
    BlockId([1 + u8::from(n.is_multiple_of(5)); 16])
}

impl Run<'_> {
    /// `n` contents after `before`: as something in the past went on, or one of few new ways.
    fn continuation(&self, before: &[ContentId], n: usize, bytes: &mut &[u8]) -> Vec<ContentId> {
        let way = take(bytes);
        let past = self.past.get(way % 8).filter(|past| way < 160 && past.starts_with(before));
        let mut all = past.map_or(before, |past| &past[..past.len().min(before.len() + n)]).to_vec();
        while all.len() < before.len() + n {
            all.push(ContentId::from_bits((way % 3 + all.len() % 2) as u64));
        }
        all.split_off(before.len())
    }

    /// Contents to ask for: the beginning of something in the past, and then some.
    fn wanted(&self, bytes: &mut &[u8]) -> Vec<ContentId> {
        let (which, keep, more) = (take(bytes), take(bytes), take(bytes) % 90);
        let past = self.past.get(which % 8).map_or(&[][..], |past| past);
        let mut wanted = past[..keep.min(past.len())].to_vec();
        wanted.extend(self.continuation(&wanted, more, bytes));
        wanted
    }

    fn remember(&mut self, contents: &[ContentId], bytes: &mut &[u8]) {
        if self.past.len() < 8 {
            self.past.push(contents.to_vec());
        } else {
            self.past[take(bytes) % 8] = contents.to_vec();
        }
    }

    fn operation(&mut self, bytes: &mut &[u8]) {
        let before = self.model.before();
        let (what, which) = (take(bytes), take(bytes));
        let index = which % self.model.seqs.len().max(1);
        let seq = self.model.seqs.get(index).cloned();
        let mut written = Vec::new();
        match (what % 32, seq) {
            (0..6, _) => self.admit(which, bytes),
            (6, _) => self.open(root(which)),
            (7, _) => self.model.pool.forget(),
            (8, _) => self.model.pool.unpin_all(),
            (9, _) => self.save(which),
            (_, None) => {}
            (10..15, Some(seq)) => {
                written.extend(self.model.tail(&seq));
                self.extend(index, bytes);
            }
            (15..18, Some(_)) => {
                written.extend(self.model.seqs.iter().filter_map(|seq| self.model.tail(seq)));
                self.step(bytes);
            }
            (18, Some(seq)) => {
                written.extend(self.model.tail(&seq));
                self.extend_only(index, take(bytes) % 70);
            }
            (19..22, Some(_)) => self.truncate(index, take(bytes)),
            (22..26, Some(seq)) => self.close(index, &seq, bytes),
            (26..29, Some(seq)) => self.load(index, &seq, bytes),
            (29, Some(seq)) => self.reuse(index, &seq, bytes),
            (30, Some(seq)) => {
                let pinned = self.model.pool.pin(seq.id, take(bytes)).unwrap();
                assert!(pinned.is_multiple_of(BLOCK_TOKENS) && pinned <= seq.contents.len());
            }
            (_, Some(_)) => self.nonsense(which),
        }
        self.model.check(&before, &written);
        self.seen.shared += self.model.pool.stats().shared;
    }

    fn open(&mut self, root: BlockId) {
        match self.model.pool.open_under(root) {
            Ok(id) => self.model.seqs.push(Expected { id, root, contents: Vec::new(), len: 0 }),
            Err(e) => assert_eq!(e, KvError::TooManySequences { most: self.model.seqs.len() }),
        }
    }

    fn admit(&mut self, which: usize, bytes: &mut &[u8]) {
        let (root, wanted) = (root(which), self.wanted(bytes));
        let most = self.model.pool.max_seq();
        let (whole, part) = match wanted.split_last() {
            Some((_, before)) if !before.is_empty() => self.model.findable(root, before, 0),
            _ => (0, 0),
        };
        let part = if whole + part < MIN_REUSE { 0 } else { part };
        match self.model.pool.admit(root, &wanted) {
            Ok((admission, copy)) => {
                self.model.copy(copy);
                self.seen.copied += usize::from(copy.is_some());
                let (id, len) = (admission.seq, admission.reused);
                let no_place = len == whole && self.model.pool.free_blocks() == 0;
                assert!(len == whole + part || no_place, "{len} instead of {whole} and {part}");
                self.seen.reused += len;
                self.model.seqs.push(Expected { id, root, contents: wanted[..len].to_vec(), len });
            }
            Err(KvError::Empty) => assert!(wanted.is_empty()),
            Err(KvError::ContextFull { needed, .. }) => assert!(needed == wanted.len() && needed > most),
            Err(e) => assert_eq!(e, KvError::TooManySequences { most: self.model.seqs.len() }),
        }
    }

    /// As the pool should; `false` if it could not.
    fn extend_only(&mut self, index: usize, n: usize) -> bool {
        let (id, len) = (self.model.seqs[index].id, self.model.seqs[index].len);
        let needed = self.model.pool.blocks_to_extend(id, n);
        let free = self.model.pool.free_blocks();
        match self.model.pool.extend(id, n) {
            Ok(copy) => {
                assert!(needed.unwrap() <= free);
                self.model.copy(copy);
                self.seen.copied += usize::from(copy.is_some());
                self.model.seqs[index].len += n;
                // What a step has written before it is known whether it succeeds.
                (len..len + n).for_each(|at| self.model.write(id, at, RUBBISH));
                true
            }
            Err(KvError::ContextFull { needed, most }) => {
                assert!(needed == len + n && needed > most);
                false
            }
            Err(e) => {
                self.seen.out_of_blocks += 1;
                let needed = needed.unwrap();
                assert!(needed > free);
                assert_eq!(e, KvError::OutOfBlocks { needed, free });
                false
            }
        }
    }

    fn commit(&mut self, index: usize, bytes: &mut &[u8]) {
        let seq = self.model.seqs[index].clone();
        let contents = self.continuation(&seq.contents, seq.len - seq.contents.len(), bytes);
        self.model.commit(index, &contents);
    }

    fn extend(&mut self, index: usize, bytes: &mut &[u8]) {
        if self.extend_only(index, take(bytes) % 70) {
            self.commit(index, bytes);
        }
    }

    /// Several sequences at once; all succeed or all fail.
    fn step(&mut self, bytes: &mut &[u8]) {
        let (n, fails) = (take(bytes) % 70, take(bytes).is_multiple_of(3));
        let ids: Vec<SeqId> = self.model.seqs.iter().map(|s| s.id).collect();
        let needed = ids.iter().map(|id| self.model.pool.blocks_to_extend(*id, n)).sum::<Result<usize, _>>();
        if !needed.is_ok_and(|needed| self.model.pool.has_free(needed)) {
            return;
        }
        let lens: Vec<usize> = self.model.seqs.iter().map(|s| s.len).collect();
        for index in 0..ids.len() {
            assert!(self.extend_only(index, n), "the blocks of all were counted");
        }
        for (index, len) in lens.into_iter().enumerate() {
            if fails { self.truncate(index, len) } else { self.commit(index, bytes) }
        }
    }

    fn truncate(&mut self, index: usize, len: usize) {
        let seq = &mut self.model.seqs[index];
        self.model.pool.truncate(seq.id, len).unwrap();
        seq.len = seq.len.min(len);
        seq.contents.truncate(len);
    }

    fn close(&mut self, index: usize, seq: &Expected, bytes: &mut &[u8]) {
        self.model.pool.close(seq.id).unwrap();
        self.model.seqs.swap_remove(index);
        // All of it can be found again.
        let (whole, part) = self.model.findable(seq.root, &seq.contents, 0);
        assert_eq!(whole + part, seq.contents.len());
        self.remember(&seq.contents, bytes);
    }

    fn load(&mut self, index: usize, seq: &Expected, bytes: &mut &[u8]) {
        let (count, works) = (take(bytes) % 36, !take(bytes).is_multiple_of(4));
        let count = if count > 20 && count < 34 { BLOCK_TOKENS } else { count };
        let contents = self.continuation(&seq.contents, count, bytes);
        let all = [&seq.contents[..], &contents].concat();
        let cached = self.model.findable(seq.root, &all, seq.contents.len()).0 == all.len() && count > 0;
        let free = self.model.pool.free_blocks();
        let kv = &mut self.model.kv;
        let mut asked = false;
        let done = self.model.pool.load(seq.id, &contents, &mut |block| {
            asked = true;
            let memory = &mut kv[block as usize * BLOCK_BYTES..][..BLOCK_BYTES];
            memory.fill(0xFF);
            let stamps = &stamps(&seq.root, &all)[all.len() - count..];
            memory.chunks_exact_mut(8).zip(stamps).for_each(|(m, s)| m.copy_from_slice(&s.to_le_bytes()));
            works
        });
        match done {
            Ok(true) => {
                assert!(cached != asked && (works || cached));
                self.model.seqs[index].len += count;
                self.model.seqs[index].contents = all;
            }
            Ok(false) => assert!(asked && !works),
            Err(KvError::BlockContents { .. }) => assert!(count == 0 || count > BLOCK_TOKENS),
            Err(KvError::ContextFull { .. }) => assert!(seq.len + count > self.model.pool.max_seq()),
            Err(KvError::NotAtBoundary { len }) => {
                assert!(len == seq.len && (len % BLOCK_TOKENS > 0 || len > seq.contents.len()));
            }
            Err(e) => assert!(free == 0 && e == KvError::OutOfBlocks { needed: 1, free }),
        }
    }

    fn reuse(&mut self, index: usize, seq: &Expected, bytes: &mut &[u8]) {
        let (n, least) = (take(bytes) % 90, 1 + take(bytes) % 20);
        let wanted = [&seq.contents[..], &self.continuation(&seq.contents, n, bytes)].concat();
        let fits = !wanted.is_empty() && wanted.len() <= self.model.pool.max_seq();
        let at_boundary = seq.len.is_multiple_of(BLOCK_TOKENS) && seq.len == seq.contents.len();
        if !fits || !at_boundary {
            assert!(self.model.pool.reuse_blocks(seq.id, &wanted).is_err());
            assert!(self.model.pool.reuse_part(seq.id, &wanted, least).is_err());
            return;
        }
        let (whole, part) = self.model.findable(seq.root, &wanted, seq.len);
        assert_eq!(self.model.pool.reuse_blocks(seq.id, &wanted), Ok(whole));
        let part = if part < least { 0 } else { part };
        let (len, copy) = self.model.pool.reuse_part(seq.id, &wanted, least).unwrap();
        self.model.copy(copy);
        let no_place = len == whole && self.model.pool.free_blocks() == 0;
        assert!(len == whole + part || no_place);
        let seq = &mut self.model.seqs[index];
        seq.len = len;
        seq.contents = wanted[..len].to_vec();
    }

    fn save(&mut self, which: usize) {
        let model = &mut self.model;
        model.pool.track_saves(!which.is_multiple_of(8));
        let Some(view) = model.pool.next_unsaved(&model.kv) else {
            return assert_eq!(model.pool.stats().unsaved, 0);
        };
        assert_eq!(view.bytes, &model.kv[view.block as usize * BLOCK_BYTES..][..BLOCK_BYTES]);
        assert_eq!((view.contents.len(), view.parent.child(view.contents)), (BLOCK_TOKENS, view.id));
        let parent = model.pool.info(view.block).unwrap().parent;
        let saved = parent.is_none_or(|p| model.pool.info(p).unwrap().save != SaveState::Unsaved);
        assert!(saved, "a child before its parent");
        let (block, id) = (view.block, view.id);
        let state = [SaveState::Staged, SaveState::Saved, SaveState::Unsaved][which % 3];
        model.pool.set_save_state(block, &BlockId::default(), SaveState::Saved);
        assert_eq!(model.pool.info(block).unwrap().save, SaveState::Unsaved);
        model.pool.set_save_state(block, &id, state);
        assert_eq!(model.pool.info(block).unwrap().save, state);
    }

    /// Names of sequences that are not open, and of blocks that are not there.
    fn nonsense(&mut self, which: usize) {
        let id = self.model.pool.open();
        if let Ok(id) = id {
            self.model.pool.close(id).unwrap();
            let contents = [ContentId::default(); BLOCK_TOKENS];
            assert!(self.model.pool.extend(id, which).is_err() && self.model.pool.truncate(id, 0).is_err());
            assert!(self.model.pool.load(id, &contents, &mut |_| panic!("no such sequence")).is_err());
            assert!(self.model.pool.reuse_blocks(id, &contents).is_err());
        }
        self.model.pool.set_save_state(which as u32, &root(which), SaveState::Saved);
        assert!(self.model.pool.info(self.model.pool.blocks() as u32).is_none());
    }
}
