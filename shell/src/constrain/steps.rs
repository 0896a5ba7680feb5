//! What each byte makes of a frame: the grammar of JSON. Must not know tokens or schemas.

use super::Grammar;
use super::node::{MAX_DEPTH, Node, Object, Text};
use super::stacks::{DONE, Frame, Kind, Set, Stacks};
use crate::json_bytes::{self, BODY, END, Number};
use core::ops::Range;

/// What a call ends with, behind its arguments.
const TAIL: &[u8] = b"}\n</tool_call>";
/// A key that is none of the declared ones.
pub(super) const FREE: u32 = 0xFFFF;

/// A place in one of several texts: the first that agrees, and in how many bytes.
pub(super) fn place(which: u32, len: u32) -> u32 {
    which << 16 | len
}

/// The first of `texts` in `range` that begins with as much of the text at `place` as is known, and `byte`.
fn find(texts: &[Text], mut range: Range<usize>, place: u32, byte: u8) -> Option<u32> {
    let (which, len) = ((place >> 16) as usize, (place & 0xFFFF) as usize);
    let known = texts.get(which)?.get(..len)?;
    let fits = |text: &Text| text.get(len) == Some(&byte) && text.starts_with(known);
    range.find(|&i| texts.get(i).is_some_and(fits)).map(|i| i as u32)
}

/// The first text that is known at `place`.
fn which(place: u32) -> usize {
    (place >> 16) as usize
}

/// Which properties may come next: those of `first..end`, and others if `more` says what they are.
struct Window {
    first: usize,
    end: usize,
    more: Option<u32>,
}

impl Stacks {
    /// Adds to `set` what a state with `f` at its top becomes by `byte`.
    pub(super) fn advance(&mut self, g: &Grammar, f: Frame, byte: u8, set: &mut Set<'_>) {
        match (f.kind, &g.nodes[f.node as usize]) {
            (Kind::Start, _) if byte == b'\n' && f.a > 0 => self.add(Frame { a: f.a - 1, ..f }, set),
            (Kind::Start, _) => self.enter(g, &f, byte, set),
            (Kind::Value, _) => match f.spaced(byte) {
                Some(space) => self.add(Frame { space, ..f }, set),
                None => self.enter(g, &f, byte, set),
            },
            (Kind::Colon, _) if byte == b':' => self.add(Frame { kind: Kind::Value, a: 1, ..f }, set),
            (Kind::ObjectOpen | Kind::ObjectKey | Kind::ObjectNext, Node::Object(object)) => {
                self.object(g, object, f, byte, set);
            }
            (Kind::Key, Node::Object(object)) => self.key(g, object, f, byte, set),
            (Kind::ArrayOpen | Kind::ArrayNext, Node::Array(_)) => self.array(g, f, byte, set),
            (Kind::Str, &Node::Str { least, most }) => self.string(least, most, f, byte, set),
            (Kind::Integer, &Node::Integer { plus, minus }) => match integer(&f, plus, minus, byte) {
                Some(next) => self.add(next, set),
                None => self.after_whole(g, &f, byte, set),
            },
            (Kind::Number, Node::Number { minus }) => {
                let number = Number { phase: f.space, digits: f.a };
                match number.push(byte, true).filter(|next| *minus || next.phase != 1) {
                    Some(next) => self.add(Frame { space: next.phase, a: next.digits, ..f }, set),
                    None => self.after_whole(g, &f, byte, set),
                }
            }
            (Kind::Literal, Node::Literals(texts)) => match find(texts, which(f.b)..texts.len(), f.b, byte) {
                Some(at) => {
                    let len = (f.b & 0xFFFF) + 1;
                    let is_end =
                        |i: u32| texts.get(i as usize).is_some_and(|text| text.len() == len as usize);
                    // Texts are in order: one that goes on comes right behind.
                    let shared = &texts[at as usize][..len as usize];
                    let goes_on = texts.get(at as usize + 1).is_some_and(|text| text.starts_with(shared));
                    if is_end(at) && !goes_on {
                        self.add_old(f.parent, set);
                    } else {
                        self.add(Frame { b: place(at, len), ..f }, set);
                    }
                }
                None => self.after_whole(g, &f, byte, set),
            },
            (Kind::Head, Node::Calls { heads, arguments }) => {
                if let Some(at) = find(heads, which(f.b)..heads.len(), f.b, byte) {
                    let len = (f.b & 0xFFFF) + 1;
                    if heads[at as usize].len() == len as usize {
                        let tail = self.push(Frame { kind: Kind::Tail, b: 0, ..f });
                        let start = Frame::start(arguments[at as usize], 0);
                        self.add(Frame { parent: tail, ..start }, set);
                    } else {
                        self.add(Frame { b: place(at, len), ..f }, set);
                    }
                }
            }
            (Kind::Tail, _) if TAIL.get(f.a as usize) == Some(&byte) => match f.a as usize + 1 {
                len if len < TAIL.len() => self.add(Frame { a: len as u32, ..f }, set),
                _ if g.one_call => self.add_old(DONE, set),
                _ => self.add(Frame { kind: Kind::Between, a: 0, ..f }, set),
            },
            (Kind::Between, _) if byte == b'\n' => self.add(Frame::head(f.node, 0), set),
            _ => {}
        }
    }

    /// The first byte of the value that `f` waits for.
    fn enter(&mut self, g: &Grammar, f: &Frame, byte: u8, set: &mut Set<'_>) {
        match &g.nodes[f.node as usize] {
            Node::Choice(leaves) => leaves.iter().for_each(|&leaf| self.enter_leaf(g, leaf, f, byte, set)),
            _ => self.enter_leaf(g, f.node, f, byte, set),
        }
    }

    fn enter_leaf(&mut self, g: &Grammar, node: u32, f: &Frame, byte: u8, set: &mut Set<'_>) {
        if !fits(g, node, f.depth) {
            return;
        }
        let mut new = Frame { parent: f.parent, depth: f.depth, ..Frame::start(node, 0) };
        let opens = match &g.nodes[node as usize] {
            Node::Object(_) => (b'{', Kind::ObjectOpen, 1),
            Node::Array(_) => (b'[', Kind::ArrayOpen, 1),
            Node::Str { .. } => (b'"', Kind::Str, 0),
            other => {
                new.kind = match other {
                    Node::Integer { .. } => Kind::Integer,
                    Node::Number { .. } => Kind::Number,
                    Node::Calls { .. } => Kind::Head,
                    _ => Kind::Literal,
                };
                return self.advance(g, new, byte, set);
            }
        };
        if byte == opens.0 {
            self.add(Frame { kind: opens.1, depth: f.depth + opens.2, ..new }, set);
        }
    }

    /// `byte` behind a value whose end only the next byte shows.
    fn after_whole(&mut self, g: &Grammar, f: &Frame, byte: u8, set: &mut Set<'_>) {
        if is_whole(g, f) {
            let below = self.frames[f.parent as usize];
            self.advance(g, below, byte, set);
        }
    }

    fn object(&mut self, g: &Grammar, object: &Object, f: Frame, byte: u8, set: &mut Set<'_>) {
        let may_close = f.kind != Kind::ObjectKey && object.is_done(f.a);
        let is_next = f.kind == Kind::ObjectNext;
        match byte {
            b'"' if !is_next && object.has_more(g, &f) => {
                let window = object.window(g, &f);
                let first = if window.more.is_some() { 0 } else { window.first };
                let known = if first < object.keys.len() { first as u32 } else { FREE };
                self.add(Frame { kind: Kind::Key, space: 0, b: place(known, 0), ..f }, set);
            }
            b'}' if may_close => self.add_old(f.parent, set),
            b',' if is_next && f.space == 0 && object.has_more(g, &f) => {
                self.add(Frame { kind: Kind::ObjectKey, ..f }, set);
            }
            _ => {
                if let Some(space) = f.spaced(byte).filter(|_| !is_next || may_close) {
                    self.add(Frame { space, ..f }, set);
                }
            }
        }
    }

    fn key(&mut self, g: &Grammar, object: &Object, f: Frame, byte: u8, set: &mut Set<'_>) {
        let window = object.window(g, &f);
        let (state, known, len) = ((f.a >> 16) as u8, f.b >> 16, f.b & 0xFFFF);
        // Others must differ from all that are declared, else one name could have two values.
        let end = if window.more.is_some() { object.keys.len() } else { window.end };
        if state == BODY && byte == b'"' {
            let keys = &object.keys;
            let prefix = keys.get(known as usize).and_then(|key| key.get(..len as usize)).unwrap_or(&[]);
            let declared = (known as usize..end).find(|&i| &*keys[i] == prefix);
            let (next, value) = match (declared, window.more) {
                (Some(i), _)
                    if (window.first..window.end).contains(&i) && fits(g, object.values[i], f.depth) =>
                {
                    (i + 1, object.values[i])
                }
                (None, Some(more)) => (object.keys.len(), more),
                _ => return,
            };
            let below = self.push(Frame { kind: Kind::ObjectNext, space: 0, a: next as u32, b: 0, ..f });
            self.add(Frame { kind: Kind::Colon, node: value, parent: below, a: 0, b: 0, ..f }, set);
            return;
        }
        let Some(next) = json_bytes::string(state, byte) else { return };
        // Without others, only properties that fit may be begun.
        let allowed = |i: u32| window.more.is_some() || fits(g, object.values[i as usize], f.depth);
        let mut found = find(&object.keys, which(f.b)..end, f.b, byte);
        while let Some(i) = found.filter(|&i| !allowed(i)) {
            found = find(&object.keys, i as usize + 1..end, f.b, byte);
        }
        // Other names have no escapes of their own, so that a name has one spelling only.
        let may_be_free = window.more.is_some() && !json_bytes::in_escape(next);
        let known = match found {
            Some(i) => place(i, len + 1),
            None if may_be_free => place(FREE, 0),
            None => return,
        };
        self.add(Frame { a: f.a & 0xFFFF | u32::from(next) << 16, b: known, ..f }, set);
    }

    fn array(&mut self, g: &Grammar, f: Frame, byte: u8, set: &mut Set<'_>) {
        let Node::Array(array) = &g.nodes[f.node as usize] else { return };
        let is_next = f.kind == Kind::ArrayNext;
        let may_close = f.a >= array.least;
        let may_go_on = f.a < array.most && fits(g, array.items, f.depth);
        let item = Frame { kind: Kind::Value, node: array.items, space: 0, a: 0, ..f };
        match byte {
            b']' if may_close => self.add_old(f.parent, set),
            b',' if is_next && f.space == 0 && may_go_on => {
                let parent = self.push(Frame { a: f.a + 1, ..f });
                self.add(Frame { parent, ..item }, set);
            }
            _ => match f.spaced(byte) {
                Some(space) if !is_next || may_close => self.add(Frame { space, ..f }, set),
                None if !is_next && may_go_on => {
                    let parent = self.push(Frame { kind: Kind::ArrayNext, space: 0, a: 1, ..f });
                    self.enter(g, &Frame { parent, ..item }, byte, set);
                }
                _ => {}
            },
        }
    }

    fn string(&mut self, least: u32, most: u32, mut f: Frame, byte: u8, set: &mut Set<'_>) {
        let Some(next) = json_bytes::string(f.b as u8, byte) else { return };
        if next == END {
            if f.a >= least {
                self.add_old(f.parent, set);
            }
            return;
        }
        if f.b == u32::from(BODY) {
            if f.a >= most {
                return;
            }
            // Not counted where it no longer matters.
            f.a += u32::from(most != u32::MAX || f.a < least);
        }
        self.add(Frame { b: u32::from(next), ..f }, set);
    }
}

/// Whether `node` has room below `depth` levels.
fn fits(g: &Grammar, node: u32, depth: u8) -> bool {
    g.heights.get(node as usize).is_some_and(|height| height.saturating_add(depth) <= MAX_DEPTH)
}

/// Whether a number or literal may end where it stands.
pub(super) fn is_whole(g: &Grammar, f: &Frame) -> bool {
    match (f.kind, &g.nodes[f.node as usize]) {
        (Kind::Integer, &Node::Integer { plus, minus }) => {
            let (least, most) = if f.space & 1 > 0 { minus } else { plus };
            f.space & 2 > 0 && (least..=most).contains(&size(f))
        }
        (Kind::Number, _) => Number { phase: f.space, digits: f.a }.is_whole(),
        (Kind::Literal, Node::Literals(texts)) => {
            let text = texts.get((f.b >> 16) as usize);
            f.b > 0 && text.is_some_and(|text| text.len() == (f.b & 0xFFFF) as usize)
        }
        _ => false,
    }
}

fn size(f: &Frame) -> u64 {
    u64::from(f.b) << 32 | u64::from(f.a)
}

/// A whole number with one more byte, if some number within the limits begins so.
fn integer(f: &Frame, plus: (u64, u64), minus: (u64, u64), byte: u8) -> Option<Frame> {
    let is_minus = f.space & 1 > 0;
    let has_digits = f.space & 2 > 0;
    if byte == b'-' {
        return (f.space == 0 && minus.0 <= minus.1).then_some(Frame { space: 1, ..*f });
    }
    if !byte.is_ascii_digit() || (has_digits && size(f) == 0) {
        return None;
    }
    let size = size(f).checked_mul(10)?.checked_add(u64::from(byte - b'0'))?;
    let (least, most) = if is_minus { minus } else { plus };
    // All numbers that begin with these digits: of as many digits, of one more, ...
    let (mut low, mut high) = (size, size);
    let is_possible = loop {
        if low > most {
            break false;
        }
        if high >= least {
            break true;
        }
        if size == 0 {
            break false;
        }
        low = low.saturating_mul(10);
        high = high.saturating_mul(10).saturating_add(9);
    };
    let next = Frame { space: f.space | 2, a: size as u32, b: (size >> 32) as u32, ..*f };
    is_possible.then_some(next)
}

impl Object {
    /// What may come in frame `f` of this object.
    fn window(&self, g: &Grammar, f: &Frame) -> Window {
        let first = (f.a & 0xFFFF) as usize;
        let needed = self.needed.get(first).map_or(0, |&i| i as usize);
        let end = (needed + 1).min(self.keys.len());
        let more = self.more.filter(|&more| needed == self.keys.len() && fits(g, more, f.depth));
        Window { first, end, more }
    }

    /// Whether any property may come.
    fn has_more(&self, g: &Grammar, f: &Frame) -> bool {
        let window = self.window(g, f);
        let values = self.values.get(window.first..window.end).unwrap_or(&[]);
        window.more.is_some() || values.iter().any(|&value| fits(g, value, f.depth))
    }

    /// Whether nothing that must come is left.
    fn is_done(&self, first: u32) -> bool {
        self.needed.get(first as usize).is_some_and(|&needed| needed as usize == self.keys.len())
    }
}
