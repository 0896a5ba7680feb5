//! What a store asks of the place where its files are, so that tests can take another one. Must not know
//! what is in a file.
//!
//! Paths are relative to the store's directory, with `/` between their parts (`names.rs`). No call follows a
//! symbolic link below that directory.

use core::fmt;
use core::time::Duration;
use embedded_io::{ErrorKind, ErrorType, Read, Write};
pub use rustix::io::Errno;

/// Why a call failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IoError(pub Errno);

impl fmt::Display for IoError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl core::error::Error for IoError {}

impl embedded_io::Error for IoError {
    fn kind(&self) -> ErrorKind {
        ErrorKind::Other
    }
}

impl From<Errno> for IoError {
    fn from(errno: Errno) -> Self {
        IoError(errno)
    }
}

/// Seconds since 1970 and nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time {
    /// Seconds since 1970, UTC.
    pub seconds: i64,
    /// 0 to 999,999,999.
    pub nanos: u32,
}

/// What kind of thing a path leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link, a pipe, and so on: never ours.
    Other,
}

/// What is known of a path without opening it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meta {
    /// What it is.
    pub entry: Entry,
    /// Size of a file.
    pub bytes: u64,
    /// When it was last changed, or touched.
    pub mtime: Time,
}

/// A file that is open for reading.
pub trait Source: Read + ErrorType<Error = IoError> {
    /// What is known of it.
    ///
    /// # Errors
    /// The medium's.
    fn meta(&mut self) -> Result<Meta, IoError>;

    /// Sets its time.
    ///
    /// # Errors
    /// The medium's.
    fn touch(&mut self, mtime: Time) -> Result<(), IoError>;
}

/// What writes into a new file.
pub type Fill<'a> = dyn FnMut(&mut dyn Write<Error = IoError>) -> Result<(), IoError> + 'a;

/// A directory of files. Calls come from several threads at once.
pub trait Medium: Send + Sync {
    /// Opens the regular file `path` and hands it to `take`.
    ///
    /// # Errors
    /// It is not there, is no regular file, or cannot be opened.
    fn read(&self, path: &str, take: &mut dyn FnMut(&mut dyn Source)) -> Result<(), IoError>;

    /// Makes the file `path`, which must not exist, has `fill` write into it, sets its time if it can, and
    /// waits until its bytes are durable; its name need not be. After an error there may be a file.
    ///
    /// # Errors
    /// The medium's, `EEXIST` among them, or `fill`'s.
    fn write_new(&self, path: &str, mtime: Time, fill: &mut Fill<'_>) -> Result<(), IoError>;

    /// What `path` is.
    ///
    /// # Errors
    /// It is not there, or the medium's.
    fn meta(&self, path: &str) -> Result<Meta, IoError>;

    /// Gives `from` the name `to`, in the same directory; what had that name is gone.
    ///
    /// # Errors
    /// The medium's.
    fn rename(&self, from: &str, to: &str) -> Result<(), IoError>;

    /// Removes a file.
    ///
    /// # Errors
    /// The medium's.
    fn remove(&self, path: &str) -> Result<(), IoError>;

    /// Makes a directory.
    ///
    /// # Errors
    /// The medium's, `EEXIST` among them.
    fn make_dir(&self, path: &str) -> Result<(), IoError>;

    /// Waits until the names in directory `path` are durable; the empty path is the store's directory.
    ///
    /// # Errors
    /// The medium's.
    fn sync_dir(&self, path: &str) -> Result<(), IoError>;

    /// Calls `each` with the names in directory `path`; it returns whether it wants more. Names that are no
    /// UTF-8 are left out.
    ///
    /// # Errors
    /// The medium's.
    fn list(&self, path: &str, each: &mut dyn FnMut(&str) -> bool) -> Result<(), IoError>;

    /// Looks for the directory again, in case it was replaced.
    ///
    /// # Errors
    /// It is gone.
    fn reopen(&self) -> Result<(), IoError>;

    /// The time that files get.
    fn now(&self) -> Time;

    /// A clock that is never set.
    fn monotonic(&self) -> Duration;
}
