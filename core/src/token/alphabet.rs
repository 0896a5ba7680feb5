//! The GPT-2 alphabet: 256 printable characters that stand for the 256 bytes.
//!
//! Bytes that are printable in Latin-1 stand for themselves; the other 68 are numbered
//! from U+0100. Nothing here knows tokens.

/// First character that stands for a byte other than itself.
const SHIFTED: u32 = 0x100;

/// The byte that `c` stands for.
pub(super) fn byte_of(c: char) -> Option<u8> {
    let code = u32::from(c);
    let byte = match code {
        0x21..=0x7E | 0xA1..=0xAC | 0xAE..=0xFF => code,
        0x100..=0x120 => code - SHIFTED,               // 0x00..=0x20
        0x121 => 0x7F,                                 // delete
        0x122..=0x142 => code - (SHIFTED + 34) + 0x80, // 0x80..=0xA0
        0x143 => 0xAD,                                 // soft hyphen
        _ => return None,
    };
    u8::try_from(byte).ok()
}

/// The character that stands for `byte`.
pub(super) fn char_of(byte: u8) -> char {
    let code = u32::from(byte);
    let shifted = match byte {
        0x00..=0x20 => SHIFTED + code,
        0x7F => 0x121,
        0x80..=0xA0 => SHIFTED + 34 + (code - 0x80),
        0xAD => 0x143,
        _ => code,
    };
    // Always a character: `shifted` is at most 0x143.
    char::from_u32(shifted).unwrap_or(char::REPLACEMENT_CHARACTER)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_has_a_character_and_back() {
        for byte in 0..=255 {
            assert_eq!(byte_of(char_of(byte)), Some(byte));
        }
        assert_eq!((char_of(b' '), char_of(b'\n'), char_of(0xAD)), ('Ġ', 'Ċ', 'Ń'));
        let characters = (0..0x400).filter_map(char::from_u32).filter(|&c| byte_of(c).is_some());
        assert_eq!(characters.count(), 256);
    }
}
