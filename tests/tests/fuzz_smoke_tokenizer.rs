//! Runs the fuzz target of the tokenizer over seeded random inputs.

use kinglet_tests::fuzz_tokenizer::fuzz_tokenizer;

#[test]
fn random_inputs() {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let mut random = move || {
        // xorshift64*
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        (state.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 32) as usize
    };
    for round in 0..2000 {
        let len = random() % 300;
        // Few different bytes make long repetitions, all of them make mostly invalid text.
        let some = [3, 16, 128, 256][round % 4];
        let data: Vec<u8> = (0..len).map(|_| (random() % some * (256 / some)) as u8).collect();
        fuzz_tokenizer(&data);
    }
}

#[test]
fn no_input_and_one_byte() {
    fuzz_tokenizer(&[]);
    (0..=255).for_each(|byte| fuzz_tokenizer(&[byte]));
}
