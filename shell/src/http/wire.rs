//! A connected socket with deadlines, and what was read from it and not yet used. Must not know what the
//! bytes mean.

use super::time_for;
use core::time::Duration;
use rustix::buffer::spare_capacity;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown};
use std::io::{self, PipeReader};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

/// Bytes that are read at a time.
const READ_BYTES: usize = 16 << 10;

/// How long a connection that ends is read from, so that what was written arrives: closing a socket that has
/// unread bytes makes the system tell the other side to forget everything.
const LINGER: Duration = Duration::from_secs(2);

/// Why nothing came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lost {
    /// The client has closed its side, or the connection broke.
    Gone,
    /// The deadline has passed.
    Late,
    /// The server stops.
    Stopping,
}

/// One connection's socket.
#[derive(Debug)]
pub struct Wire {
    socket: OwnedFd,
    /// Its other end is closed when the server stops, which wakes everybody who waits.
    stop: Arc<PipeReader>,
    bytes: Vec<u8>,
    /// How many of `bytes` are used.
    start: usize,
}

impl Wire {
    /// Around a connected socket.
    pub fn new(socket: OwnedFd, stop: Arc<PipeReader>) -> Wire {
        Wire { socket, stop, bytes: Vec::new(), start: 0 }
    }

    /// What was read and not used.
    pub fn bytes(&self) -> &[u8] {
        self.bytes.get(self.start..).unwrap_or(&[])
    }

    /// Uses the first `len` of [`Wire::bytes`].
    pub fn take(&mut self, len: usize) {
        self.start = (self.start + len).min(self.bytes.len());
    }

    /// Waits until there is something to use. A connection that is waited for holds no memory.
    ///
    /// # Errors
    /// Nothing came.
    pub fn rest(&mut self, deadline: Instant) -> Result<(), Lost> {
        if !self.bytes().is_empty() {
            return Ok(());
        }
        (self.bytes, self.start) = (Vec::new(), 0);
        self.wait(PollFlags::IN, deadline)?;
        self.fill(deadline)
    }

    /// Reads at least one more byte.
    ///
    /// # Errors
    /// Nothing came.
    pub fn fill(&mut self, deadline: Instant) -> Result<(), Lost> {
        self.bytes.drain(..self.start);
        self.start = 0;
        self.bytes.reserve(READ_BYTES);
        loop {
            match recv(&self.socket, spare_capacity(&mut self.bytes), RecvFlags::DONTWAIT) {
                Ok((0, _)) => return Err(Lost::Gone),
                Ok(_) => return Ok(()),
                Err(Errno::INTR) => {}
                // What has come goes before the end of the server.
                Err(Errno::AGAIN) => self.wait(PollFlags::IN, deadline)?,
                Err(_) => return Err(Lost::Gone),
            }
        }
    }

    fn wait(&self, events: PollFlags, deadline: Instant) -> Result<(), Lost> {
        let stop = if events == PollFlags::IN { Some(self.stop.as_fd()) } else { None };
        wait(self.socket.as_fd(), events, stop, deadline)
    }

    /// Writes everything. `patience` is how long the client may take nothing, and how far it may be behind
    /// the least rate.
    ///
    /// # Errors
    /// The client is gone, or too slow.
    pub fn write(&self, bytes: &[u8], patience: Duration) -> io::Result<()> {
        let last = Instant::now() + time_for(bytes.len(), patience);
        let mut rest = bytes;
        while !rest.is_empty() {
            // Without NOSIGNAL a client that is gone could end the program.
            match send(&self.socket, rest, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Ok(sent) => rest = rest.get(sent..).unwrap_or(&[]),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    let deadline = last.min(Instant::now() + patience);
                    if let Err(lost) = self.wait(PollFlags::OUT, deadline) {
                        return Err(match lost {
                            Lost::Late => io::ErrorKind::TimedOut.into(),
                            _ => io::ErrorKind::BrokenPipe.into(),
                        });
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Whether the client has closed its side, whatever it sent before that.
    pub fn is_gone(&self) -> bool {
        let mut fds = [PollFd::new(&self.socket, PollFlags::RDHUP)];
        poll(&mut fds, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
    }

    /// Says that nothing more will be written, and reads until the client closes, for a moment at most.
    pub fn linger(&mut self) {
        if shutdown(&self.socket, Shutdown::Write).is_err() {
            return;
        }
        let deadline = Instant::now() + LINGER;
        loop {
            self.take(self.bytes().len());
            if self.fill(deadline).is_err() || Instant::now() >= deadline {
                return;
            }
        }
    }
}

/// Waits until `fd` is ready, or has failed; `stop` is only watched for its end.
pub fn wait(
    fd: BorrowedFd<'_>,
    events: PollFlags,
    stop: Option<BorrowedFd<'_>>,
    deadline: Instant,
) -> Result<(), Lost> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = Timespec::try_from(left).ok();
        // Without flags a pipe still says that its other end is closed. No `stop`: `fd` twice.
        let mut fds = [
            PollFd::from_borrowed_fd(fd, events),
            PollFd::from_borrowed_fd(stop.unwrap_or(fd), PollFlags::empty()),
        ];
        match poll(&mut fds, timeout.as_ref()) {
            Err(Errno::INTR) => {}
            Err(_) => return Err(Lost::Gone),
            Ok(0) => return Err(Lost::Late),
            Ok(_) if !fds[0].revents().is_empty() => return Ok(()),
            Ok(_) => return Err(Lost::Stopping),
        }
    }
}
