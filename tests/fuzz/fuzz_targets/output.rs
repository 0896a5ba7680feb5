//! Replies as pieces, of arbitrary texts; the body is in `kinglet_tests::fuzz_output`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| kinglet_tests::fuzz_output::fuzz_output(data));
