//! Threads of the C library, started without std. Must not know what they do.
//!
//! What std's `thread::spawn` does besides (results, scopes, hooks, records of guard pages, names by way
//! of musl's whole `printf`) is 20,000 bytes in the binary for the boards. What runs here does not ask
//! std for its thread.
#![allow(unsafe_code)]

use core::ffi::c_void;
use core::mem::{ManuallyDrop, MaybeUninit};
use core::panic::AssertUnwindSafe;
use std::ffi::CString;
use std::io;
use std::panic::catch_unwind;

/// Stack of a thread in bytes: that of std's threads. musl's own measure is 128 KiB.
const STACK_BYTES: usize = 2 << 20;

/// What a thread does.
pub type Body = Box<dyn FnOnce() + Send>;

/// A running thread. Dropped without [`Thread::join`] it runs on.
#[derive(Debug)]
pub struct Thread {
    id: libc::pthread_t,
}

// SAFETY: musl's id is a pointer; it is only handed back to the C library, which takes it from any thread.
unsafe impl Send for Thread {}
// SAFETY: as above; nothing can be done with a shared reference.
unsafe impl Sync for Thread {}

/// What a new thread is given.
struct Start {
    name: String,
    body: Body,
}

impl Thread {
    /// Starts a thread that runs `body` once. The first 15 bytes of `name` are what `top` shows. A
    /// panic of `body` ends that thread and nothing else.
    ///
    /// # Errors
    /// The operating system refuses.
    pub fn start(name: String, body: Body) -> io::Result<Thread> {
        let mut attributes = MaybeUninit::uninit();
        let mut id = MaybeUninit::uninit();
        let start = Box::into_raw(Box::new(Start { name, body }));
        // SAFETY: the attributes are made before they are used and destroyed once; `run` has the right
        // signature and takes over `start`, which nothing else uses once the thread exists.
        let error = unsafe {
            let mut error = libc::pthread_attr_init(attributes.as_mut_ptr());
            if error == 0 {
                error = libc::pthread_attr_setstacksize(attributes.as_mut_ptr(), STACK_BYTES);
                if error == 0 {
                    error = libc::pthread_create(id.as_mut_ptr(), attributes.as_ptr(), run, start.cast());
                }
                libc::pthread_attr_destroy(attributes.as_mut_ptr());
            }
            error
        };
        if error != 0 {
            // SAFETY: it came from `Box::into_raw` above, and no thread has it.
            drop(unsafe { Box::from_raw(start) });
            return Err(io::Error::from_raw_os_error(error));
        }
        // SAFETY: written by `pthread_create`, which succeeded.
        Ok(Thread { id: unsafe { id.assume_init() } })
    }

    /// Waits until the thread has ended.
    pub fn join(self) {
        let this = ManuallyDrop::new(self);
        // SAFETY: the thread was started joinable, and `self`, which is not dropped, is the only way to join
        // or detach it. It can fail only for a thread that joins itself, which has no `Thread` of its own.
        unsafe { libc::pthread_join(this.id, core::ptr::null_mut()) };
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        // Otherwise its stack would stay after its end, waiting to be joined.
        // SAFETY: as in `join`, which does not come here.
        unsafe { libc::pthread_detach(self.id) };
    }
}

extern "C" fn run(start: *mut c_void) -> *mut c_void {
    // SAFETY: `Thread::start` hands over a box that it does not touch again.
    let start = unsafe { Box::from_raw(start.cast::<Start>()) };
    let Start { name, body } = *start;
    let mut name = name.into_bytes();
    name.truncate(15);
    if let Ok(name) = CString::new(name) {
        // A thread without its name works as well.
        let _ = rustix::thread::set_name(&name);
    }
    // It must not unwind into C, and there is nobody to tell: std has printed the message.
    let _ = catch_unwind(AssertUnwindSafe(body));
    core::ptr::null_mut()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn a_thread_runs_once_under_its_name_and_is_joined() {
        let (sender, receiver) = mpsc::channel();
        let body = move || {
            let comm = std::fs::read_to_string("/proc/thread-self/comm").unwrap();
            // Deeper than musl's stacks: the one asked for is there.
            let deep = core::hint::black_box([7u8; 1 << 20]);
            sender.send((comm, deep[deep.len() - 1])).unwrap();
        };
        Thread::start(String::from("a-name-that-is-too-long"), Box::new(body)).unwrap().join();
        assert_eq!(receiver.try_recv(), Ok((String::from("a-name-that-is-\n"), 7)));
    }

    #[test]
    fn threads_that_nobody_joins_leave_nothing() {
        let stacks = || {
            let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
            maps.lines().count()
        };
        let before = stacks();
        for _ in 0..200 {
            let (sender, receiver) = mpsc::channel();
            drop(Thread::start(String::from("d"), Box::new(move || sender.send(()).unwrap())).unwrap());
            receiver.recv().unwrap();
        }
        // Without detaching, each leaves a stack and its guard page; other tests have some threads too.
        assert!(stacks() < before + 150, "{} and {before} mappings", stacks());
    }

    #[test]
    fn a_panic_stays_in_its_thread() {
        Thread::start(String::from("p"), Box::new(|| panic!("meant"))).unwrap().join();
    }
}
