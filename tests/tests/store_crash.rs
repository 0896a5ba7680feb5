//! The power goes at any byte of a save, and the medium keeps what it likes of the unsynced: what was
//! answered as saved is found, whole, and nothing else is.

use kinglet::store::Outcome;
use kinglet_tests::chain::{Piece, chain, found, open_quiet, save};
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
