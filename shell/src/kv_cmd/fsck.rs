//! `kv fsck`: everything that is wrong in a directory, and on request put right. Must not know how files
//! are read.

use super::age;
use super::catalogue::{Catalogue, Folder, is_file};
use super::check::Wrong;
use crate::failure::Failure;
use crate::memory::megabytes;
use crate::signal;
use crate::store::STALE_SECONDS;
use crate::store::medium::{Entry, Errno, IoError, Medium};
use crate::store::names::{self, Kind, Name};
use core::fmt::Display;
use std::path::Path;

/// A check of a directory.
pub struct Fsck<'a> {
    /// The directory.
    pub medium: &'a dyn Medium,
    /// Seconds since 1970.
    pub now: i64,
    /// Whether to put things right.
    pub fix: bool,
    /// Where lines go, one at a time.
    pub out: &'a mut dyn FnMut(&str) -> Result<(), Failure>,
    /// Findings so far.
    pub found: Found,
}

/// Numbers of findings.
#[derive(Clone, Copy, Default)]
pub struct Found {
    wrong: u64,
    fixed: u64,
}

/// What to do about a file.
#[derive(Clone, Copy)]
enum Cure {
    /// It stays under another name: somebody may want to know what happened to it.
    SetAside,
    Remove,
    /// Nothing that could be done here.
    None,
}

impl Fsck<'_> {
    /// Says what is wrong in `all`, which is in the directory `dir` and was read whole.
    ///
    /// # Errors
    /// Something is wrong, and is still; Ctrl-C; nobody reads.
    #[inline(never)]
    pub fn run(mut self, dir: &Path, all: &Catalogue) -> Result<(), Failure> {
        for file in &all.damaged {
            let cure = match (&file.why, file.meta) {
                (Wrong::Broken(_), Some(meta)) => {
                    // Another one by now, or none: a tail was written again, for example.
                    if self.fix && self.medium.meta(file.name.as_str()) != Ok(meta) {
                        continue;
                    }
                    Cure::SetAside
                }
                _ => Cure::None,
            };
            self.wrong(&file.name, &file.why, cure)?;
        }
        for folder in &all.folders {
            self.identity(folder)?;
            self.chains(folder)?;
        }
        for file in &all.temporary {
            if age::of(file.mtime, self.now) > STALE_SECONDS as u64 {
                self.wrong(&file.name, &"was never finished; its writer is gone", Cure::Remove)?;
            }
        }
        self.summary(all)?;
        let left = self.found.wrong - self.found.fixed;
        if left == 0 {
            return Ok(());
        }
        let advice = if self.fix {
            "see above; what cannot be read or renamed may need another user, or another disk"
        } else {
            "run it again with --fix: damaged files are set aside as .bad, orphans removed"
        };
        Err(Failure::file(dir, format_args!("{left} wrong; {advice}")))
    }

    fn summary(&mut self, all: &Catalogue) -> Result<(), Failure> {
        let mut line = all.files.to_string();
        line.push_str(" files, ");
        line.push_str(&megabytes(all.bytes as usize));
        line.push_str(", checked: ");
        line.push_str(&self.found.wrong.to_string());
        line.push_str(" wrong");
        let more = [
            (self.found.fixed, " put right"),
            (all.bad.len() as u64, " set aside before ('kinglet kv rm --bad' removes them)"),
            (all.foreign, " not ours, left alone"),
        ];
        for (count, what) in more.into_iter().filter(|(count, _)| *count > 0) {
            line.push_str(", ");
            line.push_str(&count.to_string());
            line.push_str(what);
        }
        line.push('\n');
        (self.out)(&line)
    }

    /// The file that says what a folder's fingerprint stands for. Blocks do not depend on it, and it is
    /// written again by the next program that uses the folder: one that is not there is none too many.
    fn identity(&mut self, folder: &Folder) -> Result<(), Failure> {
        let name = names::beside(&folder.fingerprint, names::IDENTITY);
        match &folder.identity {
            Ok(_) | Err(Wrong::Unread(IoError(Errno::NOENT))) => Ok(()),
            Err(why @ Wrong::Broken(_)) => self.wrong(&name, why, Cure::Remove),
            Err(why) => self.wrong(&name, why, Cure::None),
        }
    }

    fn chains(&mut self, folder: &Folder) -> Result<(), Failure> {
        let chains = &folder.chains;
        let mut lost = vec![false; folder.blocks.len()];
        for i in chains.parents_first() {
            let (block, node) = (&folder.blocks[i as usize], &chains.nodes[i as usize]);
            if node.misplaced {
                let position = block.header.position();
                let why = format_args!("position {position} does not follow that of the block before it");
                self.wrong(&block.name(), &why, Cure::SetAside)?;
                lost[i as usize] = true;
            } else if node.orphan {
                lost[i as usize] = chains.parent(i).map_or_else(
                    || {
                        // What is missing may have been written since: then nothing is removed.
                        let parent = names::stored(&folder.fingerprint, Kind::Block, block.header.parent());
                        !(self.fix && is_file(self.medium, parent.as_str()))
                    },
                    |parent| lost[parent as usize],
                );
            }
        }
        for i in chains.parents_first().rev() {
            let (block, node) = (&folder.blocks[i as usize], &chains.nodes[i as usize]);
            if lost[i as usize] && !node.misplaced {
                let parent = block.header.parent();
                let why = format_args!("orphan: the block before it, {parent}, is missing or of no use");
                self.wrong(&block.name(), &why, Cure::Remove)?;
            }
        }
        Ok(())
    }

    /// A finding: said, and put right.
    fn wrong(&mut self, name: &Name, why: &dyn Display, cure: Cure) -> Result<(), Failure> {
        if signal::interrupted() {
            return Err(Failure::Interrupted);
        }
        self.found.wrong += 1;
        let done = if self.fix { self.cure(name, cure) } else { Ok("") };
        let mut line = name.as_str().to_string();
        line.push_str(": ");
        line.push_str(&why.to_string());
        match done {
            Ok(done) => {
                self.found.fixed += u64::from(!done.is_empty());
                line.push_str(done);
            }
            Err(error) => {
                line.push_str("; not put right: ");
                line.push_str(&error.to_string());
            }
        }
        line.push('\n');
        (self.out)(&line)
    }

    /// What was done; nothing if nothing could be.
    fn cure(&self, name: &Name, cure: Cure) -> Result<&'static str, IoError> {
        let (outcome, done) = match cure {
            Cure::None => return Ok(""),
            Cure::Remove => (self.medium.remove(name.as_str()), "; removed"),
            Cure::SetAside => {
                let bad = name.bad();
                // Not over what is not ours.
                match self.medium.meta(bad.as_str()) {
                    Ok(meta) if meta.entry != Entry::File => return Err(IoError(Errno::EXIST)),
                    _ => (self.medium.rename(name.as_str(), bad.as_str()), "; set aside as .bad"),
                }
            }
        };
        match outcome {
            Err(IoError(Errno::NOENT)) => Ok("; gone meanwhile"),
            other => other.map(|()| done),
        }
    }
}
