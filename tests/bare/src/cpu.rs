//! What the CPU can do, asked of its own registers.
#![allow(unsafe_code)]

use core::arch::asm;
use kinglet_core::Isa;
use kinglet_core::ops::isa::{DotProd, Neon};

/// The best kernels for this CPU.
pub fn best_isa() -> Isa {
    let features: u64;
    // SAFETY: reads a register and changes nothing.
    unsafe { asm!("mrs {}, id_aa64isar0_el1", out(reg) features, options(nomem, nostack, preserves_flags)) };
    if features >> 44 & 0xf != 0 {
        // SAFETY: ID_AA64ISAR0_EL1.DP says that the instructions are there; NEON is part of the target.
        return Isa::DotProd(unsafe { DotProd::assume() });
    }
    Neon::new().map_or(Isa::Scalar, Isa::Neon)
}
