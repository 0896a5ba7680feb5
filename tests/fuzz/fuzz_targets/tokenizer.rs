//! The tokenizer on arbitrary bytes; the body is in `kinglet_tests::fuzz_tokenizer`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| kinglet_tests::fuzz_tokenizer::fuzz_tokenizer(data));
