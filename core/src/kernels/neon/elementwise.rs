//! Norms, rope, feed-forward activation and the Walsh-Hadamard transform of one vector.
//!
//! What does not fill a register is left to `scalar`: elements do not depend on each other. Sums
//! and products of two slices are vector code there already.

use super::float::{fold16, no_lanes, tail};
use super::vec::*;
use crate::kernels::scalar::elementwise as scalar;
use crate::math;
use crate::weights::Vector;

pub(crate) use crate::kernels::scalar::elementwise::{add, multiply};

/// `1 / sqrt(mean(x^2) + eps)`, NaN if the mean is not finite.
#[inline(always)]
fn inverse_rms(x: &[f32], eps: f32) -> f32 {
    let (chunks, rest) = x.as_chunks::<16>();
    let mut lanes = no_lanes();
    for chunk in chunks {
        for (lane, x) in lanes.iter_mut().zip(chunk.as_chunks().0) {
            let x = load_f32(x);
            *lane = vfmaq_f32(*lane, x, x);
        }
    }
    let mean = fold16(tail(lanes, rest.iter().map(|x| (*x, *x)))) / x.len() as f32;
    if !mean.is_finite() {
        return f32::NAN;
    }
    1.0 / vgetq_lane_f32::<0>(vsqrtq_f32(vdupq_n_f32(mean + eps)))
}

/// `out_i = (x_i * r) * w_i`, r the inverse root mean square. All `[n]`.
pub(crate) fn rmsnorm(x: &[f32], w: &Vector<'_>, eps: f32, out: &mut [f32]) {
    let r = inverse_rms(x, eps);
    let ((w4, w_rest), (x4, x_rest)) = (w.bytes().as_chunks::<4>(), x.as_chunks::<4>());
    let (out4, out_rest) = out.as_chunks_mut::<4>();
    for ((out, x), w) in out4.iter_mut().zip(x4).zip(w4) {
        store_f32(out, scaled(load_f32(x), r, w));
    }
    for ((out, x), w) in out_rest.iter_mut().zip(x_rest).zip(w_rest) {
        *out = (x * r) * f32::from_le_bytes(*w);
    }
}

/// [`rmsnorm`] in place.
pub(crate) fn rmsnorm_in_place(x: &mut [f32], w: &Vector<'_>, eps: f32) {
    let r = inverse_rms(x, eps);
    let ((w4, w_rest), (x4, x_rest)) = (w.bytes().as_chunks::<4>(), x.as_chunks_mut::<4>());
    for (x, w) in x4.iter_mut().zip(w4) {
        let y = scaled(load_f32(x), r, w);
        store_f32(x, y);
    }
    for (x, w) in x_rest.iter_mut().zip(w_rest) {
        *x = (*x * r) * f32::from_le_bytes(*w);
    }
}

/// `(x * r) * w`.
#[inline(always)]
fn scaled(x: float32x4_t, r: f32, w: &[[u8; 4]; 4]) -> float32x4_t {
    let w = match w.as_flattened().first_chunk() {
        Some(bytes) => load_f32_bytes(bytes),
        None => unreachable!(), // 4 * 4 = 16
    };
    vmulq_f32(vmulq_f32(x, vdupq_n_f32(r)), w)
}

/// Rotates the pairs (j, j + n/2) of a head. `x`: `[n]`, `cos`, `sin`: `[n/2]`.
pub(crate) fn rope(x: &mut [f32], cos: &[f32], sin: &[f32]) {
    let (low, high) = x.split_at_mut(cos.len());
    let whole = cos.len() / 4 * 4;
    let ((low4, low_rest), (high4, high_rest)) = (low.as_chunks_mut::<4>(), high.as_chunks_mut::<4>());
    let factors = cos.as_chunks::<4>().0.iter().zip(sin.as_chunks::<4>().0);
    for ((a, b), (c, s)) in low4.iter_mut().zip(high4).zip(factors) {
        let (u, v, c, s) = (load_f32(a), load_f32(b), load_f32(c), load_f32(s));
        store_f32(a, vfmaq_f32(vnegq_f32(vmulq_f32(v, s)), u, c));
        store_f32(b, vfmaq_f32(vmulq_f32(u, s), v, c));
    }
    for (((a, b), c), s) in low_rest.iter_mut().zip(high_rest).zip(&cos[whole..]).zip(&sin[whole..]) {
        let (u, v) = (*a, *b);
        *a = math::fma(u, *c, -(v * s));
        *b = math::fma(v, *c, u * s);
    }
}

/// `math::exp` of four values.
#[inline(always)]
pub(crate) fn exp(x: float32x4_t) -> float32x4_t {
    const ROUND: f32 = 12_582_912.0;
    let round = vdupq_n_f32(ROUND);
    let (above, below) = (vcgtq_f32(x, vdupq_n_f32(math::EXP_MAX)), vcgtq_f32(vdupq_n_f32(math::EXP_MIN), x));
    let is_number = vceqq_f32(x, x);
    // Out-of-range values run through the same steps on a harmless number, then are replaced.
    let zero = vdupq_n_f32(0.0);
    let inside = vbslq_f32(above, zero, vbslq_f32(below, zero, vbslq_f32(is_number, x, zero)));
    let t = vfmaq_f32(round, inside, vdupq_n_f32(math::LOG2_E));
    let n = vsubq_f32(t, round);
    let r = vfmaq_f32(inside, n, vdupq_n_f32(-math::LN2_HI));
    let r = vfmaq_f32(r, n, vdupq_n_f32(-math::LN2_LO));
    let mut p = vdupq_n_f32(math::EXP_COEFFICIENTS[0]);
    for &c in &math::EXP_COEFFICIENTS[1..] {
        p = vfmaq_f32(vdupq_n_f32(c), p, r);
    }
    let y = vaddq_f32(vfmaq_f32(r, p, vmulq_f32(r, r)), vdupq_n_f32(1.0));
    // 2^n in two factors, each a normal number.
    let n = vsubq_s32(vreinterpretq_s32_f32(t), vreinterpretq_s32_f32(round));
    let half = vshrq_n_s32::<1>(n);
    let power = |n| vreinterpretq_f32_s32(vshlq_n_s32::<23>(vaddq_s32(n, vdupq_n_s32(127))));
    let y = vmulq_f32(vmulq_f32(y, power(half)), power(vsubq_s32(n, half)));
    let y = vbslq_f32(above, vdupq_n_f32(f32::INFINITY), vbslq_f32(below, zero, y));
    vbslq_f32(is_number, y, vdupq_n_f32(f32::NAN))
}

/// `gate_i = silu(gate_i) * up_i`.
pub(crate) fn swiglu(gate: &mut [f32], up: &[f32]) {
    let (gate4, gate_rest) = gate.as_chunks_mut::<4>();
    let (up4, up_rest) = up.as_chunks::<4>();
    for (g, u) in gate4.iter_mut().zip(up4) {
        let x = load_f32(g);
        let silu = vdivq_f32(x, vaddq_f32(vdupq_n_f32(1.0), exp(vnegq_f32(x))));
        store_f32(g, vmulq_f32(silu, load_f32(u)));
    }
    scalar::swiglu(gate_rest, up_rest);
}

/// Walsh-Hadamard transform, not scaled, of every run of `run` elements (a power of two).
pub(crate) fn hadamard(x: &mut [f32], run: usize) {
    if run < 4 {
        return scalar::hadamard(x, run);
    }
    // Distances 1 and 2 inside a register.
    for four in x.as_chunks_mut::<4>().0 {
        let v = load_f32(four);
        // (a, b, c, d): even (a, a, c, c), odd (b, b, d, d) with every second sign turned.
        let v = vfmaq_f32(vtrn1q_f32(v, v), vtrn2q_f32(v, v), load_f32(&[1.0, -1.0, 1.0, -1.0]));
        let turned = vextq_f32::<2>(v, v);
        // (a, b, c, d) with (c, d, a, b): sums below, differences (turned less v) above.
        store_f32(four, vfmaq_f32(turned, v, load_f32(&[1.0, 1.0, -1.0, -1.0])));
    }
    let mut h = 4;
    while h < run {
        for pair in x.chunks_exact_mut(2 * h) {
            let (low, high) = pair.split_at_mut(h);
            for (a, b) in low.as_chunks_mut::<4>().0.iter_mut().zip(high.as_chunks_mut::<4>().0) {
                let (u, v) = (load_f32(a), load_f32(b));
                store_f32(a, vaddq_f32(u, v));
                store_f32(b, vsubq_f32(u, v));
            }
        }
        h *= 2;
    }
}
