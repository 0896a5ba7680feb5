//! A medium that refuses: the store pauses, says so once, goes on reading, and writes again when it can.

use core::time::Duration;
use kinglet::store::medium::{Errno, IoError};
use kinglet::store::{BACK_OFF, Found, Outcome, Pause, Store};
use kinglet_core::kv::BlockId;
use kinglet_tests::chain::{
    Heard, PATIENCE, Piece, chain, find, follow, found, identity, open, open_quiet, options, save, save_all,
    stage, until,
};
use kinglet_tests::medium::{Failing, MemoryMedium};
use std::sync::Arc;

/// Lets the back-off pass, and waits until a block may be tried.
fn wait_for_trial(medium: &MemoryMedium, store: &Store) {
    medium.pass(BACK_OFF);
    until("a trial", || {
        store.flush(Duration::ZERO);
        store.room()
    });
}

/// Saves all, where a trial lets one through first.
fn save_again(medium: &MemoryMedium, store: &Store, pieces: &[Piece]) {
    wait_for_trial(medium, store);
    // Until something had to be written, the trial goes on.
    for piece in pieces {
        save_all(store, core::slice::from_ref(piece));
    }
}

#[test]
fn each_call_fails_in_turn() {
    let pieces = chain(1, 2, 9);
    for errno in [Errno::NOSPC, Errno::ROFS, Errno::IO, Errno::DQUOT] {
        for all in [false, true] {
            let mut paused = 0;
            for first in 0.. {
                let (medium, heard) = (Arc::new(MemoryMedium::new()), Heard::default());
                medium.fail(Some(Failing { first, all, errno }));
                let store = open(options(&heard), &medium);
                let outcomes = save(&store, &pieces);
                let what = format!("{errno:?} at call {first}, all later: {all}");
                let status = store.status();
                let (failed, over) = (outcomes.contains(&Outcome::Later), medium.calls() <= first);
                if status.paused.is_some() {
                    assert_eq!(status.paused, Some(Pause::Io(IoError(errno))), "{what}");
                    assert_eq!(heard.with("paused: ").len(), 1, "{what}");
                    paused += 1;
                }
                assert!(!failed || status.paused.is_some(), "{what}");
                assert!(!outcomes.contains(&Outcome::Never), "{what}");
                medium.fail(None);
                // What was answered as saved is there now and after all that comes.
                let there = |store: &Store| {
                    let pieces = pieces.iter().zip(&outcomes).filter(|(_, o)| **o == Outcome::Saved);
                    pieces.for_each(|(piece, _)| assert_eq!(find(store, piece), Found::Hit, "{what}"));
                };
                there(&store);
                if status.paused.is_some() {
                    save_again(&medium, &store, &pieces);
                    let more = follow(BlockId([1; 16]), 1, 7, 1, 0);
                    save_all(&store, &more);
                    assert_eq!(
                        (store.status().paused, heard.with("saving again").len()),
                        (None, 1),
                        "{what}"
                    );
                } else {
                    save_all(&store, &pieces);
                }
                assert_eq!(found(&store, &pieces), 3, "{what}");
                let left = |path: &String| path.ends_with(".tmp");
                assert!(all || !medium.files().keys().any(left), "{what}: {:?}", medium.files().keys());
                drop(store);
                there(&open_quiet(&medium));
                if over {
                    break;
                }
            }
            assert!(paused > 20, "{paused}");
        }
    }
}

#[test]
fn one_failure_is_made_up_for_without_being_asked() {
    let pieces = chain(1, 2, 5);
    for i in 0.. {
        let (medium, heard) = (Arc::new(MemoryMedium::new()), Heard::default());
        medium.hurry(BACK_OFF);
        let store = open(options(&heard), &medium);
        // What is still to be counted would keep the writer from its sleep.
        until("a count", || store.status().bytes_on_disk.is_some());
        let first = medium.calls() + i;
        medium.fail(Some(Failing { first, all: false, errno: Errno::IO }));
        // Offers and takes as an engine does that has nothing else to do; nobody wakes the writer.
        let mut saved = vec![false; pieces.len()];
        while saved.contains(&false) {
            let next = saved.iter().position(|saved| !saved).unwrap();
            if store.status().pending == 0 {
                stage(&store, next, &pieces[next]);
            }
            assert!(store.wait(PATIENCE), "failed at call {i}: {:?}", store.status());
            while let Some(done) = store.finished() {
                assert_ne!(done.outcome, Outcome::Never);
                saved[done.block as usize] = done.outcome == Outcome::Saved;
            }
        }
        let over = medium.calls() <= first;
        medium.fail(None);
        assert_eq!(found(&store, &pieces), pieces.len());
        if over {
            assert!(heard.with("paused: ").is_empty() && i > 10, "{i}");
            break;
        }
    }
}

#[test]
fn a_sync_that_failed_is_not_believed_later() {
    let (medium, pieces) = (Arc::new(MemoryMedium::new()), chain(1, 1, 0));
    let store = open_quiet(&medium);
    until("the count", || store.status().files.is_some());
    let mut rewritten = 0;
    for call in 0..12 {
        medium.take(&pieces[0].path());
        let first = medium.calls() + call;
        medium.fail(Some(Failing { first, all: false, errno: Errno::IO }));
        if save(&store, &pieces) == [Outcome::Later] {
            medium.fail(None);
            let written = store.status().blocks_saved;
            save_again(&medium, &store, &pieces);
            rewritten += u64::from(medium.files().contains_key(&pieces[0].path()));
            assert_eq!(store.status().blocks_saved, written + 1, "call {call}");
        }
    }
    assert!(rewritten > 0, "no call failed after the rename");
}

#[test]
fn a_full_medium() {
    let (medium, pieces, heard) = (Arc::new(MemoryMedium::new()), chain(1, 3, 0), Heard::default());
    let store = open(options(&heard), &medium);
    save_all(&store, &pieces[..2]);
    let used: usize = medium.files().values().map(Vec::len).sum();
    medium.set_capacity(Some(used + 1000));
    assert_eq!(save(&store, &pieces[2..]), [Outcome::Later]);
    assert_eq!(store.status().paused, Some(Pause::Io(IoError(Errno::NOSPC))));
    let line = format!(
        "[KV-DISK] paused: DIR/{}: {}; nothing is saved, tried again every 30 s",
        pieces[2].path(),
        Errno::NOSPC
    );
    assert_eq!(heard.with("paused"), [line]);
    // Nothing is left of the attempt; what is there is found; nothing is taken meanwhile.
    assert_eq!(medium.files().values().map(Vec::len).sum::<usize>(), used);
    assert_eq!(found(&store, &pieces), 2);
    assert!(!store.room() && !stage(&store, 0, &pieces[2]) && !store.flush(PATIENCE));
    // It is tried again, but not before its time, and said only once.
    medium.pass(BACK_OFF - Duration::from_secs(1));
    assert!(!store.flush(PATIENCE));
    for _ in 0..3 {
        wait_for_trial(&medium, &store);
        assert_eq!(save(&store, &pieces[2..]), [Outcome::Later]);
    }
    assert_eq!((heard.with("paused").len(), heard.with("saving again").len()), (1, 0));
    medium.set_capacity(None);
    save_again(&medium, &store, &pieces[2..]);
    assert_eq!((store.status().paused, found(&store, &pieces)), (None, 3));
    assert_eq!((heard.with("paused").len(), heard.with("saving again").len()), (1, 1));
}

#[test]
fn a_read_only_medium() {
    let (medium, pieces, heard) = (Arc::new(MemoryMedium::new()), chain(1, 2, 0), Heard::default());
    save_all(&open_quiet(&medium), &pieces[..1]);
    medium.set_read_only(true);
    let store = open(options(&heard), &medium);
    until("the count", || store.status().files == Some(1));
    assert_eq!(save(&store, &pieces), [Outcome::Saved, Outcome::Later]);
    assert_eq!(store.status().paused, Some(Pause::Io(IoError(Errno::ROFS))));
    assert_eq!((found(&store, &pieces), heard.with("paused").len()), (1, 1));
    // So is one on which there is nothing yet: it is counted all the same.
    let medium = Arc::new(MemoryMedium::new());
    medium.set_read_only(true);
    let store = open(options(&heard), &medium);
    until("the count", || store.status().files == Some(0));
    until("the pause", || store.status().paused.is_some());
    assert_eq!(found(&store, &pieces), 0);
    medium.set_read_only(false);
    save_again(&medium, &store, &pieces);
    assert_eq!((found(&store, &pieces), store.status().paused), (2, None));
}

#[test]
fn errors_of_reading_are_no_damage() {
    let (medium, pieces, heard) = (Arc::new(MemoryMedium::new()), chain(1, 1, 9), Heard::default());
    let store = open(options(&heard), &medium);
    save_all(&store, &pieces);
    until("the count", || store.status().files.is_some());
    let before = medium.files();
    for piece in &pieces {
        for i in 0..8 {
            medium.fail(Some(Failing { first: medium.calls() + i, all: true, errno: Errno::IO }));
            let expected = if i < 4 { Found::Miss } else { Found::Hit };
            assert_eq!(find(&store, piece), expected, "call {i}");
            medium.fail(None);
            assert_eq!(store.status().bad, 0);
        }
    }
    assert_eq!(medium.files(), before);
    // One line until a read succeeds, so one for each piece.
    assert_eq!(heard.with("not used").len(), 2);
    assert_eq!(found(&store, &pieces), 2);
}

#[test]
fn folders_that_are_removed_are_made_again() {
    let (medium, pieces, heard) = (Arc::new(MemoryMedium::new()), chain(1, 6, 0), Heard::default());
    let store = open(options(&heard), &medium);
    let folder = identity().fingerprint().to_string();
    for (i, gone) in [folder.clone(), format!("{folder}/{:02x}", pieces[0].id().0[0])].iter().enumerate() {
        save_all(&store, &pieces);
        assert_eq!(found(&store, &pieces), 6);
        medium.take(gone);
        assert_eq!(found(&store, &pieces), 0, "round {i}");
    }
    save_all(&store, &pieces);
    assert_eq!(found(&store, &pieces), 6);
    assert_eq!((store.status().paused, heard.with("paused").len()), (None, 0));
    assert!(medium.files().contains_key(&format!("{folder}/identity")));
}

#[test]
fn what_is_in_the_way_of_folders() {
    let pieces = chain(1, 1, 0);
    let folder = identity().fingerprint().to_string();
    for path in
        [folder.clone(), format!("{folder}/identity"), format!("{folder}/{:02x}", pieces[0].id().0[0])]
    {
        let (medium, heard) = (Arc::new(MemoryMedium::new()), Heard::default());
        path.contains('/').then(|| medium.put_dir(&folder));
        medium.put_other(&path);
        let store = open(options(&heard), &medium);
        assert_eq!((found(&store, &pieces), save(&store, &pieces)), (0, vec![Outcome::Later]));
        assert_eq!(heard.with("paused").len(), 1);
        assert!(medium.is_other(&path));
        medium.take(&path);
        save_again(&medium, &store, &pieces);
        assert_eq!(found(&store, &pieces), 1);
    }
}
