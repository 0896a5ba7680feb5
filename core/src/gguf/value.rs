//! Metadata values: scalars are widened at once, arrays stay in the file.

use super::read::Reader;
use super::{GgufError, GgufFault};

/// A metadata value. Integers and floats of every width are widened.
#[derive(Clone, Copy, Debug)]
pub enum Value<'a> {
    /// u8, u16, u32 or u64.
    U64(u64),
    /// i8, i16, i32 or i64.
    I64(i64),
    /// f32 or f64.
    F64(f64),
    /// bool.
    Bool(bool),
    /// string.
    Str(&'a str),
    /// array of one of the above.
    Array(Array<'a>),
}

/// An array value.
#[derive(Clone, Copy, Debug)]
pub enum Array<'a> {
    /// Strings.
    Str(StrArray<'a>),
    /// Numbers or bools: element type and little-endian bytes.
    Fixed(ElemType, &'a [u8]),
}

/// Element types of fixed width.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum ElemType {
    U8,
    I8,
    U16,
    I16,
    U32,
    I32,
    F32,
    Bool,
    U64,
    I64,
    F64,
}

impl ElemType {
    fn from_number(number: u32) -> Option<Self> {
        Some(match number {
            0 => Self::U8,
            1 => Self::I8,
            2 => Self::U16,
            3 => Self::I16,
            4 => Self::U32,
            5 => Self::I32,
            6 => Self::F32,
            7 => Self::Bool,
            10 => Self::U64,
            11 => Self::I64,
            12 => Self::F64,
            _ => return None,
        })
    }

    /// Width of an element in bytes.
    pub fn bytes(self) -> usize {
        match self {
            Self::U8 | Self::I8 | Self::Bool => 1,
            Self::U16 | Self::I16 => 2,
            Self::U32 | Self::I32 | Self::F32 => 4,
            Self::U64 | Self::I64 | Self::F64 => 8,
        }
    }

    /// Decodes one element of exactly [`ElemType::bytes`] little-endian bytes.
    fn decode<'a>(self, bytes: &[u8]) -> Value<'a> {
        let mut wide = [0u8; 8];
        wide[..bytes.len()].copy_from_slice(bytes);
        let raw = u64::from_le_bytes(wide);
        match self {
            Self::U8 | Self::U16 | Self::U32 | Self::U64 => Value::U64(raw),
            Self::I8 => Value::I64(i64::from(raw as i8)),
            Self::I16 => Value::I64(i64::from(raw as i16)),
            Self::I32 => Value::I64(i64::from(raw as i32)),
            Self::I64 => Value::I64(raw as i64),
            Self::F32 => Value::F64(f64::from(f32::from_bits(raw as u32))),
            Self::F64 => Value::F64(f64::from_bits(raw)),
            Self::Bool => Value::Bool(raw != 0),
        }
    }
}

const TYPE_STRING: u32 = 8;
const TYPE_ARRAY: u32 = 9;

impl<'a> Value<'a> {
    pub(super) fn read(reader: &mut Reader<'a>) -> Result<Self, GgufError> {
        match reader.u32()? {
            TYPE_STRING => Ok(Value::Str(reader.str()?)),
            TYPE_ARRAY => Ok(Value::Array(Array::read(reader)?)),
            number => {
                let ty = ElemType::from_number(number)
                    .ok_or(GgufError::file(GgufFault::MetaType { found: number }))?;
                Ok(ty.decode(reader.take(ty.bytes() as u64)?))
            }
        }
    }
}

impl<'a> Array<'a> {
    fn read(reader: &mut Reader<'a>) -> Result<Self, GgufError> {
        let number = reader.u32()?;
        let count = reader.u64()?;
        if number == TYPE_STRING {
            return Ok(Array::Str(StrArray::read(reader, count)?));
        }
        let ty =
            ElemType::from_number(number).ok_or(GgufError::file(GgufFault::MetaType { found: number }))?;
        let truncated = GgufFault::Truncated { offset: reader.position() as u64 };
        let bytes = count.checked_mul(ty.bytes() as u64).ok_or(GgufError::file(truncated))?;
        Ok(Array::Fixed(ty, reader.take(bytes)?))
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        match self {
            Array::Str(s) => s.len(),
            Array::Fixed(ty, bytes) => bytes.len() / ty.bytes(),
        }
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Element `i`, if there are so many.
    ///
    /// Constant time for numbers; for strings it walks the array.
    pub fn get(&self, i: usize) -> Option<Value<'a>> {
        match self {
            Array::Str(s) => s.iter().nth(i).map(Value::Str),
            Array::Fixed(ty, bytes) => Some(ty.decode(bytes.chunks_exact(ty.bytes()).nth(i)?)),
        }
    }
}

/// An array of strings, checked to be complete and UTF-8.
#[derive(Clone, Copy, Debug)]
pub struct StrArray<'a> {
    /// The elements as they stand in the file: u64 length, then bytes.
    bytes: &'a [u8],
    count: usize,
}

impl<'a> StrArray<'a> {
    fn read(reader: &mut Reader<'a>, count: u64) -> Result<Self, GgufError> {
        // Each element takes 8 bytes at the least: an absurd count fails before the walk.
        if count > reader.left() / 8 {
            let offset = reader.position() as u64;
            return Err(GgufError::file(GgufFault::Truncated { offset }));
        }
        let mut ahead = reader.clone();
        for _ in 0..count {
            ahead.str()?;
        }
        let bytes = reader.take((ahead.position() - reader.position()) as u64)?;
        Ok(StrArray { bytes, count: count as usize })
    }

    /// Number of strings.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there are no strings.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The strings in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &'a str> + use<'a> {
        let mut reader = Reader::new(self.bytes);
        // Checked by `read`; should that ever break, empty strings are harmless.
        (0..self.count).map(move |_| reader.str().unwrap_or(""))
    }

    /// The bytes of the elements as they stand in the file, and for each string's start an
    /// offset into them can be kept: [`StrArray::at`] reads the string back.
    pub fn offsets(&self) -> impl ExactSizeIterator<Item = (usize, &'a str)> + use<'a> {
        let mut reader = Reader::new(self.bytes);
        (0..self.count).map(move |_| (reader.position(), reader.str().unwrap_or("")))
    }

    /// The string that starts at `offset`, as given by [`StrArray::offsets`]. Any other offset
    /// gives an empty string or some piece of the array: harmless, but not meaningful.
    pub fn at(&self, offset: usize) -> &'a str {
        core::str::from_utf8(self.bytes_at(offset)).unwrap_or("")
    }

    /// As [`StrArray::at`], the bytes: constant time, since they are not checked to be UTF-8 again.
    pub fn bytes_at(&self, offset: usize) -> &'a [u8] {
        let mut reader = Reader::new(self.bytes.get(offset..).unwrap_or(&[]));
        reader.u64().and_then(|len| reader.take(len)).unwrap_or(&[])
    }
}
