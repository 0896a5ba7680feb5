//! The APIs over HTTP. Must not know sockets.

pub mod anthropic_ask;
pub mod ask;
pub mod auth;
pub mod chat_ask;
pub mod error;
pub mod fields;
pub mod json;
pub mod talk;
