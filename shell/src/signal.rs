//! Ctrl-C: the first one asks, the second one kills. Must not know what is being interrupted.
//!
//! The handler touches one atomic and, the second time, calls `_exit`: both are async-signal-safe.
#![allow(unsafe_code)]

use core::sync::atomic::{AtomicBool, Ordering};

/// Exit code of a program ended by Ctrl-C (128 + SIGINT), as shells expect it.
pub const EXIT_INTERRUPTED: u8 = 130;

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

extern "C" fn on_interrupt(_signal: libc::c_int) {
    if INTERRUPTED.swap(true, Ordering::Relaxed) {
        // SAFETY: `_exit` is async-signal-safe and runs no destructors.
        unsafe { libc::_exit(libc::c_int::from(EXIT_INTERRUPTED)) }
    }
}

/// Installs the handler. Blocking reads return early (`EINTR`), so that a prompt can react.
pub fn install() {
    // SAFETY: zero is a valid value of every field of `sigaction` (no flags, empty mask, no handler);
    // the handler is a function of the right signature that only does what a handler may.
    unsafe {
        let mut action: libc::sigaction = core::mem::zeroed();
        action.sa_sigaction = on_interrupt as extern "C" fn(libc::c_int) as libc::sighandler_t;
        // It fails for a wrong signal number only.
        libc::sigaction(libc::SIGINT, &action, core::ptr::null_mut());
    }
}

/// Whether Ctrl-C was pressed since the last [`clear`].
pub fn interrupted() -> bool {
    INTERRUPTED.load(Ordering::Relaxed)
}

/// Forgets a Ctrl-C that was answered.
pub fn clear() {
    INTERRUPTED.store(false, Ordering::Relaxed);
}
