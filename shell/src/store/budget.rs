//! Bytes that may be written in a day: flash wears out. Must not know what is written.
//!
//! The count stands in the directory, so that it outlives the process and several processes share it. They
//! take no lock: each adds what it wrote since it last looked, and two at the same moment may lose one
//! of two batches. Days are those of UTC.

use super::medium::{Entry, Errno, IoError, Medium, Time};
use super::names::{Name, WRITTEN};
use super::shared::{Trouble, read_small, replace};
use super::status::Pause;

const DAY_SECONDS: i64 = 24 * 60 * 60;

/// The count of a day.
#[derive(Debug)]
pub struct Budget {
    /// Bytes a day.
    limit: u64,
    /// Days since 1970.
    day: i64,
    /// Bytes written on that day, by everybody.
    spent: u64,
    /// Bytes of them that are not in the file.
    unsaved: u64,
}

impl Budget {
    /// `limit` bytes a day; what is spent is not known until [`Budget::count`].
    pub fn new(limit: u64) -> Budget {
        Budget { limit, day: i64::MIN, spent: 0, unsaved: 0 }
    }

    /// Whether `bytes` more may be written now.
    pub fn allows(&mut self, now: Time, bytes: u64) -> bool {
        self.turn(now);
        self.spent.saturating_add(bytes) <= self.limit
    }

    /// Begins a new day, if it is one; gives its number. A clock that goes back begins none.
    fn turn(&mut self, now: Time) -> i64 {
        let today = now.seconds.div_euclid(DAY_SECONDS);
        if self.day < today {
            (self.spent, self.unsaved) = (0, 0);
        }
        self.day = today;
        today
    }

    /// These bytes are going to be written.
    pub fn spend(&mut self, bytes: u64) {
        self.spent = self.spent.saturating_add(bytes);
        self.unsaved = self.unsaved.saturating_add(bytes);
    }

    /// Reads what others wrote, adds our own, and writes that if it is news.
    ///
    /// A day that lies in the future (a clock was wrong, or is) counts as today, and is written as today:
    /// what was spent stays spent, but only until the next day.
    ///
    /// # Errors
    /// The medium's, or something else has the file's name.
    pub fn count(&mut self, medium: &dyn Medium, n: u64) -> Result<(), Trouble> {
        let name = Name::new(format_args!("{WRITTEN}"));
        let today = self.turn(medium.now());
        let mut text = [0; 128];
        let text = match read_small(medium, &name, &mut text) {
            Ok(text) => text,
            Err(IoError(Errno::NOENT)) => &[],
            Err(_) if medium.meta(name.as_str()).is_ok_and(|meta| meta.entry != Entry::File) => {
                return Err(Trouble { name, why: Pause::InTheWay });
            }
            Err(error) => return Err(Trouble { name, why: Pause::Io(error) }),
        };
        // A file that makes no sense says that nothing was written.
        let (day, bytes) = parse(text).unwrap_or((i64::MIN, 0));
        let before = if day < today { 0 } else { bytes };
        self.spent = before.saturating_add(self.unsaved);
        if self.unsaved > 0 || day > today {
            let text =
                Name::new(format_args!("{today} {} (day since 1970, bytes written on it)\n", self.spent));
            replace(medium, &name, text.as_str().as_bytes(), n)?;
            self.unsaved = 0;
        }
        Ok(())
    }
}

fn parse(text: &[u8]) -> Option<(i64, u64)> {
    let mut words = core::str::from_utf8(text).ok()?.split_ascii_whitespace();
    Some((words.next()?.parse().ok()?, words.next()?.parse().ok()?))
}
