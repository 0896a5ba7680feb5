//! Norms, rope, feed-forward activation and the Walsh-Hadamard transform of one vector.
//!
//! Whole vectors here, tails by the scalar kernels.

use super::vec::*;
use crate::kernels::scalar::elementwise as scalar;
use crate::math::{self, EXP_COEFFICIENTS, EXP_MAX, EXP_MIN, LN2_HI, LN2_LO, LOG2_E, ROUND};
use crate::weights::Vector;
use core::arch::x86_64::*;

/// `1 / sqrt(mean(x^2) + eps)`, NaN if the mean is not finite.
#[target_feature(enable = "avx2,fma")]
fn inverse_rms(x: &[f32], eps: f32) -> f32 {
    let mut lanes = [_mm256_setzero_ps(); 2];
    let (x16, rest) = x.as_chunks::<16>();
    for x in x16 {
        for (x, lanes) in x.as_chunks::<8>().0.iter().zip(&mut lanes) {
            *lanes = _mm256_fmadd_ps(load(x), load(x), *lanes);
        }
    }
    let mut all = [[0.0; 8]; 2];
    store(&mut all[0], lanes[0]);
    store(&mut all[1], lanes[1]);
    for (lane, x) in all.as_flattened_mut().iter_mut().zip(rest) {
        *lane = math::fma(*x, *x, *lane);
    }
    let mean = fold16([load(&all[0]), load(&all[1])]) / x.len() as f32;
    if mean.is_finite() { 1.0 / math::sqrt(mean + eps) } else { f32::NAN }
}

/// `out_i = (x_i * r) * w_i`, r the inverse root mean square. All `[n]`.
#[target_feature(enable = "avx2,fma")]
pub(super) fn rmsnorm(x: &[f32], w: &Vector<'_>, eps: f32, out: &mut [f32]) {
    let r = inverse_rms(x, eps);
    for ((out, x), w) in out.iter_mut().zip(x).zip(w.iter()) {
        *out = (x * r) * w;
    }
}

/// [`rmsnorm`] in place.
#[target_feature(enable = "avx2,fma")]
pub(super) fn rmsnorm_in_place(x: &mut [f32], w: &Vector<'_>, eps: f32) {
    let r = inverse_rms(x, eps);
    for (x, w) in x.iter_mut().zip(w.iter()) {
        *x = (*x * r) * w;
    }
}

/// Rotates the pairs (j, j + n/2) of a head. `x`: `[n]`, `cos`, `sin`: `[n/2]`.
#[target_feature(enable = "avx2,fma")]
pub(super) fn rope(x: &mut [f32], cos: &[f32], sin: &[f32]) {
    let (low, high) = x.split_at_mut(cos.len());
    let (a8, a_rest) = low.as_chunks_mut::<8>();
    let (b8, b_rest) = high.as_chunks_mut::<8>();
    let (c8, c_rest) = cos.as_chunks::<8>();
    let (s8, s_rest) = sin.as_chunks::<8>();
    for (((a, b), c), s) in a8.iter_mut().zip(b8).zip(c8).zip(s8) {
        let (u, v, c, s) = (load(a), load(b), load(c), load(s));
        store(a, _mm256_fmsub_ps(u, c, _mm256_mul_ps(v, s)));
        store(b, _mm256_fmadd_ps(v, c, _mm256_mul_ps(u, s)));
    }
    scalar::rotate(a_rest, b_rest, c_rest, s_rest);
}

/// `e^x` of eight numbers, step for step `math::exp`.
#[target_feature(enable = "avx2,fma")]
#[inline]
pub(super) fn exp(x: __m256) -> __m256 {
    let splat = |v: f32| _mm256_set1_ps(v);
    let (below, above) =
        (_mm256_cmp_ps::<_CMP_LT_OQ>(x, splat(EXP_MIN)), _mm256_cmp_ps::<_CMP_GT_OQ>(x, splat(EXP_MAX)));
    let unordered = _mm256_cmp_ps::<_CMP_UNORD_Q>(x, x);
    let outside = _mm256_or_ps(_mm256_or_ps(below, above), unordered);
    let inside = _mm256_andnot_ps(outside, x);
    let t = _mm256_fmadd_ps(inside, splat(LOG2_E), splat(ROUND));
    let n = _mm256_sub_ps(t, splat(ROUND));
    let r = _mm256_fmadd_ps(n, splat(-LN2_HI), inside);
    let r = _mm256_fmadd_ps(n, splat(-LN2_LO), r);
    let mut p = splat(EXP_COEFFICIENTS[0]);
    for &c in &EXP_COEFFICIENTS[1..] {
        p = _mm256_fmadd_ps(p, r, splat(c));
    }
    let y = _mm256_add_ps(_mm256_fmadd_ps(p, _mm256_mul_ps(r, r), r), splat(1.0));
    let n = _mm256_sub_epi32(_mm256_castps_si256(t), _mm256_castps_si256(splat(ROUND)));
    let half = _mm256_srai_epi32::<1>(n);
    let y = _mm256_mul_ps(y, power_of_two(half));
    let y = _mm256_mul_ps(y, power_of_two(_mm256_sub_epi32(n, half)));
    // Below the range +0.0, above it infinity; NaN stays.
    let y = _mm256_blendv_ps(_mm256_andnot_ps(below, y), splat(f32::INFINITY), above);
    _mm256_blendv_ps(y, splat(f32::NAN), unordered)
}

/// `2^n` for -126 <= n <= 127.
#[target_feature(enable = "avx2")]
#[inline]
fn power_of_two(n: __m256i) -> __m256 {
    _mm256_castsi256_ps(_mm256_slli_epi32::<23>(_mm256_add_epi32(n, _mm256_set1_epi32(127))))
}

/// `gate_i = silu(gate_i) * up_i`.
#[target_feature(enable = "avx2,fma")]
pub(super) fn swiglu(gate: &mut [f32], up: &[f32]) {
    let (gate8, gate_rest) = gate.as_chunks_mut::<8>();
    let (up8, up_rest) = up.as_chunks::<8>();
    for (gate, up) in gate8.iter_mut().zip(up8) {
        let x = load(gate);
        let e = exp(_mm256_xor_ps(x, _mm256_set1_ps(-0.0)));
        let silu = _mm256_div_ps(x, _mm256_add_ps(_mm256_set1_ps(1.0), e));
        store(gate, _mm256_mul_ps(silu, load(up)));
    }
    scalar::swiglu(gate_rest, up_rest);
}

/// `x_i += y_i`.
#[target_feature(enable = "avx2")]
pub(super) fn add(x: &mut [f32], y: &[f32]) {
    for (x, y) in x.iter_mut().zip(y) {
        *x += y;
    }
}

/// `x_i *= y_i`.
#[target_feature(enable = "avx2")]
pub(super) fn multiply(x: &mut [f32], y: &[f32]) {
    for (x, y) in x.iter_mut().zip(y) {
        *x *= y;
    }
}

/// Walsh-Hadamard transform, not scaled, of every run of `run` elements (a power of two).
#[target_feature(enable = "avx2")]
pub(super) fn hadamard(x: &mut [f32], run: usize) {
    if run < 8 {
        return scalar::hadamard(x, run);
    }
    // Distances 1, 2 and 4: within a vector. (u + v, u - v) is partner + own, partner - own.
    let signs = |bits: [u32; 8]| load(&bits.map(f32::from_bits));
    const N: u32 = 1 << 31;
    let (odd, upper_pairs, upper_half) =
        (signs([0, N, 0, N, 0, N, 0, N]), signs([0, 0, N, N, 0, 0, N, N]), signs([0, 0, 0, 0, N, N, N, N]));
    for x in x.as_chunks_mut::<8>().0 {
        let v = load(x);
        let v = _mm256_add_ps(_mm256_permute_ps::<0xB1>(v), _mm256_xor_ps(v, odd));
        let v = _mm256_add_ps(_mm256_permute_ps::<0x4E>(v), _mm256_xor_ps(v, upper_pairs));
        let swapped = _mm256_permute2f128_ps::<1>(v, v);
        store(x, _mm256_add_ps(swapped, _mm256_xor_ps(v, upper_half)));
    }
    let mut h = 8;
    while h < run {
        for pair in x.chunks_exact_mut(2 * h) {
            let (low, high) = pair.split_at_mut(h);
            let pairs = low.as_chunks_mut::<8>().0.iter_mut().zip(high.as_chunks_mut::<8>().0);
            for (a, b) in pairs {
                let (u, v) = (load(a), load(b));
                store(a, _mm256_add_ps(u, v));
                store(b, _mm256_sub_ps(u, v));
            }
        }
        h *= 2;
    }
}
