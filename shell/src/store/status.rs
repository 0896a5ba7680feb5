//! What a store has done, and why it does not. Must not know how.

use super::medium::IoError;
use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering};

/// Why nothing is written. What is stored is read all the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pause {
    /// The medium refuses.
    Io(IoError),
    /// The day's bytes are written.
    Budget,
    /// Something that is no regular file is in the way.
    InTheWay,
}

impl fmt::Display for Pause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Pause::Io(error) => error.fmt(f),
            Pause::Budget => write!(f, "the daily write budget is spent"),
            Pause::InTheWay => write!(f, "is no regular file; remove it"),
        }
    }
}

/// A look at a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// Files written.
    pub blocks_saved: u64,
    /// Bytes of them.
    pub bytes_written: u64,
    /// Blocks and tails read.
    pub blocks_loaded: u64,
    /// Bytes of all files that count for the limit; `None` until they were counted.
    pub bytes_on_disk: Option<u64>,
    /// Number of these files.
    pub files: Option<u64>,
    /// Files that were set aside.
    pub bad: u64,
    /// Files removed for the limit.
    pub evicted: u64,
    /// Blocks that were there already.
    pub skipped_existing: u64,
    /// Why nothing is written.
    pub paused: Option<Pause>,
    /// Whether a block may be tried in spite of that.
    pub trial: bool,
    /// Blocks that are staged and not yet answered.
    pub pending: usize,
}

/// A number that only grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds to it.
    pub fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A number that may be unknown.
#[derive(Debug)]
pub struct Gauge(AtomicU64);

impl Default for Gauge {
    fn default() -> Self {
        Gauge(AtomicU64::new(u64::MAX))
    }
}

impl Gauge {
    /// Sets it.
    pub fn set(&self, n: Option<u64>) {
        self.0.store(n.unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    fn get(&self) -> Option<u64> {
        Some(self.0.load(Ordering::Relaxed)).filter(|n| *n != u64::MAX)
    }
}

/// The numbers behind a [`Status`].
#[derive(Debug, Default)]
#[expect(missing_docs, reason = "as in `Status`")]
pub struct Counters {
    pub blocks_saved: Counter,
    pub bytes_written: Counter,
    pub blocks_loaded: Counter,
    pub bytes_on_disk: Gauge,
    pub files: Gauge,
    pub bad: Counter,
    pub evicted: Counter,
    pub skipped_existing: Counter,
}

impl Counters {
    /// All of them.
    pub fn status(&self) -> Status {
        Status {
            blocks_saved: self.blocks_saved.get(),
            bytes_written: self.bytes_written.get(),
            blocks_loaded: self.blocks_loaded.get(),
            bytes_on_disk: self.bytes_on_disk.get(),
            files: self.files.get(),
            bad: self.bad.get(),
            evicted: self.evicted.get(),
            skipped_existing: self.skipped_existing.get(),
            ..Status::default()
        }
    }
}
