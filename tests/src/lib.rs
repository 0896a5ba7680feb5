//! Helpers shared by the integration tests: fixtures, models, comparisons.

pub mod naive;
