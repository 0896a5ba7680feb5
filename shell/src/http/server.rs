//! Accepting connections, counting them, stopping. Must not know what is said on them.

use super::connection::Connection;
use super::head::Fault;
use super::listener::Listener;
use super::{Bind, Limits, Service};
use crate::failure::Failure;
use crate::thread::Thread;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use core::time::Duration;
use std::io::{PipeReader, PipeWriter, pipe};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Connections above the limit that are told so in peace, with threads of their own; those above are told
/// too, but whether it arrives is a matter of luck.
const REFUSED_MOST: usize = 16;
/// How long accepting waits when the system has no room for another connection.
const BREATH: Duration = Duration::from_millis(50);
/// Any time that is too far away to come.
const LONG: Duration = Duration::from_secs(3600);

/// A server that listens, and does not answer yet.
#[derive(Debug)]
pub struct Server {
    listener: Listener,
    limits: Limits,
}

/// What all threads of a server share.
pub struct Shared {
    /// What clients may take.
    pub limits: Limits,
    /// Who answers.
    pub service: Arc<dyn Service>,
    stopping: AtomicBool,
    /// Bytes of long bodies, whole or not, whose requests are not answered yet.
    pub(super) bodies: AtomicUsize,
    /// Open connections.
    open: Mutex<usize>,
    /// Told when one ends.
    fewer: Condvar,
}

/// A server that answers. Dropped, it stops without waiting.
pub struct Running {
    shared: Arc<Shared>,
    /// What `stop` has to end: the accepting thread, and the pipe that wakes everybody when it closes.
    alive: Mutex<Option<(Thread, PipeWriter)>>,
}

impl Server {
    /// Listens; connections wait from now on.
    ///
    /// # Errors
    /// The address is taken or not ours; a Unix socket's place holds something else, or somebody answers
    /// on it.
    pub fn bind(bind: &Bind, limits: Limits) -> Result<Server, Failure> {
        Ok(Server { listener: Listener::new(bind)?, limits })
    }

    /// Where it listens: `http://127.0.0.1:8080` with the port that it really has, or `unix:/path`.
    pub fn address(&self) -> String {
        self.listener.address()
    }

    /// Answers from now on, in threads of its own.
    ///
    /// # Errors
    /// The system has no thread for it.
    pub fn start(self, service: Arc<dyn Service>) -> Result<Running, Failure> {
        let Server { listener, limits } = self;
        let (stop, writer) = pipe().map_err(Failure::new)?;
        let shared = Arc::new(Shared {
            limits,
            service,
            stopping: AtomicBool::new(false),
            bodies: AtomicUsize::new(0),
            open: Mutex::new(0),
            fewer: Condvar::new(),
        });
        let ours = Arc::clone(&shared);
        let body = move || accept(&listener, &Arc::new(stop), &ours);
        let thread = Thread::start(String::from("http-accept"), Box::new(body)).map_err(Failure::new)?;
        Ok(Running { shared, alive: Mutex::new(Some((thread, writer))) })
    }
}

impl Running {
    /// How many connections are open, used or not.
    pub fn connections(&self) -> usize {
        *hold(&self.shared.open)
    }

    /// Takes no more connections, closes those that nobody uses and those whose request has not come whole,
    /// and waits for running answers, but not longer than `patience`. Whether all have ended.
    pub fn stop(&self, patience: Duration) -> bool {
        let deadline = Instant::now() + patience;
        self.shared.stopping.store(true, Ordering::SeqCst);
        if let Some((thread, writer)) = hold(&self.alive).take() {
            drop(writer);
            thread.join();
        }
        let mut open = hold(&self.shared.open);
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if *open == 0 || left.is_zero() {
                return *open == 0;
            }
            let waited = self.shared.fewer.wait_timeout(open, left);
            open = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop(Duration::ZERO);
    }
}

impl core::fmt::Debug for Running {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Running").field("connections", &self.connections()).finish()
    }
}

impl Shared {
    /// Whether every answer is the last on its connection.
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    /// How long a connection may be open without a request. When places run out, those who only hold one are
    /// sent away soon, so that they cannot keep others out.
    pub fn idle_time(&self) -> Duration {
        let scarce = hold(&self.open).saturating_mul(4) > self.limits.connections.saturating_mul(3);
        if scarce { self.limits.idle_time / 10 } else { self.limits.idle_time }
    }
}

/// One of the open connections, until it is dropped.
struct Place(Arc<Shared>);

impl Drop for Place {
    fn drop(&mut self) {
        *hold(&self.0.open) -= 1;
        self.0.fewer.notify_all();
    }
}

/// Takes connections until the server stops.
fn accept(listener: &Listener, stop: &Arc<PipeReader>, shared: &Arc<Shared>) {
    loop {
        match listener.accept(stop, Instant::now() + LONG) {
            Ok(None) => return,
            Ok(Some((socket, peer))) => open(socket, peer, stop, shared),
            // A client that was gone, or no descriptors: those who are served give theirs back.
            Err(_) if shared.is_stopping() => return,
            Err(_) => std::thread::sleep(BREATH),
        }
    }
}

/// Gives a connection its thread.
fn open(socket: OwnedFd, peer: String, stop: &Arc<PipeReader>, shared: &Arc<Shared>) {
    const FULL: Fault = Fault { status: 503, what: "there are too many connections" };
    let count = {
        let mut open = hold(&shared.open);
        *open += 1;
        *open
    };
    let place = Place(Arc::clone(shared));
    let most = shared.limits.connections;
    let mut connection = Connection::new(socket, peer, Arc::clone(stop), Arc::clone(shared));
    if count > most.saturating_add(REFUSED_MOST) {
        // It fits into the memory of a new socket, so nobody waits here.
        return connection.refuse(FULL);
    }
    let body = move || {
        if count > most {
            connection.refuse(FULL);
            connection.wire.linger();
        } else {
            connection.run();
        }
        // Closed first: whoever sees that there is room can connect.
        drop(connection);
        drop(place);
    };
    // Without a thread the connection closes with `body`.
    let _ = Thread::start(String::from("http"), Box::new(body));
}

/// The value; nothing that holds a lock can leave it half changed.
fn hold<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
