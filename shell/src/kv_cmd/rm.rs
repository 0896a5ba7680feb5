//! `kv rm`: conversations removed, as far as no other needs their blocks. Must not know how they are found.

use super::age;
use super::catalogue::Catalogue;
use super::conversations::{Conversation, Conversations};
use crate::failure::Failure;
use crate::memory::megabytes;
use crate::signal;
use crate::store::medium::{Errno, IoError, Medium};
use crate::store::names::Name;
use kinglet_core::kv::BlockId;

/// What is to be removed.
pub enum Which {
    /// The conversations with these ids, or beginnings of ids.
    Ids(Vec<String>),
    /// All conversations, and what no conversation can use: damaged files, those set aside.
    All,
    /// Files that were set aside.
    Bad,
    /// Conversations that were of no use for more than so many seconds.
    OlderThan(u64),
}

/// A removal.
pub struct Removal<'a> {
    /// Where.
    pub medium: &'a dyn Medium,
    /// What is there.
    pub all: &'a Catalogue,
    /// Seconds since 1970.
    pub now: i64,
    /// Of these fingerprints only: those that begin so.
    pub model: Option<&'a str>,
    /// Only says what would be removed.
    pub dry_run: bool,
    /// Hears how many files and bytes were removed.
    pub progress: &'a mut dyn FnMut(u64, u64),
}

/// Files and bytes removed.
#[derive(Default)]
struct Removed {
    files: u64,
    bytes: u64,
}

impl Removal<'_> {
    /// Removes it, and gives a line that says how much that was.
    ///
    /// # Errors
    /// An id or fingerprint that fits none or several; a file cannot be removed; Ctrl-C.
    #[inline(never)]
    pub fn run(mut self, which: &Which) -> Result<String, Failure> {
        let conversations = Conversations::of(self.all);
        let model = self.model.map(|model| self.folder(model)).transpose()?;
        let ours = |one: &Conversation| model.is_none_or(|folder| folder == one.folder);
        let old = |one: &Conversation, seconds| age::of(conversations.node(one).used, self.now) > seconds;
        let all = conversations.list.iter().copied().filter(ours);
        let chosen: Vec<Conversation> = match which {
            Which::Ids(ids) => ids.iter().map(|id| conversations.find(id)).collect::<Result<_, _>>()?,
            Which::All => all.collect(),
            Which::Bad => Vec::new(),
            Which::OlderThan(seconds) => all.filter(|one| old(one, *seconds)).collect(),
        };
        if let (Which::Ids(_), Some(other)) = (which, chosen.iter().find(|one| !ours(one))) {
            let id = conversations.id(other);
            return Err(Failure::new(format_args!(
                "{id} is a conversation of another model; leave --model out"
            )));
        }
        let mut removed = Removed::default();
        let mut count = 0;
        for (i, folder) in (0..).zip(&self.all.folders) {
            let mut ends: Vec<u32> = chosen.iter().filter(|one| one.folder == i).map(|one| one.end).collect();
            ends.dedup();
            count += ends.len();
            for block in folder.chains.only_of(&ends) {
                let block = &folder.blocks[block as usize];
                self.remove(&block.name(), block.bytes, &mut removed)?;
            }
        }
        let fingerprint = model.map(|folder| &self.all.folders[folder as usize].fingerprint);
        let is_ours = |name: &Name| fingerprint.is_none_or(|of| belongs(name, of));
        if matches!(which, Which::All | Which::Bad) {
            for file in self.all.bad.iter().filter(|file| is_ours(&file.name)) {
                self.remove(&file.name, file.bytes, &mut removed)?;
            }
        }
        if matches!(which, Which::All) {
            for file in self.all.damaged.iter().filter(|file| is_ours(&file.name)) {
                if let Some(meta) = file.meta {
                    self.remove(&file.name, meta.bytes, &mut removed)?;
                }
            }
        }
        let done = if self.dry_run { "would remove " } else { "removed " };
        let mut line = String::from(done);
        if !matches!(which, Which::Bad) {
            line.push_str(&count.to_string());
            line.push_str(if count == 1 { " conversation: " } else { " conversations: " });
        }
        line.push_str(&removed.files.to_string());
        line.push_str(if removed.files == 1 { " file, " } else { " files, " });
        line.push_str(&megabytes(removed.bytes as usize));
        line.push('\n');
        Ok(line)
    }

    /// The folder whose fingerprint begins with `text`.
    fn folder(&self, text: &str) -> Result<u32, Failure> {
        let digits = text.to_ascii_lowercase();
        let mut found = (0..)
            .zip(&self.all.folders)
            .filter(|(_, folder)| !digits.is_empty() && folder.fingerprint.to_string().starts_with(&digits));
        let why = match (found.next(), found.next()) {
            (Some((i, _)), None) => return Ok(i),
            (None, _) => "begins so; 'kinglet kv ls' shows them in brackets",
            _ => "alone begins so; write more digits",
        };
        Err(Failure::new(format_args!("--model '{}': no fingerprint {why}", text.escape_debug())))
    }

    fn remove(&mut self, name: &Name, bytes: u64, removed: &mut Removed) -> Result<(), Failure> {
        if signal::interrupted() {
            return Err(Failure::Interrupted);
        }
        if !self.dry_run {
            match self.medium.remove(name.as_str()) {
                Ok(()) => {}
                // Somebody else was faster.
                Err(IoError(Errno::NOENT)) => return Ok(()),
                Err(error) => return Err(Failure::new(format_args!("{name}: cannot be removed: {error}"))),
            }
        }
        (removed.files, removed.bytes) = (removed.files + 1, removed.bytes + bytes);
        (self.progress)(removed.files, removed.bytes);
        Ok(())
    }
}

/// Whether a file is in the folder of a fingerprint.
fn belongs(name: &Name, fingerprint: &BlockId) -> bool {
    name.as_str().starts_with(&fingerprint.to_string())
}
