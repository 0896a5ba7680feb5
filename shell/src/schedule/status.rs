//! Numbers for those who watch. Must not know what prompts and replies say.

use super::Timings;
use crate::generate::Stop;
use crate::store;
use core::time::Duration;
use kinglet_core::Engine;
use kinglet_core::kv::{BLOCK_TOKENS, SaveState};
use std::time::Instant;

/// A look at a scheduler. `accepted = ended + cancelled + failed + active + queued` while it runs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Status {
    /// Most sequences at once.
    pub parallel: usize,
    /// Jobs that are computed, or wait for the disk only (`--disk-kv-sync`).
    pub active: usize,
    /// Jobs that wait.
    pub queued: usize,
    /// Whether no new ones are taken.
    pub stopping: bool,
    /// What was done so far.
    pub totals: Totals,
    /// Tokens of prompts computed per second, in the last seconds in which there were any.
    pub prompt_rate: f64,
    /// Tokens of replies per second, of all of them together, likewise.
    pub decode_rate: f64,
    /// The blocks of the cache in memory.
    pub kv: KvCounts,
    /// The cache on disk, if there is one.
    pub store: Option<store::Status>,
    /// Its folder.
    pub folder: Option<String>,
    /// The places of the batch.
    pub slots: Vec<Slot>,
    /// Jobs that ended, the latest last.
    pub last: Vec<Last>,
}

/// Sums since the start. Tokens and times are those of jobs that are over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Jobs accepted.
    pub accepted: u64,
    /// Jobs refused because the queue was full.
    pub refused: u64,
    /// Jobs that ended by themselves.
    pub ended: u64,
    /// Jobs that were cancelled.
    pub cancelled: u64,
    /// Jobs that failed.
    pub failed: u64,
    /// How often a job had to give its blocks to others for a while.
    pub preempted: u64,
    /// How often memory was given back because nothing was to be done.
    pub trims: u64,
    /// Tokens of prompts.
    pub prompt_tokens: u64,
    /// Of those, found in memory or on disk.
    pub cached_tokens: u64,
    /// Of those, found on disk.
    pub disk_tokens: u64,
    /// Tokens picked.
    pub decoded_tokens: u64,
    /// Time for prompts.
    pub prefill: Duration,
    /// Time for replies.
    pub decode: Duration,
}

/// How the blocks are used: `blocks = free + cached + private + shared`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KvCounts {
    /// All of them, of [`BLOCK_TOKENS`] tokens.
    pub blocks: usize,
    /// Nothing in them.
    pub free: usize,
    /// In no sequence, but found again.
    pub cached: usize,
    /// In one sequence.
    pub private: usize,
    /// In several.
    pub shared: usize,
    /// Of all, those that are never evicted.
    pub pinned: usize,
    /// Of all, those that are on disk.
    pub saved: usize,
    /// Whole, and yet to be saved.
    pub unsaved: usize,
    /// Evicted so far.
    pub evicted: u64,
    /// Tokens of a block.
    pub block_tokens: usize,
}

/// What a place of the batch does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SlotState {
    /// Nothing.
    #[default]
    Idle,
    /// Waits for another job that computes the same prefix.
    Waiting,
    /// Computes a prompt.
    Prefill,
    /// Writes a reply.
    Decode,
}

impl SlotState {
    /// In one word.
    pub const fn name(self) -> &'static str {
        match self {
            SlotState::Idle => "idle",
            SlotState::Waiting => "waiting",
            SlotState::Prefill => "prefill",
            SlotState::Decode => "decode",
        }
    }
}

/// A place of the batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slot {
    /// What it does.
    pub state: SlotState,
    /// The number of its job ([`super::Ticket::serial`]); 0 if it is idle.
    pub serial: u64,
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Tokens whose keys and values are there.
    pub done_tokens: usize,
    /// Tokens picked.
    pub decoded_tokens: usize,
}

/// A job that is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Last {
    /// Its number.
    pub serial: u64,
    /// Why it ended; `None` if it failed.
    pub why: Option<Stop>,
    /// Where its time went.
    pub timings: Timings,
    /// When it ended.
    pub ended: Instant,
}

/// Looks at all blocks: counts them, and puts a byte for each into `map` ([`super::Scheduler::kv_map`]).
pub(super) fn look(engine: &Engine<'_>, map: &mut Vec<u8>) -> KvCounts {
    let (pool, stats) = (engine.pool(), engine.stats());
    map.clear();
    let mut saved = 0;
    for block in 0..stats.blocks as u32 {
        let Some(info) = pool.info(block) else { break };
        let kind = match (info.pinned, info.refs, info.indexed) {
            (true, ..) => 4,
            (_, 0, false) => 0,
            (_, 0, true) => 1,
            (_, 1, _) => 2,
            _ => 3,
        };
        let is_saved = info.save == SaveState::Saved && info.contents.len() == BLOCK_TOKENS;
        saved += usize::from(is_saved);
        map.push(kind + 8 * u8::from(is_saved));
    }
    KvCounts {
        blocks: stats.blocks,
        free: stats.blank,
        cached: stats.cached,
        private: stats.held - stats.shared,
        shared: stats.shared,
        pinned: stats.pinned,
        saved,
        unsaved: stats.unsaved,
        evicted: stats.evicted,
        block_tokens: BLOCK_TOKENS,
    }
}
