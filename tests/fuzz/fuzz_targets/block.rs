//! Block files of arbitrary bytes; the body is in `kinglet_tests::fuzz_block`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| kinglet_tests::fuzz_block::fuzz_block(data));
