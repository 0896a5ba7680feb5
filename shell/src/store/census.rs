//! How many files there are, and their removal when there are too many. Must not know what is in them, but
//! for the headers' parents.
//!
//! The directory is counted in the background, one folder at a time between the blocks that are written;
//! from then on what is written is added. Since others may use the directory too, it is counted again now
//! and then.

use super::evict::{File, NEVER, order};
use super::medium::{Entry, Errno, IoError, Medium, Meta};
use super::names::{self, Kind, Name};
use super::shared::{Shared, Trouble};
use kinglet_core::kv::{BlockId, Header, file};

/// A temporary file that nobody has touched for so long has no writer. Its process may be on another machine,
/// so that its number says nothing.
pub const STALE_SECONDS: i64 = 60 * 60;
/// The directory is counted again when this part of the limit has been written.
const RECOUNT_PART: u64 = 16;

/// Conversations without room that are remembered.
const REFUSED_LEN: usize = 16;

/// Files and bytes that count for the limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Bytes.
    pub bytes: u64,
    /// Files.
    pub files: u64,
}

impl Totals {
    fn add(&mut self, bytes: u64) {
        self.bytes += bytes;
        self.files += 1;
    }

    fn remove(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_sub(bytes);
        self.files = self.files.saturating_sub(1);
    }

    fn within(&self, bytes: u64, files: u64) -> bool {
        self.bytes <= bytes && self.files <= files
    }
}

/// A walk through all folders of all fingerprints.
struct Walk {
    /// Ours is the first.
    folders: Vec<BlockId>,
    /// Folders of blocks that are done, 256 for each of `folders`.
    done: usize,
}

/// What is there, as far as it is known.
pub struct Census {
    totals: Option<Totals>,
    /// A count that is under way, and what it has found.
    walk: Option<(Walk, Totals)>,
    /// Bytes written since the last count began.
    since: u64,
    /// Whole blocks and tails of our model in this count.
    checkpoints: u64,
    /// Whether the first count was announced.
    announced: bool,
    /// Blocks for which there was no room lately: there is none for those that follow them, and that need
    /// not be found out by another look at all headers.
    refused: [BlockId; REFUSED_LEN],
    next: usize,
}

impl Census {
    /// Nothing is known.
    pub fn new() -> Census {
        Census {
            totals: None,
            walk: None,
            since: 0,
            checkpoints: 0,
            announced: false,
            refused: [BlockId::default(); REFUSED_LEN],
            next: 0,
        }
    }

    /// Counts a little more; whether there is more to count.
    pub fn step(&mut self, shared: &Shared) -> Result<bool, Trouble> {
        let (mut walk, mut found) = match self.walk.take() {
            Some(walk) => walk,
            None if self.totals.is_none() || self.since > shared.max_bytes / RECOUNT_PART => {
                (self.since, self.checkpoints) = (0, 0);
                (Walk::new(shared)?, Totals::default())
            }
            None => return Ok(false),
        };
        let checkpoints = &mut self.checkpoints;
        let more = walk.step(&*shared.medium, &mut |folder, kind, _, meta| {
            found.add(meta.bytes);
            *checkpoints += u64::from(folder == 0 && matches!(kind, Kind::Block | Kind::Tail));
        })?;
        if more {
            self.walk = Some((walk, found));
            return Ok(true);
        }
        self.know(shared, found);
        if !self.announced {
            self.announced = true;
            shared.lines.say(format_args!("index: {} checkpoint(s)", self.checkpoints));
        }
        Ok(false)
    }

    fn know(&mut self, shared: &Shared, totals: Totals) {
        self.totals = Some(totals);
        shared.counters.bytes_on_disk.set(Some(totals.bytes));
        shared.counters.files.set(Some(totals.files));
    }

    /// The file of block `id` was written among the ids that begin with `first`, perhaps in place of one.
    pub fn written(&mut self, shared: &Shared, id: &BlockId, first: u8, bytes: u64, instead_of: Option<u64>) {
        self.since += bytes;
        self.refused
            .iter_mut()
            .filter(|refused| *refused == id)
            .for_each(|refused| *refused = BlockId::default());
        self.change(shared, first, &mut |totals| {
            instead_of.into_iter().for_each(|bytes| totals.remove(bytes));
            totals.add(bytes);
        });
    }

    /// A file was removed there.
    pub fn removed(&mut self, shared: &Shared, first: u8, bytes: u64) {
        self.change(shared, first, &mut |totals| totals.remove(bytes));
    }

    fn change(&mut self, shared: &Shared, first: u8, change: &mut dyn FnMut(&mut Totals)) {
        // What the count has yet to pass, it will see.
        if let Some((walk, found)) = &mut self.walk
            && walk.done > usize::from(first)
        {
            change(found);
        }
        if let Some(mut totals) = self.totals {
            change(&mut totals);
            self.know(shared, totals);
        }
    }

    /// Sees to it that the block of `header` can be added, as far as it is known what is there; whether it
    /// can. It cannot, if the blocks it follows would have to go, or are not there: it could not be found.
    pub fn make_room(&mut self, shared: &Shared, header: &Header) -> Result<bool, Trouble> {
        let bytes = header.file_bytes();
        let (most, files) = (shared.max_bytes.saturating_sub(bytes), shared.max_files.saturating_sub(1));
        match self.totals {
            Some(totals) if !totals.within(most, files) => {
                if self.refused.contains(header.parent()) {
                    self.refuse(header.id());
                    return Ok(false);
                }
                // Some more, so that it is not done again at once.
                let less = |limit: u64| limit - limit / 10;
                self.evict(
                    shared,
                    header,
                    most.min(less(shared.max_bytes)),
                    files.min(less(shared.max_files)),
                )?;
                let room = self.totals.is_some_and(|totals| totals.within(most, files));
                if !room {
                    self.refuse(header.id());
                }
                Ok(room)
            }
            _ => Ok(true),
        }
    }

    fn refuse(&mut self, id: &BlockId) {
        self.refused[self.next] = *id;
        self.next = (self.next + 1) % REFUSED_LEN;
    }

    /// Removes files until no more than these are left, or only what `header` follows.
    fn evict(&mut self, shared: &Shared, header: &Header, bytes: u64, files: u64) -> Result<(), Trouble> {
        let medium = &*shared.medium;
        let (mut walk, mut totals) = (Walk::new(shared)?, Totals::default());
        let coming = (header.id(), header.parent());
        let (kind, id) = if header.is_whole() { (Kind::Block, *coming.0) } else { (Kind::Tail, *coming.1) };
        let (parent, position) = (Some(*coming.1), header.position());
        let mut found = vec![File { folder: 0, kind, id, parent, position, bytes: 0, used: NEVER }];
        while walk.step(medium, &mut |folder, kind, id, meta| {
            totals.add(meta.bytes);
            let (parent, position) = (None, 0);
            found.push(File { folder, kind, id, parent, position, bytes: meta.bytes, used: meta.mtime });
        })? {}
        // Not for a block that follows nothing.
        let is_parent = |file: &File| (file.folder, file.kind, file.id) == (0, Kind::Block, *coming.1);
        let orphan = header.position() > 0 && !found.iter().skip(1).any(is_parent);
        // Others may have made room meanwhile.
        if !totals.within(bytes, files) {
            for file in found.iter_mut().skip(1).filter(|file| file.kind == Kind::Block) {
                read_parent(medium, &walk.folders[file.folder as usize], file);
            }
        }
        let order = if orphan { Vec::new() } else { order(&mut found) };
        for i in order {
            let file = &found[i as usize];
            if totals.within(bytes, files) || file.used == NEVER {
                break;
            }
            let name = names::stored(&walk.folders[file.folder as usize], file.kind, &file.id);
            match medium.remove(name.as_str()) {
                Ok(()) => shared.counters.evicted.add(1),
                // Somebody else was faster.
                Err(IoError(Errno::NOENT)) => {}
                Err(error) => return Err(Trouble::io(&name)(error)),
            }
            totals.remove(file.bytes);
        }
        // This was a count as well.
        (self.walk, self.since) = (None, 0);
        self.know(shared, totals);
        Ok(())
    }
}

/// Fills in what a block's header says. Without it the file goes by its own time alone.
fn read_parent(medium: &dyn Medium, fingerprint: &BlockId, to: &mut File) {
    let name = names::stored(fingerprint, Kind::Block, &to.id);
    let _ = medium.read(name.as_str(), &mut |source| {
        if let Ok(header) = file::read_header(source)
            && *header.id() == to.id
        {
            (to.parent, to.position) = (Some(*header.parent()), header.position());
        }
    });
}

impl Walk {
    fn new(shared: &Shared) -> Result<Walk, Trouble> {
        let medium = &*shared.medium;
        let mut folders = vec![shared.fingerprint];
        let root = Name::new(format_args!(""));
        let listed = medium.list(root.as_str(), &mut |name| {
            match names::parse_folder(name) {
                Some(folder) if folder != shared.fingerprint => folders.push(folder),
                Some(_) => {}
                None => clean_beside(medium, &Name::new(format_args!("{name}")), name),
            }
            true
        });
        listed.map_err(Trouble::io(&root))?;
        Ok(Walk { folders, done: 0 })
    }

    /// Goes through the next folder of blocks; whether there are more. `each` is given the index of the
    /// fingerprint's folder, what the file is, the id in its name, and what is known of it.
    fn step(
        &mut self,
        medium: &dyn Medium,
        each: &mut dyn FnMut(u32, Kind, BlockId, Meta),
    ) -> Result<bool, Trouble> {
        let (folder, first) = (self.done / 256, (self.done % 256) as u8);
        let Some(fingerprint) = self.folders.get(folder) else { return Ok(false) };
        if first == 0 {
            let beside = names::folder(fingerprint);
            list(medium, &beside, &mut |name| clean_beside(medium, &names::beside(fingerprint, name), name))?;
        }
        let shard = names::shard(fingerprint, first);
        list(medium, &shard, &mut |name| {
            let Some((kind, id)) = names::parse(first, name) else { return };
            let path = names::file(fingerprint, first, name);
            match medium.meta(path.as_str()) {
                Ok(meta) if meta.entry != Entry::File => {}
                Ok(_) if kind == Kind::Temporary => clean(medium, &path),
                Ok(meta) => each(folder as u32, kind, id, meta),
                Err(_) => {}
            }
        })?;
        self.done += 1;
        Ok(self.done < 256 * self.folders.len())
    }
}

/// Names in a folder. One that is not there, or that is not for us, is empty.
fn list(medium: &dyn Medium, folder: &Name, each: &mut dyn FnMut(&str)) -> Result<(), Trouble> {
    let listed = medium.list(folder.as_str(), &mut |name| {
        each(name);
        true
    });
    match listed {
        Err(IoError(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::ACCESS | Errno::PERM)) => Ok(()),
        other => other.map_err(Trouble::io(folder)),
    }
}

fn clean_beside(medium: &dyn Medium, path: &Name, name: &str) {
    if names::is_temporary_beside(name) {
        clean(medium, path);
    }
}

/// Removes a temporary file if nobody can be writing it any more.
fn clean(medium: &dyn Medium, path: &Name) {
    let stale = |meta: &Meta| {
        let age = medium.now().seconds.saturating_sub(meta.mtime.seconds);
        meta.entry == Entry::File && age > STALE_SECONDS
    };
    if medium.meta(path.as_str()).is_ok_and(|meta| stale(&meta)) {
        // It is in nobody's way if it stays.
        let _ = medium.remove(path.as_str());
    }
}
