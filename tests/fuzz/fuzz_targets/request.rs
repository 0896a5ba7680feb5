//! Requests for replies out of arbitrary bytes; the body is in `kinglet_tests::fuzz_request`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    kinglet_tests::fuzz_request::fuzz_request(data);
});
