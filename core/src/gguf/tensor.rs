//! Tensor descriptions, and their placement in the file's data section.

use super::read::Reader;
use super::{GgufError, GgufFault};
use crate::name::Name;
use crate::quant::WeightType;

/// A tensor: name, type, shape and its bytes.
#[derive(Clone, Copy, Debug)]
pub struct TensorInfo<'a> {
    name: &'a str,
    ty: WeightType,
    n_dims: u32,
    /// Innermost (contiguous) dimension first; unused ones are 1.
    dims: [u64; 4],
    /// Offset within the data section, as the file gives it.
    offset: u64,
    /// Set by `place`.
    data: &'a [u8],
}

impl<'a> TensorInfo<'a> {
    /// An unused table slot.
    pub const EMPTY: TensorInfo<'static> =
        TensorInfo { name: "", ty: WeightType::F32, n_dims: 1, dims: [1; 4], offset: 0, data: &[] };

    /// The name, for example `blk.0.attn_q.weight`.
    pub fn name(&self) -> &'a str {
        self.name
    }

    /// The element type.
    pub fn ty(&self) -> WeightType {
        self.ty
    }

    /// The dimensions, innermost (contiguous) first, 1 to 4 of them.
    pub fn dims(&self) -> &[u64] {
        &self.dims[..self.n_dims as usize]
    }

    /// The tensor's bytes; their length follows from type and shape.
    pub fn data(&self) -> &'a [u8] {
        self.data
    }

    /// Offset of the data within the file's data section.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    fn at(&self, fault: GgufFault) -> GgufError {
        GgufError { fault, name: Name::new(self.name) }
    }

    pub(super) fn read(reader: &mut Reader<'a>) -> Result<Self, GgufError> {
        let name = reader.str()?;
        Self::read_named(name, reader).map_err(|e| GgufError { name: Name::new(name), ..e })
    }

    /// What follows the name; the caller adds the name to errors.
    fn read_named(name: &'a str, reader: &mut Reader<'a>) -> Result<Self, GgufError> {
        let n_dims = reader.u32()?;
        if !(1..=4).contains(&n_dims) {
            return Err(GgufError::file(GgufFault::Dimensions { found: n_dims }));
        }
        let mut dims = [1u64; 4];
        for dim in &mut dims[..n_dims as usize] {
            *dim = reader.u64()?;
            if *dim == 0 {
                return Err(GgufError::file(GgufFault::ZeroDimension));
            }
        }
        let number = reader.u32()?;
        let ty =
            WeightType::from_ggml(number).ok_or(GgufError::file(GgufFault::TensorType { found: number }))?;
        let offset = reader.u64()?;
        let info = TensorInfo { name, ty, n_dims, dims, offset, data: &[] };
        info.byte_len()?;
        Ok(info)
    }

    /// Size of the data in bytes, from type and shape.
    #[cfg_attr(kinglet_small, optimize(size))]
    fn byte_len(&self) -> Result<u64, GgufError> {
        let (block_len, block_bytes) = (self.ty.block_len() as u64, self.ty.block_bytes() as u64);
        if !self.dims[0].is_multiple_of(block_len) {
            let fault = GgufFault::RowLength { row: self.dims[0], block: block_len as u32 };
            return Err(self.at(fault));
        }
        let blocks = self.dims[0] / block_len;
        self.dims[1..]
            .iter()
            .try_fold(blocks, |n, &d| n.checked_mul(d))
            .and_then(|n| n.checked_mul(block_bytes))
            .ok_or(self.at(GgufFault::ShapeOverflow))
    }
}

/// Gives every tensor its bytes: checks names, alignment, ends and overlaps, and leaves
/// the table ordered by offset. `start` is the file offset of the data section.
pub(super) fn place<'a>(
    tensors: &mut [TensorInfo<'a>],
    bytes: &'a [u8],
    start: u64,
    alignment: u64,
) -> Result<(), GgufError> {
    tensors.sort_unstable_by_key(|t| t.name);
    if let Some(pair) = tensors.windows(2).find(|p| p[0].name == p[1].name) {
        return Err(pair[1].at(GgufFault::Duplicate));
    }
    tensors.sort_unstable_by_key(|t| t.offset);
    let file = bytes.len() as u64;
    let mut free_from = start;
    for tensor in tensors {
        if !tensor.offset.is_multiple_of(alignment) {
            return Err(tensor.at(GgufFault::Misaligned { offset: tensor.offset }));
        }
        let len = tensor.byte_len()?;
        let begin = start.checked_add(tensor.offset);
        let end = begin.and_then(|b| b.checked_add(len));
        let (Some(begin), Some(end)) = (begin, end) else {
            return Err(tensor.at(GgufFault::PastEnd { end: u64::MAX, file }));
        };
        if end > file {
            return Err(tensor.at(GgufFault::PastEnd { end, file }));
        }
        if begin < free_from {
            return Err(tensor.at(GgufFault::Overlap));
        }
        free_from = end;
        tensor.data = &bytes[begin as usize..end as usize];
    }
    Ok(())
}
