//! Texts found in a text that comes in parts. Must not know what they mean.

/// A text that is looked for (Knuth, Morris, Pratt).
#[derive(Clone, Debug)]
pub(super) struct Pattern {
    text: String,
    /// For each beginning of `text`: how much of it is left when it does not go on.
    falls: Vec<u32>,
    /// Bytes of `text` that were last seen.
    at: usize,
}

impl Pattern {
    /// `text` must not be empty.
    pub(super) fn new(text: &str) -> Pattern {
        let bytes = text.as_bytes();
        let (mut falls, mut len) = (vec![0u32; bytes.len()], 0);
        for i in 1..bytes.len() {
            while len > 0 && bytes[i] != bytes[len] {
                len = falls[len - 1] as usize;
            }
            len += usize::from(bytes[i] == bytes[len]);
            falls[i] = len as u32;
        }
        Pattern { text: text.into(), falls, at: 0 }
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// How many bytes at the end of what came may be the beginning of the text.
    pub(super) fn held(&self) -> usize {
        self.at
    }

    /// Forgets what came.
    pub(super) fn reset(&mut self) {
        self.at = 0;
    }

    /// Takes the next character; true if the text ends with it.
    pub(super) fn push(&mut self, c: char) -> bool {
        let bytes = self.text.as_bytes();
        for &byte in c.encode_utf8(&mut [0; 4]).as_bytes() {
            if self.at == bytes.len() {
                self.at = self.falls.last().map_or(0, |&len| len as usize);
            }
            while self.at > 0 && bytes[self.at] != byte {
                self.at = self.falls[self.at - 1] as usize;
            }
            self.at += usize::from(bytes.first().is_some_and(|_| bytes[self.at] == byte));
        }
        self.at == bytes.len()
    }
}
