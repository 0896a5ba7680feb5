//! Lines from standard input: bounded, and for a conversation such that Ctrl-C can interrupt them.
//! Must not know what they say.
//!
//! `std::io::Stdin` starts an interrupted read again by itself, so a prompt would not notice
//! Ctrl-C; [`Lines`] reads the descriptor directly.

use crate::signal;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::io::{self, BufRead, Read};
use std::os::fd::AsFd;

/// What came.
#[derive(Debug, PartialEq, Eq)]
pub enum Line {
    /// A line without its end.
    Text(String),
    /// A line that is not UTF-8.
    NotUtf8,
    /// Ctrl-C; what was typed is dropped.
    Interrupted,
    /// Nothing more will come.
    End,
}

/// How long to wait for input between two calls of what is done meanwhile.
const IDLE: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
/// As [`IDLE`], while there is nothing left to do.
const REST: Timespec = Timespec { tv_sec: 0, tv_nsec: 250_000_000 };

/// Longest line that is kept: far more than any context.
const MAX_LINE_BYTES: usize = 64 << 20;

/// Reads the next line, without its line feed, into `line`; whether there was one.
///
/// # Errors
/// Of the read; a line beyond all reason, which would take all memory.
pub fn read_line(input: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<bool> {
    line.clear();
    let read = input.by_ref().take(MAX_LINE_BYTES as u64).read_until(b'\n', line)?;
    if line.last() == Some(&b'\n') {
        line.pop();
    } else if read == MAX_LINE_BYTES {
        return Err(too_long());
    }
    Ok(read > 0)
}

fn too_long() -> io::Error {
    let text = format!("a line has more than {} MiB; split it", MAX_LINE_BYTES >> 20);
    io::Error::new(io::ErrorKind::InvalidData, text)
}

/// Splits standard input into lines.
#[derive(Debug)]
pub struct Lines {
    /// Bytes read and not yet given out.
    bytes: Vec<u8>,
    /// How many of them have no line end.
    searched: usize,
    ended: bool,
}

impl Lines {
    /// From where standard input is.
    pub fn new() -> Lines {
        Lines { bytes: Vec::new(), searched: 0, ended: false }
    }

    /// Waits for the next line, and calls `idle` every now and then meanwhile, less often while it says that
    /// there is nothing left to do: a disk that was full may have room again.
    ///
    /// # Errors
    /// Of the read; a line beyond all reason.
    pub fn line(&mut self, idle: &mut dyn FnMut() -> bool) -> io::Result<Line> {
        self.line_from(&mut |part| {
            // It never waits in `read`: a signal that came just before would go unseen.
            while !signal::interrupted() {
                let busy = idle();
                let stdin = io::stdin();
                let mut fds = [PollFd::new(&stdin, PollFlags::IN)];
                match poll(&mut fds, Some(if busy { &IDLE } else { &REST })) {
                    Ok(0) | Err(Errno::INTR) => {}
                    // A signal goes before what came with it.
                    _ if signal::interrupted() => {}
                    _ => return Ok(rustix::io::read(io::stdin().as_fd(), part)?),
                }
            }
            Err(io::ErrorKind::Interrupted.into())
        })
    }

    fn line_from(&mut self, read: &mut dyn FnMut(&mut [u8]) -> io::Result<usize>) -> io::Result<Line> {
        loop {
            if let Some(end) = self.bytes[self.searched..].iter().position(|&b| b == b'\n') {
                let rest = self.bytes.split_off(self.searched + end + 1);
                let mut line = core::mem::replace(&mut self.bytes, rest);
                self.searched = 0;
                line.pop();
                if line.last() == Some(&b'\r') {
                    line.pop();
                }
                return Ok(String::from_utf8(line).map_or(Line::NotUtf8, Line::Text));
            }
            self.searched = self.bytes.len();
            if self.ended {
                self.searched = 0;
                let last = core::mem::take(&mut self.bytes);
                return Ok(match last.is_empty() {
                    true => Line::End,
                    false => String::from_utf8(last).map_or(Line::NotUtf8, Line::Text),
                });
            }
            if self.bytes.len() > MAX_LINE_BYTES {
                return Err(too_long());
            }
            let mut part = [0; 4096];
            match read(&mut part) {
                Ok(0) => self.ended = true,
                Ok(n) => self.bytes.extend_from_slice(&part[..n]),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {
                    if signal::interrupted() {
                        signal::clear();
                        self.bytes.clear();
                        self.searched = 0;
                        return Ok(Line::Interrupted);
                    }
                }
                Err(e) => return Err(e),
            }
        }
    }
}

impl Default for Lines {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_do_not_end_are_refused() {
        let mut line = Vec::new();
        let mut two = &b"one\n\nthree"[..];
        for want in [&b"one"[..], b"", b"three"] {
            assert!(read_line(&mut two, &mut line).unwrap());
            assert_eq!(line, want);
        }
        assert!(!read_line(&mut two, &mut line).unwrap());
        let endless = read_line(&mut io::BufReader::new(io::repeat(b'x')), &mut line);
        assert!(endless.unwrap_err().to_string().contains("more than 64 MiB"));
    }

    fn all(parts: &[&[u8]]) -> Vec<Line> {
        let mut parts = parts.iter();
        let mut read = |to: &mut [u8]| {
            let part: &[u8] = parts.next().copied().unwrap_or(b"");
            to[..part.len()].copy_from_slice(part);
            Ok(part.len())
        };
        let mut lines = Lines::new();
        let mut out = Vec::new();
        loop {
            match lines.line_from(&mut read).unwrap() {
                Line::End => return out,
                line => out.push(line),
            }
        }
    }

    #[test]
    fn lines_are_put_together_from_any_parts() {
        let text = |s: &str| Line::Text(s.into());
        assert_eq!(
            all(&[b"one\ntw", b"o\r\n", b"\nlast"]),
            [text("one"), text("two"), text(""), text("last")]
        );
        assert_eq!(all(&[]), []);
        assert_eq!(all(&[b"\xff\n", b"ok\n"]), [Line::NotUtf8, text("ok")]);
        assert_eq!(all(&[b"\xe2\x82", b"\xac\n"]), [text("€")]);
    }
}
