//! A JSON object checked byte by byte, and the head of a call. Must not know tokens or tools.

use crate::json_bytes::{self, BODY, END, Number};
use serde_json::Value;

/// Deepest nesting, as `serde_json` reads it.
const MAX_DEPTH: usize = 128;
/// A head that is longer than this is not read before its call has ended.
const LONGEST_HEAD: usize = 4096;

/// What a byte made of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// It goes on.
    More,
    /// It ends with this byte.
    End,
    /// It is no JSON from this byte on.
    Broken,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The object's `{`.
    Start,
    Value,
    /// Behind `[`.
    ValueOrEnd,
    /// Behind a comma in an object.
    Key,
    /// Behind `{`.
    KeyOrEnd,
    Colon,
    /// Behind a value.
    Next,
    /// A string's state, and whether it is a key.
    Str(u8, bool),
    Number(Number),
    /// What is left of `true`, `false` or `null`.
    Word(&'static [u8]),
}

/// A JSON object that comes in parts.
#[derive(Clone, Debug)]
pub(super) struct Scanner {
    /// What ends each open object and list.
    open: Vec<u8>,
    state: State,
}

impl Scanner {
    pub(super) fn new() -> Scanner {
        Scanner { open: Vec::new(), state: State::Start }
    }

    pub(super) fn push(&mut self, byte: u8) -> Progress {
        match self.next(byte) {
            Some(state) => self.state = state,
            None => return Progress::Broken,
        }
        if self.open.is_empty() { Progress::End } else { Progress::More }
    }

    fn next(&mut self, byte: u8) -> Option<State> {
        let is_space = matches!(byte, b' ' | b'\n' | b'\r' | b'\t');
        Some(match self.state {
            State::Str(state, is_key) => match json_bytes::string(state, byte)? {
                END => {
                    if is_key {
                        State::Colon
                    } else {
                        State::Next
                    }
                }
                state => State::Str(state, is_key),
            },
            State::Number(number) => match number.push(byte, false) {
                Some(number) => State::Number(number),
                None if number.is_whole() => {
                    self.state = State::Next;
                    return self.next(byte);
                }
                None => return None,
            },
            State::Word([first, rest @ ..]) if *first == byte => {
                if rest.is_empty() {
                    State::Next
                } else {
                    State::Word(rest)
                }
            }
            State::Word(_) => return None,
            state if is_space && state != State::Start => state,
            State::Start if byte == b'{' => self.open(b'}')?,
            State::Key | State::KeyOrEnd if byte == b'"' => State::Str(BODY, true),
            State::Colon if byte == b':' => State::Value,
            State::Next if byte == b',' => match self.open.last()? {
                b'}' => State::Key,
                _ => State::Value,
            },
            State::Next | State::KeyOrEnd | State::ValueOrEnd if self.open.last() == Some(&byte) => {
                self.open.pop();
                State::Next
            }
            State::Value | State::ValueOrEnd => match byte {
                b'"' => State::Str(BODY, false),
                b'{' => self.open(b'}')?,
                b'[' => self.open(b']')?,
                b't' => State::Word(b"rue"),
                b'f' => State::Word(b"alse"),
                b'n' => State::Word(b"ull"),
                _ => State::Number(Number::default().push(byte, false)?),
            },
            _ => return None,
        })
    }

    fn open(&mut self, end: u8) -> Option<State> {
        self.open.push(end);
        let state = if end == b'}' { State::KeyOrEnd } else { State::ValueOrEnd };
        (self.open.len() < MAX_DEPTH).then_some(state)
    }
}

/// The beginning of a call.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Head {
    /// It may still become one.
    Unfinished,
    /// The name, and where the arguments begin, with `{`.
    Ready(String, usize),
    /// Something else, or in another order.
    Odd,
}

/// Reads `{"name": "..", "arguments": {`. A head once read stays the same, whatever follows.
pub(super) fn head(text: &str) -> Head {
    let all = text.as_bytes();
    let all = all.get(..LONGEST_HEAD).unwrap_or(all);
    let mut rest = all;
    let mut name: Option<&[u8]> = None;
    // An empty word stands for the name itself.
    for word in ["{", "\"name\"", ":", "", ",", "\"arguments\"", ":", "{"] {
        rest = rest.trim_ascii_start();
        if word.is_empty() {
            let [b'"', body @ ..] = rest else {
                return if rest.is_empty() { unfinished(all) } else { Head::Odd };
            };
            let mut state = BODY;
            let mut len = 1;
            for &byte in body {
                len += 1;
                match json_bytes::string(state, byte) {
                    Some(next) => state = next,
                    None => return Head::Odd,
                }
                if state == END {
                    break;
                }
            }
            if state != END {
                return unfinished(all);
            }
            name = rest.get(..len);
            rest = rest.get(len..).unwrap_or(&[]);
        } else if let Some(behind) = rest.strip_prefix(word.as_bytes()) {
            rest = behind;
        } else if word.as_bytes().starts_with(rest) {
            return unfinished(all);
        } else {
            return Head::Odd;
        }
    }
    match name.map(serde_json::from_slice::<Value>) {
        Some(Ok(Value::String(name))) if !name.is_empty() => Head::Ready(name, all.len() - rest.len() - 1),
        _ => Head::Odd,
    }
}

fn unfinished(all: &[u8]) -> Head {
    if all.len() < LONGEST_HEAD { Head::Unfinished } else { Head::Odd }
}

/// Name and arguments of a whole call in any order and with anything else in it; arguments that are missing
/// are `{}`, and arguments in a string are what it says.
pub(super) fn whole(text: &str) -> Option<(String, String)> {
    let call: Value = serde_json::from_slice(text.as_bytes()).ok()?;
    let name = call.get("name")?.as_str().filter(|name| !name.is_empty())?;
    let arguments = match call.get("arguments") {
        None => "{}".into(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    };
    let is_object = matches!(serde_json::from_slice(arguments.as_bytes()), Ok(Value::Object(_)));
    is_object.then(|| (name.into(), arguments))
}
