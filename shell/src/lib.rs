//! The std shell around `kinglet-core`: files, threads, terminal, command line.

pub mod cpus;
pub mod failure;
pub mod loader;
pub mod map;
pub mod memory;
pub mod pool;
pub mod signal;
pub mod words;
