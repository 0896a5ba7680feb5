//! The bytes of all tokens, in an order in which whole ranges can be passed over.
//! Must not know grammars.

use super::{CALL, CALL_END};
use kinglet_core::token::{MAX_TOKEN_BYTES, TokenKind, Tokenizer};

/// Bytes and order of a vocabulary's tokens; made once, shared by all who constrain.
#[derive(Debug)]
pub struct TokenTable {
    bytes: Vec<u8>,
    /// Where each token's bytes begin, and the last end.
    offsets: Vec<u32>,
    /// Tokens of whole characters that stand for themselves inside a string.
    pub(super) plain: List,
    /// All other tokens that have text.
    pub(super) odd: List,
    /// Characters of each of the plain ones, in their order.
    pub(super) characters: Vec<u8>,
    /// The plain tokens, a bit for each token.
    pub(super) plain_bits: Vec<u64>,
    /// Added tokens that stand for the tags of calls.
    pub(super) tags: Vec<u32>,
    /// Tokens that end a text.
    pub(super) ends: Vec<u32>,
}

/// Tokens in the order of their bytes.
#[derive(Debug, Default)]
pub(super) struct List {
    pub(super) ids: Vec<u32>,
    /// For each, how many bytes it shares with the one before; at most 255 are counted.
    pub(super) shared: Vec<u8>,
    /// Where the tokens begin that begin with each byte, and the end.
    pub(super) starts: Vec<u32>,
}

impl TokenTable {
    /// The tokens of `tokenizer` below `vocab`, which is how many logits a model gives.
    pub fn new(tokenizer: &Tokenizer<'_>, vocab: usize) -> TokenTable {
        let mut table = TokenTable {
            bytes: Vec::new(),
            offsets: vec![0],
            plain: List::default(),
            odd: List::default(),
            characters: Vec::new(),
            plain_bits: vec![0; vocab.div_ceil(64)],
            tags: Vec::new(),
            ends: tokenizer.ends().filter(|&id| (id as usize) < vocab).collect(),
        };
        let mut buffer = [0; MAX_TOKEN_BYTES];
        for id in 0..tokenizer.vocab_size().min(vocab) as u32 {
            let bytes = tokenizer.token_bytes(id, &mut buffer).unwrap_or(&[]);
            if tokenizer.kind(id) != Some(TokenKind::Normal) {
                // Added tokens mean something else than their text, but for these two.
                if [CALL, CALL_END].iter().any(|tag| tag.as_bytes() == bytes) {
                    table.tags.push(id);
                    table.bytes.extend_from_slice(bytes);
                }
            } else if is_plain(bytes) {
                table.plain.ids.push(id);
                table.plain_bits[id as usize / 64] |= 1 << (id % 64);
                table.bytes.extend_from_slice(bytes);
            } else if !bytes.is_empty() {
                table.odd.ids.push(id);
                table.bytes.extend_from_slice(bytes);
            }
            table.offsets.push(table.bytes.len() as u32);
        }
        for mut list in [core::mem::take(&mut table.plain), core::mem::take(&mut table.odd)] {
            list.order(&table);
            if table.plain.ids.is_empty() { table.plain = list } else { table.odd = list }
        }
        table.characters = table.plain.ids.iter().map(|&id| characters(table.of(id)) as u8).collect();
        table
    }

    /// The bytes of a token; none for holes and for tokens that have no text here.
    pub(super) fn of(&self, id: u32) -> &[u8] {
        let end = self.offsets.get(id as usize + 1);
        let range = self.offsets.get(id as usize).zip(end).map(|(&start, &end)| start as usize..end as usize);
        range.and_then(|range| self.bytes.get(range)).unwrap_or(&[])
    }
}

/// How many characters begin in `bytes`.
pub(super) fn characters(bytes: &[u8]) -> usize {
    bytes.iter().filter(|&byte| byte & 0xC0 != 0x80).count()
}

/// Whether a token is whole characters that a JSON string holds as they are.
fn is_plain(bytes: &[u8]) -> bool {
    let is_text = |byte: &u8| *byte >= 0x20 && !matches!(byte, b'"' | b'\\');
    !bytes.is_empty() && bytes.len() < 256 && bytes.iter().all(is_text) && core::str::from_utf8(bytes).is_ok()
}

impl List {
    fn order(&mut self, table: &TokenTable) {
        sort(&mut self.ids, table);
        let mut before: &[u8] = &[];
        for &id in &self.ids {
            let bytes = table.of(id);
            let shared = bytes.iter().zip(before).take(255).take_while(|(a, b)| a == b).count();
            self.shared.push(shared as u8);
            before = bytes;
        }
        let first = |&id: &u32| table.of(id).first().map_or(0, |&byte| usize::from(byte));
        self.starts = (0..=256).map(|byte| self.ids.partition_point(|id| first(id) < byte) as u32).collect();
    }
}

/// Sorts ids by their bytes: three parts by the byte at one depth, then each part by itself.
fn sort(ids: &mut [u32], table: &TokenTable) {
    let mut todo = vec![(0, ids.len(), 0)];
    while let Some((start, end, depth)) = todo.pop() {
        if end - start < 2 {
            continue;
        }
        // The end of a token comes before all bytes.
        let key = |id: u32| table.of(id).get(depth).map_or(0, |&byte| usize::from(byte) + 1);
        let pivot = key(ids[start + (end - start) / 2]);
        let (mut less, mut at, mut more) = (start, start, end);
        while at < more {
            match key(ids[at]).cmp(&pivot) {
                core::cmp::Ordering::Less => {
                    ids.swap(less, at);
                    less += 1;
                    at += 1;
                }
                core::cmp::Ordering::Equal => at += 1,
                core::cmp::Ordering::Greater => {
                    more -= 1;
                    ids.swap(at, more);
                }
            }
        }
        todo.push((start, less, depth));
        todo.push((more, end, depth));
        if pivot > 0 {
            todo.push((less, more, depth + 1));
        }
    }
}
