//! Quantises activations to blocks. Must not know weights.

use super::dot::{partial_sums, plus};
use super::vec::*;
use crate::math::Scale;
use crate::ops::{BlockQ32, BlockQ256, Precision};
use core::arch::x86_64::*;

/// One block of 32, section 4 of the contract.
#[target_feature(enable = "avx2")]
pub(super) fn q32(x: &[f32; 32], precision: Precision, out: &mut BlockQ32) {
    let scale = Scale::of(&[largest(x)], precision.most());
    let (lo, hi) = planes(x, scale, precision);
    store_i8(&mut out.lo, lo);
    store_i8(&mut out.hi, hi);
    let sums = plus(partial_sums(lo), _mm256_slli_epi32::<7>(partial_sums(hi)));
    out.d = scale.d;
    out.s = scale.d * sum(sums) as f32;
}

/// One block of 256, section 4 of the contract.
#[target_feature(enable = "avx2")]
pub(super) fn q256(x: &[f32; 256], precision: Precision, out: &mut BlockQ256) {
    let scale = Scale::of(&[largest(x)], precision.most());
    let blocks = out.lo.as_chunks_mut::<32>().0.iter_mut().zip(out.hi.as_chunks_mut::<32>().0);
    let blocks = blocks.zip(out.sums.as_chunks_mut::<2>().0);
    for (x, ((lo_out, hi_out), sums_out)) in x.as_chunks::<32>().0.iter().zip(blocks) {
        let (lo, hi) = planes(x, scale, precision);
        store_i8(lo_out, lo);
        store_i8(hi_out, hi);
        let sums = plus(partial_sums(lo), _mm256_slli_epi32::<7>(partial_sums(hi)));
        let mut parts = [0; 8];
        store_i32(&mut parts, sums);
        let [a, b, c, d, e, f, g, h] = parts;
        // The halves of the vector are the two runs of 16.
        *sums_out = [(a + b + c + d) as i16, (e + f + g + h) as i16];
    }
    out.d = scale.d;
    out.summarize(precision);
}

/// The largest magnitude: NaN above infinity above numbers, as `math::amax_bits`.
#[target_feature(enable = "avx2")]
#[inline]
fn largest(x: &[f32]) -> f32 {
    let mut most = _mm256_setzero_si256();
    for x in x.as_chunks::<8>().0 {
        let bits = _mm256_and_si256(_mm256_castps_si256(load(x)), _mm256_set1_epi32(0x7FFF_FFFF));
        most = _mm256_max_epu32(most, bits);
    }
    let most = _mm_max_epu32(_mm256_castsi256_si128(most), _mm256_extracti128_si256::<1>(most));
    let most = _mm_max_epu32(most, _mm_shuffle_epi32::<0x4E>(most));
    let most = _mm_max_epu32(most, _mm_shuffle_epi32::<0xB1>(most));
    f32::from_bits(_mm_cvtsi128_si32(most) as u32)
}

/// The two planes of 32 values in steps of `scale`.
#[target_feature(enable = "avx2")]
#[inline]
fn planes(x: &[f32; 32], scale: Scale, precision: Precision) -> (__m256i, __m256i) {
    let zero = _mm256_setzero_si256();
    // Of values that are not finite the product is not zero.
    if scale.inv == 0.0 {
        return (zero, zero);
    }
    let mut q = [zero; 4];
    for (q, x) in q.iter_mut().zip(x.as_chunks::<8>().0) {
        // Rounds to nearest even, below 2048 in magnitude.
        *q = _mm256_cvtps_epi32(_mm256_mul_ps(load(x), _mm256_set1_ps(scale.inv)));
    }
    let (a, b) = (_mm256_packs_epi32(q[0], q[1]), _mm256_packs_epi32(q[2], q[3]));
    match precision {
        Precision::Coarse => (bytes(a, b), zero),
        Precision::Fine => {
            let high = |q| _mm256_srai_epi16::<7>(_mm256_add_epi16(q, _mm256_set1_epi16(64)));
            let low = |q, high| _mm256_sub_epi16(q, _mm256_slli_epi16::<7>(high));
            let (a_high, b_high) = (high(a), high(b));
            (bytes(low(a, a_high), low(b, b_high)), bytes(a_high, b_high))
        }
    }
}

/// Packs to bytes, and puts in order what packing by halves of vectors (twice) shuffled.
#[target_feature(enable = "avx2")]
#[inline]
fn bytes(a: __m256i, b: __m256i) -> __m256i {
    let order = _mm256_set_epi32(7, 3, 6, 2, 5, 1, 4, 0);
    _mm256_permutevar8x32_epi32(_mm256_packs_epi16(a, b), order)
}
