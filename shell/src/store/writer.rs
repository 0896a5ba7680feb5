//! The thread that writes: batches of blocks, and between them a count of what is there; when the medium
//! refuses it pauses. Must not know how a block is written.

use super::budget::Budget;
use super::census::Census;
use super::folder;
use super::ring::Outcome;
use super::shared::{Shared, Trouble};
use super::status::Pause;
use core::time::Duration;
use kinglet_core::kv::header::HEADER_BYTES;

/// How long nothing is tried after a failure.
pub const BACK_OFF: Duration = Duration::from_secs(30);
/// A set of first bytes of ids.
#[derive(Clone, Copy, Default)]
pub struct Firsts([u64; 4]);

impl Firsts {
    /// Whether it is in the set.
    pub fn has(&self, first: u8) -> bool {
        self.0[usize::from(first) / 64] >> (first % 64) & 1 != 0
    }

    /// Puts it in.
    pub fn put(&mut self, first: u8) {
        self.0[usize::from(first) / 64] |= 1 << (first % 64);
    }
}

/// A block of the batch.
pub struct Done {
    /// Where it is.
    pub slot: usize,
    /// What is to be answered.
    pub outcome: Outcome,
    /// Whether a file was written for it.
    pub written: bool,
}

/// What the thread knows.
pub struct Writer<'a> {
    /// What others see.
    pub shared: &'a Shared,
    /// What is there.
    pub census: Census,
    /// What may be written today.
    pub budget: Option<Budget>,
    /// Whether the fingerprint's folder is there and described.
    pub ready: bool,
    /// Folders of blocks whose own names are durable.
    pub known: Firsts,
    /// Folders of blocks in which names are not durable.
    pub dirty: Firsts,
    /// The same of the fingerprint's folder.
    pub dirty_folder: bool,
    /// The same of the directory.
    pub dirty_root: bool,
    /// Blocks that are not answered yet.
    pub batch: Vec<Done>,
    /// Whether it was said that the limit is too small.
    pub no_room_said: bool,
    /// The clock that is never set, at which writing is tried again.
    retry_at: Duration,
    /// The same for counting.
    count_at: Duration,
    /// The last number of a temporary file.
    pub n: u64,
}

impl<'a> Writer<'a> {
    /// Nothing is done yet.
    pub fn new(shared: &'a Shared) -> Self {
        let now = shared.medium.now();
        Writer {
            shared,
            census: Census::new(),
            budget: shared.daily_write_bytes.map(Budget::new),
            ready: false,
            known: Firsts::default(),
            dirty: Firsts::default(),
            dirty_folder: false,
            // It may have been made by somebody who did not wait for it.
            dirty_root: true,
            batch: Vec::with_capacity(shared.ring.slots()),
            no_room_said: false,
            retry_at: Duration::ZERO,
            count_at: Duration::ZERO,
            // Process numbers say little: in containers all are 1, and others count the same.
            n: (now.seconds as u64) << 32 ^ u64::from(now.nanos) << 2 ^ u64::from(std::process::id()) << 40,
        }
    }

    /// Writes until the store ends.
    pub fn run(&mut self) {
        self.start();
        while !self.shared.ring.state().quit {
            self.turn();
        }
    }

    /// What the first block would do, done early: other models are named before that.
    fn start(&mut self) {
        let prepared = self.prepare().and_then(|new| {
            if new {
                folder::compare(self.shared);
            }
            self.count_budget()
        });
        if let Err(trouble) = prepared {
            self.pause(&trouble);
        }
    }

    fn turn(&mut self) {
        let ring = &self.shared.ring;
        let mut patience = None;
        let (paused, trial) = {
            let state = ring.state();
            (state.paused, state.trial)
        };
        if let Some(why) = paused
            && !trial
        {
            // What was staged meanwhile may be offered again.
            while let Some(slot) = ring.take() {
                ring.report(slot, Outcome::Later);
            }
            patience = self.until(self.retry_at);
            if patience.is_none() {
                return self.try_again(why);
            }
        } else if let Some(slot) = ring.take() {
            self.batch(slot);
            if ring.state().paused.is_some() {
                // It may be a new pause: how long to sleep is found out at the next turn.
                return;
            }
        }
        // Counting is reading, which a pause does not stop.
        if let Some(left) = self.until(self.count_at) {
            return ring.sleep(Some(patience.map_or(left, |patience| patience.min(left))));
        }
        match self.census.step(self.shared) {
            Ok(true) => {}
            Ok(false) => ring.sleep(patience),
            Err(trouble) => {
                self.count_at = self.shared.medium.monotonic() + BACK_OFF;
                self.pause(&trouble);
            }
        }
    }

    /// How long it is until `time`; `None` if that is over.
    fn until(&self, time: Duration) -> Option<Duration> {
        Some(time.saturating_sub(self.shared.medium.monotonic())).filter(|left| !left.is_zero())
    }

    /// After a pause: whether a block may be tried.
    fn try_again(&mut self, why: Pause) {
        if why != Pause::Budget {
            // The directory may be another one now.
            let _ = self.shared.medium.reopen();
            self.ready = false;
        }
        let counted = self.count_budget();
        let now = self.shared.medium.now();
        let one = (HEADER_BYTES + self.shared.identity.geometry.block_bytes()) as u64;
        match counted {
            Err(trouble) => return self.pause(&trouble),
            Ok(()) if self.budget.as_mut().is_some_and(|budget| !budget.allows(now, one)) => {
                self.retry_at = self.shared.medium.monotonic() + BACK_OFF;
                return;
            }
            Ok(()) => {}
        }
        self.shared.ring.state().trial = true;
        self.shared.ring.tell();
    }

    /// Brings the count of the day up to date.
    pub fn count_budget(&mut self) -> Result<(), Trouble> {
        let n = self.number();
        self.budget.as_mut().map_or(Ok(()), |budget| budget.count(&*self.shared.medium, n))
    }

    /// A number that no other temporary file has.
    pub fn number(&mut self) -> u64 {
        self.n = self.n.wrapping_add(1);
        self.n
    }

    /// Sees to the fingerprint's folder; whether it is new.
    pub fn prepare(&mut self) -> Result<bool, Trouble> {
        if self.ready {
            return Ok(false);
        }
        self.known = Firsts::default();
        let shared = self.shared;
        let new = folder::prepare(shared, &mut || self.number())?;
        (self.ready, self.dirty_root) = (true, true);
        Ok(new)
    }

    /// Stops writing for a while. It is said once for each reason.
    pub fn pause(&mut self, trouble: &Trouble) {
        self.retry_at = self.shared.medium.monotonic() + BACK_OFF;
        let before = {
            let mut state = self.shared.ring.state();
            state.trial = false;
            state.paused.replace(trouble.why)
        };
        self.shared.ring.tell();
        if before == Some(trouble.why) {
            return;
        }
        let lines = &self.shared.lines;
        match trouble.why {
            Pause::Budget => {
                lines.say(format_args!("paused: {}; nothing is saved until tomorrow", trouble.why))
            }
            why => {
                let (file, seconds) = (self.shared.shown(&trouble.name), BACK_OFF.as_secs());
                lines.say(format_args!(
                    "paused: {file}: {why}; nothing is saved, tried again every {seconds} s"
                ));
            }
        }
    }

    /// Writing works, perhaps again.
    pub fn resume(&mut self) {
        let before = {
            let mut state = self.shared.ring.state();
            state.trial = false;
            state.paused.take()
        };
        if before.is_some() {
            self.shared.lines.say(format_args!("saving again"));
        }
    }
}
