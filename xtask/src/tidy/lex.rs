//! Tells code from comments and literals in Rust source, byte by byte.
//!
//! Not a parser: it knows just enough of the grammar never to take the inside of a
//! string for code. A lifetime is told from a character literal by its missing end.

/// What a byte of source belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Anything that is not one of the others.
    Code,
    /// Line and block comments, documentation too.
    Comment,
    /// String, byte string and character literals with their quotes.
    Literal,
}

/// The kind of every byte.
pub fn kinds(source: &str) -> Vec<Kind> {
    let bytes = source.as_bytes();
    let mut kinds = Vec::with_capacity(bytes.len());
    while kinds.len() < bytes.len() {
        let at = kinds.len();
        let rest = &source[at..];
        let (kind, len) = if rest.starts_with("//") {
            (Kind::Comment, rest.find('\n').unwrap_or(rest.len()))
        } else if rest.starts_with("/*") {
            (Kind::Comment, block_comment(rest))
        } else if rest.starts_with('"') {
            (Kind::Literal, quoted(rest, b'"'))
        } else if let Some(len) = raw_string(rest).filter(|_| !ends_in_word(&source[..at])) {
            (Kind::Literal, len)
        } else if rest.starts_with('\'') && is_char(rest) {
            (Kind::Literal, quoted(rest, b'\''))
        } else {
            (Kind::Code, rest.chars().next().map_or(1, char::len_utf8))
        };
        kinds.resize(at + len.max(1), kind);
    }
    kinds
}

/// The source with everything blanked that `keep` refuses; lines and columns (in bytes) stay.
pub fn only(source: &str, keep: impl Fn(Kind) -> bool) -> String {
    let blank = |(&byte, kind): (&u8, Kind)| if keep(kind) || byte == b'\n' { byte } else { b' ' };
    let bytes: Vec<u8> = source.as_bytes().iter().zip(kinds(source)).map(blank).collect();
    // Kinds change at ASCII characters only, so no character is cut in two.
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The code alone.
pub fn code_of(source: &str) -> String {
    only(source, |kind| kind == Kind::Code)
}

/// The identifiers of a line with the byte at which each ends.
pub fn words(line: &str) -> impl Iterator<Item = (&str, usize)> {
    let mut at = 0;
    line.split(|c: char| !is_word(c)).filter_map(move |word| {
        let end = at + word.len();
        // The separator may be longer than a byte.
        at = end + line[end..].chars().next().map_or(0, char::len_utf8);
        (!word.is_empty()).then_some((word, end))
    })
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn ends_in_word(before: &str) -> bool {
    before.chars().next_back().is_some_and(is_word)
}

/// Length of a block comment, nested ones included.
fn block_comment(rest: &str) -> usize {
    let bytes = rest.as_bytes();
    let (mut depth, mut i) = (0usize, 0);
    while i < bytes.len() {
        match bytes.get(i..i + 2) {
            Some(b"/*") => (depth, i) = (depth + 1, i + 2),
            Some(b"*/") if depth == 1 => return i + 2,
            Some(b"*/") => (depth, i) = (depth - 1, i + 2),
            _ => i += 1,
        }
    }
    bytes.len()
}

/// Length of a literal from its opening to its closing quote.
fn quoted(rest: &str, quote: u8) -> usize {
    let bytes = rest.as_bytes();
    let mut i = 1;
    while i < bytes.len() {
        match bytes[i] {
            b'\\' => i += 2,
            b if b == quote => return i + 1,
            _ => i += 1,
        }
    }
    bytes.len()
}

/// Length of a raw string literal such as `br##"..."##`, if `rest` begins with one.
fn raw_string(rest: &str) -> Option<usize> {
    let after = rest.strip_prefix(['b', 'c']).unwrap_or(rest).strip_prefix('r')?;
    let hashes = after.len() - after.trim_start_matches('#').len();
    let inside = after[hashes..].strip_prefix('"')?;
    let opening = rest.len() - inside.len();
    let closing = format!("\"{}", "#".repeat(hashes));
    Some(inside.find(&closing).map_or(rest.len(), |end| opening + end + closing.len()))
}

/// Whether the quote opens a character literal rather than a lifetime.
fn is_char(rest: &str) -> bool {
    let mut chars = rest.chars().skip(1);
    match chars.next() {
        Some('\\') => true,
        Some(_) => chars.next() == Some('\''),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_literals_are_blanked() {
        for (source, code) in [
            ("a // b\nc", "a     \nc"),
            ("a /* b /* c */ d */ e", "a                   e"),
            (r#"f("x // y") g"#, "f(        ) g"),
            (r#"f("a\"b") g"#, "f(      ) g"),
            (r##"r"a\" b"##, "      b"),
            (r###"br#"a"b"# c"###, "          c"),
            ("for r in r#mod", "for r in r#mod"),
            ("'x' '\\'' '\\u{1}' y", "                 y"),
            ("'\"' a '\"'", "    a    "),
            ("<'a, 'b> 'x", "<'a, 'b> 'x"),
            ("&'static str; 'é' b", "&'static str;      b"),
            ("\"open", "     "),
            ("/* open", "       "),
        ] {
            assert_eq!(code_of(source), code, "{source}");
        }
    }

    #[test]
    fn lines_stay_where_they_are() {
        let source = "/* a\nb */ let s = \"x\ny\";\n// é\nz";
        let lines = |text: &str| text.matches('\n').count();
        assert_eq!(lines(&code_of(source)), lines(source));
        assert_eq!(only(source, |_| true), source);
        assert_eq!(code_of(source).len(), source.len());
    }

    #[test]
    fn words_have_ends() {
        let found: Vec<_> = words("a_1 + é(b!)").collect();
        assert_eq!(found, [("a_1", 3), ("é", 8), ("b", 10)]);
    }
}
