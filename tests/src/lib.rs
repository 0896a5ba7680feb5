//! Helpers shared by the integration tests: fixtures, models, comparisons.

pub mod fuzz_gguf;
pub mod gguf_writer;
