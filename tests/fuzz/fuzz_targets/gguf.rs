//! The GGUF parser on arbitrary bytes; the body is in `kinglet_tests::fuzz_gguf`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| kinglet_tests::fuzz_gguf::fuzz_gguf(data));
