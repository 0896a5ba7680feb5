//! The conversations of a directory, found by id or by the beginning of one. Must not know files.

use super::catalogue::{Block, Catalogue, Folder};
use super::chains::{Node, sorted};
use crate::failure::Failure;
use kinglet_core::kv::BlockId;

/// Fewest digits of an id that are shown.
const DIGITS_LEAST: usize = 8;
/// Candidates that are named when a beginning fits several.
const CANDIDATES: usize = 8;

/// A conversation: its folder, and its last block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conversation {
    /// Index of the folder in its catalogue.
    pub folder: u32,
    /// Index of the last block in its folder.
    pub end: u32,
}

/// All conversations of a catalogue.
pub struct Conversations<'a> {
    all: &'a Catalogue,
    /// By id.
    pub list: Vec<Conversation>,
}

impl<'a> Conversations<'a> {
    /// Those of `all`.
    pub fn of(all: &'a Catalogue) -> Self {
        let mut list = Vec::new();
        for (folder, about) in (0..).zip(&all.folders) {
            list.extend(about.chains.ends().into_iter().map(|end| Conversation { folder, end }));
        }
        let mut all = Conversations { all, list };
        let order = sorted(all.list.len(), &|a, b| all.id(&all.list[a]).cmp(all.id(&all.list[b])));
        all.list = order.iter().map(|i| all.list[*i as usize]).collect();
        all
    }

    /// The folder of one.
    pub fn folder(&self, one: &Conversation) -> &'a Folder {
        &self.all.folders[one.folder as usize]
    }

    /// The last block of one.
    pub fn last(&self, one: &Conversation) -> &'a Block {
        &self.folder(one).blocks[one.end as usize]
    }

    /// The id of one: that of its last block.
    pub fn id(&self, one: &Conversation) -> &'a BlockId {
        self.last(one).header.id()
    }

    /// What is known of it.
    pub fn node(&self, one: &Conversation) -> &'a Node {
        &self.folder(one).chains.nodes[one.end as usize]
    }

    /// Digits that tell all ids apart.
    pub fn digits(&self) -> usize {
        let common = |pair: &[Conversation]| {
            let (a, b) = (self.id(&pair[0]).to_string(), self.id(&pair[1]).to_string());
            a.bytes().zip(b.bytes()).take_while(|(a, b)| a == b).count()
        };
        self.list.windows(2).map(|pair| common(pair) + 1).max().unwrap_or(0).max(DIGITS_LEAST)
    }

    /// The conversation whose id is or begins with `text`.
    ///
    /// # Errors
    /// There is none, or there are several; the line says what to do.
    pub fn find(&self, text: &str) -> Result<Conversation, Failure> {
        let digits = text.to_ascii_lowercase();
        let from = self.list.partition_point(|one| self.id(one).to_string() < digits);
        let fits = |one: &&Conversation| self.id(one).to_string().starts_with(&digits);
        let mut found = self.list[from..].iter().take_while(fits);
        let shown = text.escape_debug();
        match (found.next(), found.next()) {
            (Some(one), None) if !digits.is_empty() => Ok(*one),
            (Some(_), Some(_)) => Err(Failure::new(format_args!(
                "'{shown}' is the beginning of several ids; write more digits:{}",
                self.candidates(&self.list[from..], &fits)
            ))),
            _ if self.is_inside(&digits) => Err(Failure::new(format_args!(
                "'{shown}' is a block inside a conversation; take the conversation's id from 'kinglet kv ls'"
            ))),
            _ => Err(Failure::new(format_args!(
                "no conversation has an id that begins with '{shown}'; 'kinglet kv ls' shows them"
            ))),
        }
    }

    fn candidates(&self, from: &[Conversation], fits: &dyn Fn(&&Conversation) -> bool) -> String {
        let mut text = String::new();
        let digits = self.digits();
        let count = from.iter().take_while(fits).count();
        for one in &from[..count.min(CANDIDATES)] {
            text.push(' ');
            text.push_str(&self.id(one).to_string()[..digits]);
        }
        if count > CANDIDATES {
            text.push_str(" ...");
        }
        text
    }

    /// Whether a block that others follow has such an id.
    fn is_inside(&self, digits: &str) -> bool {
        let mut blocks = self.all.folders.iter().flat_map(|folder| &folder.blocks);
        !digits.is_empty() && blocks.any(|block| block.header.id().to_string().starts_with(digits))
    }
}
