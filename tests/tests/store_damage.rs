//! Files that are damaged, in the wrong place, or no files: set aside, never used, never in the way of the
//! block that is written again.

use kinglet::store::{Found, Outcome, Store};
use kinglet_core::kv::BlockId;
use kinglet_tests::chain::{
    Heard, Piece, beginning, chain, find, follow, found, identity, open, open_quiet, options, save, save_all,
};
use kinglet_tests::medium::MemoryMedium;
use std::sync::Arc;

/// A medium with a block and the tail after it, and a store on it that has just been opened.
fn saved(heard: &Heard) -> (Arc<MemoryMedium>, Store, Vec<Piece>) {
    let (medium, pieces) = (Arc::new(MemoryMedium::new()), chain(1, 1, 21));
    save_all(&open_quiet(&medium), &pieces);
    let store = open(options(heard), &medium);
    (medium, store, pieces)
}

/// Puts `bytes` in the place of a piece: it is refused, set aside as it is, and then saved again.
fn refused(medium: &MemoryMedium, store: &Store, piece: &Piece, bytes: &[u8], what: &str) {
    medium.put(&piece.path(), bytes);
    assert_eq!(find(store, piece), Found::Bad, "{what}");
    let files = medium.files();
    assert!(!files.contains_key(&piece.path()), "{what}");
    assert_eq!(files[&format!("{}.bad", piece.path())], bytes, "{what}");
    assert_eq!(find(store, piece), Found::Miss, "{what}");
    save_all(store, core::slice::from_ref(piece));
    assert_eq!(find(store, piece), Found::Hit, "{what}");
}

#[test]
fn a_bit_of_every_byte_is_flipped() {
    let heard = Heard::default();
    let (medium, store, pieces) = saved(&heard);
    let mut count = 0;
    for piece in &pieces {
        let sound = medium.files()[&piece.path()].clone();
        for i in 0..sound.len() {
            let mut bytes = sound.clone();
            bytes[i] ^= 1 << (i % 8);
            refused(&medium, &store, piece, &bytes, &format!("byte {i}"));
            count += 1;
        }
    }
    assert_eq!(store.status().bad, count);
    let lines = heard.with("; set aside as .bad");
    assert_eq!(lines.len() as u64, count);
    let first = format!("[KV-DISK] DIR/{}: not a KV file (magic); set aside as .bad", pieces[0].path());
    assert_eq!(lines[0], first);
}

#[test]
fn files_end_everywhere_or_go_on() {
    let (medium, store, pieces) = saved(&Heard::default());
    for piece in &pieces {
        let sound = medium.files()[&piece.path()].clone();
        for len in 0..sound.len() {
            refused(&medium, &store, piece, &sound[..len], &format!("{len} bytes"));
        }
        refused(&medium, &store, piece, &[&sound[..], &[0]].concat(), "one byte more");
        assert_eq!(medium.files()[&piece.path()], sound, "the same block makes the same file");
    }
}

#[test]
fn a_tail_that_cannot_be_read_shares_nothing() {
    let (medium, store, pieces) = saved(&Heard::default());
    let tail = &pieces[1];
    assert_eq!(store.tail(&tail.parent, 1, &tail.contents), 21);
    let mut bytes = medium.files()[&tail.path()].clone();
    bytes[200] ^= 1;
    medium.put(&tail.path(), &bytes);
    assert_eq!(store.tail(&tail.parent, 1, &tail.contents), 0);
    assert!(medium.files().contains_key(&format!("{}.bad", tail.path())));
    // Damage that the header does not show is found when it is read whole.
    bytes[200] ^= 1;
    bytes[5000] ^= 1;
    medium.put(&tail.path(), &bytes);
    assert_eq!(store.tail(&tail.parent, 1, &tail.contents), 21);
    assert_eq!(find(&store, tail), Found::Bad);
}

#[test]
fn a_file_that_lost_its_end_is_written_again_unread() {
    let (medium, store, pieces) = saved(&Heard::default());
    for piece in &pieces {
        let sound = medium.files()[&piece.path()].clone();
        medium.put(&piece.path(), &sound[..5000]);
        save_all(&store, core::slice::from_ref(piece));
        assert_eq!(medium.files()[&piece.path()], sound);
    }
    // A tail of which the header is gone is no reason to keep it.
    medium.put(&pieces[1].path(), b"short");
    save_all(&store, &[beginning(&pieces[1], 3)]);
    assert_eq!(find(&store, &beginning(&pieces[1], 3)), Found::Hit);
}

#[test]
fn sound_files_in_the_wrong_place() {
    let heard = Heard::default();
    let (medium, store, pieces) = saved(&heard);
    let more = follow(pieces[0].id(), 1, 5, 1, 0).remove(0);
    let salted = Piece { parent: BlockId([9; 16]), ..pieces[0].clone() };
    let mut other = identity();
    other.weights = BlockId([9; 16]);
    let elsewhere = Store::open(options(&Heard::default()), other, String::new(), 4, medium.clone()).unwrap();
    save_all(&store, &[more.clone(), salted.clone()]);
    assert_eq!(save(&elsewhere, &pieces[..1]), [Outcome::Saved]);
    let files = medium.files();
    let foreign =
        pieces[0].path().replace(&identity().fingerprint().to_string(), &other.fingerprint().to_string());
    let cases = [
        (&pieces[0], files[&salted.path()].clone(), "parent differs"),
        (&pieces[0], files[&more.path()].clone(), "parent differs"),
        (&pieces[0], files[&pieces[1].path()].clone(), "parent differs"),
        (&pieces[1], files[&more.path()].clone(), "holds a whole block"),
        (&pieces[0], files[&foreign].clone(), "model fingerprint differs"),
    ];
    for (piece, bytes, why) in cases {
        refused(&medium, &store, piece, &bytes, why);
        assert!(
            heard.with("set aside").last().unwrap().contains(why),
            "{why}: {:?}",
            heard.with("set aside")
        );
    }
    // A tail under the name of the whole block that it becomes.
    let tail = beginning(&pieces[0], 20);
    save_all(&store, core::slice::from_ref(&tail));
    refused(&medium, &store, &pieces[0], &medium.files()[&tail.path()], "contents differ after 20 positions");
}

#[test]
fn what_is_no_file_is_not_touched() {
    let heard = Heard::default();
    let (medium, store, pieces) = saved(&heard);
    for piece in &pieces {
        let (path, bad) = (piece.path(), format!("{}.bad", piece.path()));
        // Found by a reader, then by the writer.
        for read in [true, false] {
            medium.take(&path);
            medium.take(&bad);
            medium.put_other(&path);
            if read {
                assert_eq!((find(&store, piece), find(&store, piece)), (Found::Bad, Found::Miss));
            }
            save_all(&store, core::slice::from_ref(piece));
            assert!(medium.is_other(&bad));
            assert_eq!(find(&store, piece), Found::Hit);
        }
        // It cannot be set aside: the name stays taken, and is only complained about.
        medium.take(&path);
        medium.put_other(&path);
        assert_eq!((find(&store, piece), find(&store, piece)), (Found::Bad, Found::Miss));
        assert_eq!(heard.with("is no regular file; cannot be set aside; not used").len(), 1);
        assert_eq!(save(&store, core::slice::from_ref(piece)), [Outcome::Never]);
        assert!(medium.is_other(&path) && medium.is_other(&bad));
        assert_eq!(store.status().paused, None);
        // The right file comes to be there.
        medium.take(&path);
        save_all(&store, core::slice::from_ref(piece));
        assert_eq!(find(&store, piece), Found::Hit);
        medium.take(&bad);
        assert_eq!(heard.with("cannot be set aside").len(), 2, "by the reader and by the writer");
        heard.forget();
    }
}

#[test]
fn a_directory_in_the_place_of_a_block() {
    let (medium, store, pieces) = saved(&Heard::default());
    medium.take(&pieces[0].path());
    medium.put_dir(&pieces[0].path());
    assert_eq!(find(&store, &pieces[0]), Found::Bad);
    save_all(&store, &pieces[..1]);
    assert_eq!(found(&store, &pieces), 2);
}

/// On a read-only medium a damaged file stays; it is read once, and not again.
#[test]
fn damage_that_cannot_be_set_aside_is_remembered() {
    let heard = Heard::default();
    let (medium, store, pieces) = saved(&heard);
    let sound = medium.files();
    for piece in &pieces {
        let mut bytes = sound[&piece.path()].clone();
        bytes[4500] ^= 1;
        medium.put(&piece.path(), &bytes);
    }
    medium.set_read_only(true);
    for piece in &pieces {
        assert_eq!((find(&store, piece), find(&store, piece)), (Found::Bad, Found::Miss));
    }
    assert_eq!(heard.with("payload checksum does not match; cannot be set aside; not used").len(), 2);
    // Though it has the right name and size, it is not taken for the block.
    medium.set_read_only(false);
    save_all(&store, &pieces);
    assert_eq!(found(&store, &pieces), 2);
    assert_eq!(medium.files(), sound);
}
