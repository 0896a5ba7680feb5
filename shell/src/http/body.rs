//! Bodies of requests from bytes, with a length or in chunks (RFC 9112, 7.1), without a socket. Must not know
//! where the bytes come from.
//!
//! A reader of chunks that forgives is a reader that can be made to see another request than a proxy before
//! it: no spaces, no bare line feeds, nothing between a chunk and its line end.

use super::Limits;
use super::head::{Fault, Framing, TOO_LARGE, bad};

/// Most bytes of the line before a chunk; its extensions are dropped.
const LINE_BYTES: usize = 256;

/// What comes next; in the order in which it comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd)]
enum State {
    /// The first digit of a chunk's size.
    Size,
    /// More digits, or what follows them.
    Digits,
    /// The rest of a size's line.
    Extension,
    /// LF of a size's line.
    SizeEnd,
    /// Bytes of the body.
    Data,
    /// CR behind a chunk.
    DataCr,
    /// LF behind a chunk.
    DataEnd,
    /// A trailer, or the line that ends everything.
    Trailer,
    /// The rest of a trailer.
    TrailerRest,
    /// LF of a trailer.
    TrailerEnd,
    /// LF of the last line.
    LastEnd,
    /// Nothing.
    Done,
}

/// Takes a body out of bytes as they come.
#[derive(Debug)]
pub struct Decoder {
    state: State,
    /// Bytes that are left of the chunk, or of the body.
    left: usize,
    /// Bytes of the line so far, or of all trailers.
    line: usize,
    chunked: bool,
    most: usize,
    most_trailers: usize,
}

impl Decoder {
    /// Before the first byte of a body. The length is trusted to be within the limits.
    pub fn new(framing: Framing, limits: &Limits) -> Decoder {
        let (state, left) = match framing {
            Framing::Chunked => (State::Size, 0),
            Framing::Length(0) => (State::Done, 0),
            Framing::Length(bytes) => (State::Data, bytes),
        };
        Decoder {
            state,
            left,
            line: 0,
            chunked: framing == Framing::Chunked,
            most: limits.body_bytes,
            most_trailers: limits.header_bytes,
        }
    }

    /// Whether the body is whole.
    pub fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// Takes what belongs to the body from the beginning of `bytes` and appends its data to `body`. Returns
    /// how many bytes it took: all, unless the body ends before.
    ///
    /// # Errors
    /// The chunks are malformed, or there is more than the limit.
    pub fn push(&mut self, bytes: &[u8], body: &mut Vec<u8>) -> Result<usize, Fault> {
        let mut rest = bytes;
        while self.state != State::Done {
            if self.state == State::Data {
                let (data, behind) = rest.split_at(rest.len().min(self.left));
                body.extend_from_slice(data);
                self.left -= data.len();
                rest = behind;
                if self.left > 0 {
                    break;
                }
                self.state = if self.chunked { State::DataCr } else { State::Done };
                continue;
            }
            let Some((&byte, behind)) = rest.split_first() else { break };
            rest = behind;
            self.step(byte, body.len())?;
        }
        Ok(bytes.len() - rest.len())
    }

    /// One byte that is not data.
    fn step(&mut self, byte: u8, len: usize) -> Result<(), Fault> {
        const SIZE: Fault = bad("the size of a chunk is malformed");
        const TRAILER: Fault = bad("a trailer is malformed");
        self.line += 1;
        if self.state >= State::Trailer {
            if self.line > self.most_trailers {
                return Err(Fault { status: 431, what: "the trailers are too long" });
            }
        } else if self.line > LINE_BYTES {
            return Err(SIZE);
        }
        self.state = match (self.state, byte) {
            (State::Size | State::Digits, b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') => {
                let digit = char::from(byte).to_digit(16).unwrap_or(0) as usize;
                // A size with so many digits that it overflows is too large as well.
                let size = self.left.checked_mul(16).map(|size| size | digit);
                match size {
                    Some(size) if size <= self.most.saturating_sub(len) => self.left = size,
                    _ => return Err(TOO_LARGE),
                }
                State::Digits
            }
            (State::Digits, b';') => State::Extension,
            (State::Digits | State::Extension, b'\r') => State::SizeEnd,
            (State::Extension, b'\t' | b' '..=b'~' | 0x80..) => State::Extension,
            (State::SizeEnd, b'\n') => {
                self.line = 0;
                if self.left > 0 { State::Data } else { State::Trailer }
            }
            (State::DataCr, b'\r') => State::DataEnd,
            (State::DataEnd, b'\n') => {
                self.line = 0;
                State::Size
            }
            (State::DataCr | State::DataEnd, _) => return Err(bad("a chunk is longer than its size")),
            (State::Trailer, b'\r') => State::LastEnd,
            (State::TrailerRest, b'\r') => State::TrailerEnd,
            (State::Trailer, b'!'..=b'~') => State::TrailerRest,
            (State::TrailerRest, b'\t' | b' '..=b'~' | 0x80..) => State::TrailerRest,
            (State::TrailerEnd, b'\n') => State::Trailer,
            (State::LastEnd, b'\n') => State::Done,
            (state, _) => return Err(if state >= State::Trailer { TRAILER } else { SIZE }),
        };
        Ok(())
    }
}
