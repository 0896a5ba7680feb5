//! Cuts added tokens out of raw text, before it is normalised and split.
//!
//! Nothing here knows merges.

use super::Tokenizer;

/// Which added tokens are recognised in a text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AddedTokens {
    /// All of them: for prompts built by a chat template.
    #[default]
    Recognised,
    /// Special ones are text, others (`<think>`) are recognised: for text of a user.
    SpecialAsText,
    /// All are text.
    AllAsText,
}

/// A part of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Segment<'x> {
    /// An added token.
    Added(u32),
    /// Text between added tokens, not empty.
    Text(&'x str),
}

/// The segments of a text in order.
#[derive(Clone, Debug)]
pub struct Segments<'t, 'x> {
    tokenizer: &'t Tokenizer<'t>,
    rest: &'x str,
    mode: AddedTokens,
}

impl<'a> Tokenizer<'a> {
    /// Cuts the added tokens that `mode` recognises out of `text`: the leftmost first, the longest
    /// of those that begin at the same place.
    pub fn segments<'t, 'x>(&'t self, text: &'x str, mode: AddedTokens) -> Segments<'t, 'x> {
        Segments { tokenizer: self, rest: text, mode }
    }

    /// The added token with exactly this text.
    pub fn added_id(&self, text: &str) -> Option<u32> {
        let found = self.added.binary_search_by_key(&text, |&token| self.text(token));
        found.ok().map(|i| self.added[i])
    }

    /// The longest added token that `bytes` begins with, and its length.
    fn longest_added(&self, bytes: &[u8]) -> Option<(u32, usize)> {
        // Invariant: the candidates are those whose first `len` bytes are those of `bytes`.
        let (mut candidates, mut best) = (self.added, None);
        for (len, &wanted) in bytes.iter().enumerate() {
            let byte = |token: u32| self.text_bytes(token).get(len).copied();
            // Of several with the same beginning, the one that ends here sorts first (None).
            let from = candidates.partition_point(|&token| byte(token) < Some(wanted));
            let to = candidates.partition_point(|&token| byte(token) <= Some(wanted));
            candidates = &candidates[from..to];
            let Some(&first) = candidates.first() else { break };
            if self.text_bytes(first).len() == len + 1 {
                best = Some((first, len + 1));
            }
        }
        best
    }
}

impl Segments<'_, '_> {
    fn is_text(&self, token: u32) -> bool {
        match self.mode {
            AddedTokens::Recognised => false,
            AddedTokens::SpecialAsText => self.tokenizer.is_special(token),
            AddedTokens::AllAsText => true,
        }
    }

    /// The next token to cut out: where it begins, where it ends, its id.
    fn next_added(&self) -> Option<(usize, usize, u32)> {
        let bytes = self.rest.as_bytes();
        if self.mode == AddedTokens::AllAsText {
            return None;
        }
        let mut at = 0;
        while let Some(&byte) = bytes.get(at) {
            let found = if self.tokenizer.first_bytes.has(byte) {
                self.tokenizer.longest_added(&bytes[at..])
            } else {
                None
            };
            match found {
                // As in the reference, nothing is looked for inside a token that is text.
                Some((token, len)) if self.is_text(token) => at += len,
                Some((token, len)) => return Some((at, at + len, token)),
                None => at += 1,
            }
        }
        None
    }
}

impl<'x> Iterator for Segments<'_, 'x> {
    type Item = Segment<'x>;

    fn next(&mut self) -> Option<Segment<'x>> {
        if self.rest.is_empty() {
            return None;
        }
        // Ends of a match are character borders, since a token's text is whole characters.
        let text = self.rest;
        match self.next_added() {
            Some((0, end, token)) => {
                self.rest = &text[end..];
                Some(Segment::Added(token))
            }
            Some((start, _, _)) => {
                self.rest = &text[start..];
                Some(Segment::Text(&text[..start]))
            }
            None => {
                self.rest = "";
                Some(Segment::Text(text))
            }
        }
    }
}

/// A set of bytes: those with which added tokens begin.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ByteSet([u64; 4]);

impl ByteSet {
    pub(super) fn insert(&mut self, byte: u8) {
        self.0[usize::from(byte >> 6)] |= 1 << (byte & 63);
    }

    fn has(&self, byte: u8) -> bool {
        self.0[usize::from(byte >> 6)] >> (byte & 63) & 1 == 1
    }
}
