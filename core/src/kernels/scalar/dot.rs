//! Exact integer dot products. Must not know weights.
//!
//! i16 products summed in pairs into i32: the shape that vector units multiply best
//! (`pmaddwd`, `smlal`). Sums wrap by name, since overflow checks would undo the vector
//! code; the contract gives the bounds that keep them from wrapping.

/// Integers widened to i16.
#[inline(always)]
pub(super) fn widen<const N: usize>(q: &[i8; N]) -> [i16; N] {
    q.map(i16::from)
}

/// `sum of a[i] * b[i]`, which must fit an i32.
#[inline(always)]
pub(super) fn dot<const N: usize>(a: &[i16; N], b: &[i16; N]) -> i32 {
    let mut sum = 0i32;
    for i in 0..N {
        sum = sum.wrapping_add(i32::from(a[i]).wrapping_mul(i32::from(b[i])));
    }
    sum
}
