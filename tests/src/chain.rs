//! Sequences of blocks for tests of the store: made up, saved, looked for.

use crate::block;
use crate::random_model::Rng;
use core::time::Duration;
use kinglet::store::{Finished, Found, Lines, Medium, Options, Outcome, Store};
use kinglet_core::KvType;
use kinglet_core::kv::header::HEADER_BYTES;
use kinglet_core::kv::{BLOCK_TOKENS, BlockId, ContentId, Identity, pack};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// Longer than anything here takes: what is waited for this long has failed.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A block or a tail in its place.
#[derive(Clone, Debug)]
pub struct Piece {
    /// What it follows.
    pub parent: BlockId,
    /// Its index in its sequence.
    pub position: u32,
    /// What it holds.
    pub contents: Vec<ContentId>,
    /// The memory of a block. Positions that are not there are zero.
    pub bytes: Vec<u8>,
}

impl Piece {
    /// Its id.
    pub fn id(&self) -> BlockId {
        self.parent.child(&self.contents)
    }

    /// Its file, below the store's directory.
    pub fn path(&self) -> String {
        let folder = identity().fingerprint();
        match self.contents.len() {
            BLOCK_TOKENS => format!("{folder}/{:02x}/{}.kv", self.id().0[0], self.id()),
            _ => format!("{folder}/{:02x}/{}.tail", self.parent.0[0], self.parent),
        }
    }

    /// Bytes of its file.
    pub fn file_bytes(&self) -> u64 {
        HEADER_BYTES as u64 + pack::payload_bytes(&identity().geometry, self.contents.len())
    }
}

/// The identity of all caches here: the smallest blocks there are.
pub fn identity() -> Identity {
    block::identity(block::smallest(KvType::Q8))
}

/// `whole` blocks that follow each other and a tail of `tail` positions, if that is not 0; others for each
/// `seed`.
pub fn chain(seed: u64, whole: usize, tail: usize) -> Vec<Piece> {
    follow(BlockId::root(&identity().fingerprint(), b""), 0, seed, whole, tail)
}

/// The same after a block, as block `position` and so on.
///
/// # Panics
/// If `tail` is more than a block has.
pub fn follow(mut parent: BlockId, position: u32, seed: u64, whole: usize, tail: usize) -> Vec<Piece> {
    let (geometry, mut rng) = (identity().geometry, Rng(seed));
    let counts = core::iter::repeat_n(BLOCK_TOKENS, whole).chain((tail > 0).then_some(tail));
    let mut pieces = Vec::new();
    for (position, count) in (position..).zip(counts) {
        let contents: Vec<ContentId> = (0..count).map(|_| ContentId::token(rng.number())).collect();
        let bytes: Vec<u8> = (0..geometry.block_bytes()).map(|_| rng.number() as u8).collect();
        let bytes = only(&bytes, count);
        pieces.push(Piece { parent, position, contents: contents.clone(), bytes });
        parent = parent.child(&contents);
    }
    pieces
}

/// A block of which the first `count` positions are left.
///
/// # Panics
/// If there are none, or more than a block has.
pub fn only(bytes: &[u8], count: usize) -> Vec<u8> {
    let geometry = identity().geometry;
    let mut out = vec![0; bytes.len()];
    pack::pack(&geometry, count, bytes, &mut out).unwrap();
    pack::unpack(&geometry, count, &mut out).unwrap();
    out
}

/// The tail that a piece was when it had `count` positions.
pub fn beginning(piece: &Piece, count: usize) -> Piece {
    Piece { contents: piece.contents[..count].to_vec(), bytes: only(&piece.bytes, count), ..piece.clone() }
}

/// Lines that a store has said.
#[derive(Clone, Debug, Default)]
pub struct Heard(Arc<Mutex<Vec<String>>>);

impl Heard {
    /// For the store's options.
    pub fn lines(&self) -> Lines {
        let heard = self.0.clone();
        Lines::To(Box::new(move |line| heard.lock().unwrap().push(line.to_string())))
    }

    /// Forgets all of them.
    ///
    /// # Panics
    /// As for [`Heard::with`].
    pub fn forget(&self) {
        self.0.lock().unwrap().clear();
    }

    /// The lines that contain `part`.
    ///
    /// # Panics
    /// If a store panicked while it spoke.
    pub fn with(&self, part: &str) -> Vec<String> {
        self.0.lock().unwrap().iter().filter(|line| line.contains(part)).cloned().collect()
    }
}

/// Waits until `done`.
///
/// # Panics
/// If that takes longer than anything may.
pub fn until(what: &str, done: impl Fn() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < PATIENCE, "waited in vain: {what}");
        std::thread::yield_now();
    }
}

/// Options for tests, without limits.
pub fn options(heard: &Heard) -> Options {
    Options { max_bytes: u64::MAX, lines: heard.lines(), ..Options::new(PathBuf::from("DIR")) }
}

/// Opens a store with four slots.
///
/// # Panics
/// If it cannot be opened.
pub fn open(options: Options, medium: &Arc<impl Medium + 'static>) -> Store {
    Store::open(options, identity(), String::from("made up\n"), 4, medium.clone()).unwrap()
}

/// Opens a store without limits that nobody listens to.
pub fn open_quiet(medium: &Arc<impl Medium + 'static>) -> Store {
    open(Options { lines: Lines::Quiet, ..options(&Heard::default()) }, medium)
}

/// Stages a piece under the number `block`; whether it was taken.
pub fn stage(store: &Store, block: usize, piece: &Piece) -> bool {
    store.stage(block as u32, &piece.parent, piece.position, &piece.contents, &piece.bytes)
}

/// Offers all pieces, each once; what became of each. A piece that was not taken is `Later`.
///
/// # Panics
/// If answers do not come, or do not fit.
pub fn save(store: &Store, pieces: &[Piece]) -> Vec<Outcome> {
    let mut outcomes = vec![Outcome::Later; pieces.len()];
    let mut answer = |Finished { block, id, outcome }| {
        assert_eq!(id, pieces[block as usize].id());
        outcomes[block as usize] = outcome;
    };
    for (i, piece) in pieces.iter().enumerate() {
        while !store.room() && store.status().paused.is_none() {
            assert!(store.wait(PATIENCE));
            store.finished().into_iter().for_each(&mut answer);
        }
        stage(store, i, piece);
    }
    store.flush(PATIENCE);
    while store.status().pending > 0 {
        assert!(store.wait(PATIENCE));
        store.finished().into_iter().for_each(&mut answer);
    }
    while let Some(finished) = store.finished() {
        answer(finished);
    }
    outcomes
}

/// Saves all pieces.
///
/// # Panics
/// If one is not saved.
pub fn save_all(store: &Store, pieces: &[Piece]) {
    assert_eq!(save(store, pieces), vec![Outcome::Saved; pieces.len()]);
}

/// Looks for a piece.
///
/// # Panics
/// If something else is found.
pub fn find(store: &Store, piece: &Piece) -> Found {
    let mut block = vec![0xEE; piece.bytes.len()];
    let found = store.find(&piece.parent, piece.position, &piece.contents, &mut block);
    if found == Found::Hit {
        assert_eq!(only(&block, piece.contents.len()), piece.bytes, "another block was found");
    }
    found
}

/// How many pieces are found before one is not.
pub fn found(store: &Store, pieces: &[Piece]) -> usize {
    pieces.iter().take_while(|piece| find(store, piece) == Found::Hit).count()
}
