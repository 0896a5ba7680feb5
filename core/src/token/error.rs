//! What can be wrong with a vocabulary, a text to encode or an id to decode.

use crate::cast::RegionError;
use crate::gguf::{GgufError, GgufFault};
use crate::name::Name;
use core::fmt;

/// A fault of the vocabulary in a GGUF file, and the metadata key it concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenizerError {
    /// What is wrong.
    pub fault: TokenizerFault,
    /// The metadata key; [`Name::NONE`] if the caller's region is at fault.
    pub key: Name,
}

impl TokenizerError {
    #[inline(never)]
    pub(super) fn at(key: &str, fault: TokenizerFault) -> Self {
        TokenizerError { fault, key: Name::new(key) }
    }
}

/// The kinds of fault; tokens and merges are named by their place in the file's lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TokenizerFault {
    /// The key is missing or has another type.
    Metadata(GgufFault),
    /// The region for the index is too small or misaligned.
    Region(RegionError),
    /// The tokenizer is no byte-level BPE (`gpt2`).
    Model,
    /// The text is to be split by another rule than `qwen2`.
    Split,
    /// No entries, or more than any vocabulary has.
    Count {
        /// Entries in the file.
        found: usize,
        /// The largest accepted.
        most: usize,
    },
    /// The list has not one entry for each token.
    Length {
        /// Number of tokens.
        tokens: usize,
        /// Number of entries.
        found: usize,
    },
    /// A token type other than normal, control, user-defined and unused.
    TokenType {
        /// Index of the token.
        token: u32,
    },
    /// The token's text has a character that stands for no byte.
    Alphabet {
        /// Index of the token.
        token: u32,
    },
    /// The token has no text.
    Empty {
        /// Index of the token.
        token: u32,
    },
    /// The token is longer than [`MAX_TOKEN_BYTES`](super::MAX_TOKEN_BYTES), or is an added token of
    /// more than 128 bytes.
    TooLong {
        /// Index of the token.
        token: u32,
    },
    /// An earlier token has the same text.
    DuplicateToken {
        /// Index of the later token.
        token: u32,
    },
    /// No token stands for this byte, so not every text can be encoded.
    MissingByte {
        /// The byte.
        byte: u8,
    },
    /// The merge is not two texts with one space between.
    MergeSyntax {
        /// Index of the merge.
        merge: u32,
    },
    /// One side of the merge, or what it makes, is no token.
    MergeUnknown {
        /// Index of the merge.
        merge: u32,
    },
    /// An earlier merge has the same two sides.
    DuplicateMerge {
        /// Index of the later merge.
        merge: u32,
    },
    /// A token id outside the vocabulary.
    TokenId {
        /// The id.
        id: u32,
        /// Number of tokens.
        tokens: usize,
    },
    /// Too many entries share one hash: no vocabulary met by chance.
    Collisions,
}

impl fmt::Display for TokenizerFault {
    #[cfg_attr(kinglet_small, optimize(size))]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Metadata(fault) => fault.fmt(f),
            Self::Region(error) => error.fmt(f),
            Self::Model => write!(f, "only byte-level BPE (\"gpt2\") is supported"),
            Self::Split => write!(f, "only the splitting rule \"qwen2\" is supported"),
            Self::Count { found, most } => write!(f, "{found} entries; 1 to {most} are accepted"),
            Self::Length { tokens, found } => write!(f, "{found} entries for {tokens} tokens"),
            Self::TokenType { token } => write!(f, "entry {token} is no known token type"),
            Self::Alphabet { token } => {
                write!(f, "token {token} has a character that stands for no byte")
            }
            Self::Empty { token } => write!(f, "token {token} is empty"),
            Self::TooLong { token } => {
                let (most, added) = (super::MAX_TOKEN_BYTES, super::index::MAX_ADDED_BYTES);
                write!(f, "token {token} is longer than {most} bytes (added tokens: {added})")
            }
            Self::DuplicateToken { token } => write!(f, "token {token} appears twice"),
            Self::MissingByte { byte } => write!(f, "no token stands for byte {byte:#04x}"),
            Self::MergeSyntax { merge } => write!(f, "merge {merge} is not \"left right\""),
            Self::MergeUnknown { merge } => {
                write!(f, "merge {merge} names or makes text that is no token")
            }
            Self::DuplicateMerge { merge } => write!(f, "merge {merge} appears twice"),
            Self::TokenId { id, tokens } => write!(f, "id {id} is outside {tokens} tokens"),
            Self::Collisions => write!(f, "too many entries with the same hash"),
        }
    }
}

impl fmt::Display for TokenizerError {
    #[cfg_attr(kinglet_small, optimize(size))]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.key != Name::NONE {
            write!(f, "'{}': ", self.key)?;
        }
        self.fault.fmt(f)
    }
}

impl core::error::Error for TokenizerError {}

impl From<GgufError> for TokenizerError {
    fn from(error: GgufError) -> Self {
        TokenizerError { fault: TokenizerFault::Metadata(error.fault), key: error.name }
    }
}

impl From<RegionError> for TokenizerError {
    fn from(error: RegionError) -> Self {
        TokenizerError { fault: TokenizerFault::Region(error), key: Name::NONE }
    }
}

/// Why a text was not encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EncodeError {
    /// More ids than the output holds; those that fit are in it.
    OutputTooSmall {
        /// Ids that the text has.
        needed: usize,
        /// Ids that the output holds.
        got: usize,
    },
    /// The window of the scratch is too small for long words with this vocabulary.
    WindowTooSmall {
        /// Bytes needed, for any word.
        needed: usize,
        /// Bytes of the window.
        got: usize,
    },
    /// A word longer than the window has no place where two windows could be joined.
    NoSeam {
        /// Start of that window within the text, in bytes.
        offset: usize,
    },
}

impl fmt::Display for EncodeError {
    #[cfg_attr(kinglet_small, optimize(size))]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutputTooSmall { needed, got } => {
                write!(f, "the text has {needed} tokens, the output holds {got}")
            }
            Self::WindowTooSmall { needed, got } => {
                write!(f, "a window of {needed} bytes is needed for long words, it has {got}")
            }
            Self::NoSeam { offset } => {
                write!(f, "the long word at byte {offset} cannot be cut into windows")
            }
        }
    }
}

impl core::error::Error for EncodeError {}

/// Why an id was not decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DecodeError {
    /// The id is outside the vocabulary.
    UnknownId {
        /// The id.
        id: u32,
        /// Number of tokens.
        tokens: usize,
    },
    /// The output is shorter than the token.
    OutputTooSmall {
        /// Bytes of the token.
        needed: usize,
        /// Bytes given.
        got: usize,
    },
}

impl fmt::Display for DecodeError {
    #[cfg_attr(kinglet_small, optimize(size))]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownId { id, tokens } => {
                write!(f, "token id {id} is outside the vocabulary of {tokens}")
            }
            Self::OutputTooSmall { needed, got } => {
                write!(f, "the token has {needed} bytes, the output holds {got}")
            }
        }
    }
}

impl core::error::Error for DecodeError {}
