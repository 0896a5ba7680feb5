//! The std shell around `kinglet-core`: files, threads, terminal, command line.

pub mod chat_json;
pub mod cmd_template;
pub mod cmd_tokenize;
pub mod cpus;
pub mod failure;
pub mod loader;
pub mod map;
pub mod memory;
pub mod pool;
pub mod session;
pub mod setup;
pub mod signal;
pub mod term;
pub mod tokenize;
pub mod words;
