//! Bytes in, whole characters out, with the incomplete end held back.
//!
//! Nothing here knows tokens.

/// A character that is still incomplete has at most so many bytes.
const MAX_HELD: usize = 3;
/// Bytes looked at together: what is held, and new ones.
const JOINED_BYTES: usize = 64;

const REPLACEMENT: &str = "\u{FFFD}";

/// Turns bytes that come in parts into text, as `String::from_utf8_lossy` would the whole.
#[derive(Clone, Copy, Debug, Default)]
pub struct Utf8Stream {
    held: [u8; MAX_HELD],
    len: usize,
}

impl Utf8Stream {
    /// At the start of a text.
    pub const fn new() -> Self {
        Utf8Stream { held: [0; MAX_HELD], len: 0 }
    }

    /// Takes more bytes and hands the characters that are complete to `emit`, in parts; invalid
    /// bytes become U+FFFD, one for each maximal prefix of a character.
    pub fn push(&mut self, bytes: &[u8], emit: &mut dyn FnMut(&str)) {
        for part in bytes.chunks(JOINED_BYTES - MAX_HELD) {
            let mut joined = [0; JOINED_BYTES];
            let len = self.len + part.len();
            joined[..self.len].copy_from_slice(&self.held[..self.len]);
            joined[self.len..len].copy_from_slice(part);
            let left = emit_whole(&joined[..len], emit);
            self.len = left.len();
            self.held[..self.len].copy_from_slice(left);
        }
    }

    /// Ends the text: held bytes become one U+FFFD.
    pub fn finish(&mut self, emit: &mut dyn FnMut(&str)) {
        if self.len > 0 {
            emit(REPLACEMENT);
        }
        self.len = 0;
    }
}

/// Emits all that is decided; returns the incomplete character at the end, if there is one.
fn emit_whole<'b>(mut bytes: &'b [u8], emit: &mut dyn FnMut(&str)) -> &'b [u8] {
    loop {
        let error = match core::str::from_utf8(bytes) {
            Ok("") => return &[],
            Ok(text) => {
                emit(text);
                return &[];
            }
            Err(error) => error,
        };
        let (valid, rest) = bytes.split_at(error.valid_up_to());
        if let Ok(text) = core::str::from_utf8(valid)
            && !text.is_empty()
        {
            emit(text);
        }
        let Some(invalid) = error.error_len() else { return rest };
        emit(REPLACEMENT);
        bytes = &rest[invalid..];
    }
}
