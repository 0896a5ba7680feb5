//! The pool without an engine: who has which block, and what is found again.

use super::pool::{BlockCopy, Pool, SeqId, Shape};
use super::{BlockId, BlockInfo, ContentId, KvError, MIN_REUSE, SaveState};
use crate::cast::{Arena, REGION_ALIGN, RegionError};
extern crate std;
use std::vec;
use std::vec::Vec;

const SHAPE: Shape = Shape { blocks: 8, seqs: 4, max_seq: 256 };

const ROOT: BlockId = BlockId([1; 16]);

fn region(len: usize) -> &'static mut [u8] {
    let all = vec![0xAA; len + REGION_ALIGN].leak();
    let skip = all.as_ptr().align_offset(REGION_ALIGN);
    &mut all[skip..skip + len]
}

fn pool(shape: Shape) -> Pool<'static> {
    Pool::new(&mut Arena::new(region(shape.bytes())).unwrap(), shape).unwrap()
}

/// `n` contents; texts of different seeds differ everywhere.
fn text(seed: u64, n: usize) -> Vec<ContentId> {
    (0..n as u64).map(|i| ContentId::from_bits(seed * 1000 + i)).collect()
}

/// Computes what a sequence lacks of `contents`.
fn compute(pool: &mut Pool<'_>, seq: SeqId, contents: &[ContentId]) -> Option<BlockCopy> {
    let len = pool.len(seq).unwrap();
    let copy = pool.extend(seq, contents.len() - len).unwrap();
    pool.commit(seq, &mut contents[len..].iter().copied()).unwrap();
    copy
}

/// Admits, computes the rest, ends; how much was found.
fn serve(pool: &mut Pool<'_>, contents: &[ContentId]) -> usize {
    let (admission, _) = pool.admit(ROOT, contents).unwrap();
    compute(pool, admission.seq, contents);
    pool.close(admission.seq).unwrap();
    admission.reused
}

fn open(pool: &mut Pool<'_>, contents: &[ContentId]) -> SeqId {
    let seq = pool.admit(ROOT, contents).unwrap().0.seq;
    compute(pool, seq, contents);
    seq
}

fn info<'p>(pool: &'p Pool<'_>, seq: SeqId, i: usize) -> BlockInfo<'p> {
    pool.info(pool.table(seq).unwrap()[i]).unwrap()
}

#[test]
fn blocks_are_taken_and_given_back() {
    let mut pool = pool(Shape { blocks: 5, seqs: 2, max_seq: 100 });
    let a = pool.open().unwrap();
    let b = pool.open().unwrap();
    assert_eq!(pool.open(), Err(KvError::TooManySequences { most: 2 }));
    assert_eq!(pool.extend(a, 33), Ok(None));
    assert_eq!(pool.extend(b, 64), Ok(None));
    assert_eq!(pool.free_blocks(), 1);
    let mut all: Vec<u32> = pool.table(a).unwrap().to_vec();
    all.extend(pool.table(b).unwrap());
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), 4);
    assert_eq!(pool.extend(b, 33), Err(KvError::OutOfBlocks { needed: 2, free: 1 }));
    assert_eq!(pool.len(b), Ok(64));
    assert_eq!(pool.extend(a, 68), Err(KvError::ContextFull { needed: 101, most: 100 }));
    assert_eq!(pool.extend(a, 31), Ok(None));
    assert_eq!(pool.free_blocks(), 1);
    pool.truncate(a, 32).unwrap();
    assert_eq!(pool.free_blocks(), 2);
    pool.close(b).unwrap();
    // Nothing was committed, so nothing is cached.
    assert_eq!(pool.stats().blank, 4);
    assert_eq!(pool.len(b), Err(KvError::UnknownSequence));
    assert_eq!(pool.close(b), Err(KvError::UnknownSequence));
}

#[test]
fn the_region_is_as_long_as_said_and_not_longer() {
    for shape in [SHAPE, Shape { blocks: 1, seqs: 1, max_seq: 1 }, Shape { blocks: 0, seqs: 0, max_seq: 0 }] {
        let bytes = shape.bytes();
        let mut arena = Arena::new(region(bytes)).unwrap();
        assert!(Pool::new(&mut arena, shape).is_ok());
        assert!(arena.take::<u8>(1).is_err(), "{shape:?} leaves something over");
        if bytes > 0 {
            let mut arena = Arena::new(&mut region(bytes)[..bytes - 1]).unwrap();
            assert!(matches!(Pool::new(&mut arena, shape), Err(RegionError::BufferTooSmall { .. })));
        }
    }
    let shape = Shape { blocks: usize::MAX, seqs: usize::MAX, max_seq: usize::MAX };
    assert_eq!(shape.bytes(), usize::MAX);
    assert!(Pool::new(&mut Arena::new(region(64)).unwrap(), shape).is_err());
}

#[test]
fn what_ended_is_found_again() {
    let mut pool = pool(SHAPE);
    let a = text(1, 70);
    assert_eq!(serve(&mut pool, &a), 0);
    let stats = pool.stats();
    assert_eq!((stats.blank, stats.cached, stats.held), (5, 3, 0));
    // Covered whole: all but the last.
    assert_eq!(serve(&mut pool, &a), 69);
    assert_eq!(serve(&mut pool, &text(2, 40)), 0);
    assert_eq!(serve(&mut pool, &[&a[..], &text(3, 5)].concat()), 70);
    // Longer tails take the place of shorter ones: two whole blocks and one tail of each text.
    assert_eq!(pool.stats().cached, 5);
    assert_eq!(serve(&mut pool, &a[..64]), 63);
    assert_eq!(serve(&mut pool, &a[..33]), 32);
    assert_eq!(pool.stats().cached, 5);
}

#[test]
fn few_tokens_count_as_none() {
    let mut pool = pool(SHAPE);
    let a = text(1, 31);
    serve(&mut pool, &a);
    assert_eq!(serve(&mut pool, &[&a[..MIN_REUSE - 1], &text(2, 5)].concat()), 0);
    assert_eq!(serve(&mut pool, &[&a[..MIN_REUSE], &text(3, 5)].concat()), MIN_REUSE);
    assert_eq!(serve(&mut pool, &a[..MIN_REUSE]), 0);
    assert_eq!(serve(&mut pool, &a[..1]), 0);
    // After a whole block every token counts.
    let b = text(4, 40);
    serve(&mut pool, &b);
    assert_eq!(serve(&mut pool, &[&b[..33], &text(5, 5)].concat()), 33);
}

#[test]
fn roots_are_worlds_of_their_own() {
    let mut pool = pool(SHAPE);
    let a = text(1, 70);
    serve(&mut pool, &a);
    let other = BlockId([2; 16]);
    let (admission, copy) = pool.admit(other, &a).unwrap();
    assert_eq!((admission.reused, copy), (0, None));
    compute(&mut pool, admission.seq, &a);
    pool.close(admission.seq).unwrap();
    assert_eq!(pool.admit(other, &a).unwrap().0.reused, 69);
    assert_eq!(pool.stats().held, 3);
}

#[test]
fn equal_blocks_become_one() {
    let mut pool = pool(SHAPE);
    let a = text(1, 70);
    let seqs = [(); 2].map(|()| pool.open_under(ROOT).unwrap());
    for seq in seqs {
        assert_eq!(pool.extend(seq, 70), Ok(None));
    }
    assert_eq!(pool.stats().private, 6);
    for seq in seqs {
        pool.commit(seq, &mut a.iter().copied()).unwrap();
    }
    assert_eq!(pool.table(seqs[0]).unwrap()[..2], pool.table(seqs[1]).unwrap()[..2]);
    let stats = pool.stats();
    assert_eq!((stats.shared, stats.private, stats.held), (2, 2, 4));
    // Of their equal tails one is kept.
    seqs.iter().for_each(|seq| pool.close(*seq).unwrap());
    assert_eq!(pool.stats().cached, 3);
}

#[test]
fn shared_blocks_are_copied_before_they_are_written() {
    let mut pool = pool(SHAPE);
    let a = text(1, 64);
    let seqs = [(); 2].map(|()| open(&mut pool, &a));
    assert_eq!(pool.table(seqs[0]), pool.table(seqs[1]));
    let shared = pool.table(seqs[0]).unwrap()[1];
    pool.truncate(seqs[0], 40).unwrap();
    assert_eq!(pool.blocks_to_extend(seqs[0], 0), Ok(0));
    assert_eq!(pool.blocks_to_extend(seqs[0], 24), Ok(1));
    assert_eq!(pool.blocks_to_extend(seqs[0], 25), Ok(2));
    let b = [&a[..40], &text(2, 24)].concat();
    let copy = compute(&mut pool, seqs[0], &b).unwrap();
    assert_eq!((copy.from, copy.to), (shared, pool.table(seqs[0]).unwrap()[1]));
    assert_ne!(copy.from, copy.to);
    assert_eq!(info(&pool, seqs[0], 1).contents, &b[32..]);
    assert_eq!(info(&pool, seqs[1], 1).contents, &a[32..]);
    // The first block still has both as children.
    assert_eq!((info(&pool, seqs[0], 0).refs, info(&pool, seqs[0], 0).children), (2, 2));
}

#[test]
fn a_block_of_one_sequence_is_written_in_place() {
    let mut pool = pool(SHAPE);
    let a = text(1, 64);
    let seq = open(&mut pool, &a);
    let table = pool.table(seq).unwrap().to_vec();
    pool.truncate(seq, 40).unwrap();
    let b = [&a[..40], &text(2, 10)].concat();
    assert_eq!(compute(&mut pool, seq, &b), None);
    assert_eq!(pool.table(seq).unwrap(), table);
    assert!(!info(&pool, seq, 1).indexed);
    assert_eq!(pool.stats().cached, 0);
    assert_eq!(serve(&mut pool, &a), 40 - 8, "the tail is not to be found before its end");
}

/// What is cached behind a block stays if there is room, and goes if there is none: a sequence can
/// always have all blocks.
#[test]
fn what_follows_a_written_block_gives_way() {
    let a = text(1, 128);
    for (blocks, len, copied, cached) in [(6, 96, true, 3), (4, 96, true, 1), (4, 128, false, 0)] {
        let mut pool = pool(Shape { blocks, ..SHAPE });
        let seq = open(&mut pool, &a);
        pool.truncate(seq, 40).unwrap();
        assert_eq!(pool.stats().cached, 2);
        let b = [&a[..40], &text(2, len - 40)].concat();
        assert_eq!(pool.blocks_to_extend(seq, len - 40), Ok(len / 32 - 2));
        let copy = compute(&mut pool, seq, &b);
        assert_eq!(copy.is_some(), copied, "{len} tokens in {blocks} blocks");
        assert_eq!(pool.stats().cached, cached);
        let longest = [&b[..], &text(3, blocks * 32 - len)].concat();
        compute(&mut pool, seq, &longest);
        assert_eq!(pool.stats().held, blocks);
    }
}

#[test]
fn prompts_that_come_once_do_not_push_out_a_conversation() {
    let mut pool = pool(Shape { blocks: 16, ..SHAPE });
    let talk = text(1, 200);
    serve(&mut pool, &talk);
    assert_eq!(serve(&mut pool, &talk), 199);
    // Twenty prompts of three blocks each: several times what is left.
    (0..20).for_each(|i| assert_eq!(serve(&mut pool, &text(10 + i, 80)), 0));
    assert_eq!(serve(&mut pool, &talk), 199);
    // One that came once is gone by then.
    assert_eq!(serve(&mut pool, &text(10, 80)), 0);
    // The protected are at most three quarters.
    for seed in 40..44 {
        serve(&mut pool, &text(seed, 128));
        serve(&mut pool, &text(seed, 128));
        assert!(pool.stats().protected <= 12);
    }
}

#[test]
fn leaves_go_first_and_pinned_blocks_never() {
    let mut pool = pool(SHAPE);
    let a = text(1, 128);
    serve(&mut pool, &a);
    let b = text(2, 128);
    let seq = open(&mut pool, &b);
    assert_eq!(pool.pin(seq, 70), Ok(64));
    assert_eq!(pool.pin(seq, usize::MAX), Ok(128));
    pool.unpin_all();
    assert_eq!(pool.pin(seq, 70), Ok(64));
    pool.close(seq).unwrap();
    assert_eq!(pool.free_blocks(), 6);
    // One more block costs the oldest leaf.
    serve(&mut pool, &text(3, 32));
    let c = open(&mut pool, &a);
    assert_eq!((pool.len(c), pool.stats().evicted), (Ok(128), 2));
    pool.close(c).unwrap();
    // All there is, but for what is pinned.
    let d = open(&mut pool, &text(4, 192));
    assert_eq!(pool.extend(d, 1), Err(KvError::OutOfBlocks { needed: 1, free: 0 }));
    pool.close(d).unwrap();
    pool.forget();
    let stats = pool.stats();
    assert_eq!((stats.blank, stats.cached, stats.pinned), (6, 2, 2));
    let (admission, _) = pool.admit(ROOT, &b).unwrap();
    assert_eq!(admission.reused, 64);
    // A pinned block is not written to, even by the only one that has it.
    pool.truncate(admission.seq, 60).unwrap();
    assert_eq!(pool.blocks_to_extend(admission.seq, 1), Ok(1));
    assert!(pool.extend(admission.seq, 1).unwrap().is_some());
    pool.close(admission.seq).unwrap();
    pool.unpin_all();
    pool.forget();
    assert_eq!(pool.stats().blank, 8);
}

/// The place for the copy must not be the copied block's; the last place of all is taken as it is.
#[test]
fn a_partial_block_in_the_last_place() {
    let mut pool = pool(Shape { blocks: 2, ..SHAPE });
    let a = text(1, 30);
    serve(&mut pool, &a);
    let (first, copy) = pool.admit(ROOT, &a).unwrap();
    assert_eq!((first.reused, copy.is_some()), (29, true));
    let (second, copy) = pool.admit(ROOT, &a).unwrap();
    assert_eq!((second.reused, copy), (29, None));
    let (third, copy) = pool.admit(ROOT, &a).unwrap();
    assert_eq!((third.reused, copy), (0, None));
    assert_eq!(pool.stats().private, 2);
}

#[test]
fn blocks_from_elsewhere() {
    let mut pool = pool(SHAPE);
    pool.track_saves(true);
    let a = text(1, 70);
    let seq = pool.open_under(ROOT).unwrap();
    assert_eq!(pool.load(seq, &a[..32], &mut |_| false), Ok(false));
    assert_eq!((pool.len(seq), pool.stats().blank), (Ok(0), 8));
    assert_eq!(pool.load(seq, &a[..32], &mut |_| true), Ok(true));
    assert_eq!(info(&pool, seq, 0).save, SaveState::Saved);
    assert_eq!(pool.load(seq, &a[32..42], &mut |_| true), Ok(true));
    assert_eq!(pool.len(seq), Ok(42));
    assert_eq!(pool.load(seq, &a[42..], &mut |_| true), Err(KvError::NotAtBoundary { len: 42 }));
    compute(&mut pool, seq, &a);
    assert_eq!(pool.stats().unsaved, 1);
    // Cached already: nobody is asked.
    let other = pool.open_under(ROOT).unwrap();
    assert_eq!(pool.load(other, &a[..32], &mut |_| panic!("it is cached")), Ok(true));
    assert_eq!(pool.table(other).unwrap(), &pool.table(seq).unwrap()[..1]);
}

#[test]
fn parents_are_saved_before_their_children() {
    let mut pool = pool(SHAPE);
    let kv: Vec<u8> = (0..8 * 4).map(|i| i / 4).collect();
    let seq = open(&mut pool, &text(1, 100));
    assert!(pool.next_unsaved(&kv).is_none(), "nobody saves");
    assert_eq!(pool.stats().unsaved, 0);
    pool.track_saves(true);
    let mut parent = ROOT;
    for i in 0..3 {
        assert_eq!(pool.stats().unsaved, 3 - i);
        let view = pool.next_unsaved(&kv).unwrap();
        assert_eq!((view.position, view.parent, view.contents), (i, parent, &text(1, 100)[i * 32..][..32]));
        assert_eq!(view.id, parent.child(view.contents));
        assert_eq!(view.bytes, [view.block as u8; 4]);
        let (block, id) = (view.block, view.id);
        parent = id;
        pool.set_save_state(block, &ROOT, SaveState::Staged);
        assert_eq!(pool.stats().unsaved, 3 - i, "another block's name");
        pool.set_save_state(block, &id, SaveState::Staged);
        assert_eq!(info(&pool, seq, i).save, SaveState::Staged);
    }
    assert!(pool.next_unsaved(&kv).is_none());
    pool.set_save_state(u32::MAX, &ROOT, SaveState::Saved);
    let tail = pool.tail(seq, &kv).unwrap().unwrap();
    assert_eq!((tail.position, tail.parent, tail.contents), (3, parent, &text(1, 100)[96..]));
    assert_eq!((tail.id, pool.parent_id(seq)), (parent.child(tail.contents), Ok(parent)));
    pool.truncate(seq, 70).unwrap();
    assert_eq!(pool.tail(seq, &kv).unwrap().unwrap().contents, &text(1, 70)[64..]);
    pool.truncate(seq, 64).unwrap();
    assert!(pool.tail(seq, &kv).unwrap().is_none());
    // An evicted block is not unsaved any more.
    pool.set_save_state(pool.table(seq).unwrap()[0], &ROOT.child(&text(1, 32)), SaveState::Unsaved);
    pool.close(seq).unwrap();
    assert_eq!(pool.stats().unsaved, 1);
    pool.forget();
    assert_eq!(pool.stats().unsaved, 0);
}

#[test]
fn callers_that_ask_for_nonsense() {
    let mut pool = pool(SHAPE);
    let a = text(1, 300);
    let seq = open(&mut pool, &a[..40]);
    let closed = pool.open().unwrap();
    pool.close(closed).unwrap();
    let fill: &mut dyn FnMut(u32) -> bool = &mut |_| panic!("nothing is to be filled");
    let before = pool.stats();
    for unknown in [closed, SeqId(4), SeqId(u32::MAX)] {
        let error = Some(KvError::UnknownSequence);
        assert_eq!(pool.reuse_blocks(unknown, &a[..9]).err(), error);
        assert_eq!(pool.reuse_part(unknown, &a[..9], 1).err(), error);
        assert_eq!(pool.load(unknown, &a[..9], fill).err(), error);
        assert_eq!(pool.extend(unknown, 1).err(), error);
        assert_eq!(pool.commit(unknown, &mut a.iter().copied()).err(), error);
        assert_eq!(pool.pin(unknown, 1).err(), error);
        assert_eq!(pool.parent_id(unknown).err(), error);
        assert_eq!(pool.next_id(unknown, &[a[0]; 32]).err(), error);
        assert_eq!(pool.tail(unknown, &[]).err(), error);
        assert_eq!(pool.contents(unknown).err(), error);
    }
    let within = Some(KvError::NotAtBoundary { len: 40 });
    assert_eq!(pool.reuse_blocks(seq, &a[..90]).err(), within);
    assert_eq!(pool.reuse_part(seq, &a[..90], 1).err(), within);
    assert_eq!(pool.load(seq, &a[..9], fill).err(), within);
    assert_eq!(pool.next_id(seq, &[a[0]; 32]).err(), within);
    let long = Some(KvError::ContextFull { needed: 300, most: 256 });
    assert_eq!(pool.reuse_blocks(seq, &a).err(), long);
    assert_eq!(pool.reuse_part(seq, &a, 1).err(), long);
    assert_eq!(pool.admit(ROOT, &a).err(), long);
    assert_eq!(pool.reuse_blocks(seq, &[]).err(), Some(KvError::Empty));
    assert_eq!(pool.reuse_part(seq, &[], 1).err(), Some(KvError::Empty));
    assert_eq!(pool.admit(ROOT, &[]).err(), Some(KvError::Empty));
    assert_eq!(pool.load(seq, &[], fill).err(), Some(KvError::BlockContents { found: 0 }));
    assert_eq!(pool.load(seq, &a[..33], fill).err(), Some(KvError::BlockContents { found: 33 }));
    assert_eq!(pool.commit(seq, &mut a.iter().copied()), Ok(()), "there is nothing to be said");
    assert_eq!(pool.stats(), before);
    // A sequence in the middle of a step.
    pool.truncate(seq, 32).unwrap();
    pool.extend(seq, 32).unwrap();
    assert_eq!(pool.reuse_blocks(seq, &a[..90]).err(), Some(KvError::NotAtBoundary { len: 64 }));
    // Contents shorter than the sequence say nothing new.
    pool.truncate(seq, 32).unwrap();
    assert_eq!(pool.reuse_blocks(seq, &a[..9]), Ok(32));
    assert_eq!(pool.reuse_part(seq, &a[..9], 1), Ok((32, None)));
}
