//! A batch of blocks: each complete under a name of its own before it gets the right one, then the folders,
//! and only then the answers. Must not know who staged them.
//!
//! Whatever the moment at which the power goes, a block that was answered as saved is there, whole; one that
//! was not is there whole, or not at all, or it is found damaged and set aside.

use super::folder;
use super::medium::{Entry, Errno, IoError, Time};
use super::names::{self, Kind, Name};
use super::ring::{Outcome, Slot};
use super::shared::Trouble;
use super::status::Pause;
use super::writer::{Done, Firsts, Writer};
use embedded_io::Write;
use kinglet_core::kv::{BLOCK_TOKENS, BlockId, Header, WriteError, file};

/// Whole blocks between two lines about them.
const SAID_BLOCKS: usize = 32;
/// Names of temporary files that are tried.
const NAMES_MOST: u32 = 16;

impl Writer<'_> {
    /// Writes what is staged, beginning with `first`.
    pub fn batch(&mut self, first: usize) {
        let shared = self.shared;
        // Half the slots, so that the engine can fill the others meanwhile.
        let most = (shared.ring.slots() / 2).max(1);
        let (mut next, mut trouble) = (Some(first), None);
        if let Err(found) = self.count_budget() {
            self.pause(&found);
            return shared.ring.report(first, Outcome::Later);
        }
        while let Some(slot) = next {
            let (outcome, written) = match self.save(&shared.ring.slot(slot)) {
                Ok(done) => done,
                Err(found) => {
                    trouble = Some(found);
                    (Outcome::Later, false)
                }
            };
            self.batch.push(Done { slot, outcome, written });
            let more = trouble.is_none() && self.batch.len() < most;
            next = if more { shared.ring.take() } else { None };
        }
        match self.sync() {
            Ok(()) => {
                self.drop_tails();
                self.say_saved();
            }
            Err(found) => {
                self.doubt();
                trouble = Some(found);
            }
        }
        match trouble {
            Some(trouble) => self.pause(&trouble),
            None if self.batch.iter().any(|done| done.written) => self.resume(),
            None => {}
        }
        while let Some(done) = (!self.batch.is_empty()).then(|| self.batch.remove(0)) {
            shared.ring.report(done.slot, done.outcome);
        }
    }

    /// Saves a block; what is to be answered once the folders are durable, and whether a file was written.
    fn save(&mut self, slot: &Slot) -> Result<(Outcome, bool), Trouble> {
        match self.save_once(slot) {
            // A folder that was removed is made again.
            Err(Trouble { why: Pause::Io(IoError(Errno::NOENT)), .. }) => {
                self.ready = false;
                self.save_once(slot)
            }
            saved => saved,
        }
    }

    fn save_once(&mut self, slot: &Slot) -> Result<(Outcome, bool), Trouble> {
        let shared = self.shared;
        let Some(header) = slot.header else { return Ok((Outcome::Never, false)) };
        let (kind, id) = place(&header);
        let name = shared.name(kind, &id);
        self.prepare()?;
        let instead_of = match shared.medium.meta(name.as_str()) {
            Err(IoError(Errno::NOENT)) => None,
            Err(error) => return Err(Trouble::io(&name)(error)),
            Ok(meta) if meta.entry != Entry::File => {
                if !shared.set_aside(kind, &id, &"is no regular file") {
                    return Ok((Outcome::Never, false));
                }
                None
            }
            Ok(meta) => {
                if !shared.is_suspect(kind, &id) && self.is_there(&header, meta.bytes) {
                    // Whoever wrote it may not have waited for its name.
                    self.touch_folder(id.0[0])?;
                    shared.counters.skipped_existing.add(1);
                    return Ok((Outcome::Saved, false));
                }
                Some(meta.bytes)
            }
        };
        let bytes = header.file_bytes();
        // Nothing makes room for what will not be written.
        let now = shared.medium.now();
        if self.budget.as_mut().is_some_and(|budget| !budget.allows(now, bytes)) {
            return Err(Trouble { name, why: Pause::Budget });
        }
        if !self.census.make_room(shared, &header)? {
            self.say_no_room(&name);
            return Ok((Outcome::Never, false));
        }
        self.touch_folder(id.0[0])?;
        self.write(header, slot, kind, &id)?;
        shared.suspect(kind, &id, false);
        self.census.written(shared, header.id(), id.0[0], bytes, instead_of);
        shared.counters.blocks_saved.add(1);
        shared.counters.bytes_written.add(bytes);
        Ok((Outcome::Saved, true))
    }

    /// Whether the file that is there, of `bytes`, is as good as the block with `header`.
    fn is_there(&self, header: &Header, bytes: u64) -> bool {
        if header.is_whole() {
            // By its name it is the same block; this leaves what a file system may do to a file of which
            // it has lost the end.
            return bytes == header.file_bytes();
        }
        // A tail that goes on longer is not given up for its own beginning.
        self.stored_tail(header.parent()).is_some_and(|stored| {
            bytes == stored.file_bytes() && stored.common(header.contents()) == header.count()
        })
    }

    /// The header of the tail that is stored after `parent`, if it is sound.
    fn stored_tail(&self, parent: &BlockId) -> Option<Header> {
        let shared = self.shared;
        let mut found = None;
        let name = shared.name(Kind::Tail, parent);
        let _ = shared.medium.read(name.as_str(), &mut |source| found = file::read_header(source).ok());
        found.filter(|header| {
            let place = (header.parent(), header.fingerprint(), header.is_whole());
            place == (parent, &shared.fingerprint, false)
        })
    }

    /// Sees to it that a folder of blocks is there, and that it will be synced.
    fn touch_folder(&mut self, first: u8) -> Result<(), Trouble> {
        if !self.known.has(first) {
            folder::make_dir(&*self.shared.medium, &names::shard(&self.shared.fingerprint, first))?;
            // Also if it was there: whoever made it may not have waited.
            self.known.put(first);
            self.dirty_folder = true;
        }
        self.dirty.put(first);
        Ok(())
    }

    /// Writes the file of a block.
    fn write(&mut self, mut header: Header, slot: &Slot, kind: Kind, id: &BlockId) -> Result<(), Trouble> {
        let (shared, medium) = (self.shared, &*self.shared.medium);
        let payload = &slot.payload[..header.payload_bytes() as usize];
        let (budget, bytes) = (&mut self.budget, header.file_bytes());
        let mut fill = |sink: &mut dyn Write<Error = IoError>| {
            // Not before there is a file: a directory that refuses one wears nothing out.
            if let Some(budget) = budget {
                budget.spend(bytes);
            }
            match file::encode(&mut header, payload, sink) {
                Ok(()) => Ok(()),
                Err(WriteError::Medium(error)) => Err(error),
                Err(WriteError::Full) => Err(IoError(Errno::NOSPC)),
                // The payload is the header's: both were made by `pack`.
                Err(_) => Err(IoError(Errno::INVAL)),
            }
        };
        // No nanoseconds: they count how often a file was used.
        let mtime = Time { seconds: medium.now().seconds, nanos: 0 };
        let name = shared.name(kind, id);
        for _ in 0..NAMES_MOST {
            self.n = self.n.wrapping_add(1);
            let temporary = names::temporary(&shared.fingerprint, id, self.n);
            let written = medium.write_new(temporary.as_str(), mtime, &mut fill);
            if written == Err(IoError(Errno::EXIST)) {
                // Somebody else's.
                continue;
            }
            return written.and_then(|()| medium.rename(temporary.as_str(), name.as_str())).map_err(
                |error| {
                    // It is found by a later count if it cannot be removed.
                    let _ = medium.remove(temporary.as_str());
                    // If a folder is gone, it is made again.
                    self.ready = false;
                    Trouble::io(&name)(error)
                },
            );
        }
        Err(Trouble::io(&name)(IoError(Errno::EXIST)))
    }

    /// Makes all names durable that the batch made.
    fn sync(&mut self) -> Result<(), Trouble> {
        let (shared, medium) = (self.shared, &*self.shared.medium);
        if self.batch.iter().any(|done| done.written) {
            self.count_budget()?;
            self.dirty_root |= self.budget.is_some();
        }
        let sync = |name: &Name| medium.sync_dir(name.as_str()).map_err(Trouble::io(name));
        for first in (0..=255).filter(|first| self.dirty.has(*first)) {
            sync(&names::shard(&shared.fingerprint, first))?;
        }
        self.dirty = Firsts::default();
        if self.dirty_folder {
            sync(&names::folder(&shared.fingerprint))?;
            self.dirty_folder = false;
        }
        if self.dirty_root {
            sync(&Name::new(format_args!("")))?;
            self.dirty_root = false;
        }
        Ok(())
    }

    /// After a failed sync: what the batch has renamed may not last, though it is seen. It is written again.
    fn doubt(&mut self) {
        for done in self.batch.iter_mut().filter(|done| done.outcome == Outcome::Saved) {
            done.outcome = Outcome::Later;
            if let Some(header) = &self.shared.ring.slot(done.slot).header {
                let (kind, id) = place(header);
                self.shared.suspect(kind, &id, true);
            }
        }
        self.ready = false;
    }

    /// After a sync: removes tails that whole blocks have taken over.
    fn drop_tails(&mut self) {
        let shared = self.shared;
        for done in self.batch.iter().filter(|done| done.outcome == Outcome::Saved) {
            let Some(header) = shared.ring.slot(done.slot).header.filter(Header::is_whole) else { continue };
            let Some(stored) = self.stored_tail(header.parent()) else { continue };
            let name = shared.name(Kind::Tail, header.parent());
            if header.common(stored.contents()) == stored.count()
                && shared.medium.remove(name.as_str()).is_ok()
            {
                self.census.removed(shared, header.parent().0[0], stored.file_bytes());
            }
        }
    }

    /// A conversation fills the limit, or lost its beginning to it; said once.
    fn say_no_room(&mut self, name: &Name) {
        if !core::mem::replace(&mut self.no_room_said, true) {
            let line = "no room within the limit but that of what it follows: not saved";
            self.shared.lines.say(format_args!("{}: {line}", self.shared.shown(name)));
        }
    }

    /// After a sync: names the last block that was written.
    fn say_saved(&self) {
        let shared = self.shared;
        let last = self.batch.iter().rev().find(|done| done.written);
        // While a long prompt is read, a line every thousand tokens is enough; a tail ends a reply.
        let worth = |header: &Header| {
            let blocks = header.position() as usize + 1;
            !header.is_whole() || blocks / SAID_BLOCKS > blocks.saturating_sub(self.batch.len()) / SAID_BLOCKS
        };
        if let Some(header) = last.and_then(|done| shared.ring.slot(done.slot).header).filter(worth) {
            let (kind, id) = place(&header);
            let tokens = header.position() as usize * BLOCK_TOKENS + header.count();
            let file = shared.name(kind, &id);
            shared.lines.say(format_args!("saved {tokens}-token KV -> {}", shared.shown(&file)));
        }
    }
}

/// What a block is stored as, and the id in its name.
fn place(header: &Header) -> (Kind, BlockId) {
    if header.is_whole() { (Kind::Block, *header.id()) } else { (Kind::Tail, *header.parent()) }
}
