//! Constrained decoding under schemas of arbitrary bytes; the body is in `kinglet_tests::fuzz_schema`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    kinglet_tests::fuzz_schema::fuzz_schema(data);
});
