//! The fuzz body of block files on some thousands of seeded inputs, on every `cargo test`.

use kinglet_core::kv::Fault;
use kinglet_tests::block::repair;
use kinglet_tests::fuzz_block::{check, fuzz_block, mend, sound};
use kinglet_tests::fuzz_gguf::mutate;
use kinglet_tests::random_model::Rng;
use std::collections::HashSet;

fn bytes(rng: &mut Rng, most: u32) -> Vec<u8> {
    let len = rng.number() % (most + 1);
    (0..len).map(|_| (rng.number() >> 8) as u8).collect()
}

#[test]
fn random_bytes_and_mutations() {
    let mut rng = Rng(1);
    for _ in 0..5_000 {
        fuzz_block(&bytes(&mut rng, 40));
    }
}

/// Random fields behind a good beginning, everything else made to fit.
#[test]
fn random_headers() {
    let mut rng = Rng(2);
    for _ in 0..10_000 {
        let mut file = sound(&bytes(&mut rng, 4));
        for _ in 0..1 + rng.number() % 3 {
            // Small numbers are more often right than large ones.
            let at = 12 + rng.number() as usize % 8 * 4;
            let number = rng.number() >> (rng.number() % 31);
            file[at..at + 4].copy_from_slice(&number.to_le_bytes());
        }
        mend(&mut file);
        check(&file);
    }
}

/// The inputs are no use if all fail at once: single mutations must give every outcome.
#[test]
fn mutations_reach_deep() {
    let mut rng = Rng(3);
    let (mut good, mut faults) = (0, HashSet::new());
    for _ in 0..20_000 {
        let mut file = sound(&bytes(&mut rng, 4));
        let command: Vec<u8> = (0..4).map(|_| (rng.number() >> 8) as u8).collect();
        // Mostly in the fields, which are a small part of the file.
        let place = rng.number() as u16 % if command[3] & 1 == 0 { 400 } else { 9000 };
        mutate(&mut file, &[&command[..1], &place.to_le_bytes(), &command[3..]].concat());
        match rng.number() >> 16 & 3 {
            0 => {}
            1 => repair(&mut file),
            _ => mend(&mut file),
        }
        match check(&file) {
            None => good += 1,
            Some(fault) => drop(faults.insert(core::mem::discriminant(&fault))),
        }
    }
    assert!(good > 1000, "only {good} files passed");
    let kinds = [
        Fault::Truncated { needed: 0, got: 0 },
        Fault::Magic,
        Fault::Version { found: 0 },
        Fault::HeaderHash,
        Fault::Reserved { offset: 0 },
        Fault::Layout { found: 0 },
        Fault::KvType { found: 0 },
        Fault::Geometry { field: "", found: 0 },
        Fault::Position { found: 0 },
        Fault::Count { found: 0 },
        Fault::ContentsPastCount { index: 0 },
        Fault::PayloadBytes { needed: 0, found: 0 },
        Fault::Id,
        Fault::PayloadHash,
        Fault::Padding,
        Fault::Trailing,
    ];
    for kind in kinds {
        assert!(faults.contains(&core::mem::discriminant(&kind)), "{kind:?} was not reached");
    }
}
