//! NEON registers: safe twins of the intrinsics that the kernels need, under the vendor's names, and
//! loads and stores through arrays. Must not know weights.
#![allow(unsafe_code)]

pub(super) use core::arch::aarch64::{
    float32x4_t, int8x16_t, int16x4_t, int16x8_t, int32x4_t, uint8x16_t, uint16x4_t, uint16x8_t, uint32x4_t,
};
use core::arch::{aarch64 as arm, asm};

// `kernels` compiles this module only where every CPU of the target has NEON.
const _: () = assert!(cfg!(target_feature = "neon"));

/// Safe twins of intrinsics that work on registers.
macro_rules! registers {
    ($($name:ident$(<$n:ident>)?($($arg:ident: $ty:ty),*) -> $out:ty;)*) => {$(
        #[inline(always)]
        pub(super) fn $name$(<const $n: i32>)?($($arg: $ty),*) -> $out {
            // SAFETY: touches registers only and needs NEON only, which the assertion above found in
            // the compilation target.
            unsafe { arm::$name$(::<$n>)?($($arg),*) }
        }
    )*};
}

registers! {
    vdupq_n_s8(v: i8) -> int8x16_t;
    vdupq_n_u8(v: u8) -> uint8x16_t;
    vdupq_n_s16(v: i16) -> int16x8_t;
    vdupq_n_s32(v: i32) -> int32x4_t;
    vdupq_n_u32(v: u32) -> uint32x4_t;
    vdupq_n_u64(v: u64) -> arm::uint64x2_t;
    vdupq_n_f32(v: f32) -> float32x4_t;
    vdupq_laneq_s32<L>(v: int32x4_t) -> int32x4_t;
    vdupq_laneq_u32<L>(v: uint32x4_t) -> uint32x4_t;

    vreinterpretq_s8_u8(v: uint8x16_t) -> int8x16_t;
    vreinterpretq_u8_s8(v: int8x16_t) -> uint8x16_t;
    vreinterpretq_u8_s16(v: int16x8_t) -> uint8x16_t;
    vreinterpretq_u8_u16(v: uint16x8_t) -> uint8x16_t;
    vreinterpretq_u8_u32(v: uint32x4_t) -> uint8x16_t;
    vreinterpretq_u32_u64(v: arm::uint64x2_t) -> uint32x4_t;
    vreinterpretq_u32_u16(v: uint16x8_t) -> uint32x4_t;
    vreinterpretq_u16_u32(v: uint32x4_t) -> uint16x8_t;
    vreinterpretq_s8_s32(v: int32x4_t) -> int8x16_t;
    vreinterpretq_s32_u32(v: uint32x4_t) -> int32x4_t;
    vreinterpretq_s32_s8(v: int8x16_t) -> int32x4_t;
    vreinterpretq_s32_f32(v: float32x4_t) -> int32x4_t;
    vreinterpretq_u32_f32(v: float32x4_t) -> uint32x4_t;
    vreinterpretq_f32_s32(v: int32x4_t) -> float32x4_t;
    vreinterpretq_f32_u32(v: uint32x4_t) -> float32x4_t;
    vreinterpretq_s32_s16(v: int16x8_t) -> int32x4_t;
    vreinterpretq_s16_s32(v: int32x4_t) -> int16x8_t;
    vreinterpretq_s16_s64(v: arm::int64x2_t) -> int16x8_t;
    vreinterpretq_s8_s64(v: arm::int64x2_t) -> int8x16_t;
    vreinterpretq_s64_s32(v: int32x4_t) -> arm::int64x2_t;

    vandq_u8(a: uint8x16_t, b: uint8x16_t) -> uint8x16_t;
    vorrq_u8(a: uint8x16_t, b: uint8x16_t) -> uint8x16_t;
    vmvnq_u8(a: uint8x16_t) -> uint8x16_t;
    vtstq_u8(a: uint8x16_t, b: uint8x16_t) -> uint8x16_t;
    vshrq_n_u8<N>(a: uint8x16_t) -> uint8x16_t;
    vshlq_n_u8<N>(a: uint8x16_t) -> uint8x16_t;
    vsliq_n_u8<N>(a: uint8x16_t, b: uint8x16_t) -> uint8x16_t;
    vsriq_n_u8<N>(a: uint8x16_t, b: uint8x16_t) -> uint8x16_t;
    vbslq_u8(mask: uint8x16_t, yes: uint8x16_t, no: uint8x16_t) -> uint8x16_t;
    vqtbl1q_u8(table: uint8x16_t, index: uint8x16_t) -> uint8x16_t;
    vqtbl1q_s8(table: int8x16_t, index: uint8x16_t) -> int8x16_t;
    vsubq_s8(a: int8x16_t, b: int8x16_t) -> int8x16_t;
    vextq_s8<N>(a: int8x16_t, b: int8x16_t) -> int8x16_t;
    vaddq_u8(a: uint8x16_t, b: uint8x16_t) -> uint8x16_t;

    vtrn1q_s16(a: int16x8_t, b: int16x8_t) -> int16x8_t;
    vtrn2q_s16(a: int16x8_t, b: int16x8_t) -> int16x8_t;
    vtrn1q_s32(a: int32x4_t, b: int32x4_t) -> int32x4_t;
    vtrn2q_s32(a: int32x4_t, b: int32x4_t) -> int32x4_t;
    vtrn1q_s64(a: arm::int64x2_t, b: arm::int64x2_t) -> arm::int64x2_t;
    vtrn2q_s64(a: arm::int64x2_t, b: arm::int64x2_t) -> arm::int64x2_t;
    vtrn1q_f32(a: float32x4_t, b: float32x4_t) -> float32x4_t;
    vtrn2q_f32(a: float32x4_t, b: float32x4_t) -> float32x4_t;
    vextq_f32<N>(a: float32x4_t, b: float32x4_t) -> float32x4_t;
    vzip1q_u16(a: uint16x8_t, b: uint16x8_t) -> uint16x8_t;
    vzip1q_u32(a: uint32x4_t, b: uint32x4_t) -> uint32x4_t;
    vzip1q_s8(a: int8x16_t, b: int8x16_t) -> int8x16_t;
    vuzp1q_u8(a: uint8x16_t, b: uint8x16_t) -> uint8x16_t;
    vuzp2q_u8(a: uint8x16_t, b: uint8x16_t) -> uint8x16_t;
    vuzp1q_u16(a: uint16x8_t, b: uint16x8_t) -> uint16x8_t;

    vget_low_s8(a: int8x16_t) -> arm::int8x8_t;
    vget_low_u8(a: uint8x16_t) -> arm::uint8x8_t;
    vget_low_u16(a: uint16x8_t) -> uint16x4_t;
    vget_low_s16(a: int16x8_t) -> int16x4_t;
    vcombine_s8(a: arm::int8x8_t, b: arm::int8x8_t) -> int8x16_t;
    vcombine_s16(a: int16x4_t, b: int16x4_t) -> int16x8_t;
    vmovl_s8(a: arm::int8x8_t) -> int16x8_t;
    vmovl_high_s8(a: int8x16_t) -> int16x8_t;
    vmovl_s16(a: int16x4_t) -> int32x4_t;
    vmovl_high_s16(a: int16x8_t) -> int32x4_t;
    vmovn_s16(a: int16x8_t) -> arm::int8x8_t;
    vmovn_s32(a: int32x4_t) -> int16x4_t;

    vmull_s8(a: arm::int8x8_t, b: arm::int8x8_t) -> int16x8_t;
    vmull_high_s8(a: int8x16_t, b: int8x16_t) -> int16x8_t;
    vmull_u8(a: arm::uint8x8_t, b: arm::uint8x8_t) -> uint16x8_t;
    vmull_high_u8(a: uint8x16_t, b: uint8x16_t) -> uint16x8_t;
    vpadalq_u16(acc: uint32x4_t, a: uint16x8_t) -> uint32x4_t;
    vaddlvq_u8(a: uint8x16_t) -> u16;
    vpadalq_s16(acc: int32x4_t, a: int16x8_t) -> int32x4_t;
    vmull_s16(a: int16x4_t, b: int16x4_t) -> int32x4_t;
    vmlal_s16(acc: int32x4_t, a: int16x4_t, b: int16x4_t) -> int32x4_t;
    vmlal_high_s16(acc: int32x4_t, a: int16x8_t, b: int16x8_t) -> int32x4_t;
    vmlal_laneq_s16<L>(acc: int32x4_t, a: int16x4_t, b: int16x8_t) -> int32x4_t;
    vmlal_high_laneq_s16<L>(acc: int32x4_t, a: int16x8_t, b: int16x8_t) -> int32x4_t;
    vextq_s16<N>(a: int16x8_t, b: int16x8_t) -> int16x8_t;
    vaddq_s16(a: int16x8_t, b: int16x8_t) -> int16x8_t;
    vsubq_s16(a: int16x8_t, b: int16x8_t) -> int16x8_t;
    vpaddq_s16(a: int16x8_t, b: int16x8_t) -> int16x8_t;
    vaddvq_s16(a: int16x8_t) -> i16;
    vabsq_s16(a: int16x8_t) -> int16x8_t;
    vuzp1q_s16(a: int16x8_t, b: int16x8_t) -> int16x8_t;
    vshlq_n_s16<N>(a: int16x8_t) -> int16x8_t;
    vrshrq_n_s16<N>(a: int16x8_t) -> int16x8_t;

    vaddq_s32(a: int32x4_t, b: int32x4_t) -> int32x4_t;
    vsubq_s32(a: int32x4_t, b: int32x4_t) -> int32x4_t;
    vpaddq_s32(a: int32x4_t, b: int32x4_t) -> int32x4_t;
    vaddvq_s32(a: int32x4_t) -> i32;
    vmlaq_laneq_s32<L>(acc: int32x4_t, a: int32x4_t, b: int32x4_t) -> int32x4_t;
    vmlaq_s32(acc: int32x4_t, a: int32x4_t, b: int32x4_t) -> int32x4_t;
    vshlq_n_s32<N>(a: int32x4_t) -> int32x4_t;
    vshrq_n_s32<N>(a: int32x4_t) -> int32x4_t;
    vpaddq_u32(a: uint32x4_t, b: uint32x4_t) -> uint32x4_t;
    vandq_u32(a: uint32x4_t, b: uint32x4_t) -> uint32x4_t;
    vmaxq_u32(a: uint32x4_t, b: uint32x4_t) -> uint32x4_t;
    vmaxvq_u32(a: uint32x4_t) -> u32;

    vaddq_f32(a: float32x4_t, b: float32x4_t) -> float32x4_t;
    vsubq_f32(a: float32x4_t, b: float32x4_t) -> float32x4_t;
    vmulq_f32(a: float32x4_t, b: float32x4_t) -> float32x4_t;
    vdivq_f32(a: float32x4_t, b: float32x4_t) -> float32x4_t;
    vnegq_f32(a: float32x4_t) -> float32x4_t;
    vfmaq_f32(acc: float32x4_t, a: float32x4_t, b: float32x4_t) -> float32x4_t;
    vfmsq_f32(acc: float32x4_t, a: float32x4_t, b: float32x4_t) -> float32x4_t;
    vmulq_n_f32(a: float32x4_t, b: f32) -> float32x4_t;
    vfmaq_n_f32(acc: float32x4_t, a: float32x4_t, b: f32) -> float32x4_t;
    vmaxnmq_f32(a: float32x4_t, b: float32x4_t) -> float32x4_t;
    vmaxnmvq_f32(a: float32x4_t) -> f32;
    vsqrtq_f32(a: float32x4_t) -> float32x4_t;
    vgetq_lane_f32<L>(a: float32x4_t) -> f32;
    vcvtq_f32_s32(a: int32x4_t) -> float32x4_t;
    vcvtnq_s32_f32(a: float32x4_t) -> int32x4_t;
    vcgtq_f32(a: float32x4_t, b: float32x4_t) -> uint32x4_t;
    vceqq_f32(a: float32x4_t, b: float32x4_t) -> uint32x4_t;
    vbslq_f32(mask: uint32x4_t, yes: float32x4_t, no: float32x4_t) -> float32x4_t;
}

/// Loads and stores of a whole register.
macro_rules! memory {
    ($($load:ident, $store:ident: [$ty:ty; $n:literal] as $vector:ty = $from:ident, $to:ident;)*) => {$(
        /// The array as a register.
        #[inline(always)]
        pub(super) fn $load(from: &[$ty; $n]) -> $vector {
            // SAFETY: reads exactly the array, for which any alignment will do; NEON as above.
            unsafe { arm::$from(from.as_ptr()) }
        }

        /// The register as an array.
        #[inline(always)]
        pub(super) fn $store(to: &mut [$ty; $n], v: $vector) {
            // SAFETY: writes exactly the array, for which any alignment will do; NEON as above.
            unsafe { arm::$to(to.as_mut_ptr(), v) }
        }
    )*};
}

memory! {
    load_u8, store_u8: [u8; 16] as uint8x16_t = vld1q_u8, vst1q_u8;
    load_i8, store_i8: [i8; 16] as int8x16_t = vld1q_s8, vst1q_s8;
    load_i16, store_i16: [i16; 8] as int16x8_t = vld1q_s16, vst1q_s16;
    load_i32, store_i32: [i32; 4] as int32x4_t = vld1q_s32, vst1q_s32;
    load_f32, store_f32: [f32; 4] as float32x4_t = vld1q_f32, vst1q_f32;
}

/// Array `I` as a register, loaded at every use.
///
/// A sum overwrites the register it starts from. The compiler would keep the array in one and copy that,
/// in the pipes that multiply; loads have pipes of their own.
#[inline(always)]
pub(super) fn reload_f32<const I: usize, const N: usize>(from: &[[f32; 4]; N]) -> float32x4_t {
    const { assert!(I < N) }
    let v: float32x4_t;
    // SAFETY: reads exactly array I, which the assertion found to be there; NEON as above.
    unsafe {
        asm!(
            "ldr {v:q}, [{from}, {offset}]",
            v = lateout(vreg) v,
            from = in(reg) from.as_ptr(),
            offset = const 16 * I,
            options(readonly, nostack, preserves_flags),
        );
    }
    v
}

/// Four f32 in bytes as they stand in a file (little-endian, as every target of this module is).
#[inline(always)]
pub(super) fn load_f32_bytes(from: &[u8; 16]) -> float32x4_t {
    vreinterpretq_f32_u32(vreinterpretq_u32_u8(load_u8(from)))
}

/// Four bf16 in bytes, widened.
#[inline(always)]
pub(super) fn load_bf16_bytes(from: &[u8; 8]) -> float32x4_t {
    vreinterpretq_f32_u32(bf16(vcreate_u16(u64::from_le_bytes(*from))))
}

/// Four f16 in bytes, widened exactly.
#[inline(always)]
pub(super) fn load_f16_bytes(from: &[u8; 8]) -> float32x4_t {
    fcvtl(vcreate_u16(u64::from_le_bytes(*from)))
}

/// Four f16 by their bits, widened exactly.
#[inline(always)]
pub(super) fn widen_f16(bits: [u16; 4]) -> float32x4_t {
    // SAFETY: reads exactly the array; NEON as above.
    fcvtl(unsafe { arm::vld1_u16(bits.as_ptr()) })
}

/// Four pairs of f16, widened exactly: the first of each, the second of each.
#[inline(always)]
pub(super) fn widen_f16_pairs(pairs: uint8x16_t) -> [float32x4_t; 2] {
    let pairs = vreinterpretq_u32_u8(pairs);
    [fcvtl(vmovn_u32(pairs)), fcvtl(vshrn_n_u32::<16>(pairs))]
}

/// The conversion of f16 bits; its intrinsic is younger than the oldest compiler we support.
#[inline(always)]
pub(super) fn fcvtl(bits: uint16x4_t) -> float32x4_t {
    let wide: float32x4_t;
    // SAFETY: works on registers only; NEON as above.
    unsafe {
        asm!(
            "fcvtl {wide:v}.4s, {bits:v}.4h",
            wide = lateout(vreg) wide,
            bits = in(vreg) bits,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    wide
}

/// Registers that start as `zero`, loaded anew each time: where the vector units are what limits, a
/// load is cheaper than to clear or to copy a register.
#[inline(always)]
pub(super) fn load_fresh<const N: usize>(zero: &[i32; 8]) -> [[int32x4_t; 2]; N] {
    core::array::from_fn(|_| {
        let (a, b): (int32x4_t, int32x4_t);
        // SAFETY: reads exactly the array; NEON as above. Not `pure`: it must not be shared.
        unsafe {
            asm!(
                "ldp {a:q}, {b:q}, [{from}]",
                a = lateout(vreg) a,
                b = lateout(vreg) b,
                from = in(reg) zero.as_ptr(),
                options(readonly, nostack, preserves_flags),
            );
        }
        [a, b]
    })
}

/// The same, but the compiler cannot know: what is read through it is read anew.
#[inline(always)]
pub(super) fn opaque<T>(r: &T) -> &T {
    let mut pointer: *const T = r;
    // SAFETY: changes nothing, so that the pointer stays the valid reference that it was.
    unsafe {
        asm!("/* {0} */", inout(reg) pointer, options(readonly, nostack, preserves_flags));
        &*pointer
    }
}

/// The same value, but the compiler cannot know: what made it is not mixed with what is made of it.
#[inline(always)]
pub(super) fn opaque_s32(mut v: int32x4_t) -> int32x4_t {
    // SAFETY: changes nothing.
    unsafe { asm!("/* {0:v} */", inout(vreg) v, options(pure, nomem, nostack, preserves_flags)) };
    v
}

/// The same; what is loaded after it is not loaded before.
///
/// The compiler would load much ahead, run out of registers, and store it again.
#[inline(always)]
pub(super) fn before_loads(mut v: int32x4_t) -> int32x4_t {
    // SAFETY: changes nothing.
    unsafe { asm!("/* {0:v} */", inout(vreg) v, options(nostack, preserves_flags)) };
    v
}

/// `into` with the bits of `v` where `mask` has ones. The intrinsic can become several instructions.
#[inline(always)]
pub(super) fn insert(mut into: uint8x16_t, v: uint8x16_t, mask: uint8x16_t) -> uint8x16_t {
    // SAFETY: works on registers only; NEON as above.
    unsafe {
        asm!(
            "bit {into:v}.16b, {v:v}.16b, {mask:v}.16b",
            into = inout(vreg) into,
            v = in(vreg) v,
            mask = in(vreg) mask,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    into
}

/// 16 bytes in two halves.
#[inline(always)]
pub(super) fn bytes(low: u64, high: u64) -> uint8x16_t {
    vcombine_u8(vcreate_u8(low), vcreate_u8(high))
}

#[inline(always)]
fn bf16(halves: uint16x4_t) -> uint32x4_t {
    vshll_n_u16::<16>(halves)
}

registers! {
    vreinterpretq_u32_u8(v: uint8x16_t) -> uint32x4_t;
    vcreate_u8(v: u64) -> arm::uint8x8_t;
    vcombine_u8(a: arm::uint8x8_t, b: arm::uint8x8_t) -> uint8x16_t;
    vcreate_u16(v: u64) -> uint16x4_t;
    vmovn_u32(v: uint32x4_t) -> uint16x4_t;
    vshrn_n_u32<N>(v: uint32x4_t) -> uint16x4_t;
    vshll_n_u16<N>(v: uint16x4_t) -> uint32x4_t;
}
