//! Ctrl-C, SIGTERM and SIGHUP: the first one asks, the second one kills; and last words. Must not know what
//! is being done.
//!
//! Handlers touch one atomic or call `write` and `_exit`: all are async-signal-safe.
#![allow(unsafe_code)]

use core::sync::atomic::{AtomicI32, Ordering};

/// The signal that asked for an end, or 0.
static ASKED: AtomicI32 = AtomicI32::new(0);

/// Exit code of a program ended by `signal`, as shells expect it.
const fn exit_code_of(signal: libc::c_int) -> u8 {
    128 + signal as u8
}

extern "C" fn on_interrupt(signal: libc::c_int) {
    // The system's wish after the user's is not a second one: there is time to end well.
    let before = ASKED.swap(signal, Ordering::Relaxed);
    if before != 0 && (before != libc::SIGINT || signal == libc::SIGINT) {
        // SAFETY: `_exit` is async-signal-safe and runs no destructors.
        unsafe { libc::_exit(libc::c_int::from(exit_code_of(signal))) }
    }
}

/// Installs the handler. Blocking reads return early (`EINTR`), so that a prompt can react.
pub fn install() {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: zero is a valid value of every field of `sigaction` (no flags, empty mask, no handler);
        // the handler is a function of the right signature that only does what a handler may.
        unsafe {
            let mut action: libc::sigaction = core::mem::zeroed();
            action.sa_sigaction = on_interrupt as extern "C" fn(libc::c_int) as libc::sighandler_t;
            // It fails for a wrong signal number only.
            libc::sigaction(signal, &action, core::ptr::null_mut());
        }
    }
}

/// Says where the program stopped itself. In the binary for the boards a panic is a trap without a
/// message (its texts would be a fifth of the file); the address leads to the line in `kinglet.symbols`.
pub fn install_last_words() {
    for signal in [libc::SIGTRAP, libc::SIGILL] {
        // SAFETY: as in `install`; with `SA_SIGINFO` the handler takes three arguments.
        unsafe {
            let mut action: libc::sigaction = core::mem::zeroed();
            let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) = on_trap;
            action.sa_sigaction = handler as libc::sighandler_t;
            // Once: the trap runs again after the handler, and then it kills.
            action.sa_flags = libc::SA_SIGINFO | libc::SA_RESETHAND;
            libc::sigaction(signal, &action, core::ptr::null_mut());
        }
    }
}

extern "C" fn on_trap(_signal: libc::c_int, info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
    // SAFETY: the kernel passes a valid `siginfo_t`; these two signals carry an address.
    let address = unsafe { (*info).si_addr() }.addr();
    let line = last_words(address);
    // SAFETY: the buffer is valid for its length. Nothing can be done if nobody reads it.
    unsafe { libc::write(libc::STDERR_FILENO, line.as_ptr().cast(), line.len()) };
}

/// The line, made without an allocation or the machinery that may just have failed.
fn last_words(address: usize) -> [u8; LAST_WORDS.len()] {
    let mut line = *LAST_WORDS;
    let mut rest = address;
    for digit in line.iter_mut().rev().filter(|byte| **byte == b'_') {
        *digit = b"0123456789abcdef"[rest % 16];
        rest /= 16;
    }
    line
}

/// With room for the address.
const LAST_WORDS: &[u8; 80] =
    b"\nkinglet: internal error at 0x________________; please report it with --version\n";

/// Whether the user (since the last [`clear`]) or the system asked for an end.
pub fn interrupted() -> bool {
    ASKED.load(Ordering::Relaxed) != 0
}

/// Whether the system wants the program to end: there is no going on after that.
pub fn terminated() -> bool {
    matches!(ASKED.load(Ordering::Relaxed), libc::SIGTERM | libc::SIGHUP)
}

/// Exit code of a program that ends because it was asked to: 130 for Ctrl-C, 143 for SIGTERM.
pub fn exit_code() -> u8 {
    match ASKED.load(Ordering::Relaxed) {
        0 => exit_code_of(libc::SIGINT),
        signal => exit_code_of(signal),
    }
}

/// Forgets a Ctrl-C that was answered; the system's signals are never forgotten.
pub fn clear() {
    let _ = ASKED.compare_exchange(libc::SIGINT, 0, Ordering::Relaxed, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_words_hold_the_address() {
        let line = String::from_utf8(last_words(0x20_abcd).to_vec()).unwrap();
        assert!(line.contains("at 0x000000000020abcd; please"), "{line}");
    }
}
