//! Products of i8 summed by fours into i32: the dot-product instruction, which has no stable
//! intrinsic, and the same sums without it.
#![allow(unsafe_code)]

use super::vec::*;
use crate::ops::isa::{DotProd, Neon};
use core::arch::asm;

/// What the two forms of the kernels differ in. The values are tokens: having one proves that the
/// CPU has the instructions.
pub(super) trait Dot: Copy {
    /// Whether there is an instruction for it: CPUs without get by with less code.
    const FAST: bool;

    /// `acc[i] + sum over j < 4 of a[4i + j] * b[4i + j]`, wrapping.
    ///
    /// Exact if no two products exceed 32767 together: at most one of the factors may be -128.
    fn dot(self, acc: int32x4_t, a: int8x16_t, b: int8x16_t) -> int32x4_t;

    /// Adds to `sums[t][part]`, for each group g of four columns, up to four of them, what
    /// [`Dot::dot`] does with the rows' `groups[g][part]` and lane g of `x[t]` in every lane.
    fn dot_lanes<const G: usize, const T: usize>(
        self,
        groups: &[[[i8; 16]; 2]; G],
        x: [int8x16_t; T],
        sums: &mut [[int32x4_t; 2]; T],
    );
}

impl DotProd {
    /// `acc[i] + sum over j < 4 of a[4i + j] * b[4L + j]`, wrapping.
    #[inline(always)]
    fn dot_lane<const L: i32>(self, mut acc: int32x4_t, a: int8x16_t, b: int8x16_t) -> int32x4_t {
        const { assert!(0 <= L && L < 4) }
        // SAFETY: `self` proves that the CPU has the instruction, which works on registers only.
        unsafe {
            asm!(
                ".arch_extension dotprod",
                "sdot {acc:v}.4s, {a:v}.16b, {b:v}.4b[{lane}]",
                acc = inout(vreg) acc,
                a = in(vreg) a,
                b = in(vreg) b,
                lane = const L,
                options(pure, nomem, nostack, preserves_flags),
            );
        }
        acc
    }

    #[inline(always)]
    fn lane<const L: i32, const T: usize>(
        self,
        group: &[[i8; 16]; 2],
        x: [int8x16_t; T],
        sums: &mut [[int32x4_t; 2]; T],
    ) {
        let q = [load_i8(&group[0]), load_i8(&group[1])];
        for (x, sums) in x.into_iter().zip(sums) {
            sums[0] = self.dot_lane::<L>(sums[0], q[0], x);
            sums[1] = self.dot_lane::<L>(sums[1], q[1], x);
        }
    }
}

impl Dot for DotProd {
    const FAST: bool = true;

    #[inline(always)]
    fn dot(self, mut acc: int32x4_t, a: int8x16_t, b: int8x16_t) -> int32x4_t {
        // SAFETY: `self` proves that the CPU has the instruction, which works on registers only.
        unsafe {
            asm!(
                ".arch_extension dotprod",
                "sdot {acc:v}.4s, {a:v}.16b, {b:v}.16b",
                acc = inout(vreg) acc,
                a = in(vreg) a,
                b = in(vreg) b,
                options(pure, nomem, nostack, preserves_flags),
            );
        }
        acc
    }

    #[inline(always)]
    fn dot_lanes<const G: usize, const T: usize>(
        self,
        groups: &[[[i8; 16]; 2]; G],
        x: [int8x16_t; T],
        sums: &mut [[int32x4_t; 2]; T],
    ) {
        const { assert!(G <= 4) }
        // A loop over lanes would stay one.
        if let Some(group) = groups.first() {
            self.lane::<0, T>(group, x, sums);
        }
        if let Some(group) = groups.get(1) {
            self.lane::<1, T>(group, x, sums);
        }
        if let Some(group) = groups.get(2) {
            self.lane::<2, T>(group, x, sums);
        }
        if let Some(group) = groups.get(3) {
            self.lane::<3, T>(group, x, sums);
        }
    }
}

impl Dot for Neon {
    const FAST: bool = false;

    #[inline(always)]
    fn dot(self, acc: int32x4_t, a: int8x16_t, b: int8x16_t) -> int32x4_t {
        let low = vmull_s8(vget_low_s8(a), vget_low_s8(b));
        let high = vmull_high_s8(a, b);
        // Two products at most: 128 * 127 twice is 32512.
        vpadalq_s16(acc, vpaddq_s16(low, high))
    }

    /// A loop over lanes: unrolled it would be four times the code for CPUs that few boards have.
    #[inline(always)]
    fn dot_lanes<const G: usize, const T: usize>(
        self,
        groups: &[[[i8; 16]; 2]; G],
        x: [int8x16_t; T],
        sums: &mut [[int32x4_t; 2]; T],
    ) {
        const { assert!(G <= 4) }
        let mut lane = vreinterpretq_u8_u32(vdupq_n_u32(0x0302_0100));
        for group in groups {
            let q = [load_i8(&group[0]), load_i8(&group[1])];
            for (x, sums) in x.into_iter().zip(sums.iter_mut()) {
                let x = vqtbl1q_s8(x, lane);
                sums[0] = self.dot(sums[0], q[0], x);
                sums[1] = self.dot(sums[1], q[1], x);
            }
            lane = vaddq_u8(lane, vdupq_n_u8(4));
        }
    }
}
