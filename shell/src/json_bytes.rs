//! Strings and numbers of JSON (RFC 8259), byte by byte. Must not know objects, lists or schemas.

/// State of a string between two characters.
pub(crate) const BODY: u8 = 0;
/// State of a string behind its closing quote.
pub(crate) const END: u8 = 255;

// One to three bytes of a character are missing.
const TAIL_1: u8 = 1;
const TAIL_2: u8 = 2;
const TAIL_3: u8 = 3;
// Behind a first byte whose second one has narrower limits.
const AFTER_E0: u8 = 4;
const AFTER_ED: u8 = 5;
const AFTER_F0: u8 = 6;
const AFTER_F4: u8 = 7;
/// Behind a backslash. All states from here on are inside an escape.
const ESCAPE: u8 = 8;
const HEX_4: u8 = 9;
const HEX_3: u8 = 10;
const HEX_2: u8 = 11;
const HEX_1: u8 = 12;
/// Behind `\ud`: the next digit says whether it is half of a pair.
const HEX_D: u8 = 13;
const HIGH_2: u8 = 14;
const HIGH_1: u8 = 15;
// The second half: `\`, `u`, `d`, `c` to `f`.
const LOW_ESCAPE: u8 = 16;
const LOW_U: u8 = 17;
const LOW_D: u8 = 18;
const LOW_C: u8 = 19;

/// The state of a string after `byte`, which begins with [`BODY`] behind its opening quote. None if
/// no string goes on so: control characters, what is no UTF-8, unknown escapes, half a surrogate pair.
pub(crate) fn string(state: u8, byte: u8) -> Option<u8> {
    Some(match (state, byte) {
        (BODY, b'"') => END,
        (BODY, b'\\') => ESCAPE,
        (BODY, 0x20..=0x7F) => BODY,
        (BODY, 0xC2..=0xDF) => TAIL_1,
        (BODY, 0xE0) => AFTER_E0,
        (BODY, 0xED) => AFTER_ED,
        (BODY, 0xE1..=0xEF) => TAIL_2,
        (BODY, 0xF0) => AFTER_F0,
        (BODY, 0xF1..=0xF3) => TAIL_3,
        (BODY, 0xF4) => AFTER_F4,
        (TAIL_1..=TAIL_3, 0x80..=0xBF) => state - 1,
        (AFTER_E0, 0xA0..=0xBF) | (AFTER_ED, 0x80..=0x9F) => TAIL_1,
        (AFTER_F0, 0x90..=0xBF) | (AFTER_F4, 0x80..=0x8F) => TAIL_2,
        (ESCAPE, b'u') => HEX_4,
        (ESCAPE, b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => BODY,
        (HEX_4, b'd' | b'D') => HEX_D,
        (HEX_4 | HEX_3 | HEX_2, _) if byte.is_ascii_hexdigit() => state + 1,
        (HEX_1, _) if byte.is_ascii_hexdigit() => BODY,
        (HEX_D, b'0'..=b'7') => HEX_2,
        (HEX_D, b'8' | b'9' | b'a' | b'b' | b'A' | b'B') => HIGH_2,
        (HIGH_2 | HIGH_1, _) if byte.is_ascii_hexdigit() => state + 1,
        (LOW_ESCAPE, b'\\') => LOW_U,
        (LOW_U, b'u') => LOW_D,
        (LOW_D, b'd' | b'D') => LOW_C,
        (LOW_C, b'c'..=b'f' | b'C'..=b'F') => HEX_2,
        _ => return None,
    })
}

/// Whether `state` of a string is inside an escape.
pub(crate) fn in_escape(state: u8) -> bool {
    (ESCAPE..=LOW_C).contains(&state)
}

/// Most digits before the point, after it, and of the exponent, where they are limited: what fits is a
/// finite `f64`, and nobody can write digits without end.
const MOST_DIGITS: [u32; 3] = [19, 20, 2];

/// Where a number stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Number {
    /// 0 start, 1 minus, 2 zero, 3 digits, 4 point, 5 fraction, 6 `e`, 7 its sign, 8 exponent.
    pub(crate) phase: u8,
    /// Digits of this part.
    pub(crate) digits: u32,
}

impl Number {
    /// The number with one more byte; None if it cannot go on so.
    pub(crate) fn push(self, byte: u8, limited: bool) -> Option<Number> {
        let phase = match (self.phase, byte) {
            (0, b'-') => 1,
            (0 | 1, b'0') => 2,
            (0 | 1, b'1'..=b'9') | (3, b'0'..=b'9') => 3,
            (2 | 3, b'.') => 4,
            (4 | 5, b'0'..=b'9') => 5,
            (2 | 3 | 5, b'e' | b'E') => 6,
            (6, b'+' | b'-') => 7,
            (6..=8, b'0'..=b'9') => 8,
            _ => return None,
        };
        let most = match phase {
            3 => MOST_DIGITS[0],
            5 => MOST_DIGITS[1],
            8 => MOST_DIGITS[2],
            _ => return Some(Number { phase, digits: 0 }),
        };
        let digits = if self.phase == phase { self.digits.saturating_add(1) } else { 1 };
        (!limited || digits <= most).then_some(Number { phase, digits })
    }

    /// Whether it may end here.
    pub(crate) fn is_whole(self) -> bool {
        matches!(self.phase, 2 | 3 | 5 | 8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_string(bytes: &[u8]) -> bool {
        bytes.iter().try_fold(BODY, |state, &byte| string(state, byte)) == Some(END)
    }

    fn is_number(text: &str) -> bool {
        let end = text.bytes().try_fold(Number::default(), |number, byte| number.push(byte, false));
        end.is_some_and(Number::is_whole)
    }

    /// All bodies of one to three bytes that begin with an interesting byte, by serde_json's judgement.
    #[test]
    fn strings_are_those_of_serde() {
        let starts =
            [b'a', b'\\', 0x1F, 0x7F, 0x80, 0xC1, 0xC2, 0xE0, 0xE1, 0xED, 0xEF, 0xF0, 0xF3, 0xF4, 0xF5];
        let seconds: Vec<u8> = (0..=255).collect();
        for first in starts {
            for &second in &seconds {
                for third in [None, Some(0x80), Some(0xBF), Some(b'x')] {
                    for fourth in [None, Some(0x80)] {
                        let body = [Some(first), Some(second), third, fourth];
                        let mut text = vec![b'"'];
                        text.extend(body.into_iter().flatten());
                        text.push(b'"');
                        let theirs = serde_json::from_slice::<String>(&text).is_ok();
                        assert_eq!(is_string(&text[1..]), theirs, "{text:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn escapes_are_those_of_serde() {
        let halves = ["d7ff", "D800", "dbff", "dc00", "DFFF", "e000", "0000", "00g0", "12"];
        for first in halves {
            for second in halves {
                for between in ["\\u", "\\", "", "u", "x"] {
                    let text = format!("\"\\u{first}{between}{second}\"");
                    let theirs = serde_json::from_str::<String>(&text).is_ok();
                    assert_eq!(is_string(&text.as_bytes()[1..]), theirs, "{text}");
                }
            }
        }
    }

    #[test]
    fn numbers_are_those_of_serde() {
        let parts = ["", "-", "0", "1", "12", ".", "5", "e", "E", "+", "07"];
        for a in parts {
            for b in parts {
                for c in parts {
                    for d in parts {
                        let text = [a, b, c, d].concat();
                        let theirs = serde_json::from_str::<serde_json::Number>(&text).is_ok();
                        assert_eq!(is_number(&text), theirs, "{text}");
                    }
                }
            }
        }
    }

    #[test]
    fn digits_are_limited() {
        let fits = |text: &str| {
            text.bytes().try_fold(Number::default(), |number, byte| number.push(byte, true)).is_some()
        };
        assert!(fits(&"9".repeat(19)) && !fits(&"9".repeat(20)));
        assert!(fits(&format!("0.{}", "1".repeat(20))) && !fits(&format!("0.{}", "1".repeat(21))));
        assert!(fits("1e99") && !fits("1e100") && fits("1.25e-10"));
    }
}
