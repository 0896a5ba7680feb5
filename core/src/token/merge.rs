//! Byte pair encoding of one piece that fits the scratch.
//!
//! Of all adjacent pairs for which there is a merge, the one listed first is merged, the
//! leftmost among equals, until there is none. Nothing here knows how text was split.

use super::heap::Heap;
use super::table;
use crate::cast::{Arena, RegionError};

/// No merge, or a symbol that was merged into the one before it.
const NONE: u32 = u32::MAX;
/// Neighbour of the first and the last symbol.
const END: u16 = u16::MAX;
/// Positions in a window are u16.
const MAX_WINDOW: usize = 32_768;
/// Up to this many bytes a plain scan is faster than the heap.
const SHORT: usize = 32;

/// The merges of a vocabulary, and the token of each byte.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rules<'a> {
    /// Token of each byte: 256.
    pub(super) bytes: &'a [u32],
    /// Left, right and resulting token of each merge, in the order of the list.
    pub(super) merges: &'a [u32],
    /// Hash table over pairs: index of the merge.
    pub(super) table: &'a [u32],
}

impl Rules<'_> {
    /// Place of the merge of two tokens in the list, or [`NONE`].
    #[inline(never)]
    fn rank(&self, left: u32, right: u32) -> u32 {
        table::find(self.table, table::hash_pair(left, right), |merge| self.joins(merge, left, right))
            .unwrap_or(NONE)
    }

    fn joins(&self, merge: u32, left: u32, right: u32) -> bool {
        let at = 3 * merge as usize;
        self.merges[at] == left && self.merges[at + 1] == right
    }

    fn result(&self, merge: u32) -> u32 {
        self.merges[3 * merge as usize + 2]
    }

    fn token(&self, byte: u8) -> u32 {
        self.bytes[usize::from(byte)]
    }
}

/// Tokens of a window, and where in it each begins.
#[derive(Debug)]
pub(super) struct Tokens<'s> {
    ids: &'s mut [u32],
    starts: &'s mut [u16],
    len: usize,
}

impl Tokens<'_> {
    pub(super) fn ids(&self) -> &[u32] {
        &self.ids[..self.len]
    }

    /// Start of token `i`; `None` past the last.
    pub(super) fn start(&self, i: usize) -> Option<usize> {
        self.starts[..self.len].get(i).map(|&start| usize::from(start))
    }

    /// Number of tokens that begin before byte `offset`.
    pub(super) fn before(&self, offset: usize) -> usize {
        self.starts[..self.len].partition_point(|&start| usize::from(start) < offset)
    }
}

/// Fixed memory for encoding, whatever the length of the text.
///
/// Ids do not depend on the size of the window: words longer than it are encoded window by
/// window, to the same result.
#[derive(Debug)]
pub struct Scratch<'s> {
    pub(super) merger: Merger<'s>,
    /// The window whose tokens go out next.
    pub(super) now: Tokens<'s>,
    /// The window behind it.
    pub(super) ahead: Tokens<'s>,
}

impl<'s> Scratch<'s> {
    /// A window that suits every vocabulary that is accepted.
    pub const WINDOW: usize = 4096;

    /// Bytes of memory for a window of so many bytes.
    pub const fn bytes(window: usize) -> usize {
        let window = clamp(window);
        let (words, halves) = (Arena::size_of::<u32>(window), Arena::size_of::<u16>(window));
        3 * words + 4 * halves + Arena::size_of::<u64>(2 * window)
    }

    /// Takes `region`, aligned to [`REGION_ALIGN`](crate::cast::REGION_ALIGN), as scratch with a
    /// window of so many bytes.
    ///
    /// The smallest window that will do for long words is twice the vocabulary's longest
    /// token ([`EncodeError::WindowTooSmall`](super::EncodeError)); above 32,768 it grows no more.
    ///
    /// # Errors
    /// The region is smaller than [`Scratch::bytes`], or misaligned.
    pub fn new(region: &'s mut [u8], window: usize) -> Result<Self, RegionError> {
        let (needed, got, window) = (Self::bytes(window), region.len(), clamp(window));
        if got < needed {
            return Err(RegionError::BufferTooSmall { needed, got });
        }
        let mut arena = Arena::new(region)?;
        Ok(Scratch {
            merger: Merger {
                ids: arena.take(window)?,
                next: arena.take(window)?,
                prev: arena.take(window)?,
                heap: Heap::new(arena.take(2 * window)?),
                lookups: 0,
            },
            now: Tokens { ids: arena.take(window)?, starts: arena.take(window)?, len: 0 },
            ahead: Tokens { ids: arena.take(window)?, starts: arena.take(window)?, len: 0 },
        })
    }

    /// Bytes of the window.
    pub fn window(&self) -> usize {
        self.merger.ids.len()
    }

    /// How often a merge was looked up since [`Scratch::new`]: a measure of work without a clock.
    pub fn lookups(&self) -> u64 {
        self.merger.lookups
    }
}

const fn clamp(window: usize) -> usize {
    if window > MAX_WINDOW { MAX_WINDOW } else { window }
}

/// The symbols of a piece as a linked list over byte positions.
#[derive(Debug)]
pub(super) struct Merger<'s> {
    /// Token that begins at this byte; [`NONE`] inside a token.
    ids: &'s mut [u32],
    next: &'s mut [u16],
    prev: &'s mut [u16],
    /// Merge index times 2^32 plus position: the order in which merges happen. Each position has
    /// one pair at the start, and a merge adds at most one more than it takes: 2 * window.
    heap: Heap<'s>,
    lookups: u64,
}

impl Merger<'_> {
    /// Encodes `piece`, at most a window long, into `sink`.
    #[inline(never)]
    pub(super) fn encode(&mut self, rules: &Rules<'_>, piece: &[u8], sink: &mut dyn FnMut(u32)) {
        match piece {
            [] => {}
            [byte] => sink(rules.token(*byte)),
            _ if piece.len() <= SHORT => self.scan(rules, piece, sink),
            _ => {
                self.merge(rules, piece);
                self.tokens(piece.len()).for_each(|(_, id)| sink(id));
            }
        }
    }

    /// Encodes `piece`, at most a window long, into `out`.
    #[inline(never)]
    pub(super) fn encode_window(&mut self, rules: &Rules<'_>, piece: &[u8], out: &mut Tokens<'_>) {
        self.merge(rules, piece);
        out.len = 0;
        for (start, id) in self.tokens(piece.len()) {
            out.ids[out.len] = id;
            out.starts[out.len] = start;
            out.len += 1;
        }
    }

    /// Whether `piece` encodes to exactly two tokens, `left` and `right`.
    #[inline(never)]
    pub(super) fn is_pair(&mut self, rules: &Rules<'_>, piece: &[u8], left: u32, right: u32) -> bool {
        self.merge(rules, piece);
        self.tokens(piece.len()).map(|(_, id)| id).eq([left, right])
    }

    fn rank(&mut self, rules: &Rules<'_>, left: u32, right: u32) -> u32 {
        self.lookups += 1;
        rules.rank(left, right)
    }

    /// Quadratic in the length, but short pieces stay within a few cache lines.
    fn scan(&mut self, rules: &Rules<'_>, piece: &[u8], sink: &mut dyn FnMut(u32)) {
        let (mut ids, mut ranks) = ([NONE; SHORT], [NONE; SHORT]);
        let mut len = piece.len().min(SHORT);
        for (id, &byte) in ids.iter_mut().zip(piece) {
            *id = rules.token(byte);
        }
        for i in 1..len {
            ranks[i - 1] = self.rank(rules, ids[i - 1], ids[i]);
        }
        // ranks[i] belongs to the pair of symbols i and i + 1; the last symbol has none.
        while let Some((at, &rank)) = ranks[..len - 1].iter().enumerate().min_by_key(|&(_, &rank)| rank)
            && rank != NONE
        {
            ids[at] = rules.result(rank);
            ids.copy_within(at + 2..len, at + 1);
            ranks.copy_within(at + 1..len, at);
            len -= 1;
            if at > 0 {
                ranks[at - 1] = self.rank(rules, ids[at - 1], ids[at]);
            }
            ranks[at] = if at + 1 < len { self.rank(rules, ids[at], ids[at + 1]) } else { NONE };
        }
        ids[..len].iter().for_each(|&id| sink(id));
    }

    /// Leaves the tokens of `piece`, at most a window long, in the list.
    fn merge(&mut self, rules: &Rules<'_>, piece: &[u8]) {
        let len = piece.len();
        self.heap.clear();
        for (i, &byte) in piece.iter().enumerate() {
            self.ids[i] = rules.token(byte);
            // Positions fit: a window is at most 2^15 long.
            self.prev[i] = if i == 0 { END } else { (i - 1) as u16 };
            self.next[i] = if i + 1 == len { END } else { (i + 1) as u16 };
            if i > 0 {
                self.offer(rules, (i - 1) as u16, i as u16);
            }
        }
        while let Some(key) = self.heap.pop() {
            let (rank, left) = ((key >> 32) as u32, key as u16);
            let right = self.next[usize::from(left)];
            // The pair may be gone: one of its symbols was merged since.
            if right == END || !rules.joins(rank, self.ids[usize::from(left)], self.ids[usize::from(right)]) {
                continue;
            }
            self.ids[usize::from(left)] = rules.result(rank);
            self.ids[usize::from(right)] = NONE;
            let after = self.next[usize::from(right)];
            self.next[usize::from(left)] = after;
            self.next[usize::from(right)] = END;
            if after != END {
                self.prev[usize::from(after)] = left;
                self.offer(rules, left, after);
            }
            let before = self.prev[usize::from(left)];
            if before != END {
                self.offer(rules, before, left);
            }
        }
    }

    /// Queues the merge of two neighbours, if there is one.
    fn offer(&mut self, rules: &Rules<'_>, left: u16, right: u16) {
        let rank = self.rank(rules, self.ids[usize::from(left)], self.ids[usize::from(right)]);
        if rank != NONE {
            self.heap.push(u64::from(rank) << 32 | u64::from(left));
        }
    }

    /// Start and id of each token of the piece of `len` bytes merged last.
    fn tokens(&self, len: usize) -> impl Iterator<Item = (u16, u32)> {
        let mut at = if len == 0 { END } else { 0 };
        core::iter::from_fn(move || {
            if at == END {
                return None;
            }
            let start = at;
            at = self.next[usize::from(start)];
            Some((start, self.ids[usize::from(start)]))
        })
    }
}
