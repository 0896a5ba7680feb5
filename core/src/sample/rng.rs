//! Random numbers from integers alone: SplitMix64, addressed by position. Must not know what
//! they decide.
//!
//! Steele, Lea and Flood, "Fast splittable pseudorandom number generators" (OOPSLA 2014), with
//! the constants of Vigna's `splitmix64.c` (public domain): the state is a counter in steps of
//! the golden ratio and the output its hash, so that any position is reached at once and a
//! saved sampler is two integers.

/// The `position`-th number of the stream `seed`, from 0.
pub const fn word(seed: u64, position: u64) -> u64 {
    let z = seed.wrapping_add(position.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    let z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::word;

    #[test]
    fn equals_the_published_generator() {
        // First outputs of splitmix64.c for the seeds 1234567 and 0.
        let first = [
            6457827717110365317,
            3203168211198807973,
            9817491932198370423,
            4593380528125082431,
            16408922859458223821,
        ];
        for (i, expected) in (0..).zip(first) {
            assert_eq!(word(1234567, i), expected);
        }
        assert_eq!(word(0, 0), 0xE220_A839_7B1D_CDAF);
    }
}
