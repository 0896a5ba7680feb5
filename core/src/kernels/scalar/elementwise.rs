//! Norms, rope, feed-forward activation and the Walsh-Hadamard transform of one vector.

use crate::math;
use crate::weights::Vector;

/// `1 / sqrt(mean(x^2) + eps)`, NaN if the mean is not finite.
fn inverse_rms(x: &[f32], eps: f32) -> f32 {
    let mean = math::dot(x, x) / x.len() as f32;
    if !mean.is_finite() {
        return f32::NAN;
    }
    1.0 / math::sqrt(mean + eps)
}

/// `out_i = (x_i * r) * w_i`, r the inverse root mean square. All `[n]`.
pub fn rmsnorm(x: &[f32], w: &Vector<'_>, eps: f32, out: &mut [f32]) {
    let r = inverse_rms(x, eps);
    for ((out, x), w) in out.iter_mut().zip(x).zip(w.iter()) {
        *out = (x * r) * w;
    }
}

/// [`rmsnorm`] in place.
pub fn rmsnorm_in_place(x: &mut [f32], w: &Vector<'_>, eps: f32) {
    let r = inverse_rms(x, eps);
    for (x, w) in x.iter_mut().zip(w.iter()) {
        *x = (*x * r) * w;
    }
}

/// Rotates the pairs (j, j + n/2) of a head. `x`: `[n]`, `cos`, `sin`: `[n/2]`.
pub fn rope(x: &mut [f32], cos: &[f32], sin: &[f32]) {
    let (low, high) = x.split_at_mut(cos.len());
    rotate(low, high, cos, sin);
}

/// Rotates pairs. All `[n]`.
pub fn rotate(low: &mut [f32], high: &mut [f32], cos: &[f32], sin: &[f32]) {
    for (((a, b), c), s) in low.iter_mut().zip(high).zip(cos).zip(sin) {
        let (u, v) = (*a, *b);
        *a = math::fma(u, *c, -(v * s));
        *b = math::fma(v, *c, u * s);
    }
}

/// `gate_i = silu(gate_i) * up_i`.
pub fn swiglu(gate: &mut [f32], up: &[f32]) {
    for (g, u) in gate.iter_mut().zip(up) {
        *g = math::silu(*g) * u;
    }
}

/// `x_i += y_i`.
pub fn add(x: &mut [f32], y: &[f32]) {
    for (x, y) in x.iter_mut().zip(y) {
        *x += y;
    }
}

/// `x_i -= y_i`.
pub fn subtract(x: &mut [f32], y: &[f32]) {
    for (x, y) in x.iter_mut().zip(y) {
        *x -= y;
    }
}

/// `x_i *= y_i`.
pub fn multiply(x: &mut [f32], y: &[f32]) {
    for (x, y) in x.iter_mut().zip(y) {
        *x *= y;
    }
}

/// Walsh-Hadamard transform, not scaled, of every run of `run` elements (a power of two).
pub fn hadamard(x: &mut [f32], run: usize) {
    let mut h = 1;
    while h < run {
        for pair in x.chunks_exact_mut(2 * h) {
            let (low, high) = pair.split_at_mut(h);
            for (a, b) in low.iter_mut().zip(high) {
                let (u, v) = (*a, *b);
                *a = u + v;
                *b = u - v;
            }
        }
        h *= 2;
    }
}
