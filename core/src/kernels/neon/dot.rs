//! Products of i8 summed by fours into i32: the dot-product instruction, which has no stable
//! intrinsic, and the same sums without it.
#![allow(unsafe_code)]

use super::vec::*;
use crate::ops::isa::{DotProd, Neon};
use core::arch::asm;

/// What the two forms of the kernels differ in. The values are tokens: having one proves that the
/// CPU has the instructions.
pub(super) trait Dot: Copy {
    /// `acc[i] + sum over j < 4 of a[4i + j] * b[4i + j]`, wrapping.
    ///
    /// Exact if no two products exceed 32767 together: at most one of the factors may be -128.
    fn dot(self, acc: int32x4_t, a: int8x16_t, b: int8x16_t) -> int32x4_t;

    /// `acc[i] + sum over j < 4 of a[4i + j] * b[4L + j]`, as [`Dot::dot`].
    fn dot_lane<const L: i32>(self, acc: int32x4_t, a: int8x16_t, b: int8x16_t) -> int32x4_t;

    /// [`Dot::dot_lane`] of bytes without sign: exact for any.
    fn unsigned_dot_lane<const L: i32>(self, acc: uint32x4_t, a: uint8x16_t, b: uint8x16_t) -> uint32x4_t;
}

impl Dot for DotProd {
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
    fn unsigned_dot_lane<const L: i32>(
        self,
        mut acc: uint32x4_t,
        a: uint8x16_t,
        b: uint8x16_t,
    ) -> uint32x4_t {
        const { assert!(0 <= L && L < 4) }
        // SAFETY: `self` proves that the CPU has the instruction, which works on registers only.
        unsafe {
            asm!(
                ".arch_extension dotprod",
                "udot {acc:v}.4s, {a:v}.16b, {b:v}.4b[{lane}]",
                acc = inout(vreg) acc,
                a = in(vreg) a,
                b = in(vreg) b,
                lane = const L,
                options(pure, nomem, nostack, preserves_flags),
            );
        }
        acc
    }
}

impl Dot for Neon {
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
    #[inline(always)]
    fn unsigned_dot_lane<const L: i32>(self, acc: uint32x4_t, a: uint8x16_t, b: uint8x16_t) -> uint32x4_t {
        let b = vreinterpretq_u8_u32(vdupq_laneq_u32::<L>(vreinterpretq_u32_u8(b)));
        // 255 * 255 once fits 16 bits, twice does not.
        let low = vpaddlq_u16(vmull_u8(vget_low_u8(a), vget_low_u8(b)));
        let high = vpaddlq_u16(vmull_high_u8(a, b));
        vaddq_u32(acc, vpaddq_u32(low, high))
    }
}
