//! The fused multiply-add instruction, where every CPU of the target has one.
//! Must not know what is computed with it.
#![allow(unsafe_code)]

use core::arch::asm;

/// `a * b + c` rounded once.
#[inline(always)]
pub(crate) fn fma(a: f32, b: f32, c: f32) -> f32 {
    let sum: f32;
    // SAFETY: works on registers only; `lib` compiles this module only where the target has NEON, and
    // with it this instruction.
    unsafe {
        asm!(
            "fmadd {sum:s}, {a:s}, {b:s}, {c:s}",
            sum = lateout(vreg) sum,
            a = in(vreg) a,
            b = in(vreg) b,
            c = in(vreg) c,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    sum
}
