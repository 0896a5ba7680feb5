//! The splitting rule `qwen2`: cuts text into the pieces that merges never cross.
//!
//! The rule is this regular expression, alternatives tried in order at each place:
//!
//! ```text
//! (?i:'s|'t|'re|'ve|'m|'ll|'d) | [^\r\n\p{L}\p{N}]?\p{L}+ | \p{N} | ?[^\s\p{L}\p{N}]+[\r\n]*
//!   | \s*[\r\n]+ | \s+(?!\S) | \s+
//! ```
//!
//! (the fourth begins with an optional space, U+0020). Written out by hand it looks at each
//! character at most three times. Nothing here knows tokens.

use super::unicode::{Class, class};

/// The pieces of a text in order; joined they are the text.
#[derive(Clone, Debug)]
pub struct Pieces<'x> {
    rest: &'x str,
}

/// Splits `text`.
pub fn pieces(text: &str) -> Pieces<'_> {
    Pieces { rest: text }
}

impl<'x> Iterator for Pieces<'x> {
    type Item = &'x str;

    fn next(&mut self) -> Option<&'x str> {
        let first = self.rest.chars().next()?;
        let (piece, rest) = self.rest.split_at(piece_len(self.rest, first));
        self.rest = rest;
        Some(piece)
    }
}

/// Length in bytes of the piece at the start of `text`, whose first character is `first`.
fn piece_len(text: &str, first: char) -> usize {
    let first_len = first.len_utf8();
    let rest = &text[first_len..];
    if first == '\''
        && let Some(len) = contraction_len(rest)
    {
        return first_len + len;
    }
    let first_class = class(first);
    match first_class {
        Class::Letter => return first_len + run_len(rest, Class::Letter),
        Class::Number => return first_len,
        Class::Newline => {}
        Class::Space | Class::Other => {
            let letters = run_len(rest, Class::Letter);
            if letters > 0 {
                return first_len + letters;
            }
        }
    }
    let skipped = if first == ' ' { 1 } else { 0 };
    let others = run_len(&text[skipped..], Class::Other);
    if others > 0 {
        let end = skipped + others;
        return end + run_len(&text[end..], Class::Newline);
    }
    space_len(text)
}

/// Length of the letters of a contraction, behind its apostrophe.
fn contraction_len(rest: &str) -> Option<usize> {
    let mut chars = rest.chars();
    match chars.next()? {
        // Case folding makes the long s an s.
        c @ ('s' | 'S' | 't' | 'T' | 'm' | 'M' | 'd' | 'D' | '\u{17F}') => Some(c.len_utf8()),
        'r' | 'R' | 'v' | 'V' => matches!(chars.next()?, 'e' | 'E').then_some(2),
        'l' | 'L' => matches!(chars.next()?, 'l' | 'L').then_some(2),
        _ => None,
    }
}

/// Length in bytes of the run of `wanted` characters at the start of `text`.
fn run_len(text: &str, wanted: Class) -> usize {
    text.char_indices().find(|&(_, c)| class(c) != wanted).map_or(text.len(), |(i, _)| i)
}

/// The last three alternatives, for a text that begins with white space.
fn space_len(text: &str) -> usize {
    let (mut len, mut before_last, mut newline_end) = (0, 0, 0);
    for c in text.chars() {
        let class = class(c);
        if !matches!(class, Class::Space | Class::Newline) {
            break;
        }
        before_last = len;
        len += c.len_utf8();
        if class == Class::Newline {
            newline_end = len;
        }
    }
    if newline_end > 0 {
        // `\s*[\r\n]+`: \s* is greedy, so it ends at the last newline of the run.
        newline_end
    } else if len < text.len() && before_last > 0 {
        // `\s+(?!\S)`: the last space is left for the word behind it.
        before_last
    } else {
        len
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &[&str]) {
        assert!(pieces(text).eq(expected.iter().copied()), "{text:?} -> {:?}", {
            let mut all = [""; 16];
            all.iter_mut().zip(pieces(text)).for_each(|(slot, piece)| *slot = piece);
            all
        });
    }

    #[test]
    fn words_take_one_leading_character() {
        check("Hello, world", &["Hello", ",", " world"]);
        check("a\tb", &["a", "\tb"]);
        check("(foo)", &["(foo", ")"]);
        check("x = y1", &["x", " =", " y", "1"]);
        check("\nabc", &["\n", "abc"]);
    }

    #[test]
    fn contractions() {
        check("it's we'LL I'd'x", &["it", "'s", " we", "'LL", " I", "'d", "'x"]);
        check("'\u{17F}a", &["'\u{17F}", "a"]);
        check("'r 'l", &["'r", " '", "l"]);
    }

    #[test]
    fn numbers_stand_alone() {
        check("12½", &["1", "2", "½"]);
        check(" 12", &[" ", "1", "2"]);
    }

    #[test]
    fn punctuation_takes_newlines() {
        check(" !?\r\n\nx", &[" !?\r\n\n", "x"]);
        check("\t!", &["\t", "!"]);
    }

    #[test]
    fn spaces() {
        check("   a", &["  ", " a"]);
        check("   ", &["   "]);
        check(" \n  \n  a", &[" \n  \n", " ", " a"]);
        check("  1", &[" ", " ", "1"]);
        check("\u{3000}\u{3000}1", &["\u{3000}", "\u{3000}", "1"]);
        check("", &[]);
    }
}
