//! Another medium with a clock that tests can put forward.

use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;
use kinglet::store::medium::{Fill, IoError, Medium, Meta, Source, Time};

/// A medium, and how far its clock is ahead.
#[derive(Debug)]
pub struct Shifted<M> {
    medium: M,
    ahead_seconds: AtomicU64,
}

impl<M: Medium> Shifted<M> {
    /// With the right time.
    pub fn new(medium: M) -> Self {
        Shifted { medium, ahead_seconds: AtomicU64::new(0) }
    }

    /// Lets both clocks run.
    pub fn pass(&self, time: Duration) {
        self.ahead_seconds.fetch_add(time.as_secs(), Ordering::SeqCst);
    }

    fn ahead(&self) -> u64 {
        self.ahead_seconds.load(Ordering::SeqCst)
    }
}

impl<M: Medium> Medium for Shifted<M> {
    fn read(&self, path: &str, take: &mut dyn FnMut(&mut dyn Source)) -> Result<(), IoError> {
        self.medium.read(path, take)
    }

    fn write_new(&self, path: &str, mtime: Time, fill: &mut Fill<'_>) -> Result<(), IoError> {
        self.medium.write_new(path, mtime, fill)
    }

    fn meta(&self, path: &str) -> Result<Meta, IoError> {
        self.medium.meta(path)
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), IoError> {
        self.medium.rename(from, to)
    }

    fn remove(&self, path: &str) -> Result<(), IoError> {
        self.medium.remove(path)
    }

    fn make_dir(&self, path: &str) -> Result<(), IoError> {
        self.medium.make_dir(path)
    }

    fn sync_dir(&self, path: &str) -> Result<(), IoError> {
        self.medium.sync_dir(path)
    }

    fn list(&self, path: &str, each: &mut dyn FnMut(&str) -> bool) -> Result<(), IoError> {
        self.medium.list(path, each)
    }

    fn reopen(&self) -> Result<(), IoError> {
        self.medium.reopen()
    }

    fn now(&self) -> Time {
        let now = self.medium.now();
        Time { seconds: now.seconds + self.ahead() as i64, ..now }
    }

    fn monotonic(&self) -> Duration {
        self.medium.monotonic() + Duration::from_secs(self.ahead())
    }
}
