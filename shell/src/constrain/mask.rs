//! Which tokens may come next. Must not know schemas.

use super::stacks::{DONE, Frame, Kind, Stacks};
use super::table::{List, TokenTable, characters};
use super::{CALL, Grammar};
use std::sync::Arc;

/// A grammar followed along one text.
#[derive(Debug)]
pub struct Constraint {
    grammar: Arc<Grammar>,
    table: Arc<TokenTable>,
    walk: Walk,
    /// Where the text may stand.
    states: Vec<u32>,
    /// Any text may come until this one has come, of which so many bytes have; empty: it is constrained.
    free_until: &'static str,
    matched: usize,
}

impl Constraint {
    /// A constraint at the beginning of a text.
    pub fn new(grammar: Arc<Grammar>, table: Arc<TokenTable>) -> Constraint {
        let walk = Walk { stacks: Stacks::new(), sets: Vec::new(), levels: Vec::new(), allowed: Vec::new() };
        let (free_until, states) = ("", Vec::new());
        let mut constraint = Constraint { grammar, table, walk, states, free_until, matched: 0 };
        constraint.begin(0);
        constraint
    }

    /// The same, but only behind `tag`, such as `</think>`, and at most two line ends; before it anything
    /// may come. An empty tag changes nothing.
    pub fn after(mut self, tag: &'static str) -> Constraint {
        if !tag.is_empty() {
            (self.free_until, self.matched) = (tag, 0);
        }
        self
    }

    /// Sets the logits of tokens that must not come to minus infinity. False if none may come: no token of
    /// this vocabulary goes on, or one that was forbidden has been accepted.
    pub fn mask(&mut self, logits: &mut [f32]) -> bool {
        if !self.free_until.is_empty() {
            return true;
        }
        let Constraint { grammar, table, walk, states, .. } = self;
        walk.allowed.clear();
        walk.allowed.resize(table.plain_bits.len(), 0);
        for &state in states.iter() {
            walk.list(grammar, table, &table.plain, true, state);
            walk.list(grammar, table, &table.odd, false, state);
            let kind = walk.stacks.frames[state as usize].kind;
            if matches!(kind, Kind::Start | Kind::Head | Kind::Tail | Kind::Between) {
                table.tags.iter().for_each(|&tag| walk.token(grammar, table, tag, state));
            }
            if walk.stacks.may_end(grammar, state) {
                table.ends.iter().for_each(|&end| walk.allow(end));
            }
        }
        let mut any = false;
        for (group, bits) in
            logits.chunks_mut(64).zip(walk.allowed.iter().copied().chain(core::iter::repeat(0)))
        {
            any |= bits != 0;
            if bits != u64::MAX {
                for (bit, logit) in group.iter_mut().enumerate() {
                    if bits >> bit & 1 == 0 {
                        *logit = f32::NEG_INFINITY;
                    }
                }
            }
        }
        any
    }

    /// Goes on by a token that was chosen. Tokens without text, such as those that end it, change nothing.
    pub fn accept(&mut self, token: u32) {
        let table = Arc::clone(&self.table);
        let mut bytes = table.of(token);
        while let Some((&byte, rest)) = bytes.split_first() {
            bytes = rest;
            if !self.free_until.is_empty() {
                let began = self.free(byte);
                // The model could not know that the rest of this token is constrained already.
                if began && !self.fits(bytes) {
                    self.begin(2);
                    break;
                }
            } else {
                self.step(byte);
            }
        }
        self.walk.stacks.keep(&mut self.states);
    }

    /// Whether the text is complete and nothing can follow. A text that may end, but need not, is ended by
    /// a token that ends it, which [`Constraint::mask`] allows.
    pub fn is_complete(&self) -> bool {
        self.free_until.is_empty() && !self.states.is_empty() && self.states.iter().all(|&id| id == DONE)
    }

    /// The beginning of what is constrained, with at most so many line ends before it.
    fn begin(&mut self, line_ends: u32) {
        self.matched = 0;
        self.states.clear();
        self.free_until = if self.grammar.lazy { CALL } else { "" };
        if !self.grammar.lazy {
            let start = Frame::start(self.grammar.root, line_ends);
            self.states.push(self.walk.stacks.push(start));
        }
    }

    /// A byte of text that is not constrained. True if that ends here.
    fn free(&mut self, byte: u8) -> bool {
        let tag = self.free_until.as_bytes();
        // Only its first byte can begin a tag anew.
        let goes_on = tag.get(self.matched) == Some(&byte);
        self.matched = if goes_on { self.matched + 1 } else { usize::from(tag.first() == Some(&byte)) };
        if self.matched < tag.len() {
            return false;
        }
        if self.grammar.lazy && self.free_until == CALL {
            let head = Frame::head(self.grammar.root, CALL.len());
            (self.free_until, self.matched) = ("", 0);
            self.states.clear();
            self.states.push(self.walk.stacks.push(head));
        } else {
            self.begin(2);
        }
        true
    }

    /// Whether `bytes` may come now.
    fn fits(&mut self, bytes: &[u8]) -> bool {
        let first = self.walk.sets.len();
        self.walk.sets.extend_from_slice(&self.states);
        let mut from = first;
        for &byte in bytes {
            let end = self.walk.sets.len();
            self.walk.advance(&self.grammar, from, byte);
            from = end;
        }
        let fits = self.walk.sets.len() > from || !self.free_until.is_empty();
        self.walk.sets.truncate(first);
        fits
    }

    fn step(&mut self, byte: u8) {
        self.walk.sets.clear();
        self.walk.sets.extend_from_slice(&self.states);
        let from = self.walk.sets.len();
        self.walk.advance(&self.grammar, 0, byte);
        self.states.clear();
        self.states.extend_from_slice(&self.walk.sets[from..]);
        let is_between = |&id: &u32| self.walk.stacks.frames[id as usize].kind == Kind::Between;
        if self.grammar.lazy && self.states.iter().any(is_between) {
            self.begin(0);
        }
    }
}

/// The search through all tokens, and its memory.
#[derive(Debug)]
struct Walk {
    stacks: Stacks,
    /// The sets of states behind each byte of the token in hand, one behind the other.
    sets: Vec<u32>,
    /// For each number of bytes: where its set begins, and how many frames there were.
    levels: Vec<(usize, usize)>,
    /// A bit for each token.
    allowed: Vec<u64>,
}

impl Walk {
    fn allow(&mut self, id: u32) {
        if let Some(bits) = self.allowed.get_mut(id as usize / 64) {
            *bits |= 1 << (id % 64);
        }
    }

    /// Adds the set behind the last one, `sets[from..]`, that `byte` makes of it.
    fn advance(&mut self, g: &Grammar, from: usize, byte: u8) {
        let end = self.sets.len();
        for at in from..end {
            let id = self.sets[at];
            self.stacks.step(g, id, byte, &mut self.sets, end);
        }
    }

    /// Forgets what is behind the first `len` bytes.
    fn back(&mut self, len: usize) {
        if let Some(&(next, _)) = self.levels.get(len + 1) {
            self.sets.truncate(next);
        }
        if let Some(&(_, frames)) = self.levels.get(len) {
            self.stacks.frames.truncate(frames);
        }
        self.levels.truncate(len + 1);
    }

    fn begin(&mut self, state: u32) {
        self.sets.clear();
        self.sets.push(state);
        self.levels.clear();
        self.levels.push((0, self.stacks.frames.len()));
    }

    /// Allows one token if it may come in `state`.
    fn token(&mut self, g: &Grammar, table: &TokenTable, id: u32, state: u32) {
        self.begin(state);
        let mut from = 0;
        for &byte in table.of(id) {
            let end = self.sets.len();
            self.advance(g, from, byte);
            from = end;
        }
        if self.sets.len() > from {
            self.allow(id);
        }
        self.back(0);
    }

    /// Allows the tokens of `list` that may come in `state`: where a beginning cannot come, all that begin so
    /// are passed over; inside a string, all `plain` ones are taken together.
    fn list(&mut self, g: &Grammar, table: &TokenTable, list: &List, plain: bool, state: u32) {
        self.begin(state);
        if plain && self.room(g, 0) == Some(u32::MAX) {
            self.allowed.iter_mut().zip(&table.plain_bits).for_each(|(bits, plain)| *bits |= plain);
            return;
        }
        let mut at = 0;
        while let Some((&id, &shared)) = list.ids.get(at).zip(list.shared.get(at)) {
            let bytes = table.of(id);
            let mut len = usize::from(shared).min(self.levels.len() - 1);
            self.back(len);
            at = loop {
                let from = self.levels[len].0;
                if let Some(room) = self.room(g, from).filter(|_| plain) {
                    break self.inside(table, at, len, room);
                }
                let Some(&byte) = bytes.get(len) else {
                    self.allow(id);
                    break at + 1;
                };
                let end = self.sets.len();
                self.advance(g, from, byte);
                if self.sets.len() == end {
                    let behind = |&shared: &u8| usize::from(shared) <= len;
                    break match len {
                        0 => list.starts[usize::from(byte) + 1] as usize,
                        _ => list.shared[at + 1..]
                            .iter()
                            .position(behind)
                            .map_or(list.ids.len(), |n| at + 1 + n),
                    };
                }
                self.levels.push((end, self.stacks.frames.len()));
                len += 1;
            };
        }
        self.back(0);
    }

    /// How many characters of strings may follow in the set that begins at `from`, if that is all that
    /// matters: in one of its states any number, or all are inside strings.
    fn room(&self, g: &Grammar, from: usize) -> Option<u32> {
        let mut most = Some(0);
        for &id in &self.sets[from..] {
            match self.stacks.room(g, id) {
                Some(u32::MAX) => return Some(u32::MAX),
                Some(room) => most = most.map(|most: u32| most.max(room)),
                None => most = None,
            }
        }
        most
    }

    /// Allows the plain tokens from place `at` on that begin with the same `len` bytes, if what is behind
    /// those has at most `room` characters. Returns the place behind them.
    fn inside(&mut self, table: &TokenTable, at: usize, len: usize, room: u32) -> usize {
        let list = &table.plain;
        let before = list.ids.get(at).and_then(|&id| table.of(id).get(..len)).map_or(0, characters);
        let same = list.shared.iter().skip(at + 1).take_while(|&&shared| usize::from(shared) >= len).count();
        for place in at..=at + same {
            let characters = table.characters.get(place).map_or(0, |&n| usize::from(n));
            if characters - before <= room as usize
                && let Some(&id) = list.ids.get(place)
            {
                self.allow(id);
            }
        }
        at + same + 1
    }
}
