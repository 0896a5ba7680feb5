//! Why the pool cannot do what was asked.

use super::BLOCK_TOKENS;
use core::fmt;

/// Why the pool cannot do what was asked. Nothing has changed then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum KvError {
    /// As many sequences are open as there are places.
    TooManySequences {
        /// Number of places.
        most: usize,
    },
    /// The sequence is not open.
    UnknownSequence,
    /// The sequence would become longer than the context.
    ContextFull {
        /// Tokens it would have.
        needed: usize,
        /// Tokens it can have.
        most: usize,
    },
    /// Other sequences hold the blocks that are needed, or they are pinned.
    OutOfBlocks {
        /// Blocks needed.
        needed: usize,
        /// Blocks free.
        free: usize,
    },
    /// The sequence ends within a block, or its last block is not committed; another cannot follow.
    NotAtBoundary {
        /// Tokens that it has.
        len: usize,
    },
    /// No contents were given.
    Empty,
    /// More contents than a block has positions, or none.
    BlockContents {
        /// Contents given.
        found: usize,
    },
}

impl fmt::Display for KvError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::TooManySequences { most } => write!(f, "all {most} sequences are in use"),
            Self::UnknownSequence => write!(f, "no such sequence"),
            Self::ContextFull { needed, most } => {
                write!(f, "{needed} tokens do not fit into a context of {most}")
            }
            Self::OutOfBlocks { needed, free } => {
                write!(f, "{needed} KV blocks are needed, {free} are free")
            }
            Self::NotAtBoundary { len } => write!(
                f,
                "a sequence of {len} tokens cannot take a block; truncate it to a multiple of {BLOCK_TOKENS}"
            ),
            Self::Empty => write!(f, "no contents; give at least one"),
            Self::BlockContents { found } => {
                write!(f, "{found} contents for a block; 1 to {BLOCK_TOKENS} are possible")
            }
        }
    }
}

impl core::error::Error for KvError {}
