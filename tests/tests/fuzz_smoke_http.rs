//! The fuzz body of HTTP requests on some thousands of seeded inputs, on every `cargo test`.

use kinglet_tests::fuzz_http::{Seen, fuzz_http};
use kinglet_tests::random_model::Rng;

/// Mostly pieces, some of them a request that was sound before something was changed in it.
#[test]
fn random_requests() {
    let mut rng = Rng(1);
    let mut all = Seen::default();
    for round in 0..30_000 {
        let mut data: Vec<u8> = match round % 4 {
            // Request line, Host, length or chunks, end, chunks.
            0 => vec![0, 6, 9, 16, 29],
            1 => vec![1, 6, 11, 16, 23, 26],
            2 => vec![24 + (rng.number() % 6) as u8, 23, 26],
            _ => Vec::new(),
        };
        for _ in 0..rng.number() % 6 {
            let at = rng.number() as usize % (data.len() + 1);
            let byte = rng.number() >> 8;
            data.insert(at, if byte.is_multiple_of(8) { byte >> 3 } else { byte % 32 } as u8);
        }
        let seen = fuzz_http(&data);
        all.heads += seen.heads;
        all.bodies += seen.bodies;
        all.faults.extend(seen.faults);
    }
    // The inputs are no use if all fail at once.
    println!("{} heads, {} bodies, {} faults", all.heads, all.bodies, all.faults.len());
    assert!(all.heads > 5_000 && all.bodies > 500, "{} heads, {} bodies", all.heads, all.bodies);
    for status in [400, 413, 414, 417, 431, 501, 505] {
        assert!(all.faults.contains(&status), "{status} was not reached");
    }
}

#[test]
fn random_bytes() {
    let mut rng = Rng(2);
    for _ in 0..10_000 {
        let data: Vec<u8> = (0..rng.number() % 300).map(|_| (rng.number() >> 8) as u8).collect();
        fuzz_http(&data);
    }
}

#[test]
fn no_input_and_one_byte() {
    fuzz_http(&[]);
    for byte in 0..=255 {
        fuzz_http(&[byte]);
    }
}
