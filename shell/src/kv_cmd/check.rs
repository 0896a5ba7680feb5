//! One file of the cache, read and compared with what its name says. Must not know other files.

use super::catalogue::Block;
use crate::store::medium::{IoError, Source};
use crate::store::names::Kind;
use core::fmt::Display;
use kinglet_core::kv::{BlockId, Identity, ReadError, file};

/// Why a file is of no use.
#[derive(Debug)]
pub enum Wrong {
    /// It cannot be read; that says nothing about what is in it.
    Unread(IoError),
    /// What is wrong with it.
    Broken(String),
}

impl Wrong {
    /// What is wrong with it.
    pub fn broken(why: &dyn Display) -> Wrong {
        Wrong::Broken(why.to_string())
    }
}

impl Display for Wrong {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Wrong::Unread(error) => write!(f, "cannot be read: {error}"),
            Wrong::Broken(why) => f.write_str(why),
        }
    }
}

impl From<ReadError<IoError>> for Wrong {
    fn from(error: ReadError<IoError>) -> Self {
        match error {
            ReadError::Medium(error) => Wrong::Unread(error),
            other => Wrong::broken(&other),
        }
    }
}

/// Where a file was found.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    /// The folder's fingerprint.
    pub fingerprint: &'a BlockId,
    /// What the folder's identity file says, if it can be read.
    pub identity: Option<&'a Identity>,
    /// By its name.
    pub kind: Kind,
    /// The id in its name.
    pub named: &'a BlockId,
}

/// Reads the header of a block's file, and with `block` all of it, into that memory.
///
/// # Errors
/// The file cannot be read or is not what its name says.
pub fn read(place: &Place<'_>, source: &mut dyn Source, block: Option<&mut Vec<u8>>) -> Result<Block, Wrong> {
    let meta = source.meta().map_err(Wrong::Unread)?;
    let header = file::read_header(source)?;
    let (named, what) = match place.kind {
        Kind::Tail => (header.parent(), "parent"),
        _ => (header.id(), "id"),
    };
    if named != place.named {
        return Err(Wrong::broken(&format_args!("its name is not its {what}, {named}")));
    }
    if header.is_whole() == (place.kind == Kind::Tail) {
        return Err(Wrong::broken(&format_args!(
            "has {} positions; its name says otherwise",
            header.count()
        )));
    }
    if header.fingerprint() != place.fingerprint {
        let whose = header.fingerprint();
        return Err(Wrong::broken(&format_args!(
            "belongs to {whose}, another fingerprint than its folder's"
        )));
    }
    if let Some(identity) = place.identity {
        let refusal = header.check_place(identity, place.fingerprint, header.parent(), header.position());
        if let Err(refusal) = refusal {
            return Err(Wrong::broken(&format_args!("{refusal} from that of its folder")));
        }
    }
    // Before any memory is taken: a header may promise what no disk holds.
    if meta.bytes != header.file_bytes() {
        let needed = header.file_bytes();
        return Err(Wrong::broken(&format_args!("has {} bytes, by its header {needed}", meta.bytes)));
    }
    if let Some(block) = block {
        let len = header.geometry().block_bytes();
        if block.len() != len {
            block.clear();
            if block.try_reserve_exact(len).is_err() {
                return Err(Wrong::Unread(IoError(rustix::io::Errno::NOMEM)));
            }
            block.resize(len, 0);
        }
        file::decode(source, &header, block)?;
    }
    Ok(Block { kind: place.kind, header, mtime: meta.mtime, bytes: meta.bytes })
}
