//! Many independent `math::fma` at once, with the same bits. Must not know weights.

use crate::math;

/// `c[i] = fma(a[i], b[i], c[i])`, each rounded once.
///
/// Plain f64 arithmetic rounds twice. The two roundings differ from one only where the first
/// lands exactly half-way between two f32: for normal results the 29 bits that f32 lacks are
/// then a one and zeros. Such lanes are rare, so the whole group is done again with the exact
/// function if there is one, or if a result is so small that its half-way points lie elsewhere.
#[inline(always)]
pub(super) fn fma_each<const N: usize>(a: &[f32; N], b: &[f32; N], c: &mut [f32; N]) {
    if cfg!(all(target_arch = "aarch64", target_feature = "neon")) {
        // One instruction each.
        c.iter_mut().zip(a).zip(b).for_each(|((c, a), b)| *c = math::fma(*a, *b, *c));
        return;
    }
    let mut once = [0.0; N];
    let mut doubt = 0;
    for i in 0..N {
        let sum = f64::from(a[i]) * f64::from(b[i]) + f64::from(c[i]);
        once[i] = sum as f32;
        let half_way = sum.to_bits() as u32 & 0x1FFF_FFFF == 0x1000_0000;
        let tiny = once[i].abs() <= f32::MIN_POSITIVE;
        doubt |= u32::from(half_way | tiny);
    }
    if doubt != 0 {
        for i in 0..N {
            once[i] = math::fma(a[i], b[i], c[i]);
        }
    }
    *c = once;
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::array;
    extern crate std;

    #[test]
    fn equals_the_exact_fma_where_plain_arithmetic_does_not() {
        let mut state = 9u64;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 32) as u32
        };
        let mut twice_is_wrong = 0;
        for i in 0..400_000u32 {
            // Few bits in each factor make half-way sums likely; the others are any bits at all,
            // products near the subnormal numbers, and a product just beside a half-way point.
            let mut lane = || match i % 4 {
                0 => [next() & 0xC1FF_0000 | 0x3E00_0000, next() & 0xC1FF_8000 | 0x3E00_0000, next()],
                1 => [next(), next(), next()],
                2 => [
                    next() & 0x807F_FFFF | 0x2000_0000,
                    next() & 0x807F_FFFF | 0x2000_0000,
                    next() & 0x81FF_FFFF,
                ],
                _ => [0x3F80_0001, next() & 0x8000_0000 | 0x337F_FFFE, 0x3F80_0000 | next() & 0x7F_FFFF],
            };
            let lanes: [[f32; 3]; 4] = array::from_fn(|_| lane().map(f32::from_bits));
            let [a, b, start] = array::from_fn(|part| lanes.map(|lane| lane[part]));
            let mut c = start;
            fma_each(&a, &b, &mut c);
            for j in 0..4 {
                let truth = a[j].mul_add(b[j], start[j]);
                assert!(c[j].to_bits() == truth.to_bits() || c[j].is_nan() && truth.is_nan());
                let twice = (f64::from(a[j]) * f64::from(b[j]) + f64::from(start[j])) as f32;
                twice_is_wrong += u32::from(twice.to_bits() != truth.to_bits() && !truth.is_nan());
            }
        }
        assert!(twice_is_wrong > 0, "the inputs are too tame to show a mistake");
    }
}
