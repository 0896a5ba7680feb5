//! The life of the KV of prompts: found in memory, else on disk, else computed; and saved while more is
//! computed. Must not know who asks, or how blocks become files.
//!
//! Nothing in here waits for the disk but reads and [`Cache::flush`], and nothing allocates after the start:
//! blocks go to the writer through buffers that exist since then.

use crate::decimal::fixed;
use crate::failure::Failure;
use crate::loader::Model;
use crate::setup::Setup;
use crate::store::{Found, Lines, Options, Outcome, Store};
use core::cell::Cell;
use core::fmt;
use core::time::Duration;
use kinglet_core::kv::{BLOCK_TOKENS, BlockId, ContentId, Geometry, Identity, MIN_REUSE, SaveState};
use kinglet_core::{Config, Engine, Limits, SeqId};
use std::time::Instant;

/// How long to wait for the writer at a time.
const TICK: Duration = Duration::from_millis(50);

/// Where a prompt's beginning came from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reused {
    /// Tokens that need not be computed.
    pub tokens: usize,
    /// How many of them came from disk.
    pub disk: usize,
    /// Time for finding, reading, checking and placing them.
    pub time: Duration,
}

/// What finds and keeps the KV of sequences.
pub struct Cache {
    store: Option<Store>,
    reuse: bool,
    fingerprint: BlockId,
    /// The prompt at hand; room for the whole context.
    contents: Vec<ContentId>,
    /// What was read last from disk: the parent and how much of `contents` it is the end of.
    last: Option<(BlockId, usize, usize)>,
    /// Blocks handed to the writer, and answers to them: it answers in order.
    staged: Cell<u64>,
    answered: Cell<u64>,
    /// The last answer that was "later" and the last that was "never", counted as those are; 0 for none.
    later: Cell<u64>,
    refused: Cell<u64>,
}

/// What is known of blocks that were handed to the writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// An answer is missing.
    Pending,
    /// All are saved.
    Saved,
    /// Some are not, and may be offered again.
    Later,
    /// Some cannot be saved: there is no room on the disk.
    Refused,
}

/// Buffers for blocks on their way to the disk: a batch of the engine may end in as many at once, and the
/// writer works on others meanwhile.
fn slots(limits: &Limits) -> usize {
    limits.max_batch.div_ceil(BLOCK_TOKENS) + 2
}

/// Bytes of these buffers, if there is a cache on disk.
pub fn buffer_bytes(setup: &Setup, config: &Config, limits: &Limits) -> usize {
    let block = Geometry::of(config, limits.kv_type).block_bytes();
    if setup.cache.disk.is_some() { slots(limits).saturating_mul(block) } else { 0 }
}

impl Cache {
    /// As the flags want it, for the caches of a model.
    ///
    /// # Errors
    /// The folder on disk cannot be used; a limit that is too small.
    pub fn open(model: &Model, setup: &Setup, config: &Config, limits: &Limits) -> Result<Cache, Failure> {
        let flags = &setup.cache;
        // Within a process there is one model; pages of its weights need not be read for that.
        let mut fingerprint = BlockId::default();
        let store = match &flags.disk {
            None => None,
            Some(dir) => {
                let identity = Identity::of(&model.gguf, model.bytes, config, limits.kv_type);
                fingerprint = identity.fingerprint();
                let options = Options {
                    dir: dir.clone(),
                    max_bytes: flags.max_bytes,
                    max_files: flags.max_files,
                    daily_write_bytes: flags.daily_write_bytes,
                    sync: flags.sync,
                    lines: if setup.quiet { Lines::Quiet } else { Lines::Stderr },
                };
                Some(Store::on_disk(options, identity, about(model, config, limits), slots(limits))?)
            }
        };
        Ok(Cache {
            store,
            reuse: flags.reuse,
            fingerprint,
            contents: Vec::with_capacity(limits.max_seq),
            last: None,
            staged: Cell::new(0),
            answered: Cell::new(0),
            later: Cell::new(0),
            refused: Cell::new(0),
        })
    }

    /// Tells an engine what is expected of it.
    pub fn attach(&self, engine: &mut Engine<'_>) {
        engine.track_saves(self.store.is_some());
    }

    /// What sequences with `salt` follow: they find nothing of those with another.
    pub fn root(&self, salt: &[u8]) -> BlockId {
        BlockId::root(&self.fingerprint, salt)
    }

    /// The store on disk, if there is one.
    pub fn store(&self) -> Option<&Store> {
        self.store.as_ref()
    }

    /// Opens a sequence for a prompt with what memory and disk have of its first `most` tokens, token by
    /// token exactly. The last token is always left to be computed, for its logits.
    ///
    /// # Errors
    /// No place for a sequence; the prompt is longer than the context.
    pub fn admit(
        &mut self,
        engine: &mut Engine<'_>,
        root: BlockId,
        ids: &[u32],
        most: usize,
    ) -> Result<(SeqId, Reused), Failure> {
        let start = Instant::now();
        let seq = engine.open_under(root).map_err(Failure::new)?;
        let most = most.min(ids.len().saturating_sub(1));
        self.last = None;
        if !self.reuse || most < MIN_REUSE {
            return Ok((seq, Reused::default()));
        }
        self.contents.clear();
        self.contents.extend(ids.iter().map(|id| ContentId::token(*id)));
        let found = self.find(engine, seq, most);
        let (tokens, disk) = found.inspect_err(|_| {
            let _ = engine.close(seq);
        })?;
        if tokens < MIN_REUSE {
            engine.truncate(seq, 0).map_err(Failure::new)?;
            return Ok((seq, Reused::default()));
        }
        Ok((seq, Reused { tokens, disk, time: start.elapsed() }))
    }

    /// Fills `seq`; how many tokens it has then, and how many of them came from disk.
    fn find(&mut self, engine: &mut Engine<'_>, seq: SeqId, most: usize) -> Result<(usize, usize), Failure> {
        let known = &self.contents[..most];
        let ram = engine.reuse_blocks(seq, known).map_err(Failure::new)?;
        self.save_again(engine, seq);
        let mut len = ram;
        while len + BLOCK_TOKENS <= most && self.load(engine, seq, len, len + BLOCK_TOKENS, BLOCK_TOKENS)? {
            len += BLOCK_TOKENS;
        }
        let disk = len - ram + self.find_part(engine, seq, len, most)?;
        Ok((engine.len(seq).map_err(Failure::new)?, disk))
    }

    /// Blocks found in memory were saved once, but another process that needed room, or a person, may have
    /// removed their files since. What follows them could never be found then, so they are saved again.
    fn save_again(&self, engine: &mut Engine<'_>, seq: SeqId) {
        let Some(store) = &self.store else { return };
        let is_saved = |engine: &Engine<'_>, block: u32| {
            engine.pool().info(block).filter(|info| info.save == SaveState::Saved).map(|info| info.id)
        };
        let blocks = engine.pool().table(seq).map_or(0, <[u32]>::len);
        let mut gone = false;
        // Files go from the end of a chain to its beginning: the last one speaks for all.
        for i in (0..blocks).rev() {
            let block = engine.pool().table(seq).map_or(0, |table| table[i]);
            let Some(id) = is_saved(engine, block) else { continue };
            if !gone && store.has(&id) {
                return;
            }
            gone = true;
            engine.set_save_state(block, &id, SaveState::Unsaved);
        }
    }

    /// Takes what there is of the block that begins at `len`: from memory, or from disk if that has more;
    /// how many tokens came from disk.
    fn find_part(
        &mut self,
        engine: &mut Engine<'_>,
        seq: SeqId,
        len: usize,
        most: usize,
    ) -> Result<usize, Failure> {
        if len == most {
            return Ok(0);
        }
        let part = engine.reuse_part(seq, &self.contents[..most]).map_err(Failure::new)? - len;
        if len + part == most || self.store.is_none() {
            return Ok(0);
        }
        // The whole block may be there though only its beginning is wanted, as for a prompt that is asked
        // again: then all of its contents are known.
        let end = len + BLOCK_TOKENS;
        let whole = (most < end && end <= self.contents.len()).then_some((end, most - len));
        engine.truncate(seq, len).map_err(Failure::new)?;
        let tail = self.tail(engine, seq, len, most)?;
        for (end, count) in whole.into_iter().chain([(len + tail, tail)]) {
            if count > part && self.load(engine, seq, len, end, count)? {
                return Ok(count);
            }
        }
        engine.reuse_part(seq, &self.contents[..most]).map_err(Failure::new)?;
        Ok(0)
    }

    /// How much of what is wanted after `len` a tail on disk has.
    fn tail(&self, engine: &Engine<'_>, seq: SeqId, len: usize, most: usize) -> Result<usize, Failure> {
        let parent = engine.parent_id(seq).map_err(Failure::new)?;
        let wanted = &self.contents[len..most.min(len + BLOCK_TOKENS - 1)];
        Ok(self.store.as_ref().map_or(0, |store| store.tail(&parent, (len / BLOCK_TOKENS) as u32, wanted)))
    }

    /// Loads the block of `contents[len..end]`, of which the sequence gets the first `count` tokens.
    fn load(
        &mut self,
        engine: &mut Engine<'_>,
        seq: SeqId,
        len: usize,
        end: usize,
        count: usize,
    ) -> Result<bool, Failure> {
        let Some(store) = &self.store else { return Ok(false) };
        let parent = engine.parent_id(seq).map_err(Failure::new)?;
        let contents = &self.contents[len..end];
        let position = (len / BLOCK_TOKENS) as u32;
        let loaded = engine.load(seq, &contents[..count], &mut |block| {
            store.find(&parent, position, contents, block) == Found::Hit
        });
        match loaded {
            Ok(true) => {
                self.last = Some((parent, len, end));
                Ok(true)
            }
            // All blocks are in use: what is not loaded is computed, which will say so if it cannot be.
            Ok(false) | Err(kinglet_core::kv::KvError::OutOfBlocks { .. }) => Ok(false),
            Err(e) => Err(Failure::new(e)),
        }
    }

    /// Lines about what [`Cache::admit`] found.
    pub fn tell_reused(&self, setup: &Setup, reused: &Reused) {
        let tokens = reused.tokens;
        if tokens > 0 {
            setup.tell(format_args!("[KV-PREFIX] reused {tokens} tokens"));
        }
        if reused.disk > 0 {
            let (file, ms) = (LastFile(self), fixed(reused.time.as_secs_f64() * 1e3, 1));
            setup.tell(format_args!("[KV-DISK] loaded {tokens}-token KV prefix from {file} in {ms} ms"));
        }
    }

    /// Hands full blocks to the writer, as many as it has buffers for, and takes its answers; whether more
    /// is to come. Costs nothing if there is nothing to do.
    pub fn save(&self, engine: &mut Engine<'_>) -> bool {
        let Some(store) = &self.store else { return false };
        self.take_answers(store, engine);
        while store.room() {
            let Some(view) = engine.next_unsaved() else { break };
            let (block, id) = (view.block, view.id);
            if !store.stage(block, &view.parent, view.position as u32, view.contents, view.bytes) {
                break;
            }
            self.staged.set(self.staged.get() + 1);
            engine.set_save_state(block, &id, SaveState::Staged);
        }
        if store.status().pending > 0 {
            return true;
        }
        // Whatever was answered before it was seen that nothing is pending.
        self.take_answers(store, engine);
        store.room() && engine.next_unsaved().is_some()
    }

    fn take_answers(&self, store: &Store, engine: &mut Engine<'_>) {
        while let Some(done) = store.finished() {
            self.answered.set(self.answered.get() + 1);
            match done.outcome {
                Outcome::Saved => {}
                Outcome::Later => self.later.set(self.answered.get()),
                Outcome::Never => self.refused.set(self.answered.get()),
            }
            let state = match done.outcome {
                Outcome::Saved => SaveState::Saved,
                Outcome::Later => SaveState::Unsaved,
                // It stays as it is: nobody asks for it again.
                Outcome::Never => SaveState::Staged,
            };
            engine.set_save_state(done.block, &done.id, state);
        }
    }

    /// Hands the unfinished last block of a sequence to the writer, if there is room; whether nothing of it
    /// is left to do.
    pub fn save_tail(&self, engine: &Engine<'_>, seq: SeqId) -> bool {
        let Some(store) = &self.store else { return true };
        match engine.tail(seq) {
            Ok(Some(view)) => {
                let (position, contents) = (view.position as u32, view.contents);
                let staged = store.stage(view.block, &view.parent, position, contents, view.bytes);
                self.staged.set(self.staged.get() + u64::from(staged));
                staged
            }
            _ => true,
        }
    }

    /// How many blocks were handed to the writer so far: a mark for [`Cache::answers`].
    pub fn staged(&self) -> u64 {
        self.staged.get()
    }

    /// What is known of all blocks that were handed over after the mark `from`, or of more, once those up to
    /// the mark `to` are answered.
    pub fn answers(&self, from: u64, to: u64) -> Answer {
        match (self.answered.get() >= to, self.refused.get() > from, self.later.get() > from) {
            (false, ..) => Answer::Pending,
            (_, true, _) => Answer::Refused,
            (_, _, true) => Answer::Later,
            _ => Answer::Saved,
        }
    }

    /// Why a reply is not safe on the disk.
    pub fn not_safe(&self) -> Failure {
        let why = self.store.as_ref().and_then(|store| store.status().paused);
        let full = "no room within --disk-kv-max-bytes and --disk-kv-max-files";
        let why = why.map_or(String::from(full), |why| why.to_string());
        Failure::new(format_args!("--disk-kv-sync: the reply is not safe on the disk: {why}"))
    }

    /// Waits until everything that was computed is on disk, and the tail of `seq`; whether it is. It gives up
    /// when the disk does, and not before that was tried again if it is time to; `tick` hears how many blocks
    /// are left.
    pub fn flush(&self, engine: &mut Engine<'_>, seq: SeqId, tick: &mut dyn FnMut(usize)) -> bool {
        let Some(store) = &self.store else { return true };
        let (mut tail, start) = (true, self.answered.get());
        loop {
            let more = self.save(engine);
            if tail && store.room() {
                self.save_tail(engine, seq);
                tail = false;
                continue;
            }
            let status = store.status();
            if status.paused.is_some() && !status.trial {
                return false;
            }
            if !more && !tail && status.pending == 0 {
                // The answers to the last blocks.
                self.save(engine);
                return self.refused.get() <= start && is_saved(engine, seq);
            }
            tick(status.pending + engine.stats().unsaved);
            store.wait_for_answer(TICK);
        }
    }

    /// Whether a reply waits for the disk.
    pub fn is_sync(&self, setup: &Setup) -> bool {
        self.store.is_some() && setup.cache.sync
    }
}

/// Whether all whole blocks of a sequence are on disk.
pub(crate) fn is_saved(engine: &Engine<'_>, seq: SeqId) -> bool {
    all_blocks(engine, seq, &|state| state == SaveState::Saved)
}

/// Whether all whole blocks of a sequence are there, on their way, or refused.
pub(crate) fn is_staged(engine: &Engine<'_>, seq: SeqId) -> bool {
    all_blocks(engine, seq, &|state| state != SaveState::Unsaved)
}

fn all_blocks(engine: &Engine<'_>, seq: SeqId, is_so: &dyn Fn(SaveState) -> bool) -> bool {
    let pool = engine.pool();
    let block_is_so = |block: &u32| {
        pool.info(*block).is_none_or(|info| info.contents.len() < BLOCK_TOKENS || is_so(info.save))
    };
    pool.table(seq).is_ok_and(|table| table.iter().all(block_is_so))
}

/// Shows the file that was read last.
struct LastFile<'a>(&'a Cache);

impl fmt::Display for LastFile<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.0.store, self.0.last) {
            (Some(store), Some((parent, len, end))) => {
                write!(f, "{}", store.file(&parent, &self.0.contents[len..end]))
            }
            _ => Ok(()),
        }
    }
}

/// What the folder tells people about its caches.
fn about(model: &Model, config: &Config, limits: &Limits) -> String {
    let file = std::path::absolute(&model.path).unwrap_or_else(|_| model.path.clone());
    format!(
        "model: {}\nfile: {}\narchitecture: {}\nKV type: {}\nnumerics: {}\n",
        model.name(),
        crate::failure::printable(&file),
        config.arch.name(),
        limits.kv_type.name(),
        kinglet_core::NUMERICS_VERSION,
    )
}
