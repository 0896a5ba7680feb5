//! Blocks read back: what has the right name is checked whole before it is used. Must not know who asks.
//!
//! This runs on the engine's thread: it reads, but it never waits for a write, and allocates nothing.

use super::medium::{Entry, Errno, IoError, Source, Time};
use super::names::Kind;
use super::shared::Shared;
use core::fmt;
use kinglet_core::kv::{BLOCK_TOKENS, BlockId, ContentId, Fault, Header, ReadError, Refusal, file};

/// What became of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// The block's bytes are where they were asked for.
    Hit,
    /// There is no such block. The bytes are undefined.
    Miss,
    /// There was one, and it was damaged; it is set aside. The bytes are undefined.
    Bad,
}

/// A file's time says how often it was used, in its nanoseconds; so many at most. A file that was never used
/// has none, unless somebody else has set its time.
pub const HITS_MOST: u32 = 999_999;

/// Why a file is set aside.
#[derive(Clone, Copy)]
enum Damage {
    Fault(Fault),
    Refusal(Refusal),
    /// A whole block under the name of a tail.
    Whole,
    NoFile,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Damage::Fault(fault) => fault.fmt(f),
            Damage::Refusal(refusal) => refusal.fmt(f),
            Damage::Whole => f.write_str("is called a tail and holds a whole block"),
            Damage::NoFile => f.write_str("is no regular file"),
        }
    }
}

/// Why a file is of no use.
enum Useless {
    /// It holds something else that may be there.
    Other,
    Damage(Damage),
    Io(IoError),
}

impl From<ReadError<IoError>> for Useless {
    fn from(error: ReadError<IoError>) -> Self {
        match error {
            ReadError::Medium(error) => Useless::Io(error),
            ReadError::Fault(fault) => Useless::Damage(Damage::Fault(fault)),
            // A kind of error that was added since: not the file's fault, as far as we know.
            _ => Useless::Other,
        }
    }
}

impl Shared {
    /// See [`super::Store::find`].
    pub fn find(&self, parent: &BlockId, position: u32, contents: &[ContentId], block: &mut [u8]) -> Found {
        let (kind, id) = match contents.len() {
            BLOCK_TOKENS => (Kind::Block, parent.child(contents)),
            1..BLOCK_TOKENS => (Kind::Tail, *parent),
            _ => return Found::Miss,
        };
        let found = self.open(kind, &id, &mut |source| {
            let header = self.header(source, kind, parent, position)?;
            if header.common(contents) < contents.len() {
                return Err(match kind {
                    Kind::Tail => Useless::Other,
                    _ => Useless::Damage(Damage::Refusal(Refusal::Contents {
                        common: header.common(contents),
                    })),
                });
            }
            file::decode(source, &header, block)?;
            self.touch(source);
            Ok(())
        });
        if found == Found::Hit {
            self.counters.blocks_loaded.add(1);
        }
        found
    }

    /// See [`super::Store::tail`].
    pub fn tail(&self, parent: &BlockId, position: u32, contents: &[ContentId]) -> usize {
        let mut common = 0;
        let found = self.open(Kind::Tail, parent, &mut |source| {
            common = self.header(source, Kind::Tail, parent, position)?.common(contents);
            Ok(())
        });
        if found == Found::Hit { common } else { 0 }
    }

    /// The header of the file that is open, if it belongs where it is.
    fn header(
        &self,
        source: &mut dyn Source,
        kind: Kind,
        parent: &BlockId,
        position: u32,
    ) -> Result<Header, Useless> {
        let header = file::read_header(source)?;
        header
            .check_place(&self.identity, &self.fingerprint, parent, position)
            .map_err(|refusal| Useless::Damage(Damage::Refusal(refusal)))?;
        match (kind, header.is_whole()) {
            (Kind::Tail, true) => Err(Useless::Damage(Damage::Whole)),
            _ => Ok(header),
        }
    }

    /// Opens a file and hands it to `take`; sets it aside if it is damaged.
    fn open(
        &self,
        kind: Kind,
        id: &BlockId,
        take: &mut dyn FnMut(&mut dyn Source) -> Result<(), Useless>,
    ) -> Found {
        if self.is_suspect(kind, id) {
            return Found::Miss;
        }
        let name = self.name(kind, id);
        let mut taken = Ok(());
        let useless = match self.medium.read(name.as_str(), &mut |source| taken = take(source)) {
            Ok(()) => match taken {
                Ok(()) => {
                    self.read_error(&name, None);
                    return Found::Hit;
                }
                Err(useless) => useless,
            },
            Err(IoError(Errno::NOENT)) => return Found::Miss,
            Err(error) => match self.medium.meta(name.as_str()) {
                Ok(meta) if meta.entry != Entry::File => Useless::Damage(Damage::NoFile),
                _ => Useless::Io(error),
            },
        };
        match useless {
            Useless::Other => Found::Miss,
            Useless::Damage(damage) => {
                self.set_aside(kind, id, &damage);
                Found::Bad
            }
            Useless::Io(error) => {
                self.read_error(&name, Some(error));
                Found::Miss
            }
        }
    }

    /// Marks a file as used now, once more. It does not matter whether that works.
    fn touch(&self, source: &mut dyn Source) {
        let hits = source.meta().map_or(0, |meta| meta.mtime.nanos);
        // More than there can be: not a count, but the time at which somebody else has changed it.
        let hits = if hits > HITS_MOST { 0 } else { hits };
        let nanos = (hits + 1).min(HITS_MOST);
        let _ = source.touch(Time { seconds: self.medium.now().seconds, nanos });
    }
}
