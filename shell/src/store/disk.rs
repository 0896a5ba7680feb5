//! The medium of the real world: a directory of a file system.
//!
//! Paths are walked part by part from the open directory, and no part may be a symbolic link: somebody who
//! can write into the directory cannot make the store write anywhere else. Must not know what is stored.

use super::medium::{Entry, Errno, Fill, IoError, Medium, Meta, Source, Time};
use super::ring::hold;
use crate::failure::Failure;
use core::mem::MaybeUninit;
use core::time::Duration;
use embedded_io::{ErrorType, Read, Write};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir, Stat, Timespec, Timestamps, UTIME_OMIT};
use rustix::fs::{fdatasync, fstat, fsync, futimens, mkdirat, openat, renameat, statat, unlinkat};
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// For whoever started the program, and nobody else.
const FILE_MODE: Mode = Mode::RUSR.union(Mode::WUSR);
const FOLDER_MODE: u32 = 0o700;

const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
/// A pipe that somebody put there must not hold us up.
const READ: OFlags = OFlags::RDONLY
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC)
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY);
const CREATE: OFlags =
    OFlags::WRONLY.union(OFlags::CREATE).union(OFlags::EXCL).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// A directory.
#[derive(Debug)]
pub struct Disk {
    path: PathBuf,
    /// Replaced by [`Medium::reopen`] alone.
    root: Mutex<Arc<OwnedFd>>,
    start: Instant,
}

impl Disk {
    /// Opens the directory `path`, which is made if it is not there.
    ///
    /// # Errors
    /// It cannot be made or opened; the line names it.
    pub fn open(path: &Path) -> Result<Disk, Failure> {
        let builder = |path| std::fs::DirBuilder::new().recursive(true).mode(FOLDER_MODE).create(path);
        builder(path).map_err(|e| Failure::file(path, e))?;
        let root = open_root(path).map_err(|e| Failure::file(path, e))?;
        Ok(Disk { path: path.to_path_buf(), root: Mutex::new(root), start: Instant::now() })
    }

    /// Calls `f` with the open directory in which `path` is, and the last part of `path`.
    fn at<T>(
        &self,
        path: &str,
        f: impl FnOnce(&OwnedFd, &str) -> rustix::io::Result<T>,
    ) -> Result<T, IoError> {
        let root = Arc::clone(&hold(&self.root));
        let (mut folder, mut rest): (Option<OwnedFd>, &str) = (None, path);
        while let Some((part, after)) = rest.split_once('/') {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            folder = Some(openat(folder.as_ref().unwrap_or(&root), part, flags, Mode::empty())?);
            rest = after;
        }
        Ok(f(folder.as_ref().unwrap_or(&root), if rest.is_empty() { "." } else { rest })?)
    }
}

fn open_root(path: &Path) -> rustix::io::Result<Arc<OwnedFd>> {
    rustix::fs::open(path, FOLDER, Mode::empty()).map(Arc::new)
}

/// Calls again when a signal came in between.
fn again<T>(mut call: impl FnMut() -> rustix::io::Result<T>) -> Result<T, IoError> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            other => return Ok(other?),
        }
    }
}

fn meta_of(stat: &Stat) -> Meta {
    let entry = match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Entry::File,
        FileType::Directory => Entry::Directory,
        _ => Entry::Other,
    };
    // The fields' types differ between architectures.
    #[allow(clippy::unnecessary_cast)]
    let mtime = Time { seconds: stat.st_mtime as i64, nanos: stat.st_mtime_nsec as u32 };
    Meta { entry, bytes: stat.st_size as u64, mtime }
}

/// Sets the time of a change, and leaves that of the last access.
fn set_mtime(fd: &OwnedFd, mtime: Time) -> Result<(), IoError> {
    let last_access = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
    let last_modification = Timespec { tv_sec: mtime.seconds, tv_nsec: mtime.nanos.into() };
    Ok(futimens(fd, &Timestamps { last_access, last_modification })?)
}

/// An open file.
struct File(OwnedFd);

impl ErrorType for File {
    type Error = IoError;
}

impl Read for File {
    fn read(&mut self, buf: &mut [u8]) -> Result<usize, IoError> {
        again(|| rustix::io::read(&self.0, &mut *buf))
    }
}

impl Write for File {
    fn write(&mut self, buf: &[u8]) -> Result<usize, IoError> {
        again(|| rustix::io::write(&self.0, buf))
    }

    fn flush(&mut self) -> Result<(), IoError> {
        Ok(())
    }
}

impl Source for File {
    fn meta(&mut self) -> Result<Meta, IoError> {
        Ok(meta_of(&fstat(&self.0)?))
    }

    fn touch(&mut self, mtime: Time) -> Result<(), IoError> {
        set_mtime(&self.0, mtime)
    }
}

impl Medium for Disk {
    fn read(&self, path: &str, take: &mut dyn FnMut(&mut dyn Source)) -> Result<(), IoError> {
        let mut file = File(self.at(path, |folder, name| openat(folder, name, READ, Mode::empty()))?);
        if file.meta()?.entry != Entry::File {
            return Err(IoError(Errno::INVAL));
        }
        take(&mut file);
        Ok(())
    }

    fn write_new(&self, path: &str, mtime: Time, fill: &mut Fill<'_>) -> Result<(), IoError> {
        let mut file = File(self.at(path, |folder, name| openat(folder, name, CREATE, FILE_MODE))?);
        fill(&mut file)?;
        // Without it the file is only removed sooner, or later.
        let _ = set_mtime(&file.0, mtime);
        again(|| fdatasync(&file.0))
    }

    fn meta(&self, path: &str) -> Result<Meta, IoError> {
        self.at(path, |folder, name| Ok(meta_of(&statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)?)))
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), IoError> {
        let to = to.rsplit_once('/').map_or(to, |(_, name)| name);
        self.at(from, |folder, name| renameat(folder, name, folder, to))
    }

    fn remove(&self, path: &str) -> Result<(), IoError> {
        self.at(path, |folder, name| unlinkat(folder, name, AtFlags::empty()))
    }

    fn make_dir(&self, path: &str) -> Result<(), IoError> {
        self.at(path, |folder, name| mkdirat(folder, name, Mode::from_raw_mode(FOLDER_MODE)))
    }

    fn sync_dir(&self, path: &str) -> Result<(), IoError> {
        let folder =
            self.at(path, |folder, name| openat(folder, name, FOLDER | OFlags::NOFOLLOW, Mode::empty()))?;
        match again(|| fsync(&folder)) {
            // File systems that cannot do it; then there is nothing to wait for.
            Err(IoError(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP)) => Ok(()),
            synced => synced,
        }
    }

    fn list(&self, path: &str, each: &mut dyn FnMut(&str) -> bool) -> Result<(), IoError> {
        let folder =
            self.at(path, |folder, name| openat(folder, name, FOLDER | OFlags::NOFOLLOW, Mode::empty()))?;
        let mut buffer = [MaybeUninit::uninit(); 8192];
        let mut entries = RawDir::new(&folder, &mut buffer);
        while let Some(entry) = entries.next() {
            let entry = entry?;
            if entry.file_name().to_str().is_ok_and(|name| name != "." && name != ".." && !each(name)) {
                break;
            }
        }
        Ok(())
    }

    /// The directory is not made again: where a medium was taken away, its mount point would fill up.
    fn reopen(&self) -> Result<(), IoError> {
        let root = open_root(&self.path)?;
        *hold(&self.root) = root;
        Ok(())
    }

    fn now(&self) -> Time {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Time { seconds: since.as_secs() as i64, nanos: since.subsec_nanos() }
    }

    fn monotonic(&self) -> Duration {
        self.start.elapsed()
    }
}
