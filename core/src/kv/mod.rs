//! The KV cache: blocks of 32 tokens of all layers, owned by sequences through block tables, and found
//! again by what they hold.
//!
//! A sequence fills blocks of its own. Once one is full and its step has succeeded, it is indexed by its
//! parent and its contents, does not change any more, and every sequence that begins alike shares it. When
//! the last of them ends it stays, and the partial last one too, until its place is needed.
//!
//! Everything lives in memory of the caller. Knows nothing of weights or kernels; who fills a
//! block and what its numbers mean is the business of `ops` and `forward`.

pub(crate) mod block;
mod error;
pub mod fault;
pub mod file;
pub mod header;
pub mod id;
pub mod identity;
mod index;
pub mod layout;
mod lru;
pub mod pack;
pub mod pool;
mod reuse;
mod saves;
#[cfg(test)]
mod tests;

pub use block::SaveState;
pub use error::KvError;
pub use fault::{Fault, ReadError, Refusal, WriteError};
pub use header::{Contents, Header};
pub use id::{BlockId, ContentId};
pub use identity::Identity;
pub use layout::{Geometry, HeadF32, HeadQ8};
pub use pool::{Pool, SeqId};
pub use reuse::{Admission, MIN_REUSE};
pub use saves::{BlockInfo, BlockView, KvStats};

/// Positions in a block.
pub const BLOCK_TOKENS: usize = 32;

/// How keys and values are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum KvType {
    /// i8 with one f32 scale per token and head.
    #[default]
    Q8,
    /// f32, four times as large; for measuring what `Q8` costs.
    F32,
}

impl KvType {
    /// The name used on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            KvType::Q8 => "q8",
            KvType::F32 => "f32",
        }
    }

    /// The number that stands for it in files.
    pub const fn number(self) -> u32 {
        match self {
            KvType::Q8 => 1,
            KvType::F32 => 2,
        }
    }

    /// The type of a number; `None` if there is none.
    pub const fn from_number(number: u32) -> Option<Self> {
        match number {
            1 => Some(KvType::Q8),
            2 => Some(KvType::F32),
            _ => None,
        }
    }

    /// The type called `name`.
    pub fn from_name(name: &str) -> Option<Self> {
        [KvType::Q8, KvType::F32].into_iter().find(|t| t.name() == name)
    }
}
