//! Exact dequantisation: the f32 that ggml's definition of each type gives, bit for bit.
//!
//! The order is ggml's: scale products first, then times q, then the minimum; nothing is
//! fused. Must not know activations.

use super::WeightType;
use super::block32::{self, Block32, Parts32, Unpack32};
use super::block256::{self, Block256, Parts256, Unpack256};
use super::half::{bf16_to_f32, f16_to_f32};
use core::fmt;

/// The bytes given are not those of the number of elements asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LengthError {
    /// Elements asked for.
    pub elements: usize,
    /// Bytes given.
    pub bytes: usize,
}

impl fmt::Display for LengthError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes do not hold exactly {} elements of this type", self.bytes, self.elements)
    }
}

impl core::error::Error for LengthError {}

/// Widens weights of type `ty` to f32.
///
/// # Errors
/// [`LengthError`] unless `bytes` is whole blocks of exactly `out.len()` elements.
#[cfg_attr(kinglet_small, optimize(size))]
pub fn dequantize(ty: WeightType, bytes: &[u8], out: &mut [f32]) -> Result<(), LengthError> {
    let whole = out.len().is_multiple_of(ty.block_len());
    if !whole || bytes.len() != ty.row_bytes(out.len()) {
        return Err(LengthError { elements: out.len(), bytes: bytes.len() });
    }
    match ty {
        WeightType::F32 => elements(bytes, out, f32::from_le_bytes),
        WeightType::F16 => elements(bytes, out, |b| f16_to_f32(u16::from_le_bytes(b))),
        WeightType::Bf16 => elements(bytes, out, |b| bf16_to_f32(u16::from_le_bytes(b))),
        WeightType::Q4_0 => blocks32::<block32::Q4_0>(bytes, out),
        WeightType::Q4_1 => blocks32::<block32::Q4_1>(bytes, out),
        WeightType::Q5_0 => blocks32::<block32::Q5_0>(bytes, out),
        WeightType::Q5_1 => blocks32::<block32::Q5_1>(bytes, out),
        WeightType::Q8_0 => blocks32::<block32::Q8_0>(bytes, out),
        WeightType::Iq4Nl => blocks32::<block32::Iq4Nl>(bytes, out),
        WeightType::Q2K => blocks256::<block256::Q2K>(bytes, out),
        WeightType::Q3K => blocks256::<block256::Q3K>(bytes, out),
        WeightType::Q4K => blocks256::<block256::Q4K>(bytes, out),
        WeightType::Q5K => blocks256::<block256::Q5K>(bytes, out),
        WeightType::Q6K => blocks256::<block256::Q6K>(bytes, out),
        WeightType::Iq4Xs => blocks256::<block256::Iq4Xs>(bytes, out),
    }
    Ok(())
}

/// Element by element, each of `N` bytes.
#[cfg_attr(kinglet_small, optimize(size))]
fn elements<const N: usize>(bytes: &[u8], out: &mut [f32], widen: impl Fn([u8; N]) -> f32) {
    for (out, bytes) in out.iter_mut().zip(bytes.as_chunks::<N>().0) {
        *out = widen(*bytes);
    }
}

/// `d * q`, or `d * q + m`.
fn blocks32<B: Block32>(bytes: &[u8], out: &mut [f32]) {
    each32(block32::unpack::<B>, B::HAS_MIN, bytes, out);
}

#[inline(never)]
#[cfg_attr(kinglet_small, optimize(size))]
fn each32(unpack: Unpack32, has_min: bool, bytes: &[u8], out: &mut [f32]) {
    let mut parts = Parts32::ZERO;
    for (b, out) in out.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        unpack(bytes, b, &mut parts);
        for (out, q) in out.iter_mut().zip(parts.q) {
            let product = parts.d * f32::from(q);
            *out = if has_min { product + parts.m } else { product };
        }
    }
}

/// `(d * scale) * q`, or that minus `dmin * min`.
fn blocks256<B: Block256>(bytes: &[u8], out: &mut [f32]) {
    each256(block256::unpack::<B>, B::HAS_MIN, bytes, out);
}

#[inline(never)]
#[cfg_attr(kinglet_small, optimize(size))]
fn each256(unpack: Unpack256, has_min: bool, bytes: &[u8], out: &mut [f32]) {
    let mut parts = Parts256::ZERO;
    for (b, out) in out.as_chunks_mut::<256>().0.iter_mut().enumerate() {
        unpack(bytes, b, &mut parts);
        for (i, (out, q)) in out.iter_mut().zip(parts.q).enumerate() {
            let product = parts.d * f32::from(parts.scales[i / 16]) * f32::from(q);
            let min = parts.dmin * f32::from(parts.mins[i / 16]);
            *out = if has_min { product - min } else { product };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_must_fit() {
        let mut out = [0.0; 32];
        assert!(dequantize(WeightType::Q8_0, &[0; 34], &mut out).is_ok());
        let error = dequantize(WeightType::Q8_0, &[0; 33], &mut out).unwrap_err();
        assert_eq!(error, LengthError { elements: 32, bytes: 33 });
        assert!(dequantize(WeightType::Q8_0, &[0; 34], &mut out[..31]).is_err());
        assert!(dequantize(WeightType::Q8_0, &[0; 34], &mut []).is_err());
        assert!(dequantize(WeightType::Q6K, &[], &mut []).is_ok());
    }
}
