//! Writes GGUF files for tests: good ones by default, bad ones through the raw hooks.
//!
//! Independent of the parser it tests: nothing here is taken from `core/src/gguf`, only
//! the numbers of the weight types are looked up in `quant`.

use kinglet_core::quant::WeightType;

/// A metadata value with its exact type in the file.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs, reason = "the names are GGUF's")]
pub enum MetaValue {
    U8(u8),
    I8(i8),
    U16(u16),
    I16(i16),
    U32(u32),
    I32(i32),
    F32(f32),
    Bool(bool),
    Str(String),
    U64(u64),
    I64(i64),
    F64(f64),
    /// The elements' type number, and the elements; GGUF wants them all of that type.
    Array(u32, Vec<MetaValue>),
}

impl MetaValue {
    /// GGUF's number of the type.
    pub fn type_number(&self) -> u32 {
        match self {
            Self::U8(_) => 0,
            Self::I8(_) => 1,
            Self::U16(_) => 2,
            Self::I16(_) => 3,
            Self::U32(_) => 4,
            Self::I32(_) => 5,
            Self::F32(_) => 6,
            Self::Bool(_) => 7,
            Self::Str(_) => 8,
            Self::Array(..) => 9,
            Self::U64(_) => 10,
            Self::I64(_) => 11,
            Self::F64(_) => 12,
        }
    }

    /// An array; an empty one becomes an array of u32.
    pub fn array<T: Into<MetaValue>>(items: impl IntoIterator<Item = T>) -> Self {
        let items: Vec<MetaValue> = items.into_iter().map(Into::into).collect();
        Self::Array(items.first().map_or(4, Self::type_number), items)
    }

    /// Appends the value without its type number.
    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::U8(v) => out.extend(v.to_le_bytes()),
            Self::I8(v) => out.extend(v.to_le_bytes()),
            Self::U16(v) => out.extend(v.to_le_bytes()),
            Self::I16(v) => out.extend(v.to_le_bytes()),
            Self::U32(v) => out.extend(v.to_le_bytes()),
            Self::I32(v) => out.extend(v.to_le_bytes()),
            Self::F32(v) => out.extend(v.to_le_bytes()),
            Self::Bool(v) => out.push(u8::from(*v)),
            Self::Str(v) => write_str(out, v.as_bytes()),
            Self::U64(v) => out.extend(v.to_le_bytes()),
            Self::I64(v) => out.extend(v.to_le_bytes()),
            Self::F64(v) => out.extend(v.to_le_bytes()),
            Self::Array(ty, items) => {
                out.extend(ty.to_le_bytes());
                out.extend((items.len() as u64).to_le_bytes());
                items.iter().for_each(|item| item.write(out));
            }
        }
    }
}

macro_rules! from {
    ($($ty:ty => $variant:ident),*) => {
        $(impl From<$ty> for MetaValue {
            fn from(value: $ty) -> Self {
                MetaValue::$variant(value.into())
            }
        })*
    };
}
from!(u8 => U8, i8 => I8, u16 => U16, i16 => I16, u32 => U32, i32 => I32, f32 => F32, bool => Bool,
      &str => Str, String => Str, u64 => U64, i64 => I64, f64 => F64);

/// A string as GGUF writes it: u64 length, then the bytes (which need not be UTF-8 here).
pub fn write_str(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend((bytes.len() as u64).to_le_bytes());
    out.extend(bytes);
}

/// ggml's number of a weight type.
pub fn ggml_number(ty: WeightType) -> u32 {
    (0..256).find(|&n| WeightType::from_ggml(n) == Some(ty)).expect("every type has a number")
}

/// A tensor as it will stand in the file; every field may be made wrong.
#[derive(Clone, Debug)]
pub struct RawTensor {
    /// The name's bytes.
    pub name: Vec<u8>,
    /// ggml's type number.
    pub ty: u32,
    /// Dimensions, innermost first.
    pub dims: Vec<u64>,
    /// The number of dimensions written, where it is not `dims.len()`.
    pub n_dims: Option<u32>,
    /// The offset written, where it is not that of the data.
    pub offset: Option<u64>,
    /// The data; placed at the next multiple of the alignment.
    pub data: Vec<u8>,
}

impl RawTensor {
    /// A tensor without faults, but of any length of data.
    pub fn new(name: &str, ty: WeightType, dims: &[u64], data: Vec<u8>) -> Self {
        let (ty, dims) = (ggml_number(ty), dims.to_vec());
        RawTensor { name: name.into(), ty, dims, n_dims: None, offset: None, data }
    }
}

/// Collects metadata and tensors and writes the file.
#[derive(Clone, Debug)]
pub struct GgufWriter {
    /// First four bytes.
    pub magic: [u8; 4],
    /// Version, written little-endian.
    pub version: u32,
    /// Alignment of the data; written as metadata only by [`GgufWriter::align`].
    pub alignment: u64,
    /// The number of metadata entries written, where it is not the true one.
    pub meta_count: Option<u64>,
    /// The number of tensors written, where it is not the true one.
    pub tensor_count: Option<u64>,
    /// The metadata entries, as bytes.
    pub metas: Vec<Vec<u8>>,
    /// The tensors.
    pub tensors: Vec<RawTensor>,
}

impl Default for GgufWriter {
    fn default() -> Self {
        GgufWriter {
            magic: *b"GGUF",
            version: 3,
            alignment: 32,
            meta_count: None,
            tensor_count: None,
            metas: Vec::new(),
            tensors: Vec::new(),
        }
    }
}

impl GgufWriter {
    /// An empty file.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a metadata entry, whether or not the key is there already.
    pub fn meta(&mut self, key: &str, value: impl Into<MetaValue>) -> &mut Self {
        let value = value.into();
        let mut entry = Vec::new();
        write_str(&mut entry, key.as_bytes());
        entry.extend(value.type_number().to_le_bytes());
        value.write(&mut entry);
        self.raw_meta(entry)
    }

    /// Adds the bytes of a metadata entry as they are.
    pub fn raw_meta(&mut self, entry: Vec<u8>) -> &mut Self {
        self.metas.push(entry);
        self
    }

    /// Sets the alignment and says so in the metadata.
    pub fn align(&mut self, alignment: u32) -> &mut Self {
        self.alignment = alignment.into();
        self.meta("general.alignment", alignment)
    }

    /// Adds a tensor; `data` must have the length that follows from type and shape.
    ///
    /// # Panics
    /// It has another length: the test is wrong, not the parser.
    pub fn tensor(&mut self, name: &str, ty: WeightType, dims: &[u64], data: Vec<u8>) -> &mut Self {
        let elements: u64 = dims.iter().product();
        let bytes = elements / ty.block_len() as u64 * ty.block_bytes() as u64;
        assert_eq!(data.len() as u64, bytes, "data of '{name}'");
        self.raw_tensor(RawTensor::new(name, ty, dims, data))
    }

    /// Adds an F32 tensor.
    pub fn tensor_f32(&mut self, name: &str, dims: &[u64], values: &[f32]) -> &mut Self {
        let data = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        self.tensor(name, WeightType::F32, dims, data)
    }

    /// Adds a tensor as it is, faults and all.
    pub fn raw_tensor(&mut self, tensor: RawTensor) -> &mut Self {
        self.tensors.push(tensor);
        self
    }

    /// Header, metadata and tensor descriptions, without padding and data.
    pub fn head(&self) -> Vec<u8> {
        let mut out = self.magic.to_vec();
        out.extend(self.version.to_le_bytes());
        out.extend(self.tensor_count.unwrap_or(self.tensors.len() as u64).to_le_bytes());
        out.extend(self.meta_count.unwrap_or(self.metas.len() as u64).to_le_bytes());
        self.metas.iter().for_each(|entry| out.extend(entry));
        let mut at = 0u64;
        for tensor in &self.tensors {
            write_str(&mut out, &tensor.name);
            out.extend(tensor.n_dims.unwrap_or(tensor.dims.len() as u32).to_le_bytes());
            tensor.dims.iter().for_each(|dim| out.extend(dim.to_le_bytes()));
            out.extend(tensor.ty.to_le_bytes());
            out.extend(tensor.offset.unwrap_or(at).to_le_bytes());
            at = (at + tensor.data.len() as u64).next_multiple_of(self.alignment);
        }
        out
    }

    /// The whole file. The last tensor is not padded.
    pub fn finish(&self) -> Vec<u8> {
        let mut out = self.head();
        for tensor in &self.tensors {
            out.resize((out.len() as u64).next_multiple_of(self.alignment) as usize, 0);
            out.extend(&tensor.data);
        }
        out
    }
}

/// A small valid file that has every kind of metadata and several kinds of tensor.
pub fn small() -> GgufWriter {
    let mut w = GgufWriter::new();
    w.meta("general.architecture", "qwen2");
    w.meta("u8", 200u8).meta("i8", -7i8).meta("u16", 65_000u16).meta("i16", -300i16);
    w.meta("u32", 4_000_000_000u32).meta("i32", -5i32).meta("u64", u64::MAX).meta("i64", i64::MIN);
    w.meta("f32", 1.5f32).meta("f64", -2.25f64).meta("yes", true).meta("no", false);
    w.meta("text", "Füße\n").meta("empty", "");
    w.meta("numbers", MetaValue::array([1i32, -2, 3]));
    w.meta("floats", MetaValue::array([0.5f32, f32::INFINITY]));
    w.meta("bools", MetaValue::array([true, false, true]));
    w.meta("strings", MetaValue::array(["a", "", "语言", "token"]));
    w.meta("nothing", MetaValue::array([0u32; 0]));
    w.tensor_f32("norm.weight", &[4], &[1.0, 2.0, 3.0, 4.0]);
    w.tensor("blk.0.q", WeightType::Q8_0, &[64, 3], (0..204).map(|i| i as u8).collect());
    w.tensor("blk.0.k", WeightType::Q4K, &[256, 1, 2], vec![0x5a; 288]);
    w.tensor("half", WeightType::F16, &[3, 2, 1, 2], vec![0x3c; 24]);
    w
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_as_the_format_says() {
        let mut w = GgufWriter::new();
        w.meta("k", 0x0102u16).tensor("t", WeightType::F16, &[1], vec![7, 8]);
        let mut bytes = b"GGUF\x03\0\0\0\x01\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0".to_vec();
        bytes.extend(b"\x01\0\0\0\0\0\0\0k\x02\0\0\0\x02\x01");
        bytes.extend(b"\x01\0\0\0\0\0\0\0t\x01\0\0\0\x01\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\0\0\0\0");
        assert_eq!(w.head(), bytes);
        bytes.resize(96, 0);
        bytes.extend([7, 8]);
        assert_eq!(w.finish(), bytes);
    }
}
