//! The fuzz body of the block pool on some thousands of seeded inputs, on every `cargo test`.

use kinglet_tests::fuzz_pool::{Seen, fuzz_pool};
use kinglet_tests::random_model::Rng;

#[test]
fn random_operations() {
    let mut rng = Rng(1);
    let mut all = Seen::default();
    for _ in 0..3_000 {
        let len = rng.number() % 600;
        let data: Vec<u8> = (0..len).map(|_| rng.number() as u8).collect();
        let seen = fuzz_pool(&data);
        all.reused += seen.reused;
        all.evicted += seen.evicted;
        all.shared += seen.shared;
        all.copied += seen.copied;
        all.out_of_blocks += seen.out_of_blocks;
    }
    // The inputs are no use if nothing is ever found, shared or pushed out.
    println!("{all:?}");
    assert!(all.reused > 100_000 && all.evicted > 1_000 && all.shared > 10_000, "{all:?}");
    assert!(all.copied > 1_000 && all.out_of_blocks > 500, "{all:?}");
}

#[test]
fn no_input_and_one_byte() {
    fuzz_pool(&[]);
    for byte in 0..=255 {
        fuzz_pool(&[byte]);
    }
}
