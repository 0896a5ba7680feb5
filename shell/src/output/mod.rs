//! A reply for programs: tokens to text, reasoning and calls of tools, cut at stop strings.
//!
//! Text goes out as soon as it is certain: what may still become a stop string or a tag is held back, no
//! more. The pieces, joined, do not depend on how the text was cut into tokens.
//!
//! - The first stop string that is complete ends the reply; of several that end together, the longest.
//!   They are looked for in the answer, neither in reasoning nor in calls.
//! - Reasoning is what stands between `<think>` at the beginning and `</think>`, without line ends around
//!   it; the answer behind it begins with its first character that is no line end.
//! - A call is `<tool_call>{"name": .., "arguments": {..}}</tool_call>`. Its arguments go out as they come,
//!   the very text of the model, checked: once they end they are a JSON object. A call in another order
//!   goes out when it is complete, and what is no call is text. Once a name has gone out it cannot be taken
//!   back: if its arguments then stop being JSON, the rest is text and the call does not count.
//!
//! Must not know requests, replies or how tokens are chosen.

mod arguments;
mod pieces;
mod search;

pub use pieces::Piece;

use crate::constrain::{CALL, CALL_END};
use crate::failure::Failure;
use arguments::{Head, Progress, Scanner};
use kinglet_core::token::{StreamDecoder, Tokenizer};
use pieces::{Kind, put};
use search::Pattern;

const THINK: &str = "<think>";
const THINK_END: &str = "</think>";
/// White space that may come before `<think>`, in bytes.
const MOST_SPACE: usize = 16;
/// The patterns that begin a call: with the line end that templates put before it, and without.
const CALL_PATTERNS: [&str; 2] = ["\n<tool_call>", CALL];

/// What is looked for in a reply.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wanted<'a> {
    /// Stop strings; empty ones are passed over.
    pub stops: &'a [String],
    /// Calls of tools.
    pub tools: bool,
    /// Reasoning.
    pub reasoning: bool,
    /// The prompt has ended with `<think>`.
    pub starts_in_reasoning: bool,
}

/// Where the text stands.
#[derive(Debug)]
enum Mode {
    /// At the beginning: perhaps `<think>` comes.
    Opening,
    Reasoning,
    Text,
    /// In a call, nothing of which went out.
    Head,
    /// In a call that is read when it has ended.
    Loose,
    Arguments(Scanner),
    /// Behind the arguments.
    Tail,
    Stopped,
}

/// Turns the tokens of one reply into pieces.
#[derive(Debug)]
pub struct Output<'v> {
    vocabulary: &'v Tokenizer<'v>,
    decoder: StreamDecoder<'v>,
    mode: Mode,
    starts_in_reasoning: bool,
    /// Whether tags mean anything.
    has_tags: bool,
    /// Text that did not go out yet.
    held: String,
    /// Line ends are passed over until something else comes.
    trim: bool,
    /// What is looked for in text: the beginnings of calls, then stop strings.
    patterns: Vec<Pattern>,
    /// How many of them begin a call.
    call_patterns: usize,
    think_end: Pattern,
    call_end: Pattern,
    stopped: Option<usize>,
    /// Index of the next call.
    index: usize,
    called: usize,
}

impl<'v> Output<'v> {
    /// At the beginning of a reply.
    pub fn new(vocabulary: &'v Tokenizer<'v>, wanted: &Wanted<'_>) -> Output<'v> {
        let calls = if wanted.tools { &CALL_PATTERNS[..] } else { &[] };
        let stops = wanted.stops.iter().map(String::as_str).filter(|stop| !stop.is_empty());
        let thinks = wanted.reasoning || wanted.starts_in_reasoning;
        Output {
            vocabulary,
            decoder: StreamDecoder::new(vocabulary, true),
            mode: if thinks { Mode::Opening } else { Mode::Text },
            starts_in_reasoning: wanted.starts_in_reasoning,
            has_tags: thinks || wanted.tools,
            held: String::new(),
            trim: false,
            patterns: calls.iter().copied().chain(stops).map(Pattern::new).collect(),
            call_patterns: calls.len(),
            think_end: Pattern::new(THINK_END),
            call_end: Pattern::new(CALL_END),
            stopped: None,
            index: 0,
            called: 0,
        }
    }

    /// Takes the next token and adds what it completes to `pieces`. Special tokens show nothing, unless
    /// they are tags that are looked for.
    ///
    /// # Errors
    /// A token outside the vocabulary.
    pub fn push(&mut self, token: u32, pieces: &mut Vec<Piece>) -> Result<(), Failure> {
        let mut text = String::new();
        match self.special_tag(token) {
            Some(tag) => {
                self.decoder.finish(&mut |part| text.push_str(part));
                text.push_str(tag);
            }
            None => {
                self.decoder.push(token, &mut |part| text.push_str(part)).map_err(Failure::new)?;
            }
        }
        self.feed(&text, pieces);
        Ok(())
    }

    /// Ends the reply: what was held back goes out, an unclosed call as text unless its name went out.
    pub fn finish(&mut self, pieces: &mut Vec<Piece>) {
        let mut text = String::new();
        self.decoder.finish(&mut |part| text.push_str(part));
        self.feed(&text, pieces);
        if matches!(self.mode, Mode::Opening) {
            self.decide(pieces);
        }
        match self.mode {
            Mode::Reasoning => put(pieces, Kind::Reasoning, self.held.trim_end_matches('\n')),
            Mode::Head | Mode::Loose => {
                let body = core::mem::take(&mut self.held);
                self.not_a_call(&body, pieces);
            }
            Mode::Tail => {
                // The arguments are complete, whatever is missing behind them.
                let rest = self.held.trim_start();
                let rest = rest.strip_prefix('}').unwrap_or(rest).trim().to_owned();
                self.called += 1;
                self.held.clear();
                self.mode = Mode::Text;
                self.text(&rest, false, pieces);
            }
            _ => {}
        }
        if matches!(self.mode, Mode::Text) {
            put(pieces, Kind::Text, &self.held);
        }
        self.held.clear();
        self.mode = Mode::Stopped;
    }

    /// The stop string that was met; nothing of it or behind it went out.
    pub fn stopped(&self) -> Option<&str> {
        self.stopped.and_then(|at| self.patterns.get(at)).map(Pattern::text)
    }

    /// Calls that are complete.
    pub fn called(&self) -> usize {
        self.called
    }

    /// The text of a special token that is a tag: converters do not agree whether tags are special.
    fn special_tag(&self, token: u32) -> Option<&'static str> {
        if !self.has_tags || !self.vocabulary.is_special(token) {
            return None;
        }
        let mut buffer = [0; CALL_END.len()];
        let bytes = self.vocabulary.token_bytes(token, &mut buffer).ok()?;
        [CALL, CALL_END, THINK, THINK_END].into_iter().find(|tag| tag.as_bytes() == bytes)
    }

    /// Takes more text, however it is cut.
    fn feed(&mut self, mut text: &str, pieces: &mut Vec<Piece>) {
        while !text.is_empty() {
            let taken = match self.mode {
                Mode::Opening => self.opening(text, pieces),
                Mode::Reasoning => self.reasoning(text, pieces),
                Mode::Text => self.text(text, true, pieces),
                Mode::Head => self.head(text, pieces),
                Mode::Loose => self.loose(text, pieces),
                Mode::Arguments(_) => self.arguments(text, pieces),
                Mode::Tail => self.tail(text),
                Mode::Stopped => return,
            };
            text = text.get(taken..).unwrap_or("");
        }
    }

    fn opening(&mut self, text: &str, pieces: &mut Vec<Piece>) -> usize {
        for (at, c) in text.char_indices() {
            self.held.push(c);
            let tag = self.held.trim_start_matches(['\n', ' ']);
            if tag == THINK {
                self.held.clear();
                (self.mode, self.trim) = (Mode::Reasoning, true);
                return at + c.len_utf8();
            }
            if !THINK.starts_with(tag) || self.held.len() - tag.len() > MOST_SPACE {
                self.decide(pieces);
                return at + c.len_utf8();
            }
        }
        text.len()
    }

    /// No `<think>` has come: what came instead is text, or reasoning that the prompt began.
    fn decide(&mut self, pieces: &mut Vec<Piece>) {
        let all = core::mem::take(&mut self.held);
        self.trim = self.starts_in_reasoning;
        self.mode = if self.starts_in_reasoning { Mode::Reasoning } else { Mode::Text };
        self.feed(&all, pieces);
    }

    fn reasoning(&mut self, text: &str, pieces: &mut Vec<Piece>) -> usize {
        let mut taken = 0;
        let mut ended = false;
        for c in text.chars() {
            taken += c.len_utf8();
            if self.trim && c == '\n' {
                continue;
            }
            self.trim = false;
            self.held.push(c);
            ended = self.think_end.push(c);
            if ended {
                break;
            }
        }
        let sure = self.held.get(..self.held.len() - self.think_end.held()).unwrap_or("");
        let sure = sure.trim_end_matches('\n');
        put(pieces, Kind::Reasoning, sure);
        if ended {
            self.held.clear();
            self.think_end.reset();
            (self.mode, self.trim) = (Mode::Text, true);
        } else {
            self.held.drain(..sure.len());
        }
        taken
    }

    /// Text of the answer, in which calls may begin if `calls`.
    fn text(&mut self, text: &str, calls: bool, pieces: &mut Vec<Piece>) -> usize {
        for (at, c) in text.char_indices() {
            if self.trim && c == '\n' {
                continue;
            }
            self.trim = false;
            self.held.push(c);
            let mut found: Option<(usize, usize)> = None;
            for (i, pattern) in self.patterns.iter_mut().enumerate() {
                if i < self.call_patterns && !calls {
                    pattern.reset();
                } else if pattern.push(c) && found.is_none_or(|(_, len)| pattern.held() >= len) {
                    found = Some((i, pattern.held()));
                }
            }
            let Some((i, len)) = found else { continue };
            let sure = self.held.len() - len;
            put(pieces, Kind::Text, self.held.get(..sure).unwrap_or(""));
            self.held.clear();
            self.patterns.iter_mut().for_each(Pattern::reset);
            if i < self.call_patterns {
                self.mode = Mode::Head;
            } else {
                (self.mode, self.stopped) = (Mode::Stopped, Some(i));
            }
            return at + c.len_utf8();
        }
        let held = self.patterns.iter().map(Pattern::held).max().unwrap_or(0);
        let sure = self.held.len() - held;
        put(pieces, Kind::Text, self.held.get(..sure).unwrap_or(""));
        self.held.drain(..sure);
        text.len()
    }

    fn head(&mut self, text: &str, pieces: &mut Vec<Piece>) -> usize {
        self.held.push_str(text);
        match arguments::head(&self.held) {
            Head::Unfinished => {}
            Head::Ready(name, at) => {
                let rest = self.held.split_off(at);
                self.held.clear();
                pieces.push(Piece::ToolCall { index: self.index, name });
                self.mode = Mode::Arguments(Scanner::new());
                self.feed(&rest, pieces);
            }
            Head::Odd => {
                let all = core::mem::take(&mut self.held);
                self.mode = Mode::Loose;
                self.feed(&all, pieces);
            }
        }
        text.len()
    }

    fn arguments(&mut self, text: &str, pieces: &mut Vec<Piece>) -> usize {
        let Mode::Arguments(scanner) = &mut self.mode else { return text.len() };
        let (mut len, mut progress) = (0, Progress::More);
        for byte in text.bytes() {
            progress = scanner.push(byte);
            if progress != Progress::Broken {
                len += 1;
            }
            if progress != Progress::More {
                break;
            }
        }
        put(pieces, Kind::Arguments(self.index), text.get(..len).unwrap_or(""));
        match progress {
            Progress::More => {}
            Progress::End => self.mode = Mode::Tail,
            Progress::Broken => {
                self.mode = Mode::Text;
                self.index += 1;
            }
        }
        len
    }

    /// Takes text up to the end of the call; true if that has come.
    fn until_end(&mut self, text: &str) -> (usize, bool) {
        for (at, c) in text.char_indices() {
            self.held.push(c);
            if self.call_end.push(c) {
                self.call_end.reset();
                return (at + c.len_utf8(), true);
            }
        }
        (text.len(), false)
    }

    fn loose(&mut self, text: &str, pieces: &mut Vec<Piece>) -> usize {
        let (taken, has_ended) = self.until_end(text);
        if has_ended {
            let body = core::mem::take(&mut self.held);
            match arguments::whole(body.strip_suffix(CALL_END).unwrap_or(&body)) {
                Some((name, part)) => {
                    let index = self.index;
                    pieces.extend([Piece::ToolCall { index, name }, Piece::Arguments { index, part }]);
                    self.end_call();
                }
                None => self.not_a_call(&body, pieces),
            }
        }
        taken
    }

    fn tail(&mut self, text: &str) -> usize {
        let (taken, has_ended) = self.until_end(text);
        if has_ended {
            self.end_call();
        }
        taken
    }

    fn end_call(&mut self) {
        self.held.clear();
        self.index += 1;
        self.called += 1;
        // Between calls there is a line end.
        (self.mode, self.trim) = (Mode::Text, true);
    }

    /// Gives the beginning of a call and `body` as text.
    fn not_a_call(&mut self, body: &str, pieces: &mut Vec<Piece>) {
        self.mode = Mode::Text;
        for part in [CALL, body] {
            if matches!(self.mode, Mode::Text) {
                self.text(part, false, pieces);
            }
        }
    }
}
