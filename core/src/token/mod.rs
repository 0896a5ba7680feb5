//! Tokenizer of the Qwen models: byte-level BPE read from a GGUF file.
//!
//! Encoding goes in four steps, as in the reference implementation: added tokens are cut out
//! of the raw text ([`Tokenizer::segments`]); each piece between them is brought to NFC, by
//! the caller, who has the tables; it is split by rule ([`pieces`]); pieces are merged.
//! Decoding joins the bytes of tokens; [`StreamDecoder`] hands out whole characters only.
//! Memory is the caller's: an index of the vocabulary and scratch of fixed size.
//!
//! This module must not know models or chats.

mod added;
mod alphabet;
mod decode;
mod error;
mod heap;
mod index;
mod merge;
mod split;
mod table;
mod unicode;
mod utf8;
mod window;

pub use added::{AddedTokens, Segment, Segments};
pub use decode::StreamDecoder;
pub use error::{DecodeError, EncodeError, TokenizerError, TokenizerFault};
pub use index::TokenKind;
pub use merge::Scratch;
pub use split::{Pieces, pieces};
pub use unicode::{Class, class};
pub use utf8::Utf8Stream;

use crate::gguf::Gguf;
use added::ByteSet;
use index::Source;
use merge::Rules;

/// The longest token that is accepted, in bytes; Qwen's longest has 128.
pub const MAX_TOKEN_BYTES: usize = 1024;

/// Ends a turn, whatever `eos_token_id` says.
const END_NAMES: [&str; 2] = ["<|im_end|>", "<|endoftext|>"];

/// Added tokens that look like control tokens, so that the converter marks them as such, though
/// Qwen's own tokenizers list them as plain text.
const NOT_SPECIAL: [&str; 6] =
    ["<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>", "<|fim_pad|>", "<|repo_name|>", "<|file_sep|>"];

/// Memory that a tokenizer needs, in bytes, known before it is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenizerRequirements {
    /// Index of the vocabulary; lives as long as the tokenizer.
    pub index: usize,
    /// Scratch for encoding with a window of [`Scratch::WINDOW`].
    pub scratch: usize,
}

impl TokenizerRequirements {
    /// Reads what is needed for the vocabulary of `gguf`.
    ///
    /// # Errors
    /// Keys that are missing or of the wrong type, another kind of tokenizer, absurd counts.
    pub fn of(gguf: &Gguf<'_, '_>) -> Result<Self, TokenizerError> {
        let index = Source::read(gguf)?.index_bytes();
        Ok(TokenizerRequirements { index, scratch: Scratch::bytes(Scratch::WINDOW) })
    }
}

/// A checked vocabulary. `'a` is the file and the index.
#[derive(Clone, Copy, Debug)]
pub struct Tokenizer<'a> {
    source: Source<'a>,
    /// Where each token's text begins in the file's list.
    offsets: &'a [u32],
    /// Added tokens in the order of their texts.
    added: &'a [u32],
    first_bytes: ByteSet,
    rules: Rules<'a>,
    /// Bytes of the longest token.
    longest: usize,
    eos: u32,
    bos: Option<u32>,
    /// The tokens of [`END_NAMES`].
    ends: [Option<u32>; 2],
}

impl<'a> Tokenizer<'a> {
    /// Checks the vocabulary of `gguf` and builds its index in `region`.
    ///
    /// `region` is aligned to [`REGION_ALIGN`](crate::cast::REGION_ALIGN) and has at least
    /// [`TokenizerRequirements::index`] bytes.
    ///
    /// # Errors
    /// Any fault of the vocabulary, with the key it concerns; a region that does not fit.
    pub fn new(gguf: &Gguf<'a, '_>, region: &'a mut [u8]) -> Result<Self, TokenizerError> {
        index::build(gguf, region)
    }

    /// Fills in what follows from the added tokens.
    fn with_added(mut self) -> Self {
        self.ends = END_NAMES.map(|name| self.added_id(name));
        for &token in self.added {
            self.text(token).bytes().take(1).for_each(|byte| self.first_bytes.insert(byte));
        }
        self
    }

    /// Number of tokens, holes included.
    pub fn vocab_size(&self) -> usize {
        self.source.tokens.len()
    }

    /// `eos_token_id` of the file.
    pub fn eos(&self) -> u32 {
        self.eos
    }

    /// The token to put before a text, if the file asks for one; Qwen's do not.
    pub fn bos(&self) -> Option<u32> {
        self.bos
    }

    /// Whether `id` ends an answer: `eos_token_id`, `<|im_end|>` or `<|endoftext|>`.
    pub fn is_end(&self, id: u32) -> bool {
        self.ends().any(|end| end == id)
    }

    /// The ids for which [`Tokenizer::is_end`] holds; one may come twice.
    pub fn ends(&self) -> impl Iterator<Item = u32> + use<> {
        [Some(self.eos), self.ends[0], self.ends[1]].into_iter().flatten()
    }

    /// What token `id` is; `None` outside the vocabulary.
    pub fn kind(&self, id: u32) -> Option<TokenKind> {
        self.source.kind(id)
    }

    /// Whether `id` is a control token that Qwen's own tokenizers call special.
    pub fn is_special(&self, id: u32) -> bool {
        self.kind(id) == Some(TokenKind::Control) && !NOT_SPECIAL.contains(&self.text(id))
    }

    /// Text of token `id` as it stands in the file; empty outside the vocabulary.
    fn text(&self, id: u32) -> &'a str {
        self.offsets.get(id as usize).map_or("", |&offset| self.source.tokens.at(offset as usize))
    }

    /// As [`Tokenizer::text`], the bytes: constant time.
    fn text_bytes(&self, id: u32) -> &'a [u8] {
        self.offsets.get(id as usize).map_or(&[], |&offset| self.source.tokens.bytes_at(offset as usize))
    }

    /// Encodes one piece of text between added tokens, already in NFC, and hands each id to `sink`.
    ///
    /// # Errors
    /// [`EncodeError::WindowTooSmall`] or [`EncodeError::NoSeam`], for words longer than the
    /// window only. Some ids may have been handed out.
    pub fn encode_text_with(
        &self,
        text: &str,
        scratch: &mut Scratch<'_>,
        sink: &mut dyn FnMut(u32),
    ) -> Result<(), EncodeError> {
        let mut offset = 0;
        for piece in pieces(text) {
            if piece.len() <= scratch.window() {
                scratch.merger.encode(&self.rules, piece.as_bytes(), sink);
            } else {
                window::encode_long(&self.rules, piece.as_bytes(), self.longest, scratch, sink).map_err(
                    |error| match error {
                        EncodeError::NoSeam { offset: within } => {
                            EncodeError::NoSeam { offset: offset + within }
                        }
                        other => other,
                    },
                )?;
            }
            offset += piece.len();
        }
        Ok(())
    }

    /// As [`Tokenizer::encode_text_with`], into `out`; returns the number of ids.
    ///
    /// # Errors
    /// As there, and [`EncodeError::OutputTooSmall`].
    pub fn encode_text(
        &self,
        text: &str,
        scratch: &mut Scratch<'_>,
        out: &mut [u32],
    ) -> Result<usize, EncodeError> {
        fill(out, |sink| self.encode_text_with(text, scratch, sink))
    }

    /// Encodes a whole text, already in NFC, into `out`; returns the number of ids.
    ///
    /// NFC of the whole is not always NFC of the pieces between added tokens: to encode
    /// any text exactly, normalise each [`Segment::Text`] instead.
    ///
    /// # Errors
    /// As [`Tokenizer::encode_text`].
    pub fn encode(
        &self,
        text: &str,
        mode: AddedTokens,
        scratch: &mut Scratch<'_>,
        out: &mut [u32],
    ) -> Result<usize, EncodeError> {
        fill(out, |sink| {
            self.segments(text, mode).try_for_each(|segment| match segment {
                Segment::Added(id) => {
                    sink(id);
                    Ok(())
                }
                Segment::Text(text) => self.encode_text_with(text, scratch, sink),
            })
        })
    }
}

/// Collects what `encode` hands out; counts on when `out` is full.
fn fill(
    out: &mut [u32],
    encode: impl FnOnce(&mut dyn FnMut(u32)) -> Result<(), EncodeError>,
) -> Result<usize, EncodeError> {
    let got = out.len();
    let mut needed = 0;
    encode(&mut |id| {
        if let Some(slot) = out.get_mut(needed) {
            *slot = id;
        }
        needed += 1;
    })?;
    if needed > got { Err(EncodeError::OutputTooSmall { needed, got }) } else { Ok(needed) }
}
