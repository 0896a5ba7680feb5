//! Answers: a status, headers, and a body that is whole or comes piece by piece. Must not know what they say.

use super::connection::{Connection, State};
use super::date::date;
use std::io;
use std::io::Write;
use std::time::{SystemTime, UNIX_EPOCH};

/// A body up to this size is sent together with its head.
const TOGETHER_BYTES: usize = 16 << 10;

/// The one answer to one request.
#[derive(Debug)]
pub struct Reply<'a> {
    pub(super) connection: &'a mut Connection,
}

/// How the client learns where the body ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Framing {
    /// Content-Length says so.
    Length(usize),
    /// By an empty chunk.
    Chunks,
    /// By the end of the connection: HTTP/1.0 knows no chunks.
    Close,
    /// There is none, whatever the headers say.
    Nothing,
}

impl<'a> Reply<'a> {
    /// Sends the whole answer. `headers` are without Content-Length, Transfer-Encoding, Connection and Date.
    ///
    /// # Errors
    /// The client is gone, or too slow.
    pub fn send(self, status: u16, headers: &[(&str, &str)], body: &[u8]) -> io::Result<()> {
        let connection = self.connection;
        let has_none = connection.is_head || is_bodiless(status);
        let framing = if is_bodiless(status) { Framing::Nothing } else { Framing::Length(body.len()) };
        let mut head = begin(connection, status, headers, framing);
        let mut rest = if has_none { &[][..] } else { body };
        if rest.len() <= TOGETHER_BYTES {
            head.extend_from_slice(rest);
            rest = &[];
        }
        connection.write(&head)?;
        connection.write(rest)?;
        connection.state = State::Whole;
        Ok(())
    }

    /// Begins an answer that comes piece by piece; status and headers are sent at once.
    ///
    /// # Errors
    /// The client is gone, or too slow.
    pub fn stream(self, status: u16, headers: &[(&str, &str)]) -> io::Result<Stream<'a>> {
        let connection = self.connection;
        let mut framing = if connection.minor > 0 { Framing::Chunks } else { Framing::Close };
        if is_bodiless(status) {
            framing = Framing::Nothing;
        } else if framing == Framing::Close {
            connection.keep = false;
        }
        let head = begin(connection, status, headers, framing);
        connection.write(&head)?;
        if connection.is_head {
            framing = Framing::Nothing;
        }
        Ok(Stream { connection, framing, frame: head })
    }

    /// Whether the client has closed its side: nobody waits for the answer. Requests that it may have sent
    /// after this one do not matter. A client that closes only its sending side counts as gone too.
    pub fn is_gone(&self) -> bool {
        self.connection.wire.is_gone()
    }
}

/// An answer that comes piece by piece. Dropped without [`Stream::finish`] it ends the connection
/// in the middle.
#[derive(Debug)]
pub struct Stream<'a> {
    connection: &'a mut Connection,
    framing: Framing,
    /// Memory for one chunk.
    frame: Vec<u8>,
}

impl Stream<'_> {
    /// Sends one piece at once.
    ///
    /// # Errors
    /// The client is gone, or too slow: there is no going on.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self.framing {
            // An empty chunk would be the last.
            _ if bytes.is_empty() => Ok(()),
            Framing::Chunks => {
                self.frame.clear();
                write!(self.frame, "{:x}\r\n", bytes.len())?;
                self.frame.extend_from_slice(bytes);
                self.frame.extend_from_slice(b"\r\n");
                self.connection.write(&self.frame)
            }
            Framing::Nothing => Ok(()),
            Framing::Close | Framing::Length(_) => self.connection.write(bytes),
        }
    }

    /// As [`Reply::is_gone`].
    pub fn is_gone(&self) -> bool {
        self.connection.wire.is_gone()
    }

    /// Ends the answer.
    ///
    /// # Errors
    /// The client is gone, or too slow.
    pub fn finish(self) -> io::Result<()> {
        if self.framing == Framing::Chunks {
            self.connection.write(b"0\r\n\r\n")?;
        }
        self.connection.state = State::Whole;
        Ok(())
    }
}

/// Status line and headers; from here on the answer has begun.
fn begin(connection: &mut Connection, status: u16, headers: &[(&str, &str)], framing: Framing) -> Vec<u8> {
    connection.state = State::Begun;
    connection.keep &= !connection.shared.is_stopping();
    let mut head = String::from("HTTP/1.1 ");
    push_number(usize::from(status), &mut head);
    head.push(' ');
    head.push_str(reason(status));
    head.push_str("\r\n");
    // A board without a clock has no date.
    if let Ok(now) = SystemTime::now().duration_since(UNIX_EPOCH) {
        head.push_str("Date: ");
        date(now.as_secs(), &mut head);
        head.push_str("\r\n");
    }
    for (name, value) in headers {
        push_header(name, value, &mut head);
    }
    match framing {
        Framing::Length(len) => {
            head.push_str("Content-Length: ");
            push_number(len, &mut head);
            head.push_str("\r\n");
        }
        Framing::Chunks => push_header("Transfer-Encoding", "chunked", &mut head),
        Framing::Close | Framing::Nothing => {}
    }
    match (connection.keep, connection.minor) {
        (false, _) => push_header("Connection", "close", &mut head),
        (true, 0) => push_header("Connection", "keep-alive", &mut head),
        (true, _) => {}
    }
    head.push_str("\r\n");
    head.into_bytes()
}

/// A value with a line end in it could end the head, or begin another answer.
fn push_header(name: &str, value: &str, head: &mut String) {
    head.push_str(name);
    head.push_str(": ");
    head.extend(value.chars().map(|c| if c.is_control() { ' ' } else { c }));
    head.push_str("\r\n");
}

fn push_number(number: usize, head: &mut String) {
    if number > 9 {
        push_number(number / 10, head);
    }
    head.push(char::from(b'0' + (number % 10) as u8));
}

/// Whether an answer with this status has no body by its nature.
fn is_bodiless(status: u16) -> bool {
    matches!(status, 100..=199 | 204 | 304)
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        204 => "No Content",
        304 => "Not Modified",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        413 => "Content Too Large",
        414 => "URI Too Long",
        415 => "Unsupported Media Type",
        417 => "Expectation Failed",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        503 => "Service Unavailable",
        505 => "HTTP Version Not Supported",
        // The phrase may be empty; clients go by the number.
        _ => "",
    }
}

impl Connection {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.broken {
            // The client would take it for what is missing.
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let sent = self.wire.write(bytes, self.shared.limits.write_time);
        self.broken = sent.is_err();
        sent
    }
}
