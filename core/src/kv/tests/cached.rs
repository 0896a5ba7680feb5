//! What stays, what goes first, what comes from elsewhere, and callers that ask for nonsense.

use super::{ROOT, SHAPE, compute, info, open, pool, serve, text};
use crate::kv::pool::{SeqId, Shape};
use crate::kv::{KvError, SaveState};
extern crate std;
use std::vec::Vec;

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

/// A child may be protected while its parent is not; still it goes first.
#[test]
fn a_parent_stays_as_long_as_its_children() {
    let mut pool = pool(SHAPE);
    let a = text(1, 64);
    serve(&mut pool, &a);
    let seq = pool.open_under(ROOT).unwrap();
    compute(&mut pool, seq, &a[..32]);
    assert_eq!(pool.reuse_part(seq, &a, 1).unwrap().0, 63);
    pool.close(seq).unwrap();
    assert_eq!((pool.stats().cached, pool.stats().protected), (2, 1));
    serve(&mut pool, &text(2, 7 * 32));
    assert_eq!((pool.stats().evicted, serve(&mut pool, &a[..33])), (1, 32));
}

/// A block's last use is the end of the last sequence that had it, not when it was computed.
#[test]
fn what_ended_last_goes_last() {
    let mut pool = pool(SHAPE);
    let seq = open(&mut pool, &text(1, 96));
    serve(&mut pool, &text(2, 96));
    pool.close(seq).unwrap();
    serve(&mut pool, &text(3, 128));
    assert_eq!(pool.stats().evicted, 2);
    assert_eq!(serve(&mut pool, &text(1, 96)), 95);
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
