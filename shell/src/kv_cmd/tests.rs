//! What happens when somebody else writes and removes files between two calls.

use super::catalogue::{Block, Catalogue, Scan};
use super::fsck::{Found, Fsck};
use crate::failure::Failure;
use crate::store::Disk;
use crate::store::medium::{Fill, IoError, Medium, Meta, Source, Time};
use crate::store::names::Kind;
pub use cache::identity;
use cache::{Cache, ago};
use core::time::Duration;
use kinglet_core::kv::{BlockId, ContentId, Header};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

#[path = "../../tests/common/cache.rs"]
mod cache;

fn scratch() -> PathBuf {
    std::env::temp_dir().join(format!("kinglet-kv-{}", std::process::id()))
}

/// 32 content ids, of which the first is `n`.
pub fn contents(n: u32) -> Vec<ContentId> {
    [n].into_iter().chain(100..131).map(ContentId::token).collect()
}

/// A block as it is found; there is no file.
pub fn block(parent: &BlockId, position: u32, contents: &[ContentId]) -> Block {
    let identity = identity(0);
    let header = Header::new(&identity, &identity.fingerprint(), parent, position, contents).unwrap();
    Block { kind: Kind::Block, header, mtime: Time::default(), bytes: header.file_bytes() }
}

/// A directory in which something happens right after a folder was listed.
struct Busy {
    disk: Disk,
    after: String,
    happens: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl Busy {
    fn new(dir: &Path, after: String, happens: impl FnOnce() + Send + 'static) -> Busy {
        Busy { disk: Disk::open(dir).unwrap(), after, happens: Mutex::new(Some(Box::new(happens))) }
    }
}

impl Medium for Busy {
    fn read(&self, path: &str, take: &mut dyn FnMut(&mut dyn Source)) -> Result<(), IoError> {
        self.disk.read(path, take)
    }

    fn write_new(&self, path: &str, mtime: Time, fill: &mut Fill<'_>) -> Result<(), IoError> {
        self.disk.write_new(path, mtime, fill)
    }

    fn meta(&self, path: &str) -> Result<Meta, IoError> {
        self.disk.meta(path)
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), IoError> {
        self.disk.rename(from, to)
    }

    fn remove(&self, path: &str) -> Result<(), IoError> {
        self.disk.remove(path)
    }

    fn make_dir(&self, path: &str) -> Result<(), IoError> {
        self.disk.make_dir(path)
    }

    fn sync_dir(&self, path: &str) -> Result<(), IoError> {
        self.disk.sync_dir(path)
    }

    fn list(&self, path: &str, each: &mut dyn FnMut(&str) -> bool) -> Result<(), IoError> {
        self.disk.list(path, each)?;
        if path == self.after
            && let Some(happens) = self.happens.lock().unwrap().take()
        {
            happens();
        }
        Ok(())
    }

    fn reopen(&self) -> Result<(), IoError> {
        self.disk.reopen()
    }

    fn now(&self) -> Time {
        self.disk.now()
    }

    fn monotonic(&self) -> Duration {
        self.disk.monotonic()
    }
}

/// Leaves nothing behind.
fn remove(cache: &Cache) {
    fs::remove_dir_all(&cache.dir).unwrap();
    // Other tests may still be at work there.
    let _ = fs::remove_dir(scratch().join("caches"));
    let _ = fs::remove_dir(scratch());
}

/// The lines of a check, and how it ended.
fn fsck(medium: &dyn Medium, cache: &Cache, all: &Catalogue, fix: bool) -> (String, Result<(), Failure>) {
    let mut lines = String::new();
    let mut out = |line: &str| {
        lines.push_str(line);
        Ok(())
    };
    let check = Fsck { medium, now: 0, fix, out: &mut out, found: Found::default() };
    let outcome = check.run(&cache.dir, all);
    (lines, outcome)
}

fn scan(medium: &dyn Medium) -> Catalogue {
    Scan { medium, block: Some(Vec::new()), progress: &mut |_, _| {} }.run().unwrap()
}

/// A conversation of six blocks whose ids are as wanted: they say in which order folders are listed. What it
/// is made from, and the ids.
fn chat(cache: &Cache, is: impl Fn(&[BlockId]) -> bool) -> (u32, Vec<BlockId>) {
    let ids = |salt: u32| {
        let tokens: Vec<u32> = (0..192).map(|i| i + salt).collect();
        let contents: Vec<ContentId> = tokens.iter().map(|token| ContentId::token(*token)).collect();
        let mut ids = vec![cache.root()];
        contents.chunks(32).for_each(|contents| ids.push(ids.last().unwrap().child(contents)));
        ids.remove(0);
        ids
    };
    (0..).map(|salt| (salt, ids(salt))).find(|(_, ids)| is(ids)).unwrap()
}

fn put(cache: &Cache, salt: u32) -> Vec<BlockId> {
    let tokens: Vec<u32> = (0..192).map(|i| i + salt).collect();
    cache.chat(&tokens, ago(10, 0))
}

#[test]
fn a_conversation_that_is_written_meanwhile_is_no_orphan() {
    let cache = Cache::new("written");
    let (salt, ids) = chat(&cache, |ids| ids[..5].iter().all(|id| id.0[0] < ids[5].0[0]));
    put(&cache, salt);
    let aside = cache.folder().join("aside");
    fs::create_dir_all(&aside).unwrap();
    let moved: Vec<_> = ids[..5].iter().map(|id| (aside.join(id.to_string()), cache.block(id))).collect();
    moved.iter().for_each(|(aside, path)| fs::rename(path, aside).unwrap());
    // When the last block's folder is listed, those of all others have been.
    let after = format!("{}/{:02x}", cache.fingerprint, ids[5].0[0]);
    let busy = Busy::new(&cache.dir, after, move || {
        moved.iter().for_each(|(aside, path)| fs::rename(aside, path).unwrap());
    });
    let all = scan(&busy);
    let folder = &all.folders[0];
    assert_eq!((folder.blocks.len(), all.files), (6, 6));
    assert!(folder.chains.nodes.iter().all(|node| !node.orphan));
    assert_eq!(folder.chains.ends().len(), 1);
    assert!(all.damaged.is_empty());
    remove(&cache);
}

#[test]
fn a_conversation_that_is_removed_meanwhile_was_never_there() {
    let cache = Cache::new("removed");
    let (salt, ids) = chat(&cache, |ids| ids[1..].iter().all(|id| id.0[0] < ids[0].0[0]));
    put(&cache, salt);
    let stays = cache.chat(&[1, 2, 3], ago(10, 0));
    // The first block is the last to be read.
    let files: Vec<PathBuf> = ids.iter().rev().map(|id| cache.block(id)).collect();
    let after = format!("{}/{:02x}", cache.fingerprint, ids[0].0[0]);
    let busy = Busy::new(&cache.dir.clone(), after, move || {
        files.iter().for_each(|file| fs::remove_file(file).unwrap());
    });
    let all = scan(&busy);
    let folder = &all.folders[0];
    assert_eq!((folder.blocks.len(), all.files, all.damaged.len()), (1, 1, 0));
    assert_eq!(*folder.blocks[0].header.id(), stays[0]);
    assert_eq!(all.bytes, folder.blocks[0].bytes);
    remove(&cache);
}

#[test]
fn what_came_after_the_check_is_not_put_right() {
    let cache = Cache::new("late");
    let ids = put(&cache, 0);
    let (missing, damaged) = (cache.block(&ids[1]), cache.block(&ids[3]));
    let sound = [&missing, &damaged].map(|path| fs::read(path).unwrap());
    fs::remove_file(&missing).unwrap();
    fs::write(&damaged, b"not any more").unwrap();
    let disk = Disk::open(&cache.dir).unwrap();
    let all = scan(&disk);
    assert_eq!((all.damaged.len(), all.folders[0].blocks.len()), (1, 4));
    fs::write(&missing, &sound[0]).unwrap();
    fs::write(&damaged, &sound[1]).unwrap();
    let (lines, outcome) = fsck(&disk, &cache, &all, true);
    assert_eq!((lines.lines().count(), outcome), (1, Ok(())), "{lines}");
    let all = scan(&disk);
    assert_eq!((all.damaged.len(), all.bad.len(), all.folders[0].blocks.len()), (0, 0, 6));
    // And what is still so, is put right.
    fs::remove_file(&missing).unwrap();
    let all = scan(&disk);
    let (lines, outcome) = fsck(&disk, &cache, &all, false);
    assert!(matches!(outcome, Err(Failure::Failed(line)) if line.contains("4 wrong")));
    assert_eq!(lines.matches(": orphan: ").count(), 4, "{lines}");
    let (lines, outcome) = fsck(&disk, &cache, &all, true);
    assert_eq!((lines.matches("; removed\n").count(), outcome), (4, Ok(())), "{lines}");
    assert_eq!(scan(&disk).folders[0].blocks.len(), 1);
    remove(&cache);
}
