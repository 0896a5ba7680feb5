//! The scalar arithmetic of the numerics contract: fma, exp, silu, reductions, rounding.
//!
//! Every function here is specification (`core/NUMERICS.md`); faster kernels equal it.

/// Exact fused multiply-add: `a * b + c` rounded once.
///
/// The product of two f32 is exact in f64. The sum is formed in f64 and rounded *to odd*
/// (Boldo and Melquiond, "Emulation of a FMA and correctly rounded sums", 2008): f64 keeps
/// more than two bits beyond f32, so that the final rounding to f32, subnormals included,
/// is the only one that counts. `libm::fmaf` rounds twice for subnormal results.
/// Where every CPU of the target has the instruction, it is that.
#[inline(always)]
pub fn fma(a: f32, b: f32, c: f32) -> f32 {
    #[cfg(all(target_arch = "aarch64", target_feature = "neon"))]
    return crate::fused::fma(a, b, c);
    #[cfg(not(all(target_arch = "aarch64", target_feature = "neon")))]
    soft_fma(a, b, c)
}

/// [`fma`] without the instruction.
#[cfg_attr(all(target_arch = "aarch64", target_feature = "neon"), allow(dead_code))]
#[inline(always)]
fn soft_fma(a: f32, b: f32, c: f32) -> f32 {
    let product = f64::from(a) * f64::from(b);
    let c = f64::from(c);
    let sum = product + c;
    // TwoSum (Knuth): `error` is exactly what `sum` lost; NaN when an input is not finite.
    let c_part = sum - product;
    let error = (product - (sum - c_part)) + (c - c_part);
    // Towards odd: if something was lost and the last bit is even, step towards the loss.
    let bits = sum.to_bits();
    let inexact = (error > 0.0) | (error < 0.0);
    let step = if (error > 0.0) == (sum > 0.0) { 1 } else { u64::MAX };
    let odd = if inexact & (bits & 1 == 0) { bits.wrapping_add(step) } else { bits };
    f64::from_bits(odd) as f32
}

/// 1.5 * 2^23: adding it rounds |x| < 2^22 to the nearest integer, ties to even.
pub(crate) const ROUND: f32 = 12_582_912.0;

/// Nearest integer of `x`, ties to even. Exact for |x| < 2^22.
#[inline(always)]
pub fn round_even(x: f32) -> i32 {
    ((x + ROUND).to_bits() as i32).wrapping_sub(ROUND.to_bits() as i32)
}

/// The larger of two, by the contract's rule: `a` unless `b` is greater. A NaN `b` is ignored.
#[inline(always)]
pub fn max(a: f32, b: f32) -> f32 {
    if b > a { b } else { a }
}

/// Polynomial of [`exp`], highest power first (Cephes `expf`, S. Moshier).
pub const EXP_COEFFICIENTS: [f32; 6] =
    [1.987_569_1e-4, 1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5];

/// Above this, [`exp`] is infinite.
pub const EXP_MAX: f32 = 88.722_83;
/// Below this, [`exp`] is zero: results are never subnormal.
pub const EXP_MIN: f32 = -87.336_54;
/// Factor of [`exp`]'s argument.
pub(crate) const LOG2_E: f32 = core::f32::consts::LOG2_E;
/// ln 2 in two parts; the first has few bits, so that `n * LN2_HI` is exact.
pub(crate) const LN2_HI: f32 = 0.693_359_4;
/// Second part.
pub(crate) const LN2_LO: f32 = -2.121_944_4e-4;

/// `e^x` with a fixed operation order; at most 2 ulp from the true value.
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    // Out-of-range values run through the same steps on a harmless number, then are replaced.
    let inside = if (EXP_MIN..=EXP_MAX).contains(&x) { x } else { 0.0 };
    let t = fma(inside, LOG2_E, ROUND);
    let n = t - ROUND;
    let r = fma(n, -LN2_HI, inside);
    let r = fma(n, -LN2_LO, r);
    let mut p = EXP_COEFFICIENTS[0];
    for &c in &EXP_COEFFICIENTS[1..] {
        p = fma(p, r, c);
    }
    let y = fma(p, r * r, r) + 1.0;
    // n is up to 128: 2^n in two factors, each a normal number.
    let n = (t.to_bits() as i32).wrapping_sub(ROUND.to_bits() as i32);
    let half = n >> 1;
    let y = y * power_of_two(half) * power_of_two(n - half);
    if x.is_nan() {
        f32::NAN
    } else if x > EXP_MAX {
        f32::INFINITY
    } else if x < EXP_MIN {
        0.0
    } else {
        y
    }
}

/// `2^n` for -126 <= n <= 127.
#[inline(always)]
fn power_of_two(n: i32) -> f32 {
    f32::from_bits(((n + 127) << 23) as u32)
}

/// `x / (1 + e^-x)`.
#[inline(always)]
pub fn silu(x: f32) -> f32 {
    x / (1.0 + exp(-x))
}

/// IEEE square root (software, exact).
#[inline(always)]
pub fn sqrt(x: f32) -> f32 {
    libm::sqrtf(x)
}

/// Number of lanes of a float reduction.
pub const LANES: usize = 16;

/// Folds 16 lanes 8-4-2-1.
#[inline(always)]
pub fn fold16(mut lanes: [f32; LANES]) -> f32 {
    let mut width = LANES / 2;
    while width > 0 {
        for j in 0..width {
            lanes[j] += lanes[j + width];
        }
        width /= 2;
    }
    lanes[0]
}

/// Dot product of two equally long slices: 16 lanes, fma in ascending order, folded.
/// Of slices of different lengths the common part counts.
#[inline]
pub fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut lanes = [0.0; LANES];
    let (a16, a_rest) = a.as_chunks::<LANES>();
    let (b16, b_rest) = b.as_chunks::<LANES>();
    for (x, y) in a16.iter().zip(b16) {
        for j in 0..LANES {
            lanes[j] = fma(x[j], y[j], lanes[j]);
        }
    }
    for ((x, y), lane) in a_rest.iter().zip(b_rest).zip(&mut lanes) {
        *lane = fma(*x, *y, *lane);
    }
    fold16(lanes)
}

/// Sum of a slice: 16 lanes in ascending order, folded.
#[inline]
pub fn sum(x: &[f32]) -> f32 {
    let mut lanes = [0.0; LANES];
    for chunk in x.chunks(LANES) {
        for (lane, v) in lanes.iter_mut().zip(chunk) {
            *lane += v;
        }
    }
    fold16(lanes)
}

/// Largest magnitude as bits: order NaN > infinity > numbers, whatever the signs.
#[inline]
pub fn amax_bits(x: &[f32]) -> u32 {
    x.iter().fold(0, |m, v| m.max(v.to_bits() & 0x7FFF_FFFF))
}

/// What a run of values is quantised with: `value = d * q`, `q = round(value * inv)`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scale {
    /// Step; NaN if a value is not finite, +0.0 if all are (nearly) zero.
    pub d: f32,
    /// `most / amax`; 0 where `d` is NaN or 0, so that every q is 0.
    pub inv: f32,
}

impl Scale {
    /// The scale at which the largest magnitude of `x` becomes `most` (section 4 of the contract).
    #[inline]
    pub fn of(x: &[f32], most: f32) -> Scale {
        Scale::of_amax(amax_bits(x), most)
    }

    /// [`Scale::of`] values whose largest magnitude has these bits ([`amax_bits`]).
    #[inline]
    pub fn of_amax(bits: u32, most: f32) -> Scale {
        let amax = f32::from_bits(bits);
        let d = amax / most;
        if bits >= f32::INFINITY.to_bits() {
            Scale { d: f32::from_bits(0x7FC0_0000), inv: 0.0 }
        } else if d < f32::MIN_POSITIVE {
            Scale { d: 0.0, inv: 0.0 }
        } else {
            Scale { d, inv: most / amax }
        }
    }

    /// `value` in steps; 0 for everything if the scale is NaN or 0.
    #[inline(always)]
    pub fn apply(&self, value: f32) -> i32 {
        // A value that is not finite has a scale of inv = 0: its product is NaN, and must not count.
        if self.inv == 0.0 { 0 } else { round_even(value * self.inv) }
    }
}

/// Quantises a run to -127..=127 with one scale (section 4 of the contract) and returns the scale.
///
/// # Panics
/// If `x` and `q` differ in length.
#[inline]
pub fn quantize(x: &[f32], q: &mut [i8]) -> f32 {
    assert_eq!(x.len(), q.len());
    let scale = Scale::of(x, 127.0);
    for (q, &v) in q.iter_mut().zip(x) {
        *q = scale.apply(v) as i8;
    }
    scale.d
}

/// Largest magnitude of a query's quantised elements: two i8 planes, 128 * 127.
pub const QUERY_MOST: f32 = 16_256.0;

/// Quantises a run to magnitudes up to `most` (at most 32767) with one scale and returns the scale.
///
/// # Panics
/// If `x` and `q` differ in length.
#[inline]
pub fn quantize_i16(x: &[f32], most: f32, q: &mut [i16]) -> f32 {
    assert_eq!(x.len(), q.len());
    let scale = Scale::of(x, most);
    for (q, &v) in q.iter_mut().zip(x) {
        *q = scale.apply(v) as i16;
    }
    scale.d
}

/// Quantises values that are not negative to 0..=255 with one scale and returns the scale.
///
/// # Panics
/// If `x` and `q` differ in length.
#[inline]
pub fn quantize_weights(x: &[f32], q: &mut [u8]) -> f32 {
    assert_eq!(x.len(), q.len());
    let scale = Scale::of(x, 255.0);
    for (q, &v) in q.iter_mut().zip(x) {
        *q = scale.apply(v) as u8;
    }
    scale.d
}

#[cfg(test)]
mod tests {
    use super::*;
    extern crate std;

    #[test]
    fn fma_equals_the_hardware_or_the_c_library_on_awkward_inputs() {
        let mut state = 1u64;
        let mut next = || {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 32) as u32
        };
        for i in 0..2_000_000u32 {
            let (mut a, mut b, mut c) = (next(), next(), next());
            if i % 3 == 1 {
                // Products near the subnormal range, addends in it.
                a = (a & 0x807F_FFFF) | (0x2000_0000 + ((next() % 64) << 23));
                b = (b & 0x807F_FFFF) | (0x2000_0000 - ((next() % 64) << 23));
                c &= 0x81FF_FFFF;
            } else if i % 3 == 2 {
                // Nearly cancelling.
                c = (-(f32::from_bits(a) * f32::from_bits(b))).to_bits() ^ (next() & 3);
            }
            let (a, b, c) = (f32::from_bits(a), f32::from_bits(b), f32::from_bits(c));
            let theirs = a.mul_add(b, c);
            for ours in [fma(a, b, c), soft_fma(a, b, c)] {
                assert!(
                    ours.to_bits() == theirs.to_bits() || ours.is_nan() && theirs.is_nan(),
                    "fma({a:e}, {b:e}, {c:e}) = {ours:e}, expected {theirs:e}"
                );
            }
        }
    }

    #[test]
    fn rounding_twice_would_be_wrong_for_subnormals() {
        // a * b = 2^-150 (1 - 2^-46) and c is an odd multiple of 2^-149: the sum lies just below a
        // tie, f64 rounds it onto the tie, and a second rounding takes that up to even.
        let a = (1.0 + 2f32.powi(-23)) * 2f32.powi(-75);
        let b = (1.0 - 2f32.powi(-23)) * 2f32.powi(-75);
        let c = 2f32.powi(-128) + 2f32.powi(-149);
        let twice = (f64::from(a) * f64::from(b) + f64::from(c)) as f32;
        assert_eq!([fma(a, b, c), soft_fma(a, b, c)], [c; 2]);
        assert_eq!(a.mul_add(b, c), c);
        assert_eq!(twice, c.next_up());
    }

    #[test]
    fn exp_is_within_two_ulp() {
        let mut worst = 0.0f64;
        let mut x = EXP_MIN;
        while x < EXP_MAX {
            let truth = f64::from(x).exp();
            let ours = exp(x);
            let ulp = f64::from(ours.next_up()) - f64::from(ours);
            if ours.is_finite() {
                worst = worst.max((f64::from(ours) - truth).abs() / ulp);
            }
            x += 0.000_37;
        }
        assert!(worst <= 2.0, "{worst} ulp");
        assert!(worst > 0.3, "the checker itself is broken: {worst} ulp");
    }

    #[test]
    fn exp_at_its_borders() {
        assert_eq!(exp(0.0).to_bits(), 1.0f32.to_bits());
        assert_eq!(exp(f32::NEG_INFINITY).to_bits(), 0.0f32.to_bits());
        assert_eq!(exp(f32::INFINITY), f32::INFINITY);
        assert!(exp(f32::NAN).is_nan());
        assert!(exp(EXP_MAX).is_finite());
        assert!(exp(EXP_MIN) >= f32::MIN_POSITIVE);
        assert_eq!(silu(f32::MIN), -0.0);
    }

    #[test]
    fn quantize_corners() {
        let mut q = [9i8; 4];
        assert!(quantize(&[1.0, f32::NAN, 0.0, 2.0], &mut q).is_nan());
        assert_eq!(q, [0; 4]);
        assert!(quantize(&[1.0, f32::NEG_INFINITY, 0.0, 2.0], &mut q).is_nan());
        assert_eq!(quantize(&[-0.0, 0.0, 1e-40, 0.0], &mut q), 0.0);
        assert_eq!(quantize(&[127.0, -127.0, 0.5, 1.5], &mut q), 1.0);
        assert_eq!(q, [127, -127, 0, 2]);
        assert_eq!(quantize(&[f32::MAX, f32::MIN, 0.0, 1.0], &mut q), f32::MAX / 127.0);
        assert_eq!(q, [127, -127, 0, 0]);
        let mut q = [0i16; 3];
        assert_eq!(quantize_i16(&[-16256.0, 0.5, 3.5], QUERY_MOST, &mut q), 1.0);
        assert_eq!(q, [-16256, 0, 4]);
        let mut q = [0u8; 3];
        assert_eq!(quantize_weights(&[510.0, 0.0, 3.0], &mut q), 2.0);
        assert_eq!(q, [255, 0, 2]);
        assert!(quantize_weights(&[f32::NAN, 0.0, 3.0], &mut q).is_nan());
        assert_eq!(q, [0; 3]);
    }

    #[test]
    fn dot_and_sum_use_sixteen_lanes() {
        let x: std::vec::Vec<f32> = (0..37).map(|i| 1.0 + i as f32 * 0.37).collect();
        let mut lanes = [0.0f32; 16];
        for (i, v) in x.iter().enumerate() {
            lanes[i % 16] = v.mul_add(*v, lanes[i % 16]);
        }
        assert_eq!(dot(&x, &x).to_bits(), fold16(lanes).to_bits());
        assert_eq!(sum(&[]), 0.0);
        assert_eq!(sum(&[1.0; 17]), 17.0);
    }
}
