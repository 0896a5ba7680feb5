//! The block pool under arbitrary operations; the body is in `kinglet_tests::fuzz_pool`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    kinglet_tests::fuzz_pool::fuzz_pool(data);
});
