//! The pool without an engine: who has which block, and what is found again.

mod cached;

use super::pool::{BlockCopy, Pool, SeqId, Shape};
use super::{BlockId, BlockInfo, ContentId, KvError, MIN_REUSE};
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
