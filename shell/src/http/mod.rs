//! HTTP/1.1 over TCP or a Unix socket, one thread for each connection. What a client may take is bounded:
//! bytes, headers, connections, time. Not supported: TLS, HTTP/2, upgrades, compression, ranges.
//! Must not know of JSON, models, or what is asked for.
//!
//! `head.rs` and `body.rs` turn bytes into requests and know no sockets; `wire.rs` is a socket with
//! deadlines; `connection.rs` goes from request to request; `reply.rs` writes answers; `listener.rs` and
//! `server.rs` accept and stop.

pub mod body;
mod connection;
pub mod date;
pub mod head;
mod headers;
mod listener;
mod reply;
mod server;
#[cfg(test)]
mod tests;
mod wire;

pub use headers::Headers;
pub use reply::{Reply, Stream};
pub use server::{Running, Server};

use core::net::SocketAddr;
use core::time::Duration;
use std::path::PathBuf;

/// What a client may take.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Most bytes of a request's head: request line and headers.
    pub header_bytes: usize,
    /// Most headers of a request.
    pub headers: usize,
    /// Most bytes of a request's body.
    pub body_bytes: usize,
    /// Most bytes of all bodies together, but for short ones: who brings more is told to come again.
    pub bodies_bytes: usize,
    /// Most connections at a time; others are told to come again.
    pub connections: usize,
    /// Longest time from the first byte of a head to its last.
    pub head_time: Duration,
    /// Longest time without a byte of a body; also how far it may be behind [`LEAST_RATE`].
    pub body_time: Duration,
    /// Longest time without a request on an open connection. Shorter when places run out.
    pub idle_time: Duration,
    /// Longest time in which a client takes nothing of what is written to it; also how far it may be behind
    /// [`LEAST_RATE`].
    pub write_time: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            header_bytes: 16 << 10,
            headers: 100,
            body_bytes: 16 << 20,
            bodies_bytes: 64 << 20,
            connections: 256,
            head_time: Duration::from_secs(10),
            body_time: Duration::from_secs(30),
            idle_time: Duration::from_secs(60),
            write_time: Duration::from_secs(30),
        }
    }
}

/// Bytes a second below which a body, or the taking of a long reply, is too slow in the long run.
pub const LEAST_RATE: usize = 1 << 10;

/// How long a transfer of `bytes` bytes may take at most, given `grace` to begin with.
fn time_for(bytes: usize, grace: Duration) -> Duration {
    grace.saturating_add(Duration::from_millis((bytes / LEAST_RATE) as u64 * 1000))
}

/// Where to listen.
#[derive(Debug, Clone)]
pub enum Bind {
    /// An address and a port; port 0 takes a free one.
    Tcp(SocketAddr),
    /// A Unix socket that only its owner can connect to.
    Unix(PathBuf),
}

/// A whole request.
#[derive(Debug)]
pub struct Request {
    /// As it was sent: methods are case-sensitive.
    pub method: String,
    /// Percent-decoded, without the query; begins with `/`, or is `*`.
    pub path: String,
    /// What came after `?`, as it was sent.
    pub query: String,
    /// All headers.
    pub headers: Headers,
    /// Without its chunks, if it had any.
    pub body: Vec<u8>,
    /// Address and port of the client, or `unix`.
    pub peer: String,
}

/// Whoever answers requests. It is called from many threads at a time.
pub trait Service: Send + Sync {
    /// Answers one request, by exactly one of [`Reply::send`] and [`Reply::stream`]. A reply that is dropped
    /// unanswered becomes a 500, and so does a panic where panics unwind (they do not in the binary for the
    /// boards); a stream that is not finished is cut off, so that the client sees that it is not whole.
    fn answer(&self, request: &Request, reply: Reply<'_>);

    /// Body of an error that HTTP itself found (400, 408, 413, 414, 417, 431, 500, 501, 503, 505): content
    /// type and bytes. `what` is a short English text without anything of the request.
    fn fault(&self, status: u16, what: &str) -> (&'static str, Vec<u8>);
}
