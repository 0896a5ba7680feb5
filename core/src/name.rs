//! Short names carried inside errors, so that an error can outlive the file it is about.

use core::fmt;

/// Bytes of a name that are kept; GGUF tensor names are at most 64 bytes long.
const NAME_BYTES: usize = 64;

/// A copy of the first 64 bytes of a tensor name or metadata key.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Name {
    bytes: [u8; NAME_BYTES],
    len: u8,
}

impl Name {
    /// No name: for faults that concern the file as a whole.
    pub const NONE: Name = Name { bytes: [0; NAME_BYTES], len: 0 };

    /// Copies `text`, cut at the last character border within 64 bytes.
    #[inline(never)]
    pub fn new(text: &str) -> Name {
        let mut len = text.len().min(NAME_BYTES);
        while !text.is_char_boundary(len) {
            len -= 1;
        }
        let mut bytes = [0; NAME_BYTES];
        bytes[..len].copy_from_slice(&text.as_bytes()[..len]);
        Name { bytes, len: len as u8 }
    }

    /// The kept text; empty for [`Name::NONE`].
    #[inline(never)]
    pub fn as_str(&self) -> &str {
        // Always valid: `new` cuts at a character border.
        core::str::from_utf8(&self.bytes[..usize::from(self.len)]).unwrap_or("")
    }
}

impl fmt::Display for Name {
    /// Control characters of a hostile file are escaped: errors go to terminals.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.as_str().escape_debug())
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_are_cut_at_a_character_border() {
        let mut text = [b'a'; 66];
        text[63..65].copy_from_slice("é".as_bytes());
        let name = Name::new(core::str::from_utf8(&text).unwrap());
        assert_eq!(name.as_str().len(), 63);
    }
}
