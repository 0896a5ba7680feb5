//! From ids back to bytes and to text.
//!
//! Nothing here knows how text was encoded.

use super::utf8::Utf8Stream;
use super::{DecodeError, TokenKind, Tokenizer, alphabet};

/// Bytes of a token that are handed on at once.
const CHUNK_BYTES: usize = 64;

impl<'a> Tokenizer<'a> {
    /// The bytes of token `id`, written to the front of `out`.
    ///
    /// They need not be whole characters. An unused id has none.
    /// [`MAX_TOKEN_BYTES`](super::MAX_TOKEN_BYTES) are enough for any token.
    ///
    /// # Errors
    /// [`DecodeError::UnknownId`], [`DecodeError::OutputTooSmall`].
    pub fn token_bytes<'o>(&self, id: u32, out: &'o mut [u8]) -> Result<&'o [u8], DecodeError> {
        let (got, mut needed) = (out.len(), 0);
        for byte in self.bytes_of(id)? {
            if let Some(slot) = out.get_mut(needed) {
                *slot = byte;
            }
            needed += 1;
        }
        out.get(..needed).ok_or(DecodeError::OutputTooSmall { needed, got })
    }

    /// The bytes of token `id`, one by one.
    fn bytes_of(&self, id: u32) -> Result<impl Iterator<Item = u8> + use<'a>, DecodeError> {
        let unknown = DecodeError::UnknownId { id, tokens: self.vocab_size() };
        let (plain, raw) = match self.kind(id).ok_or(unknown)? {
            TokenKind::Normal => (self.text(id), ""),
            TokenKind::Control | TokenKind::UserDefined => ("", self.text(id)),
            TokenKind::Unused => ("", ""),
        };
        Ok(plain.chars().filter_map(alphabet::byte_of).chain(raw.bytes()))
    }
}

/// Decodes ids one by one into text, handing out whole characters only.
///
/// Joined, the parts are what decoding all ids at once gives: bytes that are no valid
/// UTF-8 become U+FFFD, one for each maximal invalid prefix. Bytes of a character that is not
/// yet complete, three at most, are held back until it is or until [`StreamDecoder::finish`].
#[derive(Clone, Debug)]
pub struct StreamDecoder<'t> {
    tokenizer: &'t Tokenizer<'t>,
    skip_special: bool,
    utf8: Utf8Stream,
}

impl<'t> StreamDecoder<'t> {
    /// A decoder at the start of a text. `skip_special` drops the tokens for which
    /// [`Tokenizer::is_special`] holds.
    pub fn new(tokenizer: &'t Tokenizer<'t>, skip_special: bool) -> Self {
        StreamDecoder { tokenizer, skip_special, utf8: Utf8Stream::new() }
    }

    /// Takes the next id and hands the characters that are now complete to `emit`, in parts.
    ///
    /// # Errors
    /// [`DecodeError::UnknownId`]; the decoder is unchanged and may go on.
    pub fn push(&mut self, id: u32, emit: &mut dyn FnMut(&str)) -> Result<(), DecodeError> {
        let bytes = self.tokenizer.bytes_of(id)?;
        if self.skip_special && self.tokenizer.is_special(id) {
            return Ok(());
        }
        let (mut chunk, mut len) = ([0; CHUNK_BYTES], 0);
        for byte in bytes {
            chunk[len] = byte;
            len += 1;
            if len == CHUNK_BYTES {
                self.utf8.push(&chunk, emit);
                len = 0;
            }
        }
        self.utf8.push(&chunk[..len], emit);
        Ok(())
    }

    /// Ends the text: an incomplete character becomes U+FFFD. The decoder is as new afterwards.
    pub fn finish(&mut self, emit: &mut dyn FnMut(&str)) {
        self.utf8.finish(emit);
    }
}
