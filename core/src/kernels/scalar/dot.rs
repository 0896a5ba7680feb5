//! Exact integer dot products. Must not know weights.
//!
//! i16 products summed in pairs into i32: the shape that vector units multiply best
//! (`pmaddwd`, `smlal`). Sums wrap by name, since overflow checks would undo the vector
//! code; the contract gives the bounds that keep them from wrapping.

/// `N` integers, aligned so that vector instructions can take them straight from memory.
#[repr(align(16))]
#[derive(Clone, Copy)]
pub(super) struct Wide<const N: usize>(pub [i16; N]);

impl<const N: usize> Wide<N> {
    /// All zero.
    pub(super) const ZERO: Self = Wide([0; N]);

    /// `128 * hi + lo`.
    #[inline(always)]
    pub(super) fn from_planes(lo: &[i8; N], hi: &[i8; N]) -> Self {
        let mut out = Self::from_i8(lo);
        for (out, hi) in out.0.iter_mut().zip(hi) {
            *out += i16::from(*hi) << 7;
        }
        out
    }

    /// Integers widened from i8.
    #[inline(always)]
    pub(super) fn from_i8(q: &[i8; N]) -> Self {
        Wide(q.map(i16::from))
    }
}

/// `sums[r] = w[r] . x`, each of which must fit an i32; `R` is even, `N` a multiple of `RUN`.
#[inline(always)]
pub(super) fn dots<const RUN: usize, const N: usize, const R: usize>(
    w: &[Wide<N>; R],
    x: &Wide<N>,
) -> [i32; R] {
    const { assert!(R.is_multiple_of(2) && N.is_multiple_of(RUN)) }
    let mut sums = [0; R];
    for (w, sums) in w.as_chunks().0.iter().zip(sums.as_chunks_mut().0) {
        *sums = dot2::<RUN, N>(w, x).into();
    }
    sums
}

/// Two rows at once: one set of loads of `x`.
///
/// Never inlined, two results in registers, and runs short enough to be unrolled: in any other
/// form that was tried LLVM vectorises across the dot products and gathers every single element,
/// or uses half of each `pmaddwd`. This one is loads, `pmaddwd` and a few additions.
#[inline(never)]
fn dot2<const RUN: usize, const N: usize>(w: &[Wide<N>; 2], x: &Wide<N>) -> (i32, i32) {
    let (mut sum0, mut sum1) = (0i32, 0i32);
    let runs = w[0].0.as_chunks::<RUN>().0.iter().zip(w[1].0.as_chunks::<RUN>().0);
    for ((w0, w1), x) in runs.zip(x.0.as_chunks::<RUN>().0) {
        sum0 = sum0.wrapping_add(dot(w0, x));
        sum1 = sum1.wrapping_add(dot(w1, x));
    }
    (sum0, sum1)
}

#[inline(always)]
fn dot<const RUN: usize>(a: &[i16; RUN], b: &[i16; RUN]) -> i32 {
    let mut sum = 0i32;
    for i in 0..RUN {
        sum = sum.wrapping_add(i32::from(a[i]).wrapping_mul(i32::from(b[i])));
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::array;

    #[test]
    fn the_largest_sums_are_exact() {
        // Q6_K: |scale * q| = 128 * 32 against 2047, everywhere the same sign.
        let w = [Wide([128 * 32; 256]), Wide([-128 * 32; 256])];
        let largest = 16 * 128 * (16 * 32 * 2047);
        assert_eq!(largest, 2_146_435_072);
        assert_eq!(dots::<32, _, _>(&w, &Wide([2047; 256])), [largest, -largest]);
        let least = -32 * 128 * 2047;
        assert_eq!(dots::<32, _, _>(&[Wide::from_i8(&[-128; 32]); 2], &Wide([2047; 32])), [least; 2]);
    }

    #[test]
    fn every_element_counts_once() {
        for i in 0..32 {
            let mut w = [Wide::<32>::ZERO; 4];
            w[3].0[i] = 7;
            let x = Wide(array::from_fn(|j| 100 + j as i16));
            assert_eq!(dots::<32, _, _>(&w, &x), [0, 0, 0, 7 * (100 + i as i32)]);
        }
    }
}
