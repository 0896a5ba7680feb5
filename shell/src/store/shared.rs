//! What the threads of a store share, and what both do with files. Must not know who calls.

use super::lines::Lines;
use super::medium::{Entry, Errno, IoError, Medium};
use super::names::{self, Kind, Name};
use super::ring::{Ring, hold};
use super::status::{Counters, Pause};
use super::{Failure, Options};
use crate::failure::printable;
use core::fmt;
use core::sync::atomic::{AtomicI32, Ordering};
use embedded_io::Write;
use kinglet_core::kv::header::HEADER_BYTES;
use kinglet_core::kv::{BlockId, Identity};
use std::sync::{Arc, Mutex};

/// Everything but the thread itself.
pub struct Shared {
    pub medium: Arc<dyn Medium>,
    pub identity: Identity,
    pub fingerprint: BlockId,
    /// Lines for people about the identity.
    pub about: String,
    pub max_bytes: u64,
    pub max_files: u64,
    pub daily_write_bytes: Option<u64>,
    pub lines: Lines,
    /// The directory, as people write it.
    dir: String,
    pub ring: Ring,
    pub counters: Counters,
    suspects: Mutex<Suspects>,
    /// The error of the last read that failed, so that it is said once; 0 for none.
    last_error: AtomicI32,
}

/// A file as people write it.
pub struct Shown<'a> {
    dir: &'a str,
    name: Name,
}

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.dir, self.name)
    }
}

/// Why something could not be written, and what.
#[derive(Debug)]
pub struct Trouble {
    pub name: Name,
    pub why: Pause,
}

impl Trouble {
    /// The medium's error about `name`.
    pub fn io(name: &Name) -> impl Fn(IoError) -> Trouble + use<> {
        let name = *name;
        move |error| Trouble { name, why: Pause::Io(error) }
    }
}

/// Files whose names are not to be trusted, though they could not be set aside. When there are too many,
/// the oldest are forgotten, and found again.
#[derive(Default)]
struct Suspects {
    files: [Option<(Kind, BlockId)>; 32],
    next: usize,
}

impl Shared {
    pub fn new(
        options: Options,
        identity: Identity,
        about: String,
        slots: usize,
        medium: Arc<dyn Medium>,
    ) -> Result<Shared, Failure> {
        let block_bytes = identity.geometry.block_bytes();
        if let Some((field, found)) = identity.geometry.check() {
            return Err(Failure::new(format_args!(
                "KV blocks of this model cannot be stored: {field} {found}"
            )));
        }
        let most = (HEADER_BYTES + block_bytes) as u64;
        let limits = [
            ("--disk-kv-max-bytes", options.max_bytes),
            ("--disk-kv-daily-write-bytes", options.daily_write_bytes.unwrap_or(u64::MAX)),
        ];
        for (flag, limit) in limits {
            if limit < most {
                let line = format_args!("{flag} {limit} is less than one file ({most} bytes); give more");
                return Err(Failure::new(line));
            }
        }
        Ok(Shared {
            medium,
            fingerprint: identity.fingerprint(),
            identity,
            about,
            max_bytes: options.max_bytes,
            max_files: options.max_files.max(1),
            daily_write_bytes: options.daily_write_bytes,
            lines: options.lines,
            dir: printable(&options.dir),
            ring: Ring::new(slots.max(1), block_bytes),
            counters: Counters::default(),
            suspects: Mutex::default(),
            last_error: AtomicI32::new(0),
        })
    }

    /// A file as people write it.
    pub fn shown(&self, name: &Name) -> Shown<'_> {
        Shown { dir: &self.dir, name: *name }
    }

    /// The directory as people write it.
    pub fn dir(&self) -> &str {
        &self.dir
    }

    /// The file of `kind` named after `id` among our caches.
    pub fn name(&self, kind: Kind, id: &BlockId) -> Name {
        names::stored(&self.fingerprint, kind, id)
    }

    /// Whether that file is not to be trusted.
    pub fn is_suspect(&self, kind: Kind, id: &BlockId) -> bool {
        hold(&self.suspects).files.contains(&Some((kind, *id)))
    }

    /// It is not to be trusted, or it is again.
    pub fn suspect(&self, kind: Kind, id: &BlockId, suspect: bool) {
        let mut suspects = hold(&self.suspects);
        suspects.files.iter_mut().filter(|file| **file == Some((kind, *id))).for_each(|file| *file = None);
        if suspect {
            let next = suspects.next;
            suspects.files[next] = Some((kind, *id));
            suspects.next = (next + 1) % suspects.files.len();
        }
    }

    /// Renames a file that is damaged, or what has its name; says so. It is not removed: somebody may want
    /// to know what happened to it. If it cannot be renamed, it is remembered.
    pub fn set_aside(&self, kind: Kind, id: &BlockId, why: &dyn fmt::Display) -> bool {
        let name = self.name(kind, id);
        let bad = name.bad();
        let free = match self.medium.meta(bad.as_str()) {
            Ok(meta) => meta.entry == Entry::File,
            Err(error) => error == IoError(Errno::NOENT),
        };
        let moved = free && self.medium.rename(name.as_str(), bad.as_str()).is_ok();
        let done = if moved { "set aside as .bad" } else { "cannot be set aside; not used" };
        self.suspect(kind, id, !moved);
        self.counters.bad.add(1);
        self.lines.say(format_args!("{}: {why}; {done}", self.shown(&name)));
        moved
    }

    /// An error of a read, said once until another one comes or a read succeeds (`None`).
    pub fn read_error(&self, name: &Name, error: Option<IoError>) {
        let number = error.map_or(0, |error| error.0.raw_os_error());
        if self.last_error.swap(number, Ordering::Relaxed) != number
            && let Some(error) = error
        {
            self.lines.say(format_args!("{}: {error}; not used", self.shown(name)));
        }
    }
}

/// Reads the beginning of a file.
pub fn read_small<'b>(medium: &dyn Medium, name: &Name, buf: &'b mut [u8]) -> Result<&'b [u8], IoError> {
    let mut got = Ok(0);
    medium.read(name.as_str(), &mut |source| {
        let mut len = 0;
        got = loop {
            match source.read(&mut buf[len..]) {
                Ok(0) => break Ok(len),
                Ok(n) => len += n.min(buf.len() - len),
                Err(error) => break Err(error),
            }
        }
    })?;
    got.map(|len| &buf[..len])
}

/// Writes a small file that is no block, in place of the one that is there. `n` as in [`names::temporary`].
pub fn replace(medium: &dyn Medium, name: &Name, bytes: &[u8], n: u64) -> Result<(), Trouble> {
    if medium.meta(name.as_str()).is_ok_and(|meta| meta.entry != Entry::File) {
        return Err(Trouble { name: *name, why: Pause::InTheWay });
    }
    let temporary = names::temporary_beside(name, n);
    write_all_new(medium, &temporary, bytes)
        .and_then(|()| medium.rename(temporary.as_str(), name.as_str()))
        .inspect_err(|error| {
            // What had that name already is not ours.
            if *error != IoError(Errno::EXIST) {
                let _ = medium.remove(temporary.as_str());
            }
        })
        .map_err(Trouble::io(name))
}

fn write_all_new(medium: &dyn Medium, name: &Name, bytes: &[u8]) -> Result<(), IoError> {
    let mut fill = |sink: &mut dyn Write<Error = IoError>| {
        let mut rest = bytes;
        while !rest.is_empty() {
            match sink.write(rest)? {
                0 => return Err(IoError(Errno::NOSPC)),
                n => rest = rest.get(n..).unwrap_or(&[]),
            }
        }
        Ok(())
    };
    medium.write_new(name.as_str(), medium.now(), &mut fill)
}
