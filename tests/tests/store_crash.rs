//! The power goes at any byte of a save, and the medium keeps what it likes of the unsynced: what was
//! answered as saved is found, whole, and nothing else is.

use kinglet::store::{Found, Outcome};
use kinglet_tests::chain::{Piece, beginning, chain, find, found, open_quiet, save, save_all};
use kinglet_tests::medium::{Keep, MemoryMedium};
use std::sync::Arc;

/// Leading pieces that were answered as saved.
fn promised(outcomes: &[Outcome]) -> usize {
    outcomes.iter().take_while(|outcome| **outcome == Outcome::Saved).count()
}

/// What the medium may keep.
fn classes(cut: u64) -> [Keep; 4] {
    [Keep::Nothing, Keep::Everything, Keep::Some(2 * cut), Keep::Some(3 * cut + 1)]
}

/// Saves `pieces` on `medium` until the power goes; gives how many were promised.
fn save_until_cut(medium: &Arc<MemoryMedium>, pieces: &[Piece]) -> usize {
    promised(&save(&open_quiet(medium), pieces))
}

#[test]
fn a_cut_at_every_byte_of_a_save() {
    let pieces = chain(1, 3, 21);
    let mut lost = 0;
    for cut in 0.. {
        let medium = Arc::new(MemoryMedium::new());
        medium.cut_after(cut);
        let promised = save_until_cut(&medium, &pieces);
        for keep in classes(cut) {
            let store = open_quiet(&Arc::new(medium.crash(keep)));
            let there = found(&store, &pieces);
            assert!(there >= promised, "cut after {cut}, {keep:?}: {there} of {promised} are there");
            lost += usize::from(there > promised);
            // Each name is sure to be free or right.
            assert_eq!(store.status().bad, 0, "cut after {cut}, {keep:?}");
        }
        if !medium.is_dead() {
            assert_eq!(promised, pieces.len());
            // Every byte of the four files was cut at, and every call around them.
            let bytes: u64 = pieces.iter().map(Piece::file_bytes).sum();
            assert!(cut > bytes, "{cut} steps for {bytes} bytes");
            break;
        }
    }
    assert!(lost > 0, "no cut came between a rename and its sync");
}

/// A longer tail replaces a shorter one, then the whole block both: at no moment is there less than before.
#[test]
fn a_cut_at_every_byte_while_a_tail_grows() {
    let whole = chain(1, 1, 0).remove(0);
    let pieces = [beginning(&whole, 20), whole.clone()];
    let before = Arc::new(MemoryMedium::new());
    save_all(&open_quiet(&before), &[beginning(&whole, 9)]);
    for cut in 0.. {
        let medium = Arc::new(before.crash(Keep::Nothing));
        medium.cut_after(cut);
        let promised = save_until_cut(&medium, &pieces);
        for keep in [Keep::Nothing, Keep::Some(2 * cut), Keep::Some(3 * cut + 1)] {
            let store = open_quiet(&Arc::new(medium.crash(keep)));
            let there = match find(&store, &whole) {
                Found::Hit => 32,
                _ => store.tail(&whole.parent, 0, &whole.contents),
            };
            let least = [9, 20, 32][promised];
            assert!(there >= least, "cut after {cut}, {keep:?}: {there} of {least} positions");
            assert!(there == 32 || find(&store, &beginning(&whole, there)) == Found::Hit);
            assert_eq!(store.status().bad, 0);
        }
        if !medium.is_dead() {
            assert_eq!(promised, 2);
            break;
        }
    }
}

/// That these tests can fail: on a medium whose syncs do nothing they find what is lost.
#[test]
fn a_medium_that_lies_is_seen_through() {
    let pieces = chain(1, 3, 21);
    let medium = Arc::new(MemoryMedium::new());
    medium.lie();
    assert_eq!(save_until_cut(&medium, &pieces), 4);
    assert_eq!(found(&open_quiet(&Arc::new(medium.crash(Keep::Nothing))), &pieces), 0);
    let (mut bad, mut missing) = (0, 0);
    for seed in 0..200 {
        let store = open_quiet(&Arc::new(medium.crash(Keep::Some(seed))));
        missing += usize::from(found(&store, &pieces) < 4);
        bad += store.status().bad;
    }
    // Names without their bytes: never taken for blocks.
    assert!(missing > 100 && bad > 5, "{missing} {bad}");
}
