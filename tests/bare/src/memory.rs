//! The regions, as statics in sections that nothing loads, and the linker script's names.
#![allow(unsafe_code)]

use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicBool, Ordering};

/// Most bytes of a model file.
pub const MODEL_BYTES: usize = 4 << 20;
/// Room for keys and values.
pub const KV_BYTES: usize = 1 << 20;
/// Room for a step.
pub const SCRATCH_BYTES: usize = 4 << 20;
/// Room for block tables.
pub const INDEX_BYTES: usize = 16 << 10;

#[repr(C, align(4096))]
struct Region<const N: usize>(UnsafeCell<MaybeUninit<[u8; N]>>);

// SAFETY: only `take` touches one, and only the first time.
unsafe impl<const N: usize> Sync for Region<N> {}

impl<const N: usize> Region<N> {
    const fn new() -> Self {
        Region(UnsafeCell::new(MaybeUninit::uninit()))
    }

    /// # Safety
    /// To be called once.
    #[allow(clippy::mut_from_ref, reason = "called once")]
    unsafe fn bytes(&'static self) -> &'static mut [u8] {
        // SAFETY: the only reference there will be. Memory that nobody has loaded or cleared holds
        // anything; after this it holds zeros.
        unsafe {
            self.0.get().write_bytes(0, 1);
            (*self.0.get()).assume_init_mut()
        }
    }
}

// SAFETY: in each of the four: the section is one of bare.ld's, and holds nothing else.
#[unsafe(link_section = ".region.model")]
static MODEL: Region<MODEL_BYTES> = Region::new();
#[unsafe(link_section = ".region.kv")]
static KV: Region<KV_BYTES> = Region::new();
#[unsafe(link_section = ".region.scratch")]
static SCRATCH: Region<SCRATCH_BYTES> = Region::new();
#[unsafe(link_section = ".region.index")]
static INDEX: Region<INDEX_BYTES> = Region::new();

/// All memory that grows with the model or the context.
pub struct Regions {
    /// The model file.
    pub model: &'static mut [u8],
    /// As in [`kinglet_core::Memory`].
    pub kv: &'static mut [u8],
    /// As in [`kinglet_core::Memory`].
    pub scratch: &'static mut [u8],
    /// As in [`kinglet_core::Memory`].
    pub index: &'static mut [u8],
}

/// The regions, to the first who asks.
pub fn take() -> Option<Regions> {
    static TAKEN: AtomicBool = AtomicBool::new(false);
    if TAKEN.swap(true, Ordering::Relaxed) {
        return None;
    }
    // SAFETY: TAKEN lets one caller through.
    unsafe {
        Some(Regions { model: MODEL.bytes(), kv: KV.bytes(), scratch: SCRATCH.bytes(), index: INDEX.bytes() })
    }
}

/// A name that `linker/bare.ld` defines.
#[derive(Clone, Copy)]
pub enum Symbol {
    /// Start of RAM.
    RamStart,
    /// End of RAM.
    RamEnd,
    /// Start of code and constants, and of the image.
    CodeStart,
    /// Their end, rounded up to what can be mapped.
    CodeEnd,
    /// Start of all that is written to.
    WritableStart,
    /// Start of the stack: its lowest address.
    StackStart,
    /// End of the stack.
    StackEnd,
    /// Start of initialised data.
    DataStart,
    /// Its end.
    DataEnd,
    /// Start of zeroed data.
    BssStart,
    /// Its end.
    BssEnd,
    /// Bytes of code and constants.
    CodeBytes,
}

unsafe extern "C" {
    static __ram_start: u8;
    static __ram_end: u8;
    static __code_start: u8;
    static __code_end: u8;
    static __writable_start: u8;
    static __stack_start: u8;
    static __stack_end: u8;
    static __data_start: u8;
    static __data_end: u8;
    static __bss_start: u8;
    static __bss_end: u8;
    static __code_bytes: u8;
}

/// The value of a name: an address, or a number of bytes.
pub fn linker(symbol: Symbol) -> usize {
    let place = match symbol {
        Symbol::RamStart => &raw const __ram_start,
        Symbol::RamEnd => &raw const __ram_end,
        Symbol::CodeStart => &raw const __code_start,
        Symbol::CodeEnd => &raw const __code_end,
        Symbol::WritableStart => &raw const __writable_start,
        Symbol::StackStart => &raw const __stack_start,
        Symbol::StackEnd => &raw const __stack_end,
        Symbol::DataStart => &raw const __data_start,
        Symbol::DataEnd => &raw const __data_end,
        Symbol::BssStart => &raw const __bss_start,
        Symbol::BssEnd => &raw const __bss_end,
        Symbol::CodeBytes => &raw const __code_bytes,
    };
    place.addr()
}

/// Bytes of stack that have been used since boot code filled it with a pattern.
pub fn stack_used() -> usize {
    let (start, end) = (linker(Symbol::StackStart), linker(Symbol::StackEnd));
    let words: *const u64 = core::ptr::with_exposed_provenance(start);
    let count = (end - start) / 8;
    // SAFETY: all of it is mapped and aligned; volatile, because the part in use changes unseen.
    let untouched = |i: &usize| unsafe { words.add(*i).read_volatile() } == 0x5a5a_5a5a_5a5a_5a5a;
    end - start - 8 * (0..count).take_while(untouched).count()
}
