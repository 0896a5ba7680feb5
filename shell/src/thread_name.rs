//! Naming of threads where the C library would bring its whole `printf` along for it.
//!
//! musl's `pthread_setname_np` formats a path for the case that another thread is named, and nothing
//! else in the program formats text in C: with it come 12,000 bytes. std names only the calling thread,
//! for which one system call is enough. A definition in the program comes before that of the library.
#![allow(unsafe_code)]
#![cfg(target_env = "musl")]

use core::ffi::{CStr, c_char, c_int};

/// Names the calling thread; what std's `thread::Builder::name` ends in.
///
/// Returns 0, or the error number of C: `ENOSYS` for another thread, which std never names, else what
/// the kernel says.
///
/// # Safety
/// `name` is valid for reads up to its NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_setname_np(thread: libc::pthread_t, name: *const c_char) -> c_int {
    // SAFETY: it has no preconditions.
    if thread != unsafe { libc::pthread_self() } {
        return libc::ENOSYS;
    }
    // SAFETY: the caller's promise.
    let name = unsafe { CStr::from_ptr(name) };
    rustix::thread::set_name(name).map_or_else(rustix::io::Errno::raw_os_error, |()| 0)
}
