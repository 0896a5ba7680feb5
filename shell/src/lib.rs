//! The std shell around `kinglet-core`: files, threads, terminal, command line.

pub mod chat_json;
pub mod cmd_template;
pub mod cmd_tokenize;
pub mod tojson;
pub mod tokenize;
