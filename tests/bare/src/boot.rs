//! Boot code and what it calls when the CPU meets a fault. Must not know the engine.
#![allow(unsafe_code)]

use crate::memory::{Symbol, linker};
use crate::{console, semihost};
use core::arch::global_asm;
use core::fmt;

/// Exit code after a fault of the CPU.
const EXIT_FAULT: u32 = 2;

global_asm!(include_str!("boot.s"));

/// What the exception class of ESR_EL1 means, for the classes that a program like this can meet.
struct Class(u64);

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 >> 26 & 0x3f {
            0x00 => "unknown instruction",
            0x07 => "FP or SIMD is off",
            0x0e => "illegal state",
            0x21 => "instruction abort",
            0x22 => "PC not aligned",
            0x25 => "data abort",
            0x26 => "SP not aligned",
            0x2c => "floating-point exception",
            0x3c => "breakpoint",
            _ => "exception",
        })
    }
}

// SAFETY: the only definition of this name; `boot.s` jumps to it once, on the program's stack.
#[unsafe(no_mangle)]
extern "C" fn kinglet_bare_main() -> ! {
    crate::run()
}

/// Tries to change the program's first instruction. Comes back only if nothing prevents it.
pub fn write_to_code() {
    let code: *mut u32 = core::ptr::with_exposed_provenance_mut(linker(Symbol::CodeStart));
    // SAFETY: aligned and inside RAM; the instruction is not executed again, so that even if the write
    // succeeds nothing but the exit code depends on it.
    unsafe { code.write_volatile(0) };
}

/// Uses stack without end. Comes back only if nothing prevents it.
pub fn overflow(depth: usize) -> usize {
    let frame = core::hint::black_box([depth; 64]);
    // As deep as RAM is large: past any stack.
    if depth > 1 << 20 { frame[0] } else { overflow(depth + 1) + frame[depth % 64] }
}

/// Says what happened and ends the program.
// SAFETY: the only definition of this name; `boot.s` calls it with these four numbers and does not
// expect it to return.
#[unsafe(no_mangle)]
extern "C" fn kinglet_bare_fault(vector: u64, esr: u64, far: u64, elr: u64) -> ! {
    console::print(format_args!(
        "bare: {}: vector {vector}, ESR {esr:#010x}, FAR {far:#018x}, ELR {elr:#018x}\n",
        Class(esr)
    ));
    semihost::exit(EXIT_FAULT)
}
