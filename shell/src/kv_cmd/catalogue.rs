//! Everything of ours in a directory of KV block files. Must not know what is done with it.
//!
//! A server may be writing and removing meanwhile: what is gone when it is looked at was never there.
//! Symbolic links and files with other names belong to somebody else; they are counted, and left alone.

use super::chains::{Chains, sorted};
use super::check::{self, Place, Wrong};
use crate::failure::Failure;
use crate::signal;
use crate::store::medium::{Entry, Errno, IoError, Medium, Meta, Time};
use crate::store::names::{self, Kind, Name};
use crate::store::read_small;
use kinglet_core::kv::file::{self, IDENTITY_FILE_BYTES};
use kinglet_core::kv::{BlockId, Header, Identity};

/// Longest text about a folder that is read, in bytes.
const ABOUT_BYTES: usize = 4096;

/// A block's file that is right as far as it was read.
#[derive(Clone, Copy, Debug)]
pub struct Block {
    /// A whole block or a tail.
    pub kind: Kind,
    /// What the file says of it.
    pub header: Header,
    /// When it was last of use, and how often.
    pub mtime: Time,
    /// Size of the file.
    pub bytes: u64,
}

impl Block {
    /// Its file.
    pub fn name(&self) -> Name {
        names::stored(self.header.fingerprint(), self.kind, self.named())
    }

    /// The id that its file is named after.
    pub fn named(&self) -> &BlockId {
        if self.kind == Kind::Tail { self.header.parent() } else { self.header.id() }
    }
}

/// A file that is wrong.
#[derive(Debug)]
pub struct Damaged {
    /// The file.
    pub name: Name,
    /// In what.
    pub why: Wrong,
    /// What was known of it when it was read; `None` for a folder.
    pub meta: Option<Meta>,
}

/// A file that holds no block.
#[derive(Clone, Copy, Debug)]
pub struct Spare {
    /// The file.
    pub name: Name,
    /// Its size.
    pub bytes: u64,
    /// When it was written.
    pub mtime: Time,
}

/// The caches of one fingerprint.
#[derive(Debug)]
pub struct Folder {
    /// Its name.
    pub fingerprint: BlockId,
    /// What it stands for.
    pub identity: Result<Identity, Wrong>,
    /// The same for people.
    pub about: String,
    /// Whole blocks and tails.
    pub blocks: Vec<Block>,
    /// How they follow each other.
    pub chains: Chains,
}

/// Everything in a directory.
#[derive(Debug, Default)]
pub struct Catalogue {
    /// By fingerprint.
    pub folders: Vec<Folder>,
    /// Files that are wrong.
    pub damaged: Vec<Damaged>,
    /// Files that were set aside.
    pub bad: Vec<Spare>,
    /// Files that are being written, or were.
    pub temporary: Vec<Spare>,
    /// Things that are not ours.
    pub foreign: u64,
    /// Files of blocks, whatever became of them, and their bytes.
    pub files: u64,
    /// See `files`.
    pub bytes: u64,
}

/// How a directory is read.
pub struct Scan<'a> {
    /// The directory.
    pub medium: &'a dyn Medium,
    /// Memory for a block: then files are read whole, else up to their payload.
    pub block: Option<Vec<u8>>,
    /// Hears how many files and bytes were found.
    pub progress: &'a mut dyn FnMut(u64, u64),
}

impl Scan<'_> {
    /// Reads everything.
    ///
    /// # Errors
    /// Ctrl-C; the directory itself cannot be listed.
    pub fn run(mut self) -> Result<Catalogue, Failure> {
        let mut all = Catalogue::default();
        for name in
            self.list("", &mut all).map_err(|e| Failure::new(format_args!("cannot be listed: {e}")))?
        {
            match names::parse_folder(&name) {
                Some(fingerprint) if is(self.medium, &name, Entry::Directory) => {
                    let folder = self.folder(fingerprint, &mut all)?;
                    all.folders.push(folder);
                }
                _ => self.other(&name, &name, &mut all),
            }
        }
        Ok(all)
    }

    /// The names in a folder, sorted.
    fn list(&mut self, path: &str, all: &mut Catalogue) -> Result<Vec<String>, IoError> {
        let mut found = Vec::new();
        self.medium.list(path, &mut |name| {
            // Thousands of foreign files cost no memory.
            if name.len() < names::PATH_BYTES {
                found.push(String::from(name))
            } else {
                all.foreign += 1
            }
            true
        })?;
        let order = sorted(found.len(), &|a, b| found[a].cmp(&found[b]));
        Ok(order.iter().map(|i| core::mem::take(&mut found[*i as usize])).collect())
    }

    /// A file that is not among the blocks.
    fn other(&mut self, path: &str, name: &str, all: &mut Catalogue) {
        let path = Name::new(format_args!("{path}"));
        if names::is_temporary_beside(name) {
            self.spare(path, Kind::Temporary, all);
        } else if name != names::WRITTEN || !is_file(self.medium, path.as_str()) {
            all.foreign += 1;
        }
    }

    fn folder(&mut self, fingerprint: BlockId, all: &mut Catalogue) -> Result<Folder, Failure> {
        let identity = self.identity(&fingerprint);
        let mut about = [0; ABOUT_BYTES];
        let about = read_small(self.medium, &names::beside(&fingerprint, names::ABOUT), &mut about);
        let about = about.ok().and_then(|text| str::from_utf8(text).ok()).unwrap_or("").to_string();
        let path = names::folder(&fingerprint);
        let mut blocks = Vec::new();
        let shards = match self.list(path.as_str(), all) {
            Ok(shards) => shards,
            Err(error) => {
                self.unread(path, error, all);
                Vec::new()
            }
        };
        for shard in shards {
            let path = Name::new(format_args!("{path}/{shard}"));
            match (u8::from_str_radix(&shard, 16), shard.as_str()) {
                (Ok(first), _) if shard == format!("{first:02x}") => {
                    self.shard(&fingerprint, identity.as_ref().ok(), first, &mut blocks, all)?;
                }
                (_, names::IDENTITY | names::ABOUT) if is_file(self.medium, path.as_str()) => {}
                _ => self.other(path.as_str(), &shard, all),
            }
        }
        self.catch_up(&fingerprint, identity.as_ref().ok(), &mut blocks, all);
        let chains = Chains::of(&blocks);
        Ok(Folder { fingerprint, identity, about, blocks, chains })
    }

    fn shard(
        &mut self,
        fingerprint: &BlockId,
        identity: Option<&Identity>,
        first: u8,
        blocks: &mut Vec<Block>,
        all: &mut Catalogue,
    ) -> Result<(), Failure> {
        let path = names::shard(fingerprint, first);
        let mut found = Vec::new();
        let listed = self.medium.list(path.as_str(), &mut |name| {
            match names::parse(first, name) {
                Some((kind, id)) => found.push((kind, id, names::file(fingerprint, first, name))),
                None => all.foreign += 1,
            }
            true
        });
        if let Err(error) = listed {
            self.unread(path, error, all);
        }
        let order = sorted(found.len(), &|a, b| found[a].2.as_str().cmp(found[b].2.as_str()));
        for i in order {
            let (kind, id, name) = &found[i as usize];
            if signal::interrupted() {
                return Err(Failure::Interrupted);
            }
            if !matches!(kind, Kind::Block | Kind::Tail) {
                self.spare(*name, *kind, all);
                continue;
            }
            let place = Place { fingerprint, identity, kind: *kind, named: id };
            match self.read(&place, name, all) {
                Some(Ok(block)) => {
                    (all.files, all.bytes) = (all.files + 1, all.bytes + block.bytes);
                    blocks.push(block);
                }
                Some(Err(why)) => {
                    if let Ok(meta) = self.medium.meta(name.as_str()) {
                        (all.files, all.bytes) = (all.files + 1, all.bytes + meta.bytes);
                        all.damaged.push(Damaged { name: *name, why, meta: Some(meta) });
                    }
                }
                None => {}
            }
            (self.progress)(all.files, all.bytes);
        }
        Ok(())
    }

    /// A file that holds no block: only looked at.
    fn spare(&mut self, name: Name, kind: Kind, all: &mut Catalogue) {
        match self.medium.meta(name.as_str()) {
            Ok(meta) if meta.entry == Entry::File => {
                (all.files, all.bytes) = (all.files + 1, all.bytes + meta.bytes);
                let list = if kind == Kind::Temporary { &mut all.temporary } else { &mut all.bad };
                list.push(Spare { name, bytes: meta.bytes, mtime: meta.mtime });
            }
            Ok(_) => all.foreign += 1,
            Err(_) => {}
        }
    }

    /// A block's file; none if there is none any more, or if it is not ours.
    fn read(&mut self, place: &Place<'_>, name: &Name, all: &mut Catalogue) -> Option<Result<Block, Wrong>> {
        let mut outcome = Err(Wrong::Unread(IoError(Errno::IO)));
        let block = &mut self.block;
        let opened = self.medium.read(name.as_str(), &mut |source| {
            outcome = check::read(place, source, block.as_mut());
        });
        let Err(error) = opened else { return Some(outcome) };
        match self.medium.meta(name.as_str()) {
            Ok(meta) if meta.entry == Entry::File => Some(Err(Wrong::Unread(error))),
            Ok(_) => {
                all.foreign += 1;
                None
            }
            Err(_) => None,
        }
    }

    /// A folder that cannot be listed.
    fn unread(&mut self, path: Name, error: IoError, all: &mut Catalogue) {
        match self.medium.meta(path.as_str()) {
            Ok(meta) if meta.entry == Entry::Directory => {
                all.damaged.push(Damaged { name: path, why: Wrong::Unread(error), meta: None });
            }
            Ok(_) => all.foreign += 1,
            Err(_) => {}
        }
    }

    /// Files that came or went since their folders were listed: blocks before orphans are looked for again,
    /// and orphans too.
    fn catch_up(
        &mut self,
        fingerprint: &BlockId,
        identity: Option<&Identity>,
        blocks: &mut Vec<Block>,
        all: &mut Catalogue,
    ) {
        let chains = Chains::of(blocks);
        let mut missing: Vec<BlockId> = Vec::new();
        let orphans = (0..blocks.len()).filter(|i| chains.nodes[*i].orphan && !chains.nodes[*i].misplaced);
        missing.extend(orphans.map(|i| *blocks[i].header.parent()));
        let (mut new, order): (Vec<Block>, _) =
            (Vec::new(), sorted(missing.len(), &|a, b| missing[a].cmp(&missing[b])));
        let mut last = None;
        for i in order {
            let mut id = missing[i as usize];
            if last.replace(id) == Some(id) {
                continue;
            }
            while chains.find(blocks, &id).is_none() && !new.iter().any(|block| *block.header.id() == id) {
                let place = Place { fingerprint, identity, kind: Kind::Block, named: &id };
                let name = names::stored(fingerprint, Kind::Block, &id);
                let Some(Ok(block)) = self.read(&place, &name, all) else { break };
                new.push(block);
                (all.files, all.bytes) = (all.files + 1, all.bytes + block.bytes);
                if block.header.position() == 0 {
                    break;
                }
                id = *block.header.parent();
            }
        }
        let mut nodes = chains.nodes.iter();
        blocks.retain(|block| {
            let orphan = nodes.next().is_some_and(|node| node.orphan);
            let there = !orphan || is_file(self.medium, block.name().as_str());
            if !there {
                (all.files, all.bytes) = (all.files - 1, all.bytes - block.bytes);
            }
            there
        });
        blocks.append(&mut new);
    }

    fn identity(&mut self, fingerprint: &BlockId) -> Result<Identity, Wrong> {
        // One byte more, so that a file that is too long is seen.
        let mut bytes = [0; IDENTITY_FILE_BYTES + 1];
        let name = names::beside(fingerprint, names::IDENTITY);
        let bytes = read_small(self.medium, &name, &mut bytes).map_err(Wrong::Unread)?;
        let identity = file::decode_identity(bytes).map_err(|fault| Wrong::broken(&fault))?;
        let stands_for = identity.fingerprint();
        if stands_for == *fingerprint {
            Ok(identity)
        } else {
            Err(Wrong::broken(&format_args!("stands for {stands_for}, not for its folder")))
        }
    }
}

fn is(medium: &dyn Medium, path: &str, entry: Entry) -> bool {
    medium.meta(path).is_ok_and(|meta| meta.entry == entry)
}

/// Whether there is a regular file of that name.
pub fn is_file(medium: &dyn Medium, path: &str) -> bool {
    is(medium, path, Entry::File)
}
