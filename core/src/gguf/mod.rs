//! GGUF v3, read in place: a table of metadata entries and a table of tensors over `&[u8]`.
//!
//! The format is described by ggml's `docs/gguf.md`. A file is hostile until checked:
//! [`Gguf::parse`] checks every count, length, offset, shape and overlap, and after `Ok`
//! no accessor of this module can panic. Nothing here knows what a model is.

mod error;
mod read;
mod tensor;
mod value;

pub use error::{GgufError, GgufFault};
pub use tensor::TensorInfo;
pub use value::{Array, ElemType, StrArray, Value};

use crate::name::Name;
use read::Reader;

const MAGIC: [u8; 4] = *b"GGUF";
const VERSION: u32 = 3;
const DEFAULT_ALIGNMENT: u64 = 32;
/// More entries than any model has; keeps a hostile count from asking for memory.
const MAX_METAS: u64 = 4096;
/// Longest metadata key; real ones stay below 80 bytes. Keys are compared with each other.
const MAX_KEY_BYTES: usize = 256;
/// As [`MAX_METAS`], for tensors (Qwen3-30B-A3B has 579).
const MAX_TENSORS: u64 = 65_536;

/// Table sizes that [`Gguf::parse`] needs, from the file's first 24 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts {
    /// Number of metadata entries.
    pub metas: usize,
    /// Number of tensors.
    pub tensors: usize,
}

/// One metadata entry: a key and a value still in the file.
#[derive(Clone, Copy, Debug)]
pub struct Meta<'a> {
    key: &'a str,
    value: Value<'a>,
}

impl<'a> Meta<'a> {
    /// An unused table slot.
    pub const EMPTY: Meta<'static> = Meta { key: "", value: Value::Bool(false) };

    /// The key, for example `qwen3.block_count`.
    pub fn key(&self) -> &'a str {
        self.key
    }

    /// The value.
    pub fn value(&self) -> Value<'a> {
        self.value
    }
}

/// A checked GGUF file. `'a` is the file, `'t` the caller's tables.
#[derive(Clone, Copy, Debug)]
pub struct Gguf<'a, 't> {
    metas: &'t [Meta<'a>],
    tensors: &'t [TensorInfo<'a>],
    alignment: u64,
}

impl<'a, 't> Gguf<'a, 't> {
    /// Reads how many table slots [`Gguf::parse`] will need.
    ///
    /// # Errors
    /// Wrong magic, wrong version, a file shorter than its header, or absurd counts.
    pub fn counts(bytes: &[u8]) -> Result<Counts, GgufError> {
        Self::header(&mut Reader::new(bytes))
    }

    #[inline(never)]
    #[cfg_attr(kinglet_small, optimize(size))]
    fn header(reader: &mut Reader<'_>) -> Result<Counts, GgufError> {
        if reader.take(4)? != MAGIC {
            return Err(GgufError::file(GgufFault::Magic));
        }
        let version = reader.u32()?;
        if version != VERSION {
            let fault = if version.swap_bytes() == VERSION {
                GgufFault::BigEndian
            } else {
                GgufFault::Version { found: version }
            };
            return Err(GgufError::file(fault));
        }
        let (tensors, metas) = (reader.u64()?, reader.u64()?);
        let count = |found: u64, most: u64| {
            if found > most {
                return Err(GgufError::file(GgufFault::Count { found, most }));
            }
            Ok(found as usize)
        };
        Ok(Counts { metas: count(metas, MAX_METAS)?, tensors: count(tensors, MAX_TENSORS)? })
    }

    /// Parses and checks a whole file into the caller's tables.
    ///
    /// `metas` and `tensors` need at least [`Gguf::counts`] slots; the rest stays unused.
    /// Tensors end up ordered by their place in the file.
    ///
    /// # Errors
    /// Any fault of the file, with the key or tensor it concerns, or
    /// [`GgufFault::TableTooSmall`].
    pub fn parse(
        bytes: &'a [u8],
        metas: &'t mut [Meta<'a>],
        tensors: &'t mut [TensorInfo<'a>],
    ) -> Result<Self, GgufError> {
        let mut reader = Reader::new(bytes);
        let counts = Self::header(&mut reader)?;
        let too_small = |needed, got| GgufError::file(GgufFault::TableTooSmall { needed, got });
        let got = (metas.len(), tensors.len());
        let metas = metas.get_mut(..counts.metas).ok_or(too_small(counts.metas, got.0))?;
        let tensors = tensors.get_mut(..counts.tensors).ok_or(too_small(counts.tensors, got.1))?;

        for i in 0..metas.len() {
            let key = reader.str()?;
            let at = |fault| GgufError { fault, name: Name::new(key) };
            if key.len() > MAX_KEY_BYTES {
                return Err(at(GgufFault::KeyLength { found: key.len() as u64 }));
            }
            if metas[..i].iter().any(|m| m.key == key) {
                return Err(at(GgufFault::Duplicate));
            }
            let value = Value::read(&mut reader).map_err(|e| at(e.fault))?;
            metas[i] = Meta { key, value };
        }

        let alignment = match metas.iter().find(|m| m.key == "general.alignment") {
            None => DEFAULT_ALIGNMENT,
            Some(m) => match m.value {
                Value::U64(a) if a.is_power_of_two() && (8..=65_536).contains(&a) => a,
                _ => {
                    return Err(GgufError { fault: GgufFault::Alignment, name: Name::new(m.key) });
                }
            },
        };

        for slot in tensors.iter_mut() {
            *slot = TensorInfo::read(&mut reader)?;
        }
        let start = (reader.position() as u64).next_multiple_of(alignment);
        tensor::place(tensors, bytes, start, alignment)?;
        Ok(Gguf { metas, tensors, alignment })
    }

    /// All metadata entries, in file order.
    pub fn metas(&self) -> &'t [Meta<'a>] {
        self.metas
    }

    /// All tensors, ordered by their offset in the file.
    pub fn tensors(&self) -> &'t [TensorInfo<'a>] {
        self.tensors
    }

    /// Alignment of tensor data in bytes.
    pub fn alignment(&self) -> u64 {
        self.alignment
    }

    /// The tensor called `name`.
    #[inline(never)]
    pub fn tensor(&self, name: &str) -> Option<&'t TensorInfo<'a>> {
        self.tensors.iter().find(|t| t.name() == name)
    }

    /// The value under `key`.
    #[inline(never)]
    pub fn get(&self, key: &str) -> Option<Value<'a>> {
        self.metas.iter().find(|m| m.key == key).map(|m| m.value)
    }

    /// Like [`Gguf::get`], with absence as an error that names the key.
    ///
    /// # Errors
    /// [`GgufFault::MissingKey`].
    #[inline(never)]
    pub fn require(&self, key: &str) -> Result<Value<'a>, GgufError> {
        self.get(key).ok_or(GgufError { fault: GgufFault::MissingKey, name: Name::new(key) })
    }

    /// A non-negative integer of any width.
    ///
    /// # Errors
    /// The key is missing, or its value is no integer from 0 to 2^32-1.
    pub fn u32(&self, key: &str) -> Result<u32, GgufError> {
        match self.require(key)? {
            Value::U64(v) if v <= u64::from(u32::MAX) => Ok(v as u32),
            Value::I64(v) if (0..=i64::from(u32::MAX)).contains(&v) => Ok(v as u32),
            _ => Err(GgufError { fault: GgufFault::ValueType, name: Name::new(key) }),
        }
    }

    /// A floating-point number, as `f32`.
    ///
    /// # Errors
    /// The key is missing, or its value is no float.
    pub fn f32(&self, key: &str) -> Result<f32, GgufError> {
        match self.require(key)? {
            Value::F64(v) => Ok(v as f32),
            _ => Err(GgufError { fault: GgufFault::ValueType, name: Name::new(key) }),
        }
    }

    /// A string.
    ///
    /// # Errors
    /// The key is missing, or its value is no string.
    pub fn str(&self, key: &str) -> Result<&'a str, GgufError> {
        match self.require(key)? {
            Value::Str(v) => Ok(v),
            _ => Err(GgufError { fault: GgufFault::ValueType, name: Name::new(key) }),
        }
    }

    /// An array of strings.
    ///
    /// # Errors
    /// The key is missing, or its value is no array of strings.
    pub fn strings(&self, key: &str) -> Result<StrArray<'a>, GgufError> {
        match self.require(key)? {
            Value::Array(Array::Str(v)) => Ok(v),
            _ => Err(GgufError { fault: GgufFault::ValueType, name: Name::new(key) }),
        }
    }
}
