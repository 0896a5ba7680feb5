//! What can be wrong with a GGUF file.

use crate::name::Name;
use core::fmt;

/// A fault of a GGUF file, and the key or tensor it concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GgufError {
    /// What is wrong.
    pub fault: GgufFault,
    /// The metadata key or tensor name; [`Name::NONE`] for the file as a whole.
    pub name: Name,
}

impl GgufError {
    /// A fault of the file as a whole.
    #[inline(never)]
    pub(crate) const fn file(fault: GgufFault) -> Self {
        GgufError { fault, name: Name::NONE }
    }
}

/// The kinds of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum GgufFault {
    /// The first four bytes are not `GGUF`.
    Magic,
    /// A version other than 3.
    Version {
        /// The version in the file.
        found: u32,
    },
    /// Version 3 written by a big-endian machine.
    BigEndian,
    /// The file ends before something it announces.
    Truncated {
        /// Byte offset at which reading failed.
        offset: u64,
    },
    /// More entries than any model has.
    Count {
        /// The count in the file.
        found: u64,
        /// The largest accepted.
        most: u64,
    },
    /// A metadata key of more than 256 bytes.
    KeyLength {
        /// Its length.
        found: u64,
    },
    /// A name, key or string that is not UTF-8.
    Utf8,
    /// The same key or tensor name twice.
    Duplicate,
    /// A metadata type number that GGUF does not define, or an array of arrays.
    MetaType {
        /// The type number.
        found: u32,
    },
    /// `general.alignment` is no power of two from 8 to 65,536.
    Alignment,
    /// The caller's table has too few slots.
    TableTooSmall {
        /// Slots needed.
        needed: usize,
        /// Slots given.
        got: usize,
    },
    /// A tensor type that this engine does not read.
    TensorType {
        /// ggml's type number.
        found: u32,
    },
    /// Number of dimensions outside 1..=4.
    Dimensions {
        /// The number in the file.
        found: u32,
    },
    /// A dimension of zero.
    ZeroDimension,
    /// The product of the dimensions, or its size in bytes, overflows.
    ShapeOverflow,
    /// The row length is no multiple of the type's block length.
    RowLength {
        /// Elements in a row.
        row: u64,
        /// Elements in a block of the type.
        block: u32,
    },
    /// Tensor data does not start at a multiple of the alignment.
    Misaligned {
        /// Offset within the data section.
        offset: u64,
    },
    /// Tensor data reaches past the end of the file.
    PastEnd {
        /// First byte after the tensor, from the start of the file.
        end: u64,
        /// The file's length.
        file: u64,
    },
    /// Tensor data overlaps that of an earlier tensor.
    Overlap,
    /// A key that is needed is not there.
    MissingKey,
    /// A key's value has another type, or lies outside its range.
    ValueType,
}

impl fmt::Display for GgufFault {
    #[cfg_attr(kinglet_small, optimize(size))]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Magic => write!(f, "not a GGUF file (it does not begin with \"GGUF\")"),
            Self::Version { found } => write!(f, "GGUF version {found}; only version 3 is read"),
            Self::BigEndian => write!(f, "big-endian GGUF; convert it to little-endian"),
            Self::Truncated { offset } => {
                write!(f, "the file ends too early (at byte {offset}); is the download complete?")
            }
            Self::Count { found, most } => {
                write!(f, "{found} entries; at most {most} are accepted")
            }
            Self::KeyLength { found } => write!(f, "a key of {found} bytes; at most 256 are accepted"),
            Self::Utf8 => write!(f, "a string is not valid UTF-8"),
            Self::Duplicate => write!(f, "appears twice"),
            Self::MetaType { found } => write!(f, "unknown metadata type {found}"),
            Self::Alignment => write!(f, "must be a power of two from 8 to 65536"),
            Self::TableTooSmall { needed, got } => {
                write!(f, "needs a table of {needed} entries, got {got}")
            }
            Self::TensorType { found } => write!(
                f,
                "tensor type {found} is not supported; requantise the model to one of {}",
                crate::quant::WeightType::NAMES
            ),
            Self::Dimensions { found } => write!(f, "{found} dimensions; 1 to 4 are accepted"),
            Self::ZeroDimension => write!(f, "a dimension is zero"),
            Self::ShapeOverflow => write!(f, "the size overflows"),
            Self::RowLength { row, block } => {
                write!(f, "rows of {row} elements are no multiple of the block length {block}")
            }
            Self::Misaligned { offset } => write!(f, "data offset {offset} is not aligned"),
            Self::PastEnd { end, file } => {
                write!(f, "data reaches byte {end}, the file has {file}; is the download complete?")
            }
            Self::Overlap => write!(f, "data overlaps another tensor's"),
            Self::MissingKey => write!(f, "is missing"),
            Self::ValueType => write!(f, "has an unexpected type or value"),
        }
    }
}

impl fmt::Display for GgufError {
    #[cfg_attr(kinglet_small, optimize(size))]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.name != Name::NONE {
            write!(f, "'{}': ", self.name)?;
        }
        self.fault.fmt(f)
    }
}

impl core::error::Error for GgufError {}
