//! The commands `tokenize` and `detokenize`: lines of JSON in, lines of JSON out.
//!
//! This module must not know how a model is loaded or how flags are read.

use crate::lines::read_line;
use crate::tokenize::{ScratchMemory, encode};
use core::fmt;
use kinglet_core::search::split_at_first;
use kinglet_core::token::{AddedTokens, DecodeError, EncodeError, StreamDecoder, Tokenizer};
use std::io::{self, BufRead, Write};

/// Why a command stopped.
#[derive(Debug)]
pub enum LineError {
    /// Reading or writing failed.
    Io(io::Error),
    /// A line is not the JSON that is wanted.
    Json {
        /// Line number, from 1.
        line: u64,
        /// What is wrong with it.
        error: serde_json::Error,
    },
    /// The text of a line cannot be encoded.
    Encode {
        /// Line number, from 1.
        line: u64,
        /// Why.
        error: EncodeError,
    },
    /// An id of a line cannot be decoded.
    Decode {
        /// Line number, from 1.
        line: u64,
        /// Why.
        error: DecodeError,
    },
}

impl fmt::Display for LineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => error.fmt(f),
            Self::Json { line, error } => {
                // serde_json counts lines too, but saw only this one.
                let (text, column) = (error.to_string(), error.column());
                let what = split_at_first(&text, " at line ").map_or(&*text, |(what, _)| what);
                write!(f, "line {line}, column {column}: {what}")
            }
            Self::Encode { line, error } => write!(f, "line {line}: {error}"),
            Self::Decode { line, error } => write!(f, "line {line}: {error}"),
        }
    }
}

impl core::error::Error for LineError {}

impl From<io::Error> for LineError {
    fn from(error: io::Error) -> Self {
        LineError::Io(error)
    }
}

/// `tokenize`: each line one JSON string, answered by one JSON array of ids.
///
/// `--special-as-text` is [`AddedTokens::SpecialAsText`], `--no-special` is
/// [`AddedTokens::AllAsText`].
///
/// # Errors
/// The first line that is no JSON string or cannot be encoded; failing input or output.
pub fn tokenize(
    tokenizer: &Tokenizer<'_>,
    mode: AddedTokens,
    mut input: impl BufRead,
    mut output: impl Write,
) -> Result<(), LineError> {
    let mut memory = ScratchMemory::new();
    let mut scratch = memory.scratch();
    let mut ids = Vec::new();
    for_each_line(&mut input, |line, bytes| {
        let text: String = serde_json::from_slice(bytes).map_err(|error| LineError::Json { line, error })?;
        ids.clear();
        encode(tokenizer, &text, mode, &mut scratch, &mut ids)
            .map_err(|error| LineError::Encode { line, error })?;
        write_line(&mut output, serde_json::to_string(&ids))
    })
}

/// `detokenize`: each line one JSON array of ids, answered by one JSON string.
///
/// Bytes that are no valid UTF-8 become U+FFFD. `skip_special` is `--skip-special`.
///
/// # Errors
/// The first line that is no array of ids of the vocabulary; failing input or output.
pub fn detokenize(
    tokenizer: &Tokenizer<'_>,
    skip_special: bool,
    mut input: impl BufRead,
    mut output: impl Write,
) -> Result<(), LineError> {
    let mut text = String::new();
    for_each_line(&mut input, |line, bytes| {
        let ids: Vec<u32> = serde_json::from_slice(bytes).map_err(|error| LineError::Json { line, error })?;
        text.clear();
        let mut decoder = StreamDecoder::new(tokenizer, skip_special);
        for id in ids {
            decoder
                .push(id, &mut |part| text.push_str(part))
                .map_err(|error| LineError::Decode { line, error })?;
        }
        decoder.finish(&mut |part| text.push_str(part));
        write_line(&mut output, serde_json::to_string(&text))
    })
}

fn for_each_line(
    input: &mut impl BufRead,
    mut f: impl FnMut(u64, &[u8]) -> Result<(), LineError>,
) -> Result<(), LineError> {
    let mut bytes = Vec::new();
    for line in 1.. {
        if !read_line(input, &mut bytes)? {
            break;
        }
        f(line, &bytes)?;
    }
    Ok(())
}

/// Writes one line and flushes it: the other end may be waiting for the answer.
fn write_line(output: &mut impl Write, json: serde_json::Result<String>) -> Result<(), LineError> {
    output.write_all(json.map_err(io::Error::from)?.as_bytes())?;
    output.write_all(b"\n")?;
    output.flush()?;
    Ok(())
}
