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
