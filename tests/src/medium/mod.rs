//! A medium in memory that loses what no sync has made durable, fails when it is told to, and has clocks
//! that are set by hand.
//!
//! File systems promise little: bytes of a file last after its sync, names after that of their directory,
//! in any order and each for itself. Here what is *live* (what calls see) stands apart from what is
//! *durable*; [`MemoryMedium::crash`] makes of both what a power cut may leave.

mod calls;
mod shifted;

pub use shifted::Shifted;

use crate::random_model::Rng;
use core::time::Duration;
use kinglet::store::medium::{Errno, IoError, Medium, Time};
use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, MutexGuard};

/// What of the unsynced a power cut leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// Nothing.
    Nothing,
    /// All of it.
    Everything,
    /// Each name or not, and of each file's bytes a part, by this seed.
    Some(u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Node {
    Directory,
    /// Index in `State::files`.
    File(usize),
    /// A link, a pipe.
    Other,
}

#[derive(Clone, Debug)]
struct FileState {
    live: Vec<u8>,
    durable: Vec<u8>,
    mtime: Time,
}

/// A change of names that is not durable, in a directory.
#[derive(Clone, Debug)]
enum Change {
    Add(String, Node),
    Remove(String),
    Move(String, String, Node),
}

type Names = BTreeMap<String, Node>;

/// What calls fail, and how.
#[derive(Clone, Copy, Debug)]
pub struct Failing {
    /// The first call that fails, counted from 0 over all calls but clocks.
    pub first: u64,
    /// Whether all later ones fail too.
    pub all: bool,
    /// With what.
    pub errno: Errno,
}

#[derive(Debug, Default)]
struct State {
    files: Vec<FileState>,
    live: Names,
    durable: Names,
    changes: Vec<(String, Change)>,
    now: Time,
    monotonic: Duration,
    /// How far `monotonic` goes whenever somebody looks at it.
    hurry: Duration,
    calls: u64,
    failing: Option<Failing>,
    /// Steps (bytes and changing calls) until the power goes.
    steps_left: Option<u64>,
    steps: u64,
    dead: bool,
    /// Most bytes of all files.
    capacity: Option<usize>,
    read_only: bool,
    /// Syncs do nothing, as on a disk that lies.
    lies: bool,
}

/// The medium.
#[derive(Debug, Default)]
pub struct MemoryMedium {
    state: Mutex<State>,
    /// Whether new files have to wait.
    held: Mutex<bool>,
    let_go: Condvar,
}

fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(parent, _)| parent)
}

fn apply(names: &mut Names, change: &Change) {
    match change {
        Change::Add(path, node) => drop(names.insert(path.clone(), *node)),
        Change::Remove(path) => drop(names.remove(path)),
        Change::Move(from, to, node) => {
            names.remove(from);
            names.insert(to.clone(), *node);
        }
    }
}

impl State {
    /// One call of any kind.
    fn call(&mut self) -> Result<(), IoError> {
        let call = self.calls;
        self.calls += 1;
        match self.failing {
            _ if self.dead => Err(IoError(Errno::IO)),
            Some(f) if call == f.first || (f.all && call > f.first) => Err(IoError(f.errno)),
            _ => Ok(()),
        }
    }

    /// A part of a change; after the last one that is allowed the power goes.
    fn step(&mut self) -> Result<(), IoError> {
        if self.read_only {
            return Err(IoError(Errno::ROFS));
        }
        if self.steps_left == Some(0) {
            self.dead = true;
        }
        if self.dead {
            return Err(IoError(Errno::IO));
        }
        self.steps_left = self.steps_left.map(|left| left - 1);
        self.steps += 1;
        Ok(())
    }

    fn node(&self, path: &str) -> Result<Node, IoError> {
        let mut above = path;
        while let Some((parent, _)) = above.rsplit_once('/') {
            above = parent;
            match self.live.get(above) {
                Some(Node::Directory) => {}
                Some(_) => return Err(IoError(Errno::NOTDIR)),
                None => return Err(IoError(Errno::NOENT)),
            }
        }
        if path.is_empty() {
            return Ok(Node::Directory);
        }
        self.live.get(path).copied().ok_or(IoError(Errno::NOENT))
    }

    fn change(&mut self, path: &str, change: Change) {
        apply(&mut self.live, &change);
        self.changes.push((parent(path).to_string(), change));
    }

    fn add(&mut self, path: &str, node: Node) -> Result<(), IoError> {
        match self.node(path) {
            Ok(_) => return Err(IoError(Errno::EXIST)),
            Err(IoError(Errno::NOENT)) if self.node(parent(path)) == Ok(Node::Directory) => {}
            Err(error) => return Err(error),
        }
        self.change(path, Change::Add(path.to_string(), node));
        Ok(())
    }

    fn put(&mut self, path: &str, node: Node) {
        self.live.insert(path.to_string(), node);
        self.durable.insert(path.to_string(), node);
    }

    fn used(&self) -> usize {
        self.live
            .values()
            .map(|node| if let Node::File(i) = node { self.files[*i].live.len() } else { 0 })
            .sum()
    }
}

/// What tests do to it.
impl MemoryMedium {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// New files wait from now on, as on a disk that hangs, or no longer.
    pub fn hold_writes(&self, held: bool) {
        *self.held.lock().unwrap_or_else(|e| e.into_inner()) = held;
        self.let_go.notify_all();
    }

    fn pass_gate(&self) {
        let held = self.held.lock().unwrap_or_else(|e| e.into_inner());
        drop(self.let_go.wait_while(held, |held| *held).unwrap_or_else(|e| e.into_inner()));
    }

    /// An empty directory in 2001.
    pub fn new() -> MemoryMedium {
        let medium = MemoryMedium::default();
        medium.set_clock(1_000_000_000);
        medium
    }

    /// What is there after the power was cut now, and came back.
    pub fn crash(&self, keep: Keep) -> MemoryMedium {
        let state = self.state();
        // Spread, since the generator makes much the same of seeds that follow each other.
        let seed = if let Keep::Some(seed) = keep { seed } else { 0 };
        let mut rng = Rng(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0x5DEE_CE66);
        let mut lengths = Rng(!rng.0);
        let mut coin = |keep: Keep| match keep {
            Keep::Nothing => false,
            Keep::Everything => true,
            Keep::Some(_) => rng.number() & 1 << 20 != 0,
        };
        let mut names = state.durable.clone();
        for (_, change) in &state.changes {
            if coin(keep) {
                apply(&mut names, change);
            }
        }
        let directories: Vec<String> = names
            .iter()
            .filter(|(_, node)| **node == Node::Directory)
            .map(|(path, _)| path.clone())
            .collect();
        names.retain(|path, _| {
            let mut above = parent(path);
            while !above.is_empty() && directories.binary_search_by(|d| d.as_str().cmp(above)).is_ok() {
                above = parent(above);
            }
            above.is_empty()
        });
        let mut files = state.files.clone();
        for file in &mut files {
            if file.live != file.durable {
                // Its length may be there without its bytes.
                let (whole, zeros) = (coin(keep), coin(keep));
                match keep {
                    Keep::Nothing => file.live = file.durable.clone(),
                    Keep::Everything => {}
                    Keep::Some(_) if !whole => {
                        let kept = lengths.number() as usize % (file.live.len() + 1);
                        if zeros { file.live[kept..].fill(0) } else { file.live.truncate(kept) }
                    }
                    Keep::Some(_) => {}
                }
            }
            file.durable = file.live.clone();
        }
        let (now, monotonic) = (state.now, state.monotonic);
        let state = State { files, durable: names.clone(), live: names, now, monotonic, ..State::default() };
        MemoryMedium { state: Mutex::new(state), ..MemoryMedium::default() }
    }

    /// Cuts the power after so many more steps: bytes written, and calls that change something.
    pub fn cut_after(&self, steps: u64) {
        self.state().steps_left = Some(steps);
    }

    /// Whether the power is gone.
    pub fn is_dead(&self) -> bool {
        self.state().dead
    }

    /// Bytes written and changing calls so far.
    pub fn steps(&self) -> u64 {
        self.state().steps
    }

    /// Calls so far.
    pub fn calls(&self) -> u64 {
        self.state().calls
    }

    /// Has calls fail, or all succeed again.
    pub fn fail(&self, failing: Option<Failing>) {
        self.state().failing = failing;
    }

    /// Room for so many bytes.
    pub fn set_capacity(&self, bytes: Option<usize>) {
        self.state().capacity = bytes;
    }

    /// Whether nothing can be changed.
    pub fn set_read_only(&self, read_only: bool) {
        self.state().read_only = read_only;
    }

    /// Syncs do nothing from now on.
    pub fn lie(&self) {
        self.state().lies = true;
    }

    /// Sets the clock that gives files their times.
    pub fn set_clock(&self, seconds: i64) {
        self.state().now = Time { seconds, nanos: 0 };
    }

    /// Lets both clocks run.
    pub fn pass(&self, time: Duration) {
        let mut state = self.state();
        state.now.seconds += time.as_secs() as i64;
        state.monotonic += time;
    }

    /// From now on so much time passes whenever somebody looks at the clock that is never set: whoever waits
    /// by it need not wait, whoever forgets to look waits for ever.
    pub fn hurry(&self, time: Duration) {
        self.state().hurry = time;
    }

    /// The bytes of all files by their paths.
    pub fn files(&self) -> BTreeMap<String, Vec<u8>> {
        let state = self.state();
        let files = state.live.iter();
        files
            .filter_map(|(path, node)| match node {
                Node::File(i) => Some((path.clone(), state.files[*i].live.clone())),
                _ => None,
            })
            .collect()
    }

    /// The time of a file.
    ///
    /// # Panics
    /// If there is none.
    pub fn mtime(&self, path: &str) -> Time {
        self.meta(path).unwrap().mtime
    }

    /// Makes a file, in place of one that is there. Nothing fails, all is durable.
    pub fn put(&self, path: &str, bytes: &[u8]) {
        let mut state = self.state();
        let file = state.files.len();
        let mtime = state.now;
        state.files.push(FileState { live: bytes.to_vec(), durable: bytes.to_vec(), mtime });
        state.put(path, Node::File(file));
    }

    /// Makes something that is neither a file nor a directory.
    pub fn put_other(&self, path: &str) {
        self.state().put(path, Node::Other);
    }

    /// Makes a directory.
    pub fn put_dir(&self, path: &str) {
        self.state().put(path, Node::Directory);
    }

    /// Whether there is something that is neither a file nor a directory.
    pub fn is_other(&self, path: &str) -> bool {
        self.state().live.get(path) == Some(&Node::Other)
    }

    /// Takes a path away, and all below it.
    pub fn take(&self, path: &str) {
        let below = format!("{path}/");
        let mut state = self.state();
        let gone = |name: &String| name == path || name.starts_with(&below) || path.is_empty();
        state.live.retain(|name, _| !gone(name));
        state.durable.retain(|name, _| !gone(name));
    }
}
