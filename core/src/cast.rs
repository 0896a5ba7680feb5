//! Typed slices out of caller-supplied bytes: the one place that turns `&mut [u8]` into
//! `&mut [T]`.
#![allow(unsafe_code)]

use core::fmt;
use core::mem::{align_of, size_of, size_of_val};

/// Alignment in bytes that regions must have, and that every array in them gets.
pub const REGION_ALIGN: usize = 64;

/// Types for which any bytes are a valid value.
///
/// # Safety
/// Every bit pattern is valid, there is no padding, no interior mutability and no drop glue.
pub unsafe trait Pod: Copy + 'static {}

// SAFETY: plain integers and floats accept every bit pattern and have no padding.
unsafe impl Pod for u8 {}
// SAFETY: as above.
unsafe impl Pod for i8 {}
// SAFETY: as above.
unsafe impl Pod for u16 {}
// SAFETY: as above.
unsafe impl Pod for i16 {}
// SAFETY: as above.
unsafe impl Pod for u32 {}
// SAFETY: as above.
unsafe impl Pod for i32 {}
// SAFETY: as above.
unsafe impl Pod for u64 {}
// SAFETY: as above.
unsafe impl Pod for f32 {}
// SAFETY: repr(C) of f32, f32, [i8; 32], [i8; 32]: 72 bytes, no padding, every bit pattern is valid.
unsafe impl Pod for crate::ops::BlockQ32 {}
// SAFETY: repr(C) of f32, [i16; 16], [i8; 256], [i8; 256]: 548 bytes, no padding, every bit pattern is valid.
unsafe impl Pod for crate::ops::BlockQ256 {}
// SAFETY: repr(transparent) over u64.
unsafe impl Pod for crate::kv::ContentId {}
// SAFETY: repr(C) of two [u8; 16], u64, five u32, two u8, [u8; 2]: 64 bytes, no padding, every bit pattern
// is valid.
unsafe impl Pod for crate::kv::block::Block {}
// SAFETY: repr(C) of [u8; 16] and two u32: 24 bytes, no padding, every bit pattern is valid.
unsafe impl Pod for crate::kv::pool::Seq {}

const _: () = assert!(size_of::<crate::kv::block::Block>() == 64);
const _: () = assert!(size_of::<crate::kv::pool::Seq>() == 24);
const _: () = assert!(size_of::<crate::ops::BlockQ32>() == 72);
const _: () = assert!(size_of::<crate::ops::BlockQ256>() == 568);

/// The bytes as values of `T`; `None` if their address or length does not fit.
#[inline]
pub fn view<T: Pod>(bytes: &[u8]) -> Option<&[T]> {
    let fits =
        bytes.as_ptr().addr().is_multiple_of(align_of::<T>()) && bytes.len().is_multiple_of(size_of::<T>());
    // SAFETY: address and length were just checked, the lifetime and the provenance are those of
    // `bytes`, and Pod accepts any bytes.
    fits.then(|| unsafe {
        core::slice::from_raw_parts(bytes.as_ptr().cast::<T>(), bytes.len() / size_of::<T>())
    })
}

/// The values as bytes.
#[inline]
pub fn bytes<T: Pod>(values: &[T]) -> &[u8] {
    // SAFETY: the very memory of `values`, for as long; Pod has no padding, so that all of it is bytes.
    unsafe { core::slice::from_raw_parts(values.as_ptr().cast::<u8>(), size_of_val(values)) }
}

/// As [`view`], writable.
#[inline]
pub fn view_mut<T: Pod>(bytes: &mut [u8]) -> Option<&mut [T]> {
    let fits =
        bytes.as_ptr().addr().is_multiple_of(align_of::<T>()) && bytes.len().is_multiple_of(size_of::<T>());
    // SAFETY: as in `view`; the borrow is exclusive, and any T is valid as bytes (no padding).
    fits.then(|| unsafe {
        core::slice::from_raw_parts_mut(bytes.as_mut_ptr().cast::<T>(), bytes.len() / size_of::<T>())
    })
}

/// A region is too small, or not aligned to [`REGION_ALIGN`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum RegionError {
    /// Fewer bytes than needed.
    BufferTooSmall {
        /// Bytes needed.
        needed: usize,
        /// Bytes given.
        got: usize,
    },
    /// The first byte's address is no multiple of [`REGION_ALIGN`].
    Misaligned,
}

impl fmt::Display for RegionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BufferTooSmall { needed, got } => {
                write!(f, "buffer too small: {needed} bytes needed, {got} given")
            }
            Self::Misaligned => write!(f, "buffer not aligned to {REGION_ALIGN} bytes"),
        }
    }
}

impl core::error::Error for RegionError {}

/// Hands out typed arrays from the front of a region, each aligned to [`REGION_ALIGN`].
#[derive(Debug)]
pub struct Arena<'a> {
    rest: &'a mut [u8],
    used: usize,
}

impl<'a> Arena<'a> {
    /// # Errors
    /// [`RegionError::Misaligned`].
    pub fn new(region: &'a mut [u8]) -> Result<Self, RegionError> {
        if !region.is_empty() && !region.as_ptr().addr().is_multiple_of(REGION_ALIGN) {
            return Err(RegionError::Misaligned);
        }
        Ok(Arena { rest: region, used: 0 })
    }

    /// Bytes that [`Arena::take`] consumes for `len` values of `T`; saturates.
    pub const fn size_of<T: Pod>(len: usize) -> usize {
        match len.saturating_mul(size_of::<T>()).checked_next_multiple_of(REGION_ALIGN) {
            Some(bytes) => bytes,
            None => usize::MAX,
        }
    }

    /// The next `len` values of `T`, with whatever bytes were there.
    ///
    /// # Errors
    /// [`RegionError::BufferTooSmall`], counted from the region's start.
    pub fn take<T: Pod>(&mut self, len: usize) -> Result<&'a mut [T], RegionError> {
        const { assert!(align_of::<T>() <= REGION_ALIGN) }
        let head = self.take_bytes(Self::size_of::<T>(len))?;
        // SAFETY: `head` is exclusive for 'a, holds `size_of(len) >= len * size_of::<T>()` bytes, and starts
        // at a multiple of REGION_ALIGN (`new` checked the region, every length is a multiple of it),
        // which is enough for T (const assert). Pod accepts any bytes.
        Ok(unsafe { core::slice::from_raw_parts_mut(head.as_mut_ptr().cast::<T>(), len) })
    }

    /// The next `bytes` bytes, a multiple of [`REGION_ALIGN`]. Apart: the same for every type.
    #[inline(never)]
    fn take_bytes(&mut self, bytes: usize) -> Result<&'a mut [u8], RegionError> {
        let all = core::mem::take(&mut self.rest);
        if bytes > all.len() {
            let got = self.used + all.len();
            self.rest = all;
            return Err(RegionError::BufferTooSmall { needed: self.used.saturating_add(bytes), got });
        }
        let (head, tail) = all.split_at_mut(bytes);
        self.rest = tail;
        self.used += bytes;
        Ok(head)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[repr(align(64))]
    struct Bytes([u8; 256]);

    #[test]
    fn arrays_are_aligned_and_apart_and_bounded() {
        let mut region = Bytes([0; 256]);
        let mut arena = Arena::new(&mut region.0).unwrap();
        let a = arena.take::<f32>(3).unwrap();
        let b = arena.take::<u64>(16).unwrap();
        a.fill(1.0);
        b.fill(u64::MAX);
        assert_eq!(a, [1.0; 3]);
        assert_eq!(b.as_ptr().addr() % 64, 0);
        let error = arena.take::<u8>(65).unwrap_err();
        assert_eq!(error, RegionError::BufferTooSmall { needed: 320, got: 256 });
        assert_eq!(arena.take::<u8>(64).unwrap().len(), 64);
    }

    #[test]
    fn misaligned_regions_are_refused() {
        let mut region = Bytes([0; 256]);
        assert_eq!(Arena::new(&mut region.0[1..]).unwrap_err(), RegionError::Misaligned);
    }
}
