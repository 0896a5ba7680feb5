//! Text to ids: NFC, for which core has no tables, around the tokenizer of core.
//!
//! This module must not know where text comes from.

use crate::nfc::nfc;
use kinglet_core::cast::REGION_ALIGN;
use kinglet_core::token::{AddedTokens, EncodeError, Scratch, Segment, Tokenizer};

/// Memory for encoding, of fixed size.
#[derive(Debug)]
pub struct ScratchMemory {
    bytes: Vec<u8>,
    start: usize,
}

impl ScratchMemory {
    /// Allocates it.
    pub fn new() -> Self {
        let bytes = vec![0; Scratch::bytes(Scratch::WINDOW) + REGION_ALIGN];
        // The vector is never resized, so that this start stays aligned.
        let start = bytes.as_ptr().align_offset(REGION_ALIGN).min(REGION_ALIGN);
        ScratchMemory { bytes, start }
    }

    /// Scratch in this memory.
    ///
    /// # Panics
    /// Never: size and alignment are as asked for.
    pub fn scratch(&mut self) -> Scratch<'_> {
        Scratch::new(&mut self.bytes[self.start..], Scratch::WINDOW).expect("aligned and large enough")
    }
}

impl Default for ScratchMemory {
    fn default() -> Self {
        Self::new()
    }
}

/// Encodes any text exactly as the reference does, and hands each id to `sink`.
///
/// Added tokens are cut out of the raw text first, and only what is between them is brought to
/// NFC: a combining mark behind an added token joins nothing before it.
///
/// # Errors
/// [`EncodeError::NoSeam`], for words of thousands of letters with an odd vocabulary.
pub fn encode_with(
    tokenizer: &Tokenizer<'_>,
    text: &str,
    mode: AddedTokens,
    scratch: &mut Scratch<'_>,
    sink: &mut dyn FnMut(u32),
) -> Result<(), EncodeError> {
    for segment in tokenizer.segments(text, mode) {
        match segment {
            Segment::Added(id) => sink(id),
            Segment::Text(text) => tokenizer.encode_text_with(&nfc(text), scratch, sink)?,
        }
    }
    Ok(())
}

/// As [`encode_with`], appending to `ids`.
///
/// # Errors
/// As [`encode_with`].
pub fn encode(
    tokenizer: &Tokenizer<'_>,
    text: &str,
    mode: AddedTokens,
    scratch: &mut Scratch<'_>,
    ids: &mut Vec<u32>,
) -> Result<(), EncodeError> {
    encode_with(tokenizer, text, mode, scratch, &mut |id| ids.push(id))
}
