//! Blocks of 32 weights as a vector of bytes. Must not know activations.
//!
//! Where a type takes a constant off its integers the raw ones are given: they are small and
//! not negative, which `vpmaddubsw` wants; [`offset`] says what is to be taken off.

use super::vec::*;
use crate::quant::WeightType;
use crate::quant::block32::IQ4_VALUES;
use core::arch::x86_64::*;

/// The types, as the constants that choose code at compile time.
pub(crate) const Q4_0: u8 = WeightType::Q4_0 as u8;
pub(crate) const Q4_1: u8 = WeightType::Q4_1 as u8;
pub(crate) const Q5_0: u8 = WeightType::Q5_0 as u8;
pub(crate) const Q5_1: u8 = WeightType::Q5_1 as u8;
pub(crate) const Q8_0: u8 = WeightType::Q8_0 as u8;
pub(crate) const IQ4_NL: u8 = WeightType::Iq4Nl as u8;

/// What is to be taken off the integers.
pub(crate) const fn offset(ty: u8) -> i32 {
    match ty {
        Q4_0 => 8,
        Q5_0 => 16,
        _ => 0,
    }
}

/// Whether weights are `d * q + m`.
pub(crate) const fn has_min(ty: u8) -> bool {
    matches!(ty, Q4_1 | Q5_1)
}

/// Whether the integers have a sign; else they are 0..=31.
pub(crate) const fn signed(ty: u8) -> bool {
    matches!(ty, Q8_0 | IQ4_NL)
}

/// `N` bytes of a block from offset `from`.
#[inline(always)]
pub(crate) fn part<const N: usize, const L: usize>(raw: &[u8; L], from: usize) -> &[u8; N] {
    match raw[from..].first_chunk() {
        Some(part) => part,
        None => unreachable!(), // offsets are constants within the block
    }
}

/// The low nibbles of 16 bytes, then the high ones.
#[target_feature(enable = "avx2")]
#[inline]
pub(crate) fn nibbles(bytes: &[u8; 16]) -> __m256i {
    let low = load_half(bytes);
    let both = _mm256_set_m128i(_mm_srli_epi16::<4>(low), low);
    _mm256_and_si256(both, _mm256_set1_epi8(15))
}

/// The values of the IQ4 types for indices 0..=15.
#[target_feature(enable = "avx2")]
#[inline]
pub(crate) fn iq4(indices: __m256i) -> __m256i {
    let table = load_half(&const { to_bytes(IQ4_VALUES) });
    _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(table), indices)
}

const fn to_bytes(values: [i8; 16]) -> [u8; 16] {
    let mut out = [0; 16];
    let mut i = 0;
    while i < 16 {
        out[i] = values[i] as u8;
        i += 1;
    }
    out
}

/// Bit i of four bytes as 16 or 0 in byte i.
#[target_feature(enable = "avx2")]
#[inline]
fn fifth_bits(bytes: &[u8; 4]) -> __m256i {
    const BYTE: [i64; 4] = [0, 0x0101_0101_0101_0101, 0x0202_0202_0202_0202, 0x0303_0303_0303_0303];
    let bits = _mm256_set1_epi32(i32::from_le_bytes(*bytes));
    let spread = _mm256_shuffle_epi8(bits, _mm256_set_epi64x(BYTE[3], BYTE[2], BYTE[1], BYTE[0]));
    let diagonal = _mm256_set1_epi64x(0x8040_2010_0804_0201_u64 as i64);
    let set = _mm256_cmpeq_epi8(_mm256_and_si256(spread, diagonal), diagonal);
    _mm256_and_si256(set, _mm256_set1_epi8(16))
}

/// The integers of a block of `L` bytes of type `TY`.
#[target_feature(enable = "avx2")]
#[inline]
pub(crate) fn weights<const TY: u8, const L: usize>(raw: &[u8; L]) -> __m256i {
    match TY {
        Q4_0 => nibbles(part(raw, 2)),
        Q4_1 => nibbles(part(raw, 4)),
        Q5_0 => _mm256_or_si256(nibbles(part(raw, 6)), fifth_bits(part(raw, 2))),
        Q5_1 => _mm256_or_si256(nibbles(part(raw, 8)), fifth_bits(part(raw, 4))),
        Q8_0 => load_u8(part(raw, 2)),
        _ => iq4(nibbles(part(raw, 2))),
    }
}

/// The f16 numbers at byte offset `at` of eight blocks, as f32.
#[target_feature(enable = "avx2,f16c")]
#[inline]
pub(crate) fn halves<const L: usize>(raw: &[&[u8; L]; 8], at: usize) -> __m256 {
    let mut bits = [0; 8];
    for (bits, raw) in bits.iter_mut().zip(raw) {
        *bits = u16::from_le_bytes(*part(raw, at));
    }
    _mm256_cvtph_ps(load_u16(&bits))
}
