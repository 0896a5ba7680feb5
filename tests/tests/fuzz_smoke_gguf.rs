//! The GGUF fuzz body on some thousands of seeded inputs, on every `cargo test`.

use kinglet_tests::fuzz_gguf::{fuzz_gguf, mutate, parse_and_walk};
use kinglet_tests::gguf_writer;

/// SplitMix64: small, seeded, the same everywhere.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn bytes(&mut self, most: u64) -> Vec<u8> {
        let len = self.next() % (most + 1);
        (0..len).map(|_| self.next() as u8).collect()
    }
}

#[test]
fn random_bytes_and_mutations() {
    let mut random = Random(1);
    for _ in 0..20_000 {
        fuzz_gguf(&random.bytes(48));
    }
}

/// Random bytes behind a good header get past the first checks.
#[test]
fn random_bodies() {
    let mut random = Random(2);
    for _ in 0..20_000 {
        let mut file = b"GGUF\x03\0\0\0".to_vec();
        file.extend((random.next() % 4).to_le_bytes());
        file.extend((random.next() % 4).to_le_bytes());
        // Small numbers are more often right than large ones.
        let small: Vec<u8> = random.bytes(160).iter().map(|b| if b % 3 == 0 { b / 16 } else { 0 }).collect();
        file.extend(small);
        parse_and_walk(&file);
    }
}

/// One bit of every byte of a valid file.
#[test]
fn every_bit_changed() {
    let good = gguf_writer::small().finish();
    for at in 0..good.len() {
        for bit in 0..8 {
            let mut bad = good.clone();
            bad[at] ^= 1 << bit;
            parse_and_walk(&bad);
        }
    }
}

/// The inputs are no use if all fail at once: single mutations must give both outcomes.
#[test]
fn mutations_reach_deep() {
    let mut random = Random(3);
    let (mut good, mut faults) = (0, std::collections::HashSet::new());
    for _ in 0..20_000 {
        let mut file = gguf_writer::small().finish();
        mutate(&mut file, &random.next().to_le_bytes()[..4]);
        match parse_and_walk(&file) {
            None => good += 1,
            Some(error) => drop(faults.insert(core::mem::discriminant(&error.fault))),
        }
    }
    assert!(good > 1000, "only {good} files passed");
    assert!(faults.len() >= 12, "only {} kinds of fault", faults.len());
}
