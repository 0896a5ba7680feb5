//! The automaton: where a text stands in a grammar, as stacks of frames that share their lower parts.
//! Must not know tokens, schemas or what a byte does.

use super::Grammar;
use super::node::{MAX_STATES, Node};
use super::steps::{FREE, is_whole, place};
use crate::json_bytes::BODY;

/// The frame below all others: nothing more comes.
pub(super) const DONE: u32 = 0;
/// Columns of indentation for each level.
const INDENT: u8 = 4;

/// What is expected next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Nothing.
    Done,
    /// A value at once; `a`: line ends that may come first.
    Start,
    /// A value, perhaps after a space; or after a line end, unless `a`.
    Value,
    /// Behind `{`: a key or `}`.
    ObjectOpen,
    /// Behind a comma: a key. `a` in all of these: the first property that may come.
    ObjectKey,
    /// In a key. `a`: that property, and the string's state from bit 16 on; `b`: see [`place`].
    Key,
    /// A colon; `node` is the value behind it.
    Colon,
    /// Behind a value: a comma or `}`.
    ObjectNext,
    /// Behind `[`: an item or `]`.
    ArrayOpen,
    /// Behind an item: a comma or `]`. `a`: how many there were.
    ArrayNext,
    /// In a string. `a`: characters so far, if they matter; `b`: its state.
    Str,
    /// In a whole number. `a`, `b`: its size so far, low and high half; `space`: 1 minus, 2 has digits.
    Integer,
    /// In a number. `space`: its phase; `a`: digits of that.
    Number,
    /// In one of some texts; `b`: see [`place`].
    Literal,
    /// In what stands before the arguments of a call; `b` likewise.
    Head,
    /// In [`TAIL`]; `a`: how far.
    Tail,
    /// Behind a call: another one, or the end.
    Between,
}

/// A level of a stack; the top says what comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) kind: Kind,
    /// Objects and lists that are open.
    pub(super) depth: u8,
    /// White space so far: 1 a space, 2 a line end, more: columns behind that.
    pub(super) space: u8,
    pub(super) node: u32,
    /// The frame below.
    pub(super) parent: u32,
    pub(super) a: u32,
    pub(super) b: u32,
}

impl Frame {
    /// The value `node` at the beginning of a text, with at most so many line ends before it.
    pub(super) fn start(node: u32, line_ends: u32) -> Frame {
        Frame { kind: Kind::Start, depth: 0, space: 0, node, parent: DONE, a: line_ends, b: 0 }
    }

    /// In the head of a call of `node`, behind its first `len` bytes, in which all heads agree.
    pub(super) fn head(node: u32, len: usize) -> Frame {
        Frame { kind: Kind::Head, b: place(0, len as u32), ..Frame::start(node, 0) }
    }

    /// The white space after `byte`; none if it is none, or too much.
    pub(super) fn spaced(&self, byte: u8) -> Option<u8> {
        match (self.space, byte) {
            (0, b' ') => Some(1),
            (0, b'\n') if self.kind != Kind::Value || self.a == 0 => Some(2),
            (2.., b' ') if self.space - 2 < INDENT * self.depth.min(60) => Some(self.space + 1),
            _ => None,
        }
    }
}

/// All frames. A state is a frame with those below it; a set of states is a list of such frames.
#[derive(Debug)]
pub(super) struct Stacks {
    pub(super) frames: Vec<Frame>,
}

impl Stacks {
    pub(super) fn new() -> Stacks {
        Stacks { frames: vec![Frame { kind: Kind::Done, ..Frame::start(0, 0) }] }
    }

    /// Adds what state `id` becomes by `byte` to the set `out[from..]`.
    pub(super) fn step(&mut self, g: &Grammar, id: u32, byte: u8, out: &mut Vec<u32>, from: usize) {
        let frame = self.frames[id as usize];
        self.advance(g, frame, byte, &mut Set { out, from });
    }

    /// Puts a frame into the store.
    pub(super) fn push(&mut self, frame: Frame) -> u32 {
        self.frames.push(frame);
        self.frames.len() as u32 - 1
    }

    /// Whether the text may end in state `id`.
    pub(super) fn may_end(&self, g: &Grammar, id: u32) -> bool {
        let f = self.frames[id as usize];
        match f.kind {
            Kind::Done | Kind::Between => true,
            _ => f.parent == DONE && is_whole(g, &f),
        }
    }

    /// How many characters of a string's inside may follow in state `id`, `u32::MAX` for any number; none
    /// if it is not between two characters of a string.
    pub(super) fn room(&self, g: &Grammar, id: u32) -> Option<u32> {
        let f = self.frames[id as usize];
        match (f.kind, &g.nodes[f.node as usize]) {
            (Kind::Key, _) => (f.b >> 16 == FREE && f.a >> 16 == u32::from(BODY)).then_some(u32::MAX),
            (Kind::Str, &Node::Str { most, .. }) if f.b == u32::from(BODY) => {
                Some(if most == u32::MAX { most } else { most.saturating_sub(f.a) })
            }
            _ => None,
        }
    }

    /// Drops all frames that no state in `states` stands on.
    pub(super) fn keep(&mut self, states: &mut [u32]) {
        let mut new = vec![0; self.frames.len()];
        states.iter().for_each(|&id| new[id as usize] = 1);
        for id in (1..self.frames.len()).rev() {
            if new[id] > 0 {
                new[self.frames[id].parent as usize] = 1;
            }
        }
        // What is below comes first in the store, so it has moved already; the lowest stays.
        new[0] = DONE;
        let mut kept = 1;
        for id in 1..self.frames.len() {
            if new[id] > 0 {
                let mut frame = self.frames[id];
                frame.parent = new[frame.parent as usize];
                self.frames[kept] = frame;
                new[id] = kept as u32;
                kept += 1;
            }
        }
        self.frames.truncate(kept);
        states.iter_mut().for_each(|id| *id = new[*id as usize]);
    }

    /// Adds a state.
    pub(super) fn add(&mut self, frame: Frame, set: &mut Set<'_>) {
        if self.is_new(&frame, set) {
            let id = self.push(frame);
            set.out.push(id);
        }
    }

    /// Adds a state that is in the store.
    pub(super) fn add_old(&mut self, id: u32, set: &mut Set<'_>) {
        let frame = self.frames[id as usize];
        if self.is_new(&frame, set) {
            set.out.push(id);
        }
    }

    /// Two readings may come together again; more than [`MAX_STATES`] are not followed, which
    /// allows less than the schema, never more.
    fn is_new(&self, frame: &Frame, set: &Set<'_>) -> bool {
        let states = &set.out[set.from..];
        states.len() < MAX_STATES && !states.iter().any(|&id| self.frames[id as usize] == *frame)
    }
}

/// The set of states that a step makes: the end of a list.
pub(super) struct Set<'o> {
    out: &'o mut Vec<u32>,
    from: usize,
}
