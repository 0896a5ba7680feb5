//! kinglet-core: Qwen inference without std, without allocation, with one answer.
//!
//! Everything that grows with the model or the context lives in memory the caller
//! hands over, sized by a function the caller can call first. Weights are read in
//! place from a GGUF file. Every logit is the same bit for bit whatever computed it;
//! `core/NUMERICS.md` is that contract.
//!
//! This crate must not know files, clocks, threads, sockets or any global state.
#![no_std]

pub mod cast;
pub mod chat;
pub mod config;
pub mod gguf;
pub mod math;
pub mod name;
pub mod par;
pub mod quant;
pub mod sample;
pub mod weights;
