//! kinglet-core: Qwen inference without std, without allocation, with one answer.
//!
//! Everything that grows with the model or the context lives in memory the caller
//! hands over, sized by a function the caller can call first. Weights are read in
//! place from a GGUF file. Every logit is the same bit for bit whatever computed it;
//! `core/NUMERICS.md` is that contract.
//!
//! This crate must not know files, clocks, threads, sockets or any global state.
#![no_std]
// `cargo xtask cross`: what a board does once, or never, is compiled for size in a crate that is compiled for
// speed. Elsewhere the attribute, which is not stable, is not there.
#![cfg_attr(kinglet_small, feature(optimize_attribute))]

/// Version of the numerics contract; snapshots of another version are refused.
pub const NUMERICS_VERSION: u32 = 1;

pub mod cast;
pub mod chat;
pub mod config;
pub mod forward;
#[cfg(all(target_arch = "aarch64", target_feature = "neon"))]
mod fused;
pub mod gguf;
mod kernels;
pub mod kv;
mod log;
pub mod math;
pub mod name;
pub mod ops;
pub mod par;
pub mod quant;
pub mod requirements;
pub mod sample;
pub mod search;
pub mod token;
pub mod weights;

pub use config::Config;
pub use forward::{Chunk, Engine, ForwardError, LogitRow, Logits, Memory};
pub use kv::{KvType, SeqId};
pub use ops::Isa;
pub use par::Workers;
pub use requirements::{Limits, Requirements};
pub use weights::Weights;
