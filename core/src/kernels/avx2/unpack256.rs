//! Blocks of 256 weights as vectors of bytes, with their sub-scales. Must not know activations.
//!
//! As in `unpack32`, raw integers where a type takes a constant off.

use super::unpack32::{iq4, nibbles, part};
use super::vec::*;
use crate::quant::WeightType;
use core::arch::x86_64::*;

/// The types, as the constants that choose code at compile time.
pub(crate) const Q2_K: u8 = WeightType::Q2K as u8;
pub(crate) const Q3_K: u8 = WeightType::Q3K as u8;
pub(crate) const Q4_K: u8 = WeightType::Q4K as u8;
pub(crate) const Q5_K: u8 = WeightType::Q5K as u8;
pub(crate) const Q6_K: u8 = WeightType::Q6K as u8;
pub(crate) const IQ4_XS: u8 = WeightType::Iq4Xs as u8;

/// What is to be taken off the integers.
pub(crate) const fn offset(ty: u8) -> i32 {
    match ty {
        Q3_K => 4,
        Q6_K => 32,
        _ => 0,
    }
}

/// Whether a minimum is subtracted.
pub(crate) const fn has_min(ty: u8) -> bool {
    matches!(ty, Q2_K | Q4_K | Q5_K)
}

/// Whether the integers have a sign; else they are 0..=31, of Q6_K 0..=63.
pub(crate) const fn signed(ty: u8) -> bool {
    ty == IQ4_XS
}

/// Where the scale is.
pub(crate) const fn d_offset(ty: u8) -> usize {
    match ty {
        Q2_K => 80,
        Q3_K => 108,
        Q6_K => 208,
        _ => 0,
    }
}

/// `v >> BY`, and of each byte the bits of `mask`.
#[target_feature(enable = "avx2")]
#[inline]
fn bits<const BY: i32>(v: __m256i, mask: i8) -> __m256i {
    _mm256_and_si256(_mm256_srli_epi16::<BY>(v), _mm256_set1_epi8(mask))
}

/// `v << BY`, and of each byte the bits of `mask`.
#[target_feature(enable = "avx2")]
#[inline]
fn raised<const BY: i32>(v: __m256i, mask: i8) -> __m256i {
    _mm256_and_si256(_mm256_slli_epi16::<BY>(v), _mm256_set1_epi8(mask))
}

/// The integers of a block of `L` bytes of type `TY`, in eight runs.
#[target_feature(enable = "avx2")]
#[inline]
pub(crate) fn weights<const TY: u8, const L: usize>(raw: &[u8; L]) -> [__m256i; 8] {
    let mut q = [_mm256_setzero_si256(); 8];
    match TY {
        Q2_K | Q3_K => {
            let from = if TY == Q2_K { 16 } else { 32 };
            for half in 0..2 {
                let bytes = load_u8(part(raw, from + 32 * half));
                q[4 * half] = bits::<0>(bytes, 3);
                q[4 * half + 1] = bits::<2>(bytes, 3);
                q[4 * half + 2] = bits::<4>(bytes, 3);
                q[4 * half + 3] = bits::<6>(bytes, 3);
            }
            if TY == Q3_K {
                let third = load_u8(part(raw, 0));
                let high = [
                    raised::<2>(third, 4),
                    raised::<1>(third, 4),
                    bits::<0>(third, 4),
                    bits::<1>(third, 4),
                    bits::<2>(third, 4),
                    bits::<3>(third, 4),
                    bits::<4>(third, 4),
                    bits::<5>(third, 4),
                ];
                for (q, high) in q.iter_mut().zip(high) {
                    *q = _mm256_or_si256(*q, high);
                }
            }
        }
        Q4_K | Q5_K => {
            let from = if TY == Q4_K { 16 } else { 48 };
            for i in 0..4 {
                let bytes = load_u8(part(raw, from + 32 * i));
                q[2 * i] = bits::<0>(bytes, 15);
                q[2 * i + 1] = bits::<4>(bytes, 15);
            }
            if TY == Q5_K {
                let fifth = load_u8(part(raw, 16));
                let high = [
                    raised::<4>(fifth, 16),
                    raised::<3>(fifth, 16),
                    raised::<2>(fifth, 16),
                    raised::<1>(fifth, 16),
                    bits::<0>(fifth, 16),
                    bits::<1>(fifth, 16),
                    bits::<2>(fifth, 16),
                    bits::<3>(fifth, 16),
                ];
                for (q, high) in q.iter_mut().zip(high) {
                    *q = _mm256_or_si256(*q, high);
                }
            }
        }
        Q6_K => {
            for half in 0..2 {
                let a = load_u8(part(raw, 64 * half));
                let b = load_u8(part(raw, 64 * half + 32));
                let high = load_u8(part(raw, 128 + 32 * half));
                q[4 * half] = _mm256_or_si256(bits::<0>(a, 15), raised::<4>(high, 48));
                q[4 * half + 1] = _mm256_or_si256(bits::<0>(b, 15), raised::<2>(high, 48));
                q[4 * half + 2] = _mm256_or_si256(bits::<4>(a, 15), bits::<0>(high, 48));
                q[4 * half + 3] = _mm256_or_si256(bits::<4>(b, 15), bits::<2>(high, 48));
            }
        }
        _ => {
            for (i, q) in q.iter_mut().enumerate() {
                *q = iq4(nibbles(part(raw, 8 + 16 * i)));
            }
        }
    }
    q
}

/// Each of eight bytes twice.
fn twice(bytes: [u32; 2]) -> [u32; 4] {
    let spread = |two: u32| {
        let one = two & 0xFF | (two & 0xFF00) << 8;
        one | one << 8
    };
    [spread(bytes[0]), spread(bytes[0] >> 16), spread(bytes[1]), spread(bytes[1] >> 16)]
}

/// Sub-scale (i8, offset taken off) and sub-minimum of each 16 weights, four to a number.
#[inline(always)]
fn sub_scales<const TY: u8, const L: usize>(raw: &[u8; L]) -> ([u32; 4], [u32; 4]) {
    const LOW4: u32 = 0x0F0F_0F0F;
    const LOW2: u32 = 0x0303_0303;
    const LOW6: u32 = 0x3F3F_3F3F;
    let four = |at: usize| u32::from_le_bytes(*part(raw, at));
    // Each byte minus 32: from 0..=63, so that the top bits are free to borrow from.
    let less_32 = |v: u32| ((v | 0x8080_8080) - 0x2020_2020) ^ 0x8080_8080;
    match TY {
        Q2_K => {
            let both = [four(0), four(4), four(8), four(12)];
            (both.map(|b| b & LOW4), both.map(|b| b >> 4 & LOW4))
        }
        Q3_K => {
            let (a, b, c) = (four(96), four(100), four(104));
            let six = |low: u32, high: u32| less_32(low & LOW4 | (high & LOW2) << 4);
            ([six(a, c), six(b, c >> 2), six(a >> 4, c >> 4), six(b >> 4, c >> 6)], [0; 4])
        }
        Q4_K | Q5_K => {
            let (a, b, c) = (four(4), four(8), four(12));
            let scales = [a & LOW6, c & LOW4 | (a >> 6 & LOW2) << 4];
            let mins = [b & LOW6, c >> 4 & LOW4 | (b >> 6 & LOW2) << 4];
            (twice(scales), twice(mins))
        }
        Q6_K => ([four(192), four(196), four(200), four(204)], [0; 4]),
        _ => {
            let high = u32::from(u16::from_le_bytes(*part(raw, 2)));
            let low = four(4);
            // Nibble i and two bits i of each, to byte i.
            let bytes = |i: u32| {
                let (low, high) = (low >> (16 * i), high >> (8 * i));
                let mut out = 0;
                for j in 0..4 {
                    out |= (low >> (4 * j) & 15 | (high >> (2 * j) & 3) << 4) << (8 * j);
                }
                less_32(out)
            };
            (twice([bytes(0), bytes(1)]), [0; 4])
        }
    }
}

/// Sub-scale and sub-minimum of each 16 weights.
#[target_feature(enable = "avx2")]
#[inline]
pub(crate) fn scales<const TY: u8, const L: usize>(raw: &[u8; L]) -> (__m128i, __m128i) {
    let (scales, mins) = sub_scales::<TY, L>(raw);
    (vector(scales), vector(mins))
}

#[target_feature(enable = "avx2")]
#[inline]
fn vector(v: [u32; 4]) -> __m128i {
    let [a, b, c, d] = v.map(|v| v as i32);
    _mm_set_epi32(d, c, b, a)
}
