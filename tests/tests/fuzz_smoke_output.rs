//! Runs the fuzz target of replies as pieces over seeded random inputs.

use kinglet_tests::fuzz_output::fuzz_output;
use kinglet_tests::random_model::Rng;

#[test]
fn random_texts() {
    let mut rng = Rng(11);
    for round in 0..4000 {
        let len = rng.number() % 40;
        // Mostly parts that mean something; few of them make long repetitions.
        let some = [32, 32, 8, 256][round % 4];
        let mut data: Vec<u8> = (0..len + 2).map(|_| ((rng.number() >> 4) % some) as u8).collect();
        data[0] = (rng.number() >> 4) as u8;
        fuzz_output(&data);
    }
}

#[test]
fn no_input_and_one_byte() {
    fuzz_output(&[]);
    for flags in (0..=255).step_by(15) {
        (0..=255).for_each(|byte| fuzz_output(&[flags, 0, byte]));
    }
}
