//! What stands in a GGUF file before its data: metadata taken over byte for byte but for a few
//! numbers, and the directory of tensors with other types and offsets. Must not know weights.
//!
//! The parser's table borrows names from the file, so a name's address says where its entry is.

use core::fmt;
use core::ops::Range;
use kinglet_core::gguf::{Gguf, TensorInfo};

/// Magic, version and the two counts.
const START_BYTES: usize = 24;
/// Offset of the count of metadata entries.
const METAS_OFFSET: usize = 16;
/// GGUF's number of u32.
const TYPE_U32: u32 = 4;

/// What a tensor becomes.
#[derive(Clone, Copy, Debug)]
pub struct Planned<'a> {
    /// As it is in the source.
    pub tensor: TensorInfo<'a>,
    /// ggml's number of the new type; None keeps the old one.
    pub ggml_type: Option<u32>,
    /// Bytes of its new data.
    pub len: u64,
}

/// A value that is there, but is no u32 as llama.cpp writes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotU32 {
    /// Its key.
    pub key: &'static str,
}

impl fmt::Display for NotU32 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "'{}' is no u32; the file was written by a faulty converter", self.key)
    }
}

impl core::error::Error for NotU32 {}

/// The tensors in the order of the directory, which need not be that of the data.
pub fn in_directory_order<'a>(gguf: &Gguf<'a, '_>) -> Vec<TensorInfo<'a>> {
    let mut tensors = gguf.tensors().to_vec();
    tensors.sort_unstable_by_key(|t| t.name().as_ptr().addr());
    tensors
}

/// Header, metadata with the numbers of `set` replaced or added, directory, and padding up to the
/// data. Data follow each other in the order of `plan`, each at a multiple of the alignment.
///
/// `file` is the source that `gguf` and `plan` borrow from; `plan` has all its tensors, in the order
/// of [`in_directory_order`], at least one.
///
/// # Errors
/// A number of `set` that is there with another type.
///
/// # Panics
/// If `plan` is empty or borrows from another file.
pub fn header(
    file: &[u8],
    gguf: &Gguf<'_, '_>,
    set: &[(&'static str, u32)],
    plan: &[Planned<'_>],
) -> Result<Vec<u8>, NotU32> {
    let place = |text: &str| -> Range<usize> {
        let start = text.as_ptr().addr().checked_sub(file.as_ptr().addr());
        let start = start.filter(|s| s + text.len() <= file.len()).expect("borrowed from this file");
        start..start + text.len()
    };
    // A name's length stands in eight bytes before it.
    let directory = place(plan[0].tensor.name()).start - 8;
    let mut out = file[..directory].to_vec();
    let mut metas = gguf.metas().len() as u64;
    for &(key, number) in set {
        match gguf.metas().iter().find(|meta| meta.key() == key) {
            Some(meta) => {
                let at = place(meta.key()).end;
                if file[at..at + 4] != TYPE_U32.to_le_bytes() {
                    return Err(NotU32 { key });
                }
                out[at + 4..at + 8].copy_from_slice(&number.to_le_bytes());
            }
            None => {
                metas += 1;
                out.extend((key.len() as u64).to_le_bytes());
                out.extend(key.as_bytes());
                out.extend(TYPE_U32.to_le_bytes());
                out.extend(number.to_le_bytes());
            }
        }
    }
    out[METAS_OFFSET..START_BYTES].copy_from_slice(&metas.to_le_bytes());

    let mut offset = 0u64;
    for planned in plan {
        let name = place(planned.tensor.name());
        // Number of dimensions, dimensions, type, offset.
        let ty = name.end + 4 + 8 * planned.tensor.dims().len();
        out.extend(&file[name.start - 8..ty]);
        match planned.ggml_type {
            Some(number) => out.extend(number.to_le_bytes()),
            None => out.extend(&file[ty..ty + 4]),
        }
        out.extend(offset.to_le_bytes());
        offset += planned.len.next_multiple_of(gguf.alignment());
    }
    out.resize((out.len() as u64).next_multiple_of(gguf.alignment()) as usize, 0);
    Ok(out)
}
