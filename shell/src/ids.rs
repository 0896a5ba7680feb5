//! Token ids on the command line. Must not know what they mean.

use crate::failure::Failure;
use crate::loader::io_fault;
use crate::words::Words;
use std::io::{self, Read};
use std::path::Path;

/// Reads ids separated by commas or white space; brackets around them are passed over, so that a
/// JSON array is a list too.
///
/// # Errors
/// What is no id, or that there is none.
pub fn parse(text: &str) -> Result<Vec<u32>, String> {
    let is_border = |c: char| c == ',' || c.is_whitespace() || c == '[' || c == ']';
    let parts = text.split(is_border).filter(|part| !part.is_empty());
    let ids: Result<Vec<u32>, String> = parts
        .map(|part| part.parse().map_err(|_| format!("'{}' is no token id", part.escape_debug())))
        .collect();
    match ids {
        Ok(ids) if ids.is_empty() => Err(String::from("there are no token ids")),
        other => other,
    }
}

/// The flags `--ids LIST` and `--ids-file FILE`.
///
/// # Errors
/// A value that makes no sense, a file that cannot be read.
pub fn accept(flag: &str, words: &mut Words, ids: &mut Option<Vec<u32>>) -> Result<bool, Failure> {
    let list = match flag {
        "--ids" => {
            let text = words.text()?;
            parse(&text).map_err(|e| words.bad(&e))?
        }
        "--ids-file" => {
            let path = words.path()?;
            let text = read_text(&path)?;
            parse(&text).map_err(|e| Failure::file(&path, e))?
        }
        _ => return Ok(false),
    };
    *ids = Some(list);
    Ok(true)
}

/// Longest text that is read: more than the largest context holds.
const MAX_TEXT_BYTES: usize = 256 << 20;

/// All of `input`.
///
/// # Errors
/// Of the read; a text beyond all reason, which would take all memory.
pub fn read_all(input: impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    input.take(MAX_TEXT_BYTES as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > MAX_TEXT_BYTES {
        let text = format!("more than {} MiB, which no context holds", MAX_TEXT_BYTES >> 20);
        return Err(io::Error::new(io::ErrorKind::InvalidData, text));
    }
    Ok(bytes)
}

/// A whole text file.
///
/// # Errors
/// It cannot be read or is not UTF-8.
pub fn read_text(path: &Path) -> Result<String, Failure> {
    let file = std::fs::File::open(path).map_err(|e| Failure::file(path, io_fault(&e)))?;
    let bytes = read_all(file).map_err(|e| Failure::file(path, io_fault(&e)))?;
    String::from_utf8(bytes).map_err(|e| {
        let at = e.utf8_error().valid_up_to();
        Failure::file(path, format_args!("is not UTF-8 (byte {at}); convert it"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_without_end_are_refused() {
        assert_eq!(read_all(&b"abc"[..]).unwrap(), b"abc");
        assert!(read_all(io::repeat(0)).unwrap_err().to_string().contains("no context holds"));
    }

    #[test]
    fn lists_are_read() {
        assert_eq!(parse("1,2, 3\n4"), Ok(vec![1, 2, 3, 4]));
        assert_eq!(parse("[7]\n"), Ok(vec![7]));
        for bad in ["", " ", "1,x", "-1", "4294967296", "1.5"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
