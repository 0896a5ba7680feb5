//! `kv export`: conversations copied into another directory. Must not know how files become durable: what
//! writes there is a store as any other, with the same rules.

use super::catalogue::{Block, Catalogue, Folder};
use super::check::{self, Place, Wrong};
use super::conversations::Conversations;
use crate::failure::{Failure, printable};
use crate::memory::megabytes;
use crate::signal;
use crate::store::medium::{IoError, Medium};
use crate::store::{Lines, Options, Outcome, Status, Store};
use core::time::Duration;
use std::path::Path;

/// Blocks on their way to the writer.
const SLOTS: usize = 8;
/// How long an answer is waited for before Ctrl-C is looked for.
const PATIENCE: Duration = Duration::from_millis(200);

/// Copies the conversations with these ids from `medium` to the directory `out`, and gives a line that says
/// how much that was. `progress` hears how many files and bytes were read.
///
/// # Errors
/// An id that fits none or several; a file that is damaged; `out` cannot be written; Ctrl-C.
#[inline(never)]
pub fn export(
    medium: &dyn Medium,
    all: &Catalogue,
    ids: &[String],
    out: &Path,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<String, Failure> {
    let conversations = Conversations::of(all);
    let chosen = ids.iter().map(|id| conversations.find(id)).collect::<Result<Vec<_>, _>>()?;
    let mut sum = Status::default();
    for (i, folder) in (0..).zip(&all.folders) {
        let ends: Vec<u32> = chosen.iter().filter(|one| one.folder == i).map(|one| one.end).collect();
        if !ends.is_empty() {
            let status = copy(medium, folder, &ends, out, progress)?;
            sum.blocks_saved += status.blocks_saved;
            sum.bytes_written += status.bytes_written;
            sum.skipped_existing += status.skipped_existing;
        }
    }
    let mut line = String::from("exported to ");
    line.push_str(&printable(out));
    line.push_str(": ");
    line.push_str(&sum.blocks_saved.to_string());
    line.push_str(" files, ");
    line.push_str(&megabytes(sum.bytes_written as usize));
    line.push_str("; ");
    line.push_str(&sum.skipped_existing.to_string());
    line.push_str(" were there\n");
    Ok(line)
}

/// Copies the blocks of one model's conversations, parents before children.
fn copy(
    medium: &dyn Medium,
    folder: &Folder,
    ends: &[u32],
    out: &Path,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Status, Failure> {
    let identity = folder.identity.as_ref().map_err(|why| {
        let fingerprint = &folder.fingerprint;
        Failure::new(format_args!(
            "{fingerprint}/identity: {why}; run its model once with this --disk-kv, which writes it again"
        ))
    })?;
    let mut options = Options::new(out.to_path_buf());
    // Nothing that is there makes room.
    (options.max_bytes, options.lines) = (u64::MAX, Lines::Quiet);
    let store = Store::on_disk(options, *identity, folder.about.clone(), SLOTS)?;
    let mut memory = Vec::new();
    let (mut left, mut files, mut bytes) = (0, 0, 0);
    for i in folder.chains.chains(ends) {
        let block = read(medium, folder, &folder.blocks[i as usize], &mut memory)?;
        let header = &block.header;
        while !store.stage(i, header.parent(), header.position(), header.contents(), &memory) {
            left -= answers(&store, out)?;
        }
        left += 1;
        (files, bytes) = (files + 1, bytes + block.bytes);
        progress(files, bytes);
    }
    while left > 0 {
        store.wait_for_answer(PATIENCE);
        left -= answers(&store, out)?;
    }
    Ok(store.status())
}

/// Reads a block whole.
fn read(medium: &dyn Medium, folder: &Folder, block: &Block, memory: &mut Vec<u8>) -> Result<Block, Failure> {
    let place = Place {
        fingerprint: &folder.fingerprint,
        identity: folder.identity.as_ref().ok(),
        kind: block.kind,
        named: block.named(),
    };
    let name = block.name();
    let mut outcome = Err(Wrong::Unread(IoError(rustix::io::Errno::IO)));
    let opened = medium.read(name.as_str(), &mut |source| {
        let meta = source.meta().map_err(Wrong::Unread);
        outcome = meta.and_then(|meta| check::read(&place, &meta, source, Some(&mut *memory)));
    });
    match (opened, outcome) {
        (Err(error), _) => {
            Err(Failure::new(format_args!("{name}: {error}; was it removed meanwhile? try again")))
        }
        (_, Err(why)) => Err(Failure::new(format_args!("{name}: {why}; 'kinglet kv fsck' says more"))),
        // A tail may have been replaced by another.
        (_, Ok(now)) if now.header.id() != block.header.id() => {
            Err(Failure::new(format_args!("{name}: was replaced meanwhile; try again")))
        }
        (_, Ok(now)) => Ok(now),
    }
}

/// Waits for answers of the writer; how many there were.
fn answers(store: &Store, out: &Path) -> Result<usize, Failure> {
    if signal::interrupted() {
        return Err(Failure::Interrupted);
    }
    store.wait(PATIENCE);
    let mut count = 0;
    while let Some(finished) = store.finished() {
        if finished.outcome != Outcome::Saved {
            let why = store
                .status()
                .paused
                .map_or(String::from("something else has its name"), |why| why.to_string());
            return Err(Failure::file(out, format_args!("block {} cannot be written: {why}", finished.id)));
        }
        count += 1;
    }
    Ok(count)
}
