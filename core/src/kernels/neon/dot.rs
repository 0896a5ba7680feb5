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
    /// Most queries of attention that share each K and V, as far as registers go.
    const QUERIES: usize;

    /// `acc[i] + sum over j < 4 of a[4i + j] * b[4i + j]`, wrapping.
    ///
    /// Exact if no two products exceed 32767 together: at most one of the factors may be -128.
    fn dot(self, acc: int32x4_t, a: int8x16_t, b: int8x16_t) -> int32x4_t;

    /// `acc[i] + sum over j < 4 of a[4i + j] * b[4L + j]`, as [`Dot::dot`].
    fn dot_lane<const L: i32>(self, acc: int32x4_t, a: int8x16_t, b: int8x16_t) -> int32x4_t;

    /// Adds to `sums[t][part]`, for each group g of four columns, up to four of them, what
    /// [`Dot::dot`] does with the rows' `groups[g][part]` and lane g of `x[t]` in every lane.
    fn dot_lanes<const G: usize, const T: usize>(
        self,
        groups: &[[[i8; 16]; 2]; G],
        x: [int8x16_t; T],
        sums: &mut [[int32x4_t; 2]; T],
    );

    /// Four sums of products of bytes without sign.
    type Sums: Copy;

    /// Sums that begin with `start` each.
    fn sums(self, start: u32) -> Self::Sums;

    /// [`Dot::dot_lane`] of bytes without sign: exact for any.
    fn unsigned_dot_lane<const L: i32>(self, sums: Self::Sums, a: uint8x16_t, b: uint8x16_t) -> Self::Sums;

    /// The sums in order.
    fn total(self, sums: Self::Sums) -> uint32x4_t;
}

impl DotProd {
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
    const QUERIES: usize = 4;

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

    type Sums = uint32x4_t;

    #[inline(always)]
    fn sums(self, start: u32) -> uint32x4_t {
        vdupq_n_u32(start)
    }

    #[inline(always)]
    fn unsigned_dot_lane<const L: i32>(
        self,
        mut sums: uint32x4_t,
        a: uint8x16_t,
        b: uint8x16_t,
    ) -> uint32x4_t {
        const { assert!(0 <= L && L < 4) }
        // SAFETY: `self` proves that the CPU has the instruction, which works on registers only.
        unsafe {
            asm!(
                ".arch_extension dotprod",
                "udot {sums:v}.4s, {a:v}.16b, {b:v}.4b[{lane}]",
                sums = inout(vreg) sums,
                a = in(vreg) a,
                b = in(vreg) b,
                lane = const L,
                options(pure, nomem, nostack, preserves_flags),
            );
        }
        sums
    }

    #[inline(always)]
    fn total(self, sums: uint32x4_t) -> uint32x4_t {
        sums
    }
}

impl Dot for Neon {
    const FAST: bool = false;
    const QUERIES: usize = 2;

    #[inline(always)]
    fn dot(self, acc: int32x4_t, a: int8x16_t, b: int8x16_t) -> int32x4_t {
        let low = vmull_s8(vget_low_s8(a), vget_low_s8(b));
        let high = vmull_high_s8(a, b);
        // Two products at most: 128 * 127 twice is 32512.
        vpadalq_s16(acc, vpaddq_s16(low, high))
    }

    #[inline(always)]
    fn dot_lane<const L: i32>(self, acc: int32x4_t, a: int8x16_t, b: int8x16_t) -> int32x4_t {
        self.dot(acc, a, vreinterpretq_s8_s32(vdupq_laneq_s32::<L>(vreinterpretq_s32_s8(b))))
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

    /// Each sum in two parts, side by side: two sums in the first register, two in the second.
    type Sums = [uint32x4_t; 2];

    #[inline(always)]
    fn sums(self, start: u32) -> [uint32x4_t; 2] {
        [vreinterpretq_u32_u64(vdupq_n_u64(u64::from(start))); 2]
    }

    #[inline(always)]
    fn unsigned_dot_lane<const L: i32>(
        self,
        sums: [uint32x4_t; 2],
        a: uint8x16_t,
        b: uint8x16_t,
    ) -> [uint32x4_t; 2] {
        let b = vreinterpretq_u8_u32(vdupq_laneq_u32::<L>(vreinterpretq_u32_u8(b)));
        // 255 * 255 once fits 16 bits, twice does not.
        let (low, high) = (vmull_u8(vget_low_u8(a), vget_low_u8(b)), vmull_high_u8(a, b));
        [vpadalq_u16(sums[0], low), vpadalq_u16(sums[1], high)]
    }

    #[inline(always)]
    fn total(self, sums: [uint32x4_t; 2]) -> uint32x4_t {
        vpaddq_u32(sums[0], sums[1])
    }
}
