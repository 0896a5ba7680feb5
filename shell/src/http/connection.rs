//! One connection, from request to request. Must not know how it was accepted.

use super::body::Decoder;
use super::head::{self, Fault, Framing, Head};
use super::server::Shared;
use super::wire::{Lost, Wire};
use super::{Reply, Request, time_for};
use core::panic::AssertUnwindSafe;
use core::sync::atomic::Ordering;
use std::io::PipeReader;
use std::os::fd::OwnedFd;
use std::panic::catch_unwind;
use std::sync::Arc;
use std::time::Instant;

/// Up to this size a body is short: those of all connections together are not much.
const SHORT_BODY: usize = 64 << 10;

/// How far the answer to the current request has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Nothing was sent.
    Waiting,
    /// Something was sent.
    Begun,
    /// Everything was sent.
    Whole,
}

/// A client's connection.
pub struct Connection {
    pub(super) wire: Wire,
    pub(super) shared: Arc<Shared>,
    peer: String,
    /// Whether the current request is a HEAD.
    pub(super) is_head: bool,
    /// 0 if the current request speaks HTTP/1.0.
    pub(super) minor: u8,
    /// Whether there may be another request after the current one.
    pub(super) keep: bool,
    pub(super) state: State,
    /// Whether something could not be sent whole.
    pub(super) broken: bool,
    /// What the current request's body adds to [`Shared::bodies`].
    held: usize,
}

/// Why there is no request.
#[derive(Debug, PartialEq, Eq)]
enum End {
    /// Something is wrong with it.
    Fault(Fault),
    /// Nobody waits for an answer.
    Gone,
}

impl From<Fault> for End {
    fn from(fault: Fault) -> End {
        End::Fault(fault)
    }
}

/// A request that is not whole was lost.
fn lost(lost: Lost, late: &'static str) -> End {
    match lost {
        Lost::Gone => End::Gone,
        Lost::Late => End::Fault(Fault { status: 408, what: late }),
        Lost::Stopping => End::Fault(Fault { status: 503, what: "the server is stopping" }),
    }
}

impl Connection {
    /// Around a socket that was just accepted.
    pub fn new(socket: OwnedFd, peer: String, stop: Arc<PipeReader>, shared: Arc<Shared>) -> Connection {
        let wire = Wire::new(socket, stop);
        Connection {
            wire,
            shared,
            peer,
            is_head: false,
            minor: 1,
            keep: false,
            state: State::Waiting,
            broken: false,
            held: 0,
        }
    }

    /// Answers requests until one side has enough.
    pub fn run(&mut self) {
        loop {
            match self.request() {
                Err(End::Gone) => return,
                Err(End::Fault(fault)) => {
                    self.refuse(fault);
                    break;
                }
                Ok(request) => {
                    self.answer(&request);
                    match self.state {
                        State::Whole if self.keep => {}
                        State::Whole => break,
                        // Cut off. Nothing that comes now could be taken for the rest.
                        _ => return,
                    }
                }
            }
        }
        self.wire.linger();
    }

    /// Says what is wrong. It is the last answer on this connection.
    pub fn refuse(&mut self, fault: Fault) {
        let shared = Arc::clone(&self.shared);
        let (kind, body) = shared.service.fault(fault.status, fault.what);
        let headers = [("Content-Type", kind), ("Retry-After", "1")];
        // Only who is refused for the server's sake should come again.
        let headers = if fault.status == 503 { &headers[..] } else { &headers[..1] };
        self.keep = false;
        // A client that does not want to know is gone in any case.
        let _ = Reply { connection: self }.send(fault.status, headers, &body);
    }

    fn answer(&mut self, request: &Request) {
        let shared = Arc::clone(&self.shared);
        let call = AssertUnwindSafe(|| shared.service.answer(request, Reply { connection: &mut *self }));
        let panicked = catch_unwind(call).is_err();
        if self.state == State::Waiting {
            let what = if panicked { "an internal error" } else { "the request was not answered" };
            self.refuse(Fault { status: 500, what });
        }
        // Whatever panicked may have done so after the answer.
        self.keep &= !panicked;
    }

    /// Waits for the next request and reads it whole.
    fn request(&mut self) -> Result<Request, End> {
        (self.is_head, self.minor, self.keep, self.state) = (false, 1, false, State::Waiting);
        self.let_go();
        let idle = self.shared.idle_time();
        // No request has begun: there is nobody to tell.
        self.wire.rest(Instant::now() + idle).map_err(|_| End::Gone)?;
        let head = self.head()?;
        (self.is_head, self.minor) = (head.method == "HEAD", head.minor);
        let body = self.body(&head)?;
        self.keep = head.keep_alive;
        let Head { method, path, query, headers, .. } = head;
        Ok(Request { method, path, query, headers, body, peer: self.peer.clone() })
    }

    fn head(&mut self) -> Result<Head, End> {
        let shared = Arc::clone(&self.shared);
        let deadline = Instant::now() + shared.limits.head_time;
        let mut seen = 0;
        loop {
            let bytes = self.wire.bytes();
            // Not for every byte, if they come one by one; but garbage is refused at once.
            let news = bytes.get(seen..).unwrap_or(&[]);
            let may_be_whole = news.contains(&b'\n') || bytes.len() >= shared.limits.header_bytes;
            if (seen == 0 || may_be_whole)
                && let Some((head, len)) = head::parse(bytes, &shared.limits)?
            {
                self.wire.take(len);
                return Ok(head);
            }
            seen = bytes.len();
            self.wire.fill(deadline).map_err(|why| lost(why, "the request did not come in time"))?;
        }
    }

    fn body(&mut self, head: &Head) -> Result<Vec<u8>, End> {
        let shared = Arc::clone(&self.shared);
        let (limits, begin) = (&shared.limits, Instant::now());
        let mut decoder = Decoder::new(head.framing, limits);
        let mut body = Vec::new();
        if let Framing::Length(len) = head.framing {
            // What is only announced takes no memory.
            body.reserve_exact(len.min(64 << 10));
        }
        if head.expects && !decoder.is_done() && self.wire.bytes().is_empty() {
            let go_on = b"HTTP/1.1 100 Continue\r\n\r\n";
            self.wire.write(go_on, limits.write_time).map_err(|_| End::Gone)?;
        }
        loop {
            let used = decoder.push(self.wire.bytes(), &mut body)?;
            self.hold(body.len())?;
            self.wire.take(used);
            if decoder.is_done() {
                return Ok(body);
            }
            let deadline = begin + time_for(body.len(), limits.body_time);
            let deadline = deadline.min(Instant::now() + limits.body_time);
            self.wire.fill(deadline).map_err(|why| lost(why, "the body did not come in time"))?;
        }
    }
}

impl Connection {
    /// Counts a body of so many bytes among all.
    fn hold(&mut self, bytes: usize) -> Result<(), Fault> {
        let more = if bytes > SHORT_BODY { bytes - self.held } else { 0 };
        self.held += more;
        let before = self.shared.bodies.fetch_add(more, Ordering::Relaxed);
        if more > 0 && before.saturating_add(more) > self.shared.limits.bodies_bytes {
            return Err(Fault { status: 503, what: "too much is being sent at a time" });
        }
        Ok(())
    }

    /// The body is no longer there.
    fn let_go(&mut self) {
        self.shared.bodies.fetch_sub(core::mem::take(&mut self.held), Ordering::Relaxed);
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.let_go();
    }
}

impl core::fmt::Debug for Connection {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Connection").field("peer", &self.peer).field("state", &self.state).finish()
    }
}
