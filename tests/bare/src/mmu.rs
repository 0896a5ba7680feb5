//! Page table, MMU and caches. The map is the identity. Must not know what lies where beyond the
//! linker script's names.
#![allow(unsafe_code)]

use crate::memory::{Symbol, linker};
use core::arch::asm;
use core::cell::UnsafeCell;

/// Bytes that an entry of the second level maps.
const BLOCK: usize = 2 << 20;
/// Bytes that an entry of the first level covers.
const SPAN: usize = 1 << 30;
/// The serial port: the one device.
const DEVICE: usize = crate::console::UART;

/// MAIR_EL1: attribute 0 is normal memory, write-back and allocating; attribute 1 is Device-nGnRE.
const MAIR: u64 = 0x04ff;
/// TCR_EL1: 39-bit addresses from TTBR0 in 4 KiB granules; walks cacheable and inner shareable; no
/// TTBR1; 36 physical bits.
const TCR: u64 = 25 | 1 << 8 | 1 << 10 | 3 << 12 | 1 << 23 | 1 << 32;
/// SCTLR_EL1: the bits that must be one; MMU, data cache, stack alignment, instruction cache; what is
/// writable is not executable (WXN).
const SCTLR: u64 = 0x30d0_0800 | SCTLR_M | SCTLR_C | 1 << 3 | SCTLR_I | 1 << 19;
const SCTLR_M: u64 = 1;
const SCTLR_C: u64 = 1 << 2;
const SCTLR_I: u64 = 1 << 12;

const TABLE: u64 = 0b11;
/// A valid block, accessed, never executed at EL0.
const ENTRY: u64 = 0b01 | 1 << 10 | 1 << 54;
const NEVER_EXECUTE: u64 = 1 << 53;
const READ_ONLY: u64 = 1 << 7;
const NORMAL: u64 = 3 << 8;
const DEVICE_MEMORY: u64 = 1 << 2;

/// First level, and the second levels of the first two gigabytes: devices and RAM.
#[repr(C, align(4096))]
struct Tables(UnsafeCell<[[u64; 512]; 3]>);

// SAFETY: one CPU, and only `kinglet_bare_mmu`, which boot code calls once, touches it.
unsafe impl Sync for Tables {}

static TABLES: Tables = Tables(UnsafeCell::new([[0; 512]; 3]));

/// The entry of a block of RAM, or 0 where nothing is mapped.
fn ram_entry(at: usize) -> u64 {
    let within = |from: Symbol, to: Symbol| (linker(from)..linker(to)).contains(&at);
    if within(Symbol::CodeStart, Symbol::CodeEnd) {
        at as u64 | ENTRY | NORMAL | READ_ONLY
    } else if within(Symbol::WritableStart, Symbol::RamEnd) {
        at as u64 | ENTRY | NORMAL | NEVER_EXECUTE
    } else {
        0
    }
}

/// Fills the table and turns MMU and caches on.
// SAFETY: the only definition of this name; `boot.s` calls it once, before anything else of Rust.
#[unsafe(no_mangle)]
extern "C" fn kinglet_bare_mmu() {
    // SAFETY: see `Sync`: nobody else has the tables.
    let [top, devices, ram] = unsafe { &mut *TABLES.0.get() };
    devices[DEVICE / BLOCK] = (DEVICE / BLOCK * BLOCK) as u64 | ENTRY | DEVICE_MEMORY | NEVER_EXECUTE;
    let start = linker(Symbol::RamStart);
    for (i, entry) in ram.iter_mut().enumerate() {
        *entry = ram_entry(start + i * BLOCK);
    }
    top[DEVICE / SPAN] = devices.as_ptr().addr() as u64 | TABLE;
    top[start / SPAN] = ram.as_ptr().addr() as u64 | TABLE;
    // SAFETY: the table maps code, stack, data and all regions where they are, so that the next
    // instruction and every pointer stay what they were; no translation is cached before.
    unsafe {
        asm!(
            "dsb ish",
            "msr mair_el1, {mair}",
            "msr tcr_el1, {tcr}",
            "msr ttbr0_el1, {table}",
            "isb",
            "tlbi vmalle1",
            "ic iallu",
            "dsb ish",
            "isb",
            "msr sctlr_el1, {sctlr}",
            "isb",
            mair = in(reg) MAIR,
            tcr = in(reg) TCR,
            table = in(reg) top.as_ptr(),
            sctlr = in(reg) SCTLR,
            options(nostack),
        );
    }
}

/// Whether MMU and both caches are on, as the CPU says.
pub fn is_on() -> bool {
    let sctlr: u64;
    // SAFETY: reads a register and changes nothing.
    unsafe { asm!("mrs {}, sctlr_el1", out(reg) sctlr, options(nomem, nostack, preserves_flags)) };
    let all = SCTLR_M | SCTLR_C | SCTLR_I;
    sctlr & all == all
}
