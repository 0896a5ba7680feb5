//! What a conversation begins with, for people who look for it. Must not know files of blocks.
//!
//! Chats tend to begin with the same words of the system; the user's first words tell them apart. So those
//! are shown if there are any, else the beginning of the text.

use super::about;
use super::catalogue::Folder;
use crate::failure::Failure;
use crate::loader::Model;
use crate::vocabulary::Vocabulary;
use kinglet_core::kv::{BlockId, ContentId, Identity, KvType};
use kinglet_core::token::StreamDecoder;
use std::path::{Path, PathBuf};

/// What comes before the user's words.
const USER: &str = "<|im_start|>user\n";
/// Positions that are searched for it.
const SEARCHED: usize = 8192;
/// Positions that are decoded. Tokens have a character or more, but for rare ones.
const DECODED: usize = 96;
/// Characters of the text.
const CHARS: usize = 64;
/// Ids that are shown where there is no text.
const IDS: usize = 8;

/// The beginning of a conversation.
#[derive(Debug, PartialEq, Eq)]
pub enum Label {
    /// Its words.
    Text(String),
    /// Its tokens; `None` stands for an image.
    Ids(Vec<Option<u32>>),
}

/// A model's file that was opened for its vocabulary.
struct Opened {
    path: PathBuf,
    /// `None` if it cannot be used.
    words: Option<Words>,
}

struct Words {
    vocabulary: Vocabulary,
    /// [`Identity::tokenizer`].
    tokenizer: BlockId,
    user: Vec<u32>,
}

/// Vocabularies, each opened once.
#[derive(Default)]
pub struct Labels {
    opened: Vec<Opened>,
    /// Whether the first is the one that the user has named.
    named: bool,
    /// Whether it fitted a folder.
    pub named_fits: bool,
}

impl Labels {
    /// With the vocabulary of `model`, if one is named.
    ///
    /// # Errors
    /// The model cannot be used.
    pub fn new(model: Option<&Path>) -> Result<Labels, Failure> {
        let mut labels = Labels::default();
        if let Some(path) = model {
            labels.opened.push(Opened { path: path.to_path_buf(), words: Some(Words::open(path)?) });
            labels.named = true;
        }
        Ok(labels)
    }

    /// The index of the vocabulary that fits a folder. Ids mean the same if only the tokenizers are equal: the
    /// caches may be those of other weights, or of another version of this program.
    pub fn fitting(&mut self, folder: &Folder) -> Option<usize> {
        let identity = folder.identity.as_ref().ok()?;
        if self.named && self.fits(0, identity) {
            self.named_fits = true;
            return Some(0);
        }
        let path = about::file(&folder.about)?;
        let i = self.opened.iter().position(|opened| opened.path == path).unwrap_or_else(|| {
            // A file that is not there any more, or another one by now: no reason to complain.
            let words = Words::open(&path).ok();
            self.opened.push(Opened { path, words });
            self.opened.len() - 1
        });
        self.fits(i, identity).then_some(i)
    }

    fn fits(&self, i: usize, identity: &Identity) -> bool {
        self.opened[i].words.as_ref().is_some_and(|words| words.tokenizer == identity.tokenizer)
    }

    /// The beginning of the conversation of `chain`, with the vocabulary of that index.
    pub fn label(&self, vocabulary: Option<usize>, folder: &Folder, chain: &[u32]) -> Label {
        let blocks = chain.iter().map(|i| folder.blocks[*i as usize].header.contents());
        let contents: Vec<ContentId> = blocks.flatten().take(SEARCHED).copied().collect();
        match vocabulary.and_then(|i| self.opened[i].words.as_ref()) {
            Some(words) => Label::Text(words.begin(&contents)),
            None => Label::Ids(contents.iter().take(IDS).map(|content| content.as_token()).collect()),
        }
    }
}

impl Words {
    fn open(path: &Path) -> Result<Words, Failure> {
        let model = Model::open(path)?;
        let mut vocabulary = Vocabulary::open(&model)?;
        // The part that counts here is the same for all types of KV.
        let identity = Identity::of(&model.gguf, model.bytes, &model.config()?, KvType::Q8);
        let user = vocabulary.encode(USER)?;
        Ok(Words { vocabulary, tokenizer: identity.tokenizer, user })
    }

    fn begin(&self, contents: &[ContentId]) -> String {
        let is_user = |window: &[ContentId]| {
            window.iter().zip(&self.user).all(|(content, token)| content.as_token() == Some(*token))
        };
        let user = contents.windows(self.user.len().max(1)).position(is_user);
        let from = user.map_or(contents, |at| &contents[at + self.user.len()..]);
        let tokenizer = self.vocabulary.tokenizer;
        let mut text = String::new();
        let mut decoder = StreamDecoder::new(tokenizer, true);
        let mut in_image = false;
        for content in &from[..from.len().min(DECODED)] {
            match content.as_token() {
                Some(token) if user.is_some() && tokenizer.is_end(token) => break,
                Some(token) => {
                    // Holes of the vocabulary have no text.
                    let _ = decoder.push(token, &mut |part| text.push_str(part));
                }
                None if !in_image => text.push_str("[image]"),
                None => {}
            }
            in_image = content.as_token().is_none();
        }
        decoder.finish(&mut |part| text.push_str(part));
        text.trim().chars().take(CHARS).collect()
    }
}

/// Text on one line of `columns` at most, with control characters escaped: what was said to a model is not
/// to be trusted with a terminal.
pub fn shown(text: &str, columns: usize) -> String {
    let (mut out, mut width) = (String::new(), 0);
    for c in text.chars() {
        let mut one = String::new();
        match c {
            '\'' | '"' | '\\' => one.push(c),
            _ => one.extend(c.escape_debug()),
        }
        // Whatever may be two columns wide is taken for it.
        width += one.chars().map(|c| if c < '\u{1100}' { 1 } else { 2 }).sum::<usize>();
        if width > columns {
            let mut cut = out.len().saturating_sub(3);
            while !out.is_char_boundary(cut) {
                cut -= 1;
            }
            out.truncate(cut);
            out.push_str("...");
            return out;
        }
        out.push_str(&one);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_stays_on_one_line_of_its_width() {
        assert_eq!(shown("say \"hi\"", 40), "say \"hi\"");
        assert_eq!(shown("a\n\u{1b}[31m\u{202e}b", 40), "a\\n\\u{1b}[31m\\u{202e}b");
        assert_eq!(shown(&"x".repeat(41), 40), format!("{}...", "x".repeat(37)));
        assert_eq!(shown(&"x".repeat(40), 40), "x".repeat(40));
        assert_eq!(shown(&"\u{4f60}".repeat(21), 40), format!("{}...", "\u{4f60}".repeat(19)));
        assert_eq!(shown("\u{4f60}\u{4f60}", 3), "...");
    }
}
