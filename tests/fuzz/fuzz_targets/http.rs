//! HTTP requests of arbitrary bytes; the body is in `kinglet_tests::fuzz_http`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    kinglet_tests::fuzz_http::fuzz_http(data);
});
