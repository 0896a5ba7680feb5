//! The std shell around `kinglet-core`: files, threads, terminal, command line.

pub mod chat_json;
pub mod cmd_template;
pub mod tojson;
