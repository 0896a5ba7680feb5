//! The std shell around `kinglet-core`: files, threads, terminal, command line.

pub mod cmd_tokenize;
pub mod tokenize;
