//! Limits of the store: bytes and files of the whole directory, bytes written in a day.

use core::time::Duration;
use kinglet::store::medium::Time;
use kinglet::store::{BACK_OFF, Found, Options, Outcome, Pause, Store};
use kinglet_core::kv::BlockId;
use kinglet_tests::chain::{
    Heard, PATIENCE, Piece, chain, find, follow, found, identity, open, open_quiet, options, save, save_all,
    until,
};
use kinglet_tests::medium::MemoryMedium;
use kinglet_tests::random_model::Rng;
use std::sync::Arc;

/// Bytes of a whole block's file.
fn whole() -> u64 {
    chain(1, 1, 0)[0].file_bytes()
}

/// A store with limits that has counted what is there.
fn limited(medium: &Arc<MemoryMedium>, max_bytes: u64, max_files: u64) -> Store {
    let store = open(Options { max_bytes, max_files, ..options(&Heard::default()) }, medium);
    until("the count", || store.status().files.is_some());
    store
}

/// Bytes and number of the files that count.
fn there(medium: &MemoryMedium) -> (u64, u64) {
    let ours = |path: &&String| {
        let (folders, name) = path.rsplit_once('/').unwrap_or_default();
        let ends = [".kv", ".tail", ".bad"].iter().any(|end| name.ends_with(end));
        ends && folders.len() == 35 && name.starts_with(&folders[33..])
    };
    let files = medium.files();
    let bytes = files.keys().filter(ours).map(|path| files[path].len() as u64).sum();
    (bytes, files.keys().filter(ours).count() as u64)
}

/// Random chains grow side by side, some are read; the limits hold after each step, and what is left of each
/// chain is its beginning.
#[test]
fn limits_hold_and_chains_are_cut_from_their_ends() {
    for seed in 1..=20 {
        let mut rng = Rng(seed);
        let medium = Arc::new(MemoryMedium::new());
        let (bytes, files) = if seed % 2 == 0 { (12 * whole() + 100, u64::MAX) } else { (u64::MAX, 13) };
        let store = limited(&medium, bytes, files);
        let chains: Vec<Vec<Piece>> = (0..5).map(|i| chain(100 * seed + i, 6, 5)).collect();
        let mut saved = [0; 5];
        for step in 0..60 {
            medium.pass(Duration::from_secs(u64::from(rng.number() % 3)));
            let i = rng.number() as usize % chains.len();
            if rng.number().is_multiple_of(3) {
                found(&store, &chains[i]);
            } else {
                // As the engine does: what comes before is found, or computed and saved again.
                let from = found(&store, &chains[i]);
                let to = (from + 1).min(chains[i].len());
                save_all(&store, &chains[i][from..to]);
                saved[i] = saved[i].max(to);
            }
            let (bytes_there, files_there) = there(&medium);
            assert!(bytes_there <= bytes && files_there <= files, "seed {seed}, step {step}");
            let status = store.status();
            assert_eq!((status.bytes_on_disk, status.files), (Some(bytes_there), Some(files_there)));
            for chain in &chains {
                let left: Vec<bool> = chain.iter().map(|p| medium.files().contains_key(&p.path())).collect();
                assert!(left.is_sorted_by(|a, b| a >= b), "seed {seed}, step {step}: {left:?}");
            }
        }
        assert!(store.status().evicted > 5, "seed {seed}: {}", store.status().evicted);
        assert_eq!((store.status().bad, store.status().paused), (0, None));
    }
}

#[test]
fn what_was_used_stays() {
    let medium = Arc::new(MemoryMedium::new());
    let store = limited(&medium, 10 * whole(), u64::MAX);
    let (a, b, c) = (chain(1, 4, 0), chain(2, 4, 0), chain(3, 4, 0));
    for pieces in [&a, &b] {
        medium.pass(Duration::from_secs(10));
        save_all(&store, pieces);
    }
    medium.pass(Duration::from_secs(10));
    // Only its last block: those before it are of use as well.
    assert_eq!(find(&store, &a[3]), Found::Hit);
    save_all(&store, &c);
    assert_eq!((found(&store, &a), found(&store, &c)), (4, 4));
    assert!(found(&store, &b) < 4);
    assert_eq!(store.status().evicted, 2);
}

#[test]
fn a_use_is_counted_and_dated() {
    let (medium, pieces) = (Arc::new(MemoryMedium::new()), chain(1, 1, 0));
    let store = open_quiet(&medium);
    save_all(&store, &pieces);
    let time = |seconds, nanos| Time { seconds, nanos };
    assert_eq!(medium.mtime(&pieces[0].path()), time(1_000_000_000, 0));
    for hits in 1..=3 {
        medium.pass(Duration::from_secs(5));
        assert_eq!(find(&store, &pieces[0]), Found::Hit);
        assert_eq!(medium.mtime(&pieces[0].path()), time(1_000_000_000 + 5 * i64::from(hits), hits));
    }
    // The clock goes backwards; nothing comes of it.
    medium.set_clock(500);
    assert_eq!(find(&store, &pieces[0]), Found::Hit);
    assert_eq!(medium.mtime(&pieces[0].path()), time(500, 4));
}

#[test]
fn what_is_set_aside_goes_first() {
    let medium = Arc::new(MemoryMedium::new());
    let (a, b) = (chain(1, 3, 0), chain(2, 3, 0));
    save_all(&open_quiet(&medium), &a);
    medium.pass(Duration::from_secs(10));
    let bad = format!("{}.bad", a[0].path());
    medium.put(&bad, &vec![0; whole() as usize]);
    let folder = identity().fingerprint();
    let others = [
        format!("{folder}/notes"),
        format!("{folder}/{:02x}/{}.kv.old", a[0].id().0[0], a[0].id()),
        format!("{folder}/{:02x}/{}.kv", a[0].id().0[0].wrapping_add(1), a[0].id()),
        String::from("x.kv"),
        String::from("0123456789abcdef0123456789abcdeg/00/x.kv"),
    ];
    medium.put_dir("0123456789abcdef0123456789abcdeg");
    medium.put_dir("0123456789abcdef0123456789abcdeg/00");
    medium.put_dir(&format!("{folder}/{:02x}", a[0].id().0[0].wrapping_add(1)));
    others.iter().for_each(|path| medium.put(path, &[1; 100_000]));
    let store = limited(&medium, 5 * whole(), u64::MAX);
    // What is not ours does not count.
    assert_eq!(store.status().files, Some(4));
    save_all(&store, &b[..1]);
    assert_eq!(there(&medium).1, 5);
    save_all(&store, &b[1..2]);
    assert!(!medium.files().contains_key(&bad));
    assert_eq!((found(&store, &a), found(&store, &b)), (3, 2));
    assert!(others.iter().all(|path| medium.files()[path] == [1; 100_000]));
}

#[test]
fn other_models_count_and_go() {
    let medium = Arc::new(MemoryMedium::new());
    let mut other = identity();
    other.weights = BlockId([3; 16]);
    let elsewhere = Store::open(options(&Heard::default()), other, String::new(), 4, medium.clone()).unwrap();
    assert_eq!(save(&elsewhere, &chain(1, 6, 0)), [Outcome::Saved; 6]);
    medium.pass(Duration::from_secs(10));
    let store = limited(&medium, u64::MAX, 6);
    assert_eq!(store.status().files, Some(6));
    save_all(&store, &chain(1, 5, 0));
    assert_eq!((found(&store, &chain(1, 5, 0)), there(&medium).1), (5, 6));
    // The other store has not counted that; when it has to, it does.
    until("the count", || elsewhere.status().files.is_some());
}

#[test]
fn a_conversation_longer_than_the_limit() {
    let (medium, heard) = (Arc::new(MemoryMedium::new()), Heard::default());
    let store = open(Options { max_bytes: 4 * whole() + 10, ..options(&heard) }, &medium);
    until("the count", || store.status().files.is_some());
    save_all(&store, &chain(1, 3, 0));
    medium.pass(Duration::from_secs(10));
    let pieces = chain(2, 7, 0);
    let (saved, never) = ([Outcome::Saved; 4], [Outcome::Never; 3]);
    assert_eq!(save(&store, &pieces), [&saved[..], &never].concat());
    // What came first is kept: it is what can be used again.
    assert_eq!((found(&store, &pieces), there(&medium).1), (4, 4));
    assert_eq!((store.status().paused, heard.with("not saved").len()), (None, 1));
    // That is remembered: not every block has the directory searched for room again.
    let before = medium.calls();
    assert_eq!(save(&store, &pieces[6..]), [Outcome::Never]);
    assert!(medium.calls() < before + 50, "{}", medium.calls() - before);
    save_all(&store, &chain(3, 1, 0));
    assert_eq!(found(&store, &pieces), 3);
}

#[test]
fn nothing_makes_room_for_what_cannot_be_found() {
    let medium = Arc::new(MemoryMedium::new());
    let store = limited(&medium, u64::MAX, 4);
    let (pieces, other) = (chain(1, 2, 0), chain(2, 2, 0));
    save_all(&store, &pieces);
    save_all(&store, &other);
    medium.take(&pieces[1].path());
    // Somebody else has filled its place.
    let store = limited(&medium, u64::MAX, 3);
    let orphan = follow(pieces[1].id(), 2, 5, 1, 3);
    assert_eq!(save(&store, &orphan), [Outcome::Never; 2]);
    assert_eq!((store.status().evicted, found(&store, &other), found(&store, &pieces)), (0, 2, 1));
    // With what it follows it is saved again.
    let store = limited(&medium, u64::MAX, 5);
    save_all(&store, &pieces);
    save_all(&store, &orphan[..1]);
    assert_eq!((found(&store, &pieces), found(&store, &orphan)), (2, 1));
}

#[test]
fn a_limit_that_was_lowered() {
    let medium = Arc::new(MemoryMedium::new());
    let pieces = chain(1, 9, 0);
    save_all(&open_quiet(&medium), &pieces);
    let store = limited(&medium, u64::MAX, 1);
    assert_eq!(there(&medium).1, 9, "until something is to be written");
    save_all(&store, &chain(2, 1, 0));
    assert_eq!((there(&medium).1, found(&store, &chain(2, 1, 0))), (1, 1));
}

#[test]
fn only_old_temporary_files_of_ours_are_removed() {
    let (medium, folder) = (Arc::new(MemoryMedium::new()), identity().fingerprint());
    save_all(&open_quiet(&medium), &chain(1, 1, 0));
    let id = BlockId([0xAB; 16]);
    let ours = [
        format!("{folder}/ab/{id}.0123456789abcdef.tmp"),
        format!("{folder}/ab/{id}.fedcba9876543210.tmp"),
        format!("{folder}/identity.0123456789abcdef.tmp"),
        String::from("written.0123456789abcdef.tmp"),
    ];
    let foreign = [format!("{folder}/ab/mine.tmp"), String::from("x.0123456789abcdef.tmp")];
    medium.put_dir(&format!("{folder}/ab"));
    ours.iter().chain(&foreign).for_each(|path| medium.put(path, b"half"));
    let left = |seconds| {
        medium.pass(Duration::from_secs(seconds));
        let store = open_quiet(&medium);
        until("the count", || store.status().files == Some(1));
        medium.files().keys().filter(|path| path.ends_with(".tmp")).count()
    };
    // Somebody may still be writing them, also where the clock says nothing.
    assert_eq!(left(3600), 6);
    medium.set_clock(5);
    assert_eq!(left(0), 6);
    medium.set_clock(1_000_000_000 + 3600);
    assert_eq!(left(1), 2);
}

#[test]
fn thousands_of_foreign_files() {
    let (medium, folder) = (Arc::new(MemoryMedium::new()), identity().fingerprint());
    let pieces = chain(1, 2, 3);
    medium.put_dir(&folder.to_string());
    medium.put_dir(&format!("{folder}/00"));
    let folders = [String::new(), format!("{folder}/"), format!("{folder}/00/")];
    for i in 0..10_000 {
        medium.put(&format!("{}{i}.kv", folders[i % 3]), b"x");
    }
    let store = limited(&medium, 4 * whole(), u64::MAX);
    assert_eq!(store.status().files, Some(0));
    for seed in 2..5 {
        save_all(&store, &chain(seed, 2, 0));
        medium.pass(Duration::from_secs(1));
    }
    save_all(&store, &pieces);
    assert_eq!(found(&store, &pieces), 3);
    assert_eq!(medium.files().values().filter(|bytes| *bytes == b"x").count(), 10_000);
}

#[test]
fn a_day_has_its_bytes() {
    let (medium, heard) = (Arc::new(MemoryMedium::new()), Heard::default());
    let pieces = chain(1, 9, 0);
    let daily = || Options { daily_write_bytes: Some(3 * whole()), ..options(&heard) };
    let written = |day: i64, blocks: u64| {
        let text = String::from_utf8(medium.files()["written"].clone()).unwrap();
        assert!(text.starts_with(&format!("{day} {} ", blocks * whole())), "{text}");
    };
    let spent = |store: &Store, pieces: &[Piece]| {
        assert_eq!(save(store, pieces), vec![Outcome::Later; pieces.len()]);
        assert_eq!(store.status().paused, Some(Pause::Budget));
    };
    let again = |store: &Store, pieces: &[Piece]| {
        medium.pass(BACK_OFF);
        until("a new day", || {
            store.flush(Duration::ZERO);
            store.room()
        });
        save_all(store, &pieces[..1]);
        save_all(store, &pieces[1..]);
    };
    let day = 1_000_000_000 / 86_400;
    let store = open(daily(), &medium);
    save_all(&store, &pieces[..3]);
    written(day, 3);
    spent(&store, &pieces[3..4]);
    assert_eq!((found(&store, &pieces), heard.with("paused").len()), (3, 1));
    let line = "[KV-DISK] paused: the daily write budget is spent; nothing is saved until tomorrow";
    assert_eq!(heard.with("paused"), [line]);
    drop(store);

    // It outlives the process. What is there already costs nothing.
    let store = open(daily(), &medium);
    save_all(&store, &pieces[..3]);
    spent(&store, &pieces[3..4]);

    // The clock goes backwards: spent is spent, and the next day is a new one.
    medium.set_clock((day - 400) * 86_400);
    drop(store);
    let store = open(daily(), &medium);
    spent(&store, &pieces[3..4]);
    written(day - 400, 3);
    medium.set_clock((day - 399) * 86_400);
    again(&store, &pieces[3..5]);
    written(day - 399, 2);

    // Forwards: more days are new ones, each once.
    medium.set_clock((day + 7) * 86_400);
    save_all(&store, &pieces[5..6]);
    written(day + 7, 1);
    assert_eq!((store.status().paused, heard.with("saving again").len()), (None, 1));
}

#[test]
fn processes_share_a_day() {
    let medium = Arc::new(MemoryMedium::new());
    let daily = || Options { daily_write_bytes: Some(4 * whole()), ..options(&Heard::default()) };
    let (a, b) = (open(daily(), &medium), open(daily(), &medium));
    save_all(&a, &chain(1, 2, 0));
    save_all(&b, &chain(2, 1, 0));
    save_all(&b, &chain(3, 1, 0));
    assert_eq!(save(&a, &chain(4, 1, 0)), [Outcome::Later]);
}

#[test]
fn a_count_that_makes_no_sense_says_nothing() {
    for text in ["", "x", "11574", "11574 x", "-5 -5", "99999999999999999999999 1", "11573 99999999999"] {
        let medium = Arc::new(MemoryMedium::new());
        medium.put("written", text.as_bytes());
        let store = open(Options { daily_write_bytes: Some(whole()), ..options(&Heard::default()) }, &medium);
        save_all(&store, &chain(1, 1, 0));
        assert_eq!(save(&store, &chain(2, 1, 0)), [Outcome::Later], "{text}");
    }
    // A link in its place is not followed, and not removed.
    let medium = Arc::new(MemoryMedium::new());
    medium.put_other("written");
    let store = open(Options { daily_write_bytes: Some(whole()), ..options(&Heard::default()) }, &medium);
    assert_eq!(save(&store, &chain(1, 1, 0)), [Outcome::Later]);
    assert_eq!(store.status().paused, Some(Pause::InTheWay));
    assert!(medium.is_other("written"));
    assert!(!store.flush(PATIENCE));
}
