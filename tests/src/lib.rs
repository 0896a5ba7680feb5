//! Helpers shared by the integration tests: fixtures, models, comparisons.

pub mod fuzz_tokenizer;
pub mod model;
pub mod naive;
pub mod reference;
pub mod vocab;
