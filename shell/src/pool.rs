//! Threads that take tasks one by one: the shell's [`Workers`]. Must not know what is computed.
//!
//! A run is published in one word: an epoch, an "open" bit and the number of workers inside. A
//! worker enters by compare-and-swap while the run is open; the caller works too, and when no task
//! is left it closes the run and waits only for those who entered. A worker that is asleep or late
//! finds the run closed and costs nobody anything. Between runs workers spin briefly (the next
//! matrix is microseconds away), then sleep on a futex. A run allocates nothing.
#![allow(unsafe_code)]

use crate::thread::Thread;
use crate::trace::log;
use core::any::Any;
use core::cell::UnsafeCell;
use core::panic::AssertUnwindSafe;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use core::time::Duration;
use kinglet_core::par::Workers;
use std::panic::{catch_unwind, resume_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Instant;

/// How long an idle worker, or the caller waiting for the last task, spins before it sleeps. Longer
/// than the serial stretch between two matrices of a layer, shorter than anyone's patience.
const SPIN: Duration = Duration::from_micros(40);
/// Spins between two looks at the clock.
const SPIN_BURST: u32 = 32;

/// State word: bits 0..16 workers inside, bit 16 open, bits 17.. epoch.
const INSIDE: usize = 0xFFFF;
const OPEN: usize = 1 << 16;
const EPOCH: usize = 1 << 17;

/// More threads than this are refused: far more than any board has cores.
pub const MAX_THREADS: usize = 256;

/// The task function of a run, its lifetime erased.
type Task = *const (dyn Fn(usize) + Sync);

/// What a run is; written by the caller alone, while the run is closed and nobody is inside.
struct Job {
    task: Task,
    tasks: usize,
}

struct Shared {
    state: AtomicUsize,
    job: UnsafeCell<Job>,
    /// Next task to take.
    next: AtomicUsize,
    /// Workers asleep, or about to be. Changed under `lock`.
    sleeping: AtomicUsize,
    /// The caller is asleep, or about to be, waiting for the last worker inside.
    caller_waits: AtomicBool,
    quit: AtomicBool,
    lock: Mutex<()>,
    work: Condvar,
    done: Condvar,
    /// The first panic of a task, to be raised again by the caller.
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

// SAFETY: all fields but `job` are Sync. `job` is written only by the thread that holds `Pool::busy`,
// and only while `state` has no OPEN bit and INSIDE = 0 (`Pool::run`); it is read only by that thread
// and by workers that entered, that is, that raised INSIDE by a compare-and-swap on a word with OPEN
// set. The write happens before the release store that sets OPEN, the reads after the acquire of
// the swap; the last read of a worker happens before its release that lowers INSIDE, which the caller
// acquires before the next write. The pointee is `Sync`, so it may be called from any thread.
unsafe impl Sync for Shared {}
// SAFETY: as above; nothing in it belongs to a thread (the raw pointer is only used as described).
unsafe impl Send for Shared {}

/// A fixed set of threads; the one that calls [`Workers::run`] is one of them.
pub struct Pool {
    shared: Arc<Shared>,
    threads: Vec<Thread>,
    /// Held during a run. A second run at the same time, nested or from another thread, is not
    /// distributed: its caller computes it alone.
    busy: AtomicBool,
}

impl Pool {
    /// Starts `threads - 1` threads (the caller is the first). `setup(i)` runs on thread i, 1 up.
    ///
    /// # Errors
    /// The operating system refuses a thread.
    pub fn new(threads: usize, setup: impl Fn(usize) + Send + Sync + 'static) -> std::io::Result<Pool> {
        fn nothing(_: usize) {}
        let shared = Arc::new(Shared {
            state: AtomicUsize::new(0),
            job: UnsafeCell::new(Job { task: &nothing as Task, tasks: 0 }),
            next: AtomicUsize::new(0),
            sleeping: AtomicUsize::new(0),
            caller_waits: AtomicBool::new(false),
            quit: AtomicBool::new(false),
            lock: Mutex::new(()),
            work: Condvar::new(),
            done: Condvar::new(),
            panic: Mutex::new(None),
        });
        let setup = Arc::new(setup);
        // From here on an error drops `pool`, which ends the threads that did start.
        let mut pool = Pool { shared, threads: Vec::new(), busy: AtomicBool::new(false) };
        for i in 1..threads.clamp(1, MAX_THREADS) {
            let (shared, setup) = (Arc::clone(&pool.shared), Arc::clone(&setup));
            let body = move || {
                setup(i);
                log!(debug, "worker {=usize}: starts", i);
                let tasks = work(&shared);
                log!(debug, "worker {=usize}: ends after {=usize} tasks", i, tasks);
            };
            pool.threads.push(Thread::start(format!("worker-{i}"), Box::new(body))?);
        }
        Ok(pool)
    }
}

impl Workers for Pool {
    fn count(&self) -> usize {
        self.threads.len() + 1
    }

    /// Nested use (a task that calls `run` of the same pool) is allowed but gains nothing: the inner
    /// run is computed by its caller alone.
    fn run(&self, tasks: usize, f: &(dyn Fn(usize) + Sync)) {
        let alone = tasks <= 1 || self.threads.is_empty();
        if alone || self.busy.swap(true, Ordering::Acquire) {
            return (0..tasks).for_each(f);
        }
        let shared = &*self.shared;
        // SAFETY: only the lifetime is changed, and the pointer is not used after this call: workers
        // use it only while inside, the run is closed below before this function ends (a panic of the
        // caller's own share is caught first), and `close` returns only when nobody is inside.
        let task = unsafe { core::mem::transmute::<*const (dyn Fn(usize) + Sync + '_), Task>(f) };
        // SAFETY: `busy` is ours, and the last run ended closed with nobody inside (see `Shared`).
        unsafe { *shared.job.get() = Job { task, tasks } };
        shared.next.store(0, Ordering::Relaxed);
        shared.open(tasks - 1);
        let own = catch_unwind(AssertUnwindSafe(|| shared.take_tasks(tasks, f)));
        shared.close();
        let theirs = hold(&shared.panic).take();
        self.busy.store(false, Ordering::Release);
        if let Some(payload) = own.err().or(theirs) {
            resume_unwind(payload);
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.quit.store(true, Ordering::SeqCst);
        {
            // Under the lock: a worker is either before its last check, or already waiting.
            let _guard = hold(&self.shared.lock);
            self.shared.work.notify_all();
        }
        self.threads.drain(..).for_each(Thread::join);
    }
}

/// Locks; a poisoned lock is as good as any: what it guards is never half-changed.
fn hold<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|e| e.into_inner())
}

/// Spins until `ready` or until the time is up; whether it became ready.
fn spin_until(ready: impl Fn() -> bool) -> bool {
    let start = Instant::now();
    loop {
        for _ in 0..SPIN_BURST {
            if ready() {
                return true;
            }
            core::hint::spin_loop();
        }
        if start.elapsed() > SPIN {
            return false;
        }
    }
}

impl Shared {
    /// Opens the run in `job` and wakes at most `helpers` sleepers.
    fn open(&self, helpers: usize) {
        let closed = self.state.load(Ordering::Relaxed);
        // Sequentially consistent, as are the counterparts in `sleep`: either the worker going to
        // sleep sees the open run, or we see that it sleeps.
        self.state.store(closed.wrapping_add(EPOCH) | OPEN, Ordering::SeqCst);
        let sleeping = self.sleeping.load(Ordering::SeqCst);
        if sleeping > 0 {
            let _guard = hold(&self.lock);
            for _ in 0..sleeping.min(helpers) {
                self.work.notify_one();
            }
        }
    }

    /// Closes the run and waits until no worker is inside.
    fn close(&self) {
        let before = self.state.fetch_and(!OPEN, Ordering::SeqCst);
        let empty = || self.state.load(Ordering::Acquire) & INSIDE == 0;
        if before & INSIDE == 0 || spin_until(empty) {
            return;
        }
        self.caller_waits.store(true, Ordering::SeqCst);
        let mut guard = hold(&self.lock);
        while self.state.load(Ordering::SeqCst) & INSIDE != 0 {
            guard = self.done.wait(guard).unwrap_or_else(|e| e.into_inner());
        }
        self.caller_waits.store(false, Ordering::Relaxed);
    }

    /// Enters the open run, if there is one.
    fn enter(&self) -> bool {
        self.state
            .fetch_update(Ordering::AcqRel, Ordering::Relaxed, |s| (s & OPEN != 0).then_some(s + 1))
            .is_ok()
    }

    /// Leaves the run. Nothing of it may be touched afterwards.
    fn leave(&self) {
        let before = self.state.fetch_sub(1, Ordering::SeqCst);
        if before & (INSIDE | OPEN) == 1 && self.caller_waits.load(Ordering::SeqCst) {
            let _guard = hold(&self.lock);
            self.done.notify_one();
        }
    }

    /// Does tasks until none is left; how many it did.
    fn take_tasks(&self, tasks: usize, f: &(dyn Fn(usize) + Sync)) -> usize {
        let mut done = 0;
        loop {
            let i = self.next.fetch_add(1, Ordering::Relaxed);
            if i >= tasks {
                return done;
            }
            f(i);
            done += 1;
        }
    }

    /// Sleeps until there is a run newer than `seen`, or the pool ends.
    fn sleep(&self, seen: usize) {
        let mut guard = hold(&self.lock);
        self.sleeping.fetch_add(1, Ordering::SeqCst);
        while !self.news(seen) {
            guard = self.work.wait(guard).unwrap_or_else(|e| e.into_inner());
        }
        self.sleeping.fetch_sub(1, Ordering::SeqCst);
    }

    /// Whether a run is open that is not the one `seen`, or the pool ends.
    fn news(&self, seen: usize) -> bool {
        let state = self.state.load(Ordering::SeqCst);
        (state & OPEN != 0 && state / EPOCH != seen) || self.quit.load(Ordering::SeqCst)
    }
}

/// A worker's life; how many tasks it did.
fn work(shared: &Shared) -> usize {
    let mut done = 0;
    // The epoch of the run whose tasks were found all taken: no need to enter it again.
    let mut seen = 0;
    while !shared.quit.load(Ordering::Relaxed) {
        if !spin_until(|| shared.news(seen)) {
            shared.sleep(seen);
        }
        if !shared.enter() {
            continue;
        }
        // Read inside: the run cannot change before we leave.
        seen = shared.state.load(Ordering::Relaxed) / EPOCH;
        let one_share = AssertUnwindSafe(|| {
            // SAFETY: we are inside, so that the caller has written `job` and waits for us to leave
            // before it writes again or lets the task function go (see `Shared` and `run`).
            let (f, tasks) = unsafe { (&*(*shared.job.get()).task, (*shared.job.get()).tasks) };
            shared.take_tasks(tasks, f)
        });
        match catch_unwind(one_share) {
            Ok(tasks) => done += tasks,
            Err(payload) => {
                hold(&shared.panic).get_or_insert(payload);
            }
        }
        shared.leave();
    }
    done
}

impl core::fmt::Debug for Pool {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Pool").field("threads", &self.count()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
