//! What can be wrong with a block's file, and why a sound one may be of no use.

use core::fmt;

/// A fault of a file, or of the memory it is to go to. None of them is mended: the file is put aside, and
/// the block is computed again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum Fault {
    /// The file ends too early.
    Truncated {
        /// Bytes it should have.
        needed: u64,
        /// Bytes it has.
        got: u64,
    },
    /// The first eight bytes are not [`super::header::MAGIC`].
    Magic,
    /// A version other than [`super::header::VERSION`].
    Version {
        /// The version in the file.
        found: u32,
    },
    /// The header's checksum is not that of its bytes.
    HeaderHash,
    /// A byte of the header that has no meaning yet is not zero.
    Reserved {
        /// Its offset.
        offset: u32,
    },
    /// Another layout of blocks than [`super::identity::LAYOUT_VERSION`].
    Layout {
        /// The version in the file.
        found: u32,
    },
    /// No KV type has this number.
    KvType {
        /// The number in the file.
        found: u32,
    },
    /// A size that no model has ([`super::Geometry::check`]).
    Geometry {
        /// The field.
        field: &'static str,
        /// The value in the file.
        found: u32,
    },
    /// No sequence is that long.
    Position {
        /// The value in the file.
        found: u32,
    },
    /// Number of positions outside 1..=32.
    Count {
        /// The number in the file.
        found: u32,
    },
    /// A content id past the count is not zero.
    ContentsPastCount {
        /// Its index.
        index: u32,
    },
    /// The payload's length is not what geometry and count give.
    PayloadBytes {
        /// Bytes by geometry and count.
        needed: u64,
        /// Bytes by the header, or handed over.
        found: u64,
    },
    /// The id is not that of the contents after the parent.
    Id,
    /// The block's memory has another size than a block.
    BlockBytes {
        /// Bytes of a block.
        needed: u64,
        /// Bytes handed over.
        got: u64,
    },
    /// The payload's checksum is not that of its bytes.
    PayloadHash,
    /// A byte of the payload that belongs to no position is not zero.
    Padding,
    /// The file goes on after the payload.
    Trailing,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Truncated { needed, got } => write!(f, "ends after {got} of {needed} bytes"),
            Self::Magic => write!(f, "not a KV file (magic)"),
            Self::Version { found } => {
                write!(f, "file version {found}; only version {} is read", super::header::VERSION)
            }
            Self::HeaderHash => write!(f, "header checksum does not match"),
            Self::Reserved { offset } => write!(f, "header byte {offset} is reserved, but not zero"),
            Self::Layout { found } => {
                write!(f, "layout version {found}; only {} is read", super::identity::LAYOUT_VERSION)
            }
            Self::KvType { found } => write!(f, "KV type {found} is unknown"),
            Self::Geometry { field, found } => write!(f, "{field} is {found}, out of range"),
            Self::Position { found } => write!(f, "position {found} is out of range"),
            Self::Count { found } => write!(f, "count is {found}; 1 to 32 is possible"),
            Self::ContentsPastCount { index } => {
                write!(f, "content id {index} is past the count, but not zero")
            }
            Self::PayloadBytes { needed, found } => {
                write!(f, "payload of {found} bytes; geometry and count give {needed}")
            }
            Self::Id => write!(f, "id is not that of parent and contents"),
            Self::BlockBytes { needed, got } => write!(f, "a block has {needed} bytes, its memory {got}"),
            Self::PayloadHash => write!(f, "payload checksum does not match"),
            Self::Padding => write!(f, "payload has bytes of positions that are not there"),
            Self::Trailing => write!(f, "bytes follow the payload"),
        }
    }
}

impl core::error::Error for Fault {}

/// In what a sound file differs from what is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum Refusal {
    /// Numerics version.
    Numerics,
    /// Layout version.
    Layout,
    /// KV type.
    KvType,
    /// Layers, KV heads or their elements.
    Geometry,
    /// Another part of the identity; the folder's identity file says which
    /// ([`super::Identity::differences`]).
    Fingerprint,
    /// The block before it.
    Parent,
    /// Its place in the sequence.
    Position,
    /// What its positions hold, or how many there are.
    Contents {
        /// Positions that agree.
        common: usize,
    },
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Numerics => write!(f, "numerics version differs"),
            Self::Layout => write!(f, "layout version differs"),
            Self::KvType => write!(f, "KV type differs"),
            Self::Geometry => write!(f, "geometry differs"),
            Self::Fingerprint => write!(f, "model fingerprint differs"),
            Self::Parent => write!(f, "parent differs"),
            Self::Position => write!(f, "position differs"),
            Self::Contents { common } => write!(f, "contents differ after {common} positions"),
        }
    }
}

impl core::error::Error for Refusal {}

/// Why a file cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReadError<E> {
    /// The medium's own error. It says nothing about the file.
    Medium(E),
    /// The file is no sound block file.
    Fault(Fault),
}

impl<E> From<Fault> for ReadError<E> {
    fn from(fault: Fault) -> Self {
        ReadError::Fault(fault)
    }
}

impl<E: fmt::Display> fmt::Display for ReadError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Medium(e) => e.fmt(f),
            Self::Fault(fault) => fault.fmt(f),
        }
    }
}

impl<E: fmt::Debug + fmt::Display> core::error::Error for ReadError<E> {}

/// Why a file cannot be written. What was written so far is of no use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WriteError<E> {
    /// The medium's own error.
    Medium(E),
    /// The medium takes no more bytes, and gives no error.
    Full,
    /// The payload is not the header's; nothing was written.
    Fault(Fault),
}

impl<E> From<Fault> for WriteError<E> {
    fn from(fault: Fault) -> Self {
        WriteError::Fault(fault)
    }
}

impl<E: fmt::Display> fmt::Display for WriteError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Medium(e) => e.fmt(f),
            Self::Full => write!(f, "the medium takes no more bytes"),
            Self::Fault(fault) => fault.fmt(f),
        }
    }
}

impl<E: fmt::Debug + fmt::Display> core::error::Error for WriteError<E> {}
