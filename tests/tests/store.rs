//! The store of KV blocks: what is saved is found, by whoever looks for it.

use core::time::Duration;
use kinglet::store::{Found, Lines, Options, Outcome, Store};
use kinglet_core::KvType;
use kinglet_core::kv::{BlockId, ContentId, Identity};
use kinglet_tests::chain::{
    Heard, PATIENCE, Piece, beginning, chain, find, follow, found, identity, open, open_quiet, options, save,
    save_all, stage, until,
};
use kinglet_tests::medium::MemoryMedium;
use std::sync::Arc;

#[test]
fn what_is_saved_is_found_by_another_process() {
    let (medium, pieces, heard) = (Arc::new(MemoryMedium::new()), chain(1, 3, 7), Heard::default());
    let store = open(options(&heard), &medium);
    assert_eq!(found(&store, &pieces), 0);
    save_all(&store, &pieces);
    until("the count", || store.status().files == Some(4));
    let status = store.status();
    let bytes: u64 = pieces.iter().map(Piece::file_bytes).sum();
    assert_eq!((status.blocks_saved, status.bytes_written, status.bytes_on_disk), (4, bytes, Some(bytes)));
    assert_eq!((status.paused, status.pending, status.skipped_existing, status.bad), (None, 0, 0, 0));
    drop(store);
    // Of a batch the last block is named, so of four blocks at least the last one is.
    let last = format!("[KV-DISK] saved 103-token KV -> DIR/{}", pieces[3].path());
    assert_eq!(heard.with("saved 103-token"), [last]);
    assert_eq!(heard.with("index: ").len(), 1);

    let heard = Heard::default();
    let store = open(options(&heard), &medium);
    assert_eq!(found(&store, &pieces), 4);
    assert_eq!(store.status().blocks_loaded, 4);
    until("the count", || !heard.with("[KV-DISK] index: 4 checkpoint(s)").is_empty());
    assert_eq!(
        store.file(&pieces[0].parent, &pieces[0].contents).to_string(),
        format!("DIR/{}", pieces[0].path())
    );
    assert_eq!(
        store.file(&pieces[3].parent, &pieces[3].contents).to_string(),
        format!("DIR/{}", pieces[3].path())
    );
    // What is there is not written again.
    save_all(&store, &pieces);
    assert_eq!((store.status().blocks_saved, store.status().skipped_existing), (0, 4));
}

#[test]
fn nothing_else_is_found() {
    let (medium, pieces) = (Arc::new(MemoryMedium::new()), chain(1, 2, 5));
    let store = open_quiet(&medium);
    save_all(&store, &pieces);
    let mut block = vec![0; pieces[0].bytes.len()];
    for piece in &pieces {
        for i in 0..piece.contents.len() {
            let mut other = piece.clone();
            other.contents[i] = ContentId::image(&[1; 32], i as u32);
            assert_eq!(find(&store, &other), Found::Miss);
        }
        let other = Piece { parent: BlockId::root(&identity().fingerprint(), b"salt"), ..piece.clone() };
        assert_eq!(find(&store, &other), Found::Miss);
    }
    for contents in [Vec::new(), vec![ContentId::token(1); 33]] {
        assert_eq!(store.find(&pieces[0].parent, 0, &contents, &mut block), Found::Miss);
        assert!(!store.stage(0, &pieces[0].parent, 0, &contents, &block));
        assert!(!store.stage(0, &pieces[0].parent, 0, &pieces[0].contents, &block[1..]));
    }
    assert_eq!((found(&store, &pieces), store.status().bad), (3, 0));
}

#[test]
fn a_tail_is_found_by_what_it_shares() {
    let (medium, pieces) = (Arc::new(MemoryMedium::new()), chain(1, 1, 20));
    let (store, tail) = (open_quiet(&medium), &pieces[1]);
    assert_eq!(store.tail(&tail.parent, 1, &tail.contents), 0);
    save_all(&store, &pieces);
    // A prompt goes on otherwise, or further.
    let mut prompt = tail.contents.clone();
    prompt.resize(32, ContentId::token(7));
    assert_eq!(store.tail(&tail.parent, 1, &prompt), 20);
    prompt[13] = ContentId::token(8);
    assert_eq!(store.tail(&tail.parent, 1, &prompt), 13);
    for count in 1..=20 {
        assert_eq!(find(&store, &beginning(tail, count)), Found::Hit);
    }
    assert_eq!(store.tail(&tail.parent, 1, &[]), 0);
    assert_eq!(store.status().blocks_loaded, 20);
}

#[test]
fn the_latest_tail_is_kept_unless_it_is_a_beginning() {
    let (medium, whole) = (Arc::new(MemoryMedium::new()), chain(1, 1, 0).remove(0));
    let store = open_quiet(&medium);
    let other = Piece { position: 0, parent: whole.parent, ..chain(9, 0, 6).remove(0) };
    let tail = |count| beginning(&whole, count);
    save_all(&store, &[tail(9), tail(17)]);
    assert_eq!(find(&store, &tail(17)), Found::Hit);
    save_all(&store, &[tail(9), tail(17)]);
    assert_eq!(find(&store, &tail(17)), Found::Hit);
    assert_eq!(store.status().skipped_existing, 2);
    save_all(&store, core::slice::from_ref(&other));
    assert_eq!((find(&store, &tail(1)), find(&store, &other)), (Found::Miss, Found::Hit));
    // A whole block takes over the tail that it begins with, and no other.
    save_all(&store, core::slice::from_ref(&whole));
    assert_eq!((find(&store, &whole), find(&store, &other)), (Found::Hit, Found::Hit));
    save_all(&store, &[tail(30), whole.clone()]);
    assert_eq!((find(&store, &whole), find(&store, &tail(1))), (Found::Hit, Found::Miss));
    assert!(!medium.files().contains_key(&tail(1).path()));
    until("the count", || store.status().files == Some(1));
}

#[test]
fn the_engine_does_not_wait_for_the_disk() {
    let (medium, pieces) = (Arc::new(MemoryMedium::new()), chain(1, 9, 0));
    let store = open(Options { sync: true, ..options(&Heard::default()) }, &medium);
    save_all(&store, &pieces[..1]);
    medium.hold_writes(true);
    // Four slots, one of which the writer holds.
    let taken = pieces[1..].iter().take_while(|piece| store.room() && stage(&store, 7, piece)).count();
    assert_eq!(taken, 4);
    assert!(!stage(&store, 7, &pieces[8]));
    assert_eq!((found(&store, &pieces), store.finished(), store.status().pending), (1, None, 4));
    // Neither the wait for room nor that for durability is endless.
    assert!(!store.wait(Duration::from_millis(1)));
    assert!(!store.after_reply(Duration::from_millis(1)));
    medium.hold_writes(false);
    assert!(store.after_reply(PATIENCE));
    assert_eq!(found(&store, &pieces), 5);
    // Slots come back with the answers.
    assert!(!store.room());
    for piece in &pieces[1..5] {
        let finished = store.finished().unwrap();
        assert_eq!((finished.block, finished.id, finished.outcome), (7, piece.id(), Outcome::Saved));
    }
    assert!(store.room() && store.finished().is_none());
}

#[test]
fn without_the_option_a_reply_waits_for_nothing() {
    let medium = Arc::new(MemoryMedium::new());
    let store = open_quiet(&medium);
    medium.hold_writes(true);
    assert!(stage(&store, 0, &chain(1, 1, 0)[0]));
    assert!(store.after_reply(Duration::ZERO));
    assert!(!store.flush(Duration::ZERO));
    medium.hold_writes(false);
    assert!(store.flush(PATIENCE));
}

/// Two stores on one medium, with a thread each that saves and one each that reads.
#[test]
fn two_processes_share_a_directory() {
    let medium = Arc::new(MemoryMedium::new());
    let common = chain(1, 4, 9);
    std::thread::scope(|scope| {
        for seed in [2, 3] {
            let (medium, common) = (&medium, &common);
            scope.spawn(move || {
                let store = open_quiet(medium);
                let own = follow(common[3].id(), 4, seed, 6, 3 * seed as usize);
                std::thread::scope(|scope| {
                    scope.spawn(|| {
                        until("what both save", || found(&store, common) >= 4);
                        until("our own", || found(&store, &own) >= 6);
                    });
                    save_all(&store, common);
                    save_all(&store, &own);
                });
                assert_eq!(store.status().bad, 0);
            });
        }
    });
    let store = open_quiet(&medium);
    let (a, b) = (follow(common[3].id(), 4, 2, 6, 6), follow(common[3].id(), 4, 3, 6, 9));
    assert_eq!((found(&store, &common), found(&store, &a), found(&store, &b)), (5, 7, 7));
    assert!(medium.files().keys().all(|path| !path.ends_with(".tmp")));
}

#[test]
fn caches_of_another_model_are_named() {
    let (medium, pieces) = (Arc::new(MemoryMedium::new()), chain(1, 1, 0));
    save_all(&open_quiet(&medium), &pieces);
    let with = |identity: Identity| {
        let heard = Heard::default();
        let about = String::from("another\n");
        let store = Store::open(options(&heard), identity, about, 4, medium.clone()).unwrap();
        assert_eq!(found(&store, &pieces), 0);
        until("the count", || store.status().files.is_some());
        (identity, heard.with("another model"))
    };
    let (mut near, mut far) = (identity(), identity());
    near.template = BlockId([7; 16]);
    (far.geometry.kv_type, far.weights) = (KvType::F32, BlockId([8; 16]));
    let short = |identity: &Identity| identity.fingerprint().to_string()[..8].to_string();
    let line = |identity: &Identity, parts: &str| {
        format!(
            "[KV-DISK] cache of another model in DIR/{}..: not used, differs in: {parts}",
            short(identity)
        )
    };
    let (near, lines) = with(near);
    assert_eq!(lines, [line(&identity(), "chat template")]);
    // Of two the nearer one: it shares the template.
    far.template = near.template;
    let (far, lines) = with(far);
    assert_eq!(lines, [line(&near, "KV type, weights")]);
    // Its folder is not new any more.
    assert_eq!(with(far).1, [""; 0]);
    let about = format!("{}/about", far.fingerprint());
    assert_eq!(medium.files()[&about], b"another\n");
}

#[test]
fn a_store_can_be_quiet_and_needs_sense() {
    let medium = Arc::new(MemoryMedium::new());
    let quiet = Options { lines: Lines::Quiet, ..options(&Heard::default()) };
    assert_eq!(save(&open(quiet, &medium), &chain(1, 1, 0)), [Outcome::Saved]);
    let fails = |options: Options, identity: Identity| {
        Store::open(options, identity, String::new(), 4, medium.clone()).map(drop).unwrap_err()
    };
    let most = chain(1, 1, 0)[0].file_bytes();
    let small = Options { max_bytes: most - 1, ..options(&Heard::default()) };
    assert!(format!("{:?}", fails(small, identity())).contains("--disk-kv-max-bytes"));
    let small = Options { daily_write_bytes: Some(most - 1), ..options(&Heard::default()) };
    assert!(format!("{:?}", fails(small, identity())).contains("--disk-kv-daily-write-bytes"));
    let mut none = identity();
    none.geometry.head_dim = 0;
    assert!(format!("{:?}", fails(options(&Heard::default()), none)).contains("head_dim"));
}
