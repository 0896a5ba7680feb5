//! How much memory an engine needs, before any is asked for.

use crate::cast::Arena;
use crate::config::Config;
use crate::forward::scratch;
use crate::kv::{BLOCK_TOKENS, Geometry, KvType, pool};
use core::fmt;

/// What an engine shall be able to hold at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Longest sequence in tokens.
    pub max_seq: usize,
    /// Tokens that all sequences together can have (rounded up to whole blocks of 32).
    pub kv_tokens: usize,
    /// Most tokens of one step.
    pub max_batch: usize,
    /// Most sequences open at once.
    pub max_seqs: usize,
    /// Rows of logits computed at a time.
    pub max_logits: usize,
    /// How keys and values are stored.
    pub kv_type: KvType,
}

impl Default for Limits {
    /// One sequence of 8192 tokens in `q8`, 512 tokens a step.
    fn default() -> Self {
        Limits {
            max_seq: 8192,
            kv_tokens: 8192,
            max_batch: 512,
            max_seqs: 1,
            max_logits: 1,
            kv_type: KvType::Q8,
        }
    }
}

/// A limit that cannot be served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum LimitsError {
    /// A limit is outside its range.
    OutOfRange {
        /// The field's name.
        field: &'static str,
        /// The value given.
        found: usize,
        /// Largest accepted; the smallest is 1.
        most: usize,
    },
    /// A dimension of the model is out of range.
    Config {
        /// The rest of its key.
        field: &'static str,
        /// The value given.
        found: usize,
    },
    /// The memory needed is not a number of this machine.
    Overflow,
}

impl fmt::Display for LimitsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::OutOfRange { field, found, most } => {
                write!(f, "{field} is {found}; 1 to {most} is possible")
            }
            Self::Config { field, found } => write!(f, "the model's {field} is {found}, out of range"),
            Self::Overflow => write!(f, "these limits need more memory than can be addressed"),
        }
    }
}

impl core::error::Error for LimitsError {}

/// Positions are exact in f32 up to here.
pub(crate) const MAX_POSITIONS: usize = 1 << 24;

impl Limits {
    /// # Errors
    /// [`LimitsError::OutOfRange`] names the field.
    pub fn check(&self) -> Result<(), LimitsError> {
        let fields = [
            ("max_seq", self.max_seq, MAX_POSITIONS),
            ("kv_tokens", self.kv_tokens, 1 << 30),
            ("max_batch", self.max_batch, 4096),
            ("max_seqs", self.max_seqs, 1024),
            ("max_logits", self.max_logits, 4096),
        ];
        for (field, found, most) in fields {
            if found == 0 || found > most {
                return Err(LimitsError::OutOfRange { field, found, most });
            }
        }
        Ok(())
    }

    /// Blocks of the longest sequence whose middle angles are kept; KV `f32` has no use for them.
    pub(crate) const fn block_angles(&self) -> usize {
        match self.kv_type {
            KvType::Q8 => self.max_seq.div_ceil(BLOCK_TOKENS),
            KvType::F32 => 0,
        }
    }

    /// The block pool that these limits describe.
    pub(crate) const fn pool(&self) -> pool::Shape {
        pool::Shape {
            blocks: self.kv_tokens.div_ceil(BLOCK_TOKENS),
            seqs: self.max_seqs,
            max_seq: self.max_seq,
        }
    }
}

/// Bytes of the three regions that an engine takes. Each must be aligned to
/// [`crate::cast::REGION_ALIGN`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Requirements {
    /// KV blocks.
    pub kv: usize,
    /// Activations and other room of a step.
    pub scratch: usize,
    /// Block tables and what finds prefixes.
    pub index: usize,
}

impl Requirements {
    /// What an engine of `config` with `limits` needs.
    ///
    /// # Errors
    /// A limit out of range, or sizes beyond this machine's address space.
    #[cfg_attr(kinglet_small, optimize(size))]
    pub fn of(config: &Config, limits: &Limits) -> Result<Self, LimitsError> {
        limits.check()?;
        if let Some((field, found)) = config.check() {
            return Err(LimitsError::Config { field, found });
        }
        let pool = limits.pool();
        let kv = pool
            .blocks
            .checked_mul(Geometry::of(config, limits.kv_type).block_bytes())
            .ok_or(LimitsError::Overflow)?;
        let (scratch, index) = (scratch::bytes(config, limits), pool.bytes());
        let total = kv.checked_add(scratch).and_then(|n| n.checked_add(index));
        match total {
            Some(n) if n <= isize::MAX as usize => Ok(Requirements { kv, scratch, index }),
            _ => Err(LimitsError::Overflow),
        }
    }

    /// All three together.
    pub const fn total(&self) -> usize {
        self.kv + self.scratch + self.index
    }
}

/// Used by the size functions beside the constructors: sums that saturate.
pub(crate) const fn array_bytes<T: crate::cast::Pod>(rows: usize, width: usize) -> usize {
    Arena::size_of::<T>(rows.saturating_mul(width))
}
