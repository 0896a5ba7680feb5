//! Blocks of the KV cache on disk: the cache outlives the process.
//!
//! One immutable file per block, in a folder per model (`names.rs`). The engine's thread finds blocks and
//! hands over new ones; it never waits for a write. A thread of its own writes them, and keeps to the limits.
//! Several processes may share a directory: there are no locks, since a name says what is in a file.
//! How a block is laid out in its file is the core's business.

mod batch;
mod budget;
mod census;
pub mod disk;
mod evict;
mod find;
mod folder;
pub mod lines;
pub mod medium;
pub mod names;
mod ring;
mod shared;
pub mod status;
mod writer;

pub use disk::Disk;
pub use find::Found;
pub use lines::Lines;
pub use medium::Medium;
pub use ring::{Finished, Outcome};
pub use status::{Pause, Status};
pub use writer::BACK_OFF;
pub(crate) use {census::STALE_SECONDS, find::HITS_MOST, shared::read_small};

use crate::failure::Failure;
use crate::thread::Thread;
use core::time::Duration;
use kinglet_core::kv::{BlockId, ContentId, Header, Identity, pack};
use names::Kind;
use shared::Shared;
use std::path::PathBuf;
use std::sync::Arc;
use writer::Writer;

/// How long a store that is dropped waits for the file it is writing. A disk that hangs must not keep a
/// program from ending.
const LAST_WAIT: Duration = Duration::from_secs(5);

/// What a store may do.
#[derive(Debug)]
pub struct Options {
    /// The directory, for messages and for [`Store::on_disk`].
    pub dir: PathBuf,
    /// Most bytes of all files of all models.
    pub max_bytes: u64,
    /// Most files of all models.
    pub max_files: u64,
    /// Most bytes that are written in a day.
    pub daily_write_bytes: Option<u64>,
    /// Whether [`Store::after_reply`] waits until all is durable.
    pub sync: bool,
    /// Who hears of what it does.
    pub lines: Lines,
}

impl Options {
    /// The defaults for a directory.
    pub fn new(dir: PathBuf) -> Options {
        Options {
            dir,
            max_bytes: 4 << 30,
            max_files: u64::MAX,
            daily_write_bytes: None,
            sync: false,
            lines: Lines::Stderr,
        }
    }
}

/// How far the thread that writes stands behind those that compute: a tenth of their weight.
const NICENESS: i32 = 10;

/// The blocks of one model's caches on disk.
pub struct Store {
    shared: Arc<Shared>,
    sync: bool,
    thread: Option<Thread>,
}

impl Store {
    /// Opens a store on a medium, for caches of `identity`; `about` tells people what that is. `slots` blocks
    /// can be on their way to the writer. Returns at once: the directory is looked at in the background.
    ///
    /// # Errors
    /// A limit is less than one file; the geometry is none of a model; the system refuses a thread.
    pub fn open(
        options: Options,
        identity: Identity,
        about: String,
        slots: usize,
        medium: Arc<dyn Medium>,
    ) -> Result<Store, Failure> {
        let sync = options.sync;
        let shared = Arc::new(Shared::new(options, identity, about, slots, medium)?);
        let theirs = Arc::clone(&shared);
        let body = move || {
            // Also when it panics: who drops the store waits for this.
            let _ended = Ended(&theirs);
            // Threads that compute wait for one another: one that is interrupted holds up all. With less
            // weight this one takes the gaps they leave. On Linux that is of this thread alone.
            let _ = rustix::process::setpriority_process(None, NICENESS);
            Writer::new(&theirs).run();
        };
        let thread = Thread::start(String::from("kv-disk"), Box::new(body))
            .map_err(|e| Failure::new(format_args!("no thread to write KV blocks: {e}")))?;
        Ok(Store { shared, sync, thread: Some(thread) })
    }

    /// Opens a store on the directory of `options`, which is made if it is not there.
    ///
    /// # Errors
    /// As for [`Store::open`]; the directory cannot be made or opened.
    pub fn on_disk(
        options: Options,
        identity: Identity,
        about: String,
        slots: usize,
    ) -> Result<Store, Failure> {
        let disk = Disk::open(&options.dir)?;
        Store::open(options, identity, about, slots, Arc::new(disk))
    }

    /// Looks for the block that follows `parent` as block `position` of its sequence and holds `contents`,
    /// and reads it into `block`, the memory of a block. Of 32 contents, a whole block; of fewer, a tail that
    /// begins with them ([`Store::tail`] says how many). What is damaged is set aside.
    pub fn find(&self, parent: &BlockId, position: u32, contents: &[ContentId], block: &mut [u8]) -> Found {
        self.shared.find(parent, position, contents, block)
    }

    /// How many of `contents` the stored tail of `parent` begins with; 0 if there is none. Reads a header
    /// only.
    pub fn tail(&self, parent: &BlockId, position: u32, contents: &[ContentId]) -> usize {
        self.shared.tail(parent, position, contents)
    }

    /// Whether the whole block `id` is there, as far as its name says: somebody may have removed it since it
    /// was saved. If the disk does not say, it is.
    pub fn has(&self, id: &BlockId) -> bool {
        let name = self.shared.name(Kind::Block, id);
        self.shared.medium.meta(name.as_str()) != Err(medium::IoError(medium::Errno::NOENT))
    }

    /// The file in which [`Store::find`] looks, as people write it.
    pub fn file(&self, parent: &BlockId, contents: &[ContentId]) -> impl core::fmt::Display {
        let (kind, id) = match contents.len() {
            kinglet_core::kv::BLOCK_TOKENS => (Kind::Block, parent.child(contents)),
            _ => (Kind::Tail, *parent),
        };
        self.shared.shown(&self.shared.name(kind, &id))
    }

    /// Whether [`Store::stage`] would take a block.
    pub fn room(&self) -> bool {
        self.shared.ring.room()
    }

    /// Copies a block for the writer; false if there is no room, or if the block is none of this model.
    /// `block` is the caller's number, which comes back from [`Store::finished`]; the rest is as for
    /// [`Store::find`], `bytes` the memory of the block.
    pub fn stage(
        &self,
        block: u32,
        parent: &BlockId,
        position: u32,
        contents: &[ContentId],
        bytes: &[u8],
    ) -> bool {
        let shared = &*self.shared;
        shared.ring.stage(&mut |slot| {
            let header = Header::new(&shared.identity, &shared.fingerprint, parent, position, contents);
            slot.block = block;
            slot.header = header.ok();
            let geometry = &shared.identity.geometry;
            slot.header.is_some() && pack::pack(geometry, contents.len(), bytes, &mut slot.payload).is_ok()
        })
    }

    /// The next answer to a staged block. Each frees a slot, so they must be taken.
    pub fn finished(&self) -> Option<Finished> {
        self.shared.ring.finished()
    }

    /// Waits until there is an answer, or room for a block; whether it came in time.
    pub fn wait(&self, patience: Duration) -> bool {
        self.shared.ring.wait_for_news(patience)
    }

    /// Waits until there is an answer, or none to come; whether it came in time. For who has nothing more to
    /// stage: [`Store::wait`] is over at once while there is room.
    pub fn wait_for_answer(&self, patience: Duration) -> bool {
        self.shared.ring.wait_for_answer(patience)
    }

    /// Waits until all that was staged is durable; whether it is. It does not wait for a pause to end.
    pub fn flush(&self, patience: Duration) -> bool {
        let ring = &self.shared.ring;
        ring.wake();
        let over = |state: &ring::State| {
            state.pending() == 0 || (state.paused.is_some() && !state.trial) || state.ended
        };
        ring.wait(patience, &over) && {
            let state = ring.state();
            state.pending() == 0 && state.paused.is_none()
        }
    }

    /// [`Store::flush`], if the options ask for it.
    pub fn after_reply(&self, patience: Duration) -> bool {
        !self.sync || self.flush(patience)
    }

    /// What it has done so far.
    pub fn status(&self) -> Status {
        let state = self.shared.ring.state();
        let (paused, trial, pending) = (state.paused, state.trial, state.pending());
        Status { paused, trial, pending, ..self.shared.counters.status() }
    }

    /// The directory of the model's caches, as people write it.
    pub fn folder(&self) -> impl core::fmt::Display {
        self.shared.shown(&names::folder(&self.shared.fingerprint))
    }
}

impl Drop for Store {
    /// What is staged is not written: [`Store::flush`] comes first.
    fn drop(&mut self) {
        let ring = &self.shared.ring;
        ring.state().quit = true;
        ring.wake();
        let thread = self.thread.take();
        // Otherwise the thread is left to itself; it keeps what it needs.
        if ring.wait(LAST_WAIT, &|state| state.ended) {
            thread.into_iter().for_each(Thread::join);
        }
    }
}

impl core::fmt::Debug for Store {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Store").field("folder", &format_args!("{}", self.folder())).finish_non_exhaustive()
    }
}

/// Says when the thread is done.
struct Ended<'a>(&'a Shared);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.ring.state().ended = true;
        self.0.ring.tell();
    }
}
