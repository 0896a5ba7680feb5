//! The serial port (PL011), to write only.
#![allow(unsafe_code)]

use core::fmt::{self, Write};

/// Where QEMU's machine `virt` has it.
pub const UART: usize = 0x0900_0000;
/// Registers, by offset.
const DATA: usize = 0x00;
const FLAGS: usize = 0x18;
const LINE: usize = 0x2c;
const CONTROL: usize = 0x30;
/// FLAGS: no room for another character.
const FULL: u32 = 1 << 5;

fn register(offset: usize) -> *mut u32 {
    core::ptr::with_exposed_provenance_mut(UART + offset)
}

/// 8 bits, no parity, one stop bit; transmitter on.
pub fn start() {
    // SAFETY: registers of the device, mapped as device memory; nobody else drives it.
    unsafe {
        register(LINE).write_volatile(0x70);
        register(CONTROL).write_volatile(0x101);
    }
}

struct Uart;

impl Write for Uart {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            // SAFETY: as in `start`.
            unsafe {
                while register(FLAGS).read_volatile() & FULL != 0 {}
                register(DATA).write_volatile(u32::from(byte));
            }
        }
        Ok(())
    }
}

/// Writes to the port.
pub fn print(text: fmt::Arguments<'_>) {
    // The port takes everything; a `Display` that fails has nothing to say.
    let _ = Uart.write_fmt(text);
}
