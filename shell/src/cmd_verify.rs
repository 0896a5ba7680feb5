//! `verify`: does this machine give one answer, whichever way the cache takes? Must not know how.

use crate::failure::Failure;
use crate::loader::Model;
use crate::session::Session;
use crate::setup::{self, Setup};
use crate::signal;
use crate::term::{self, StatusLine, note, stderr_is_terminal};
use crate::words::{Help, Word, Words};
use blake3::{Hash, Hasher};
use kinglet_core::kv::MIN_REUSE;
use kinglet_core::sample;
use std::path::PathBuf;

/// Help text.
pub const HELP: Help = &[
    "usage: kinglet verify -m FILE [FLAGS]

Computes one prompt in every way that must give the same bits: cold, in batches of several sizes, with 1
to all threads, with a prefix from memory at every split point, and with a prefix from disk. The last
line is the hash of all logits, which is the same on every machine, and PASS or FAIL; FAIL exits with 1.

      --tokens N           length of the prompt (default 70)
      --dir DIR            where the caches on disk are put, and removed again (default: the system's folder
                           for temporary files)

",
    setup::FLAGS,
];

/// What the machine is asked to do.
struct Run<'m> {
    model: &'m Model,
    setup: Setup,
    ids: Vec<u32>,
    dir: PathBuf,
    /// Hash of the logits of every position, and of the last one.
    want: (Hash, Hash),
    failed: usize,
}

/// Runs the command.
///
/// # Errors
/// Of the command line, the files, the engine; a check that failed.
pub fn command(words: &mut Words) -> Result<(), Failure> {
    let (mut setup, mut tokens, mut dir) = (Setup::default(), 70usize, std::env::temp_dir());
    while let Some(word) = words.advance()? {
        let Word::Flag(flag) = &word else { return Err(words.unknown(word)) };
        match flag.as_str() {
            // Two whole blocks and a bit, so that a prefix from disk has blocks and a tail.
            "--tokens" => tokens = words.number(66..=1 << 20)?,
            "--dir" => dir = words.path()?,
            flag if setup.accept(flag, words)? => {}
            _ => return Err(words.unknown(word)),
        }
    }
    let path = words.need(setup.model.clone(), "-m FILE")?;
    let model = Model::open_to_compute(&path)?;
    setup.ctx = Some(setup.ctx.unwrap_or(0).max(tokens + REPLY));
    setup.logit_rows = 16;
    signal::install();
    let vocab = model.config()?.vocab as u32;
    let ids = (0..tokens as u32).map(|i| i.wrapping_mul(2_654_435_761) % vocab).collect();
    let dir = dir.join(format!("kinglet-verify-{}", std::process::id()));
    let zero = Hash::from_bytes([0; 32]);
    let mut run = Run { model: &model, setup, ids, dir, want: (zero, zero), failed: 0 };
    let done = run.all();
    let _ = std::fs::remove_dir_all(&run.dir);
    done?;
    let verdict = if run.failed == 0 { "PASS" } else { "FAIL" };
    term::print(&format!("{} {verdict}\n", run.want.0.to_hex()))?;
    match run.failed {
        0 => Ok(()),
        n => Err(Failure::new(format_args!(
            "{n} checks failed: this machine computes wrong; please report it with --version and the CPU"
        ))),
    }
}

/// Greedy tokens that are compared after a prefix from disk.
const REPLY: usize = 4;

impl Run<'_> {
    fn all(&mut self) -> Result<(), Failure> {
        let mut session = Session::start(self.model, &self.setup)?;
        self.want = score(&mut session, &self.ids)?;
        self.setup.note(format_args!(
            "cold, {} threads, kernels {}: {} tokens",
            session.threads(),
            self.setup.isa.name(),
            self.ids.len()
        ));
        self.batches()?;
        self.threads(session.threads())?;
        self.memory(&mut session)?;
        self.disk(&mut session)
    }

    /// Says how a check went.
    fn check(&mut self, what: core::fmt::Arguments<'_>, good: bool) {
        let line = format_args!("{what}: {}", if good { "equal" } else { "DIFFERENT" });
        if good {
            self.setup.note(line)
        } else {
            note(line)
        }
        self.failed += usize::from(!good);
    }

    fn batches(&mut self) -> Result<(), Failure> {
        for batch in [1, 7, 32] {
            let mut session = Session::start(self.model, &Setup { batch, ..self.setup.clone() })?;
            let good = score(&mut session, &self.ids)? == self.want;
            self.check(format_args!("batches of {batch}"), good);
        }
        Ok(())
    }

    fn threads(&mut self, most: usize) -> Result<(), Failure> {
        for threads in 1..most {
            let setup = Setup { threads: Some(threads), ..self.setup.clone() };
            let good = score(&mut Session::start(self.model, &setup)?, &self.ids)? == self.want;
            self.check(format_args!("{threads} threads"), good);
        }
        Ok(())
    }

    /// A prefix of every length, from memory.
    fn memory(&mut self, session: &mut Session) -> Result<(), Failure> {
        let (first, last) = (MIN_REUSE, self.ids.len() - 1);
        let mut line = StatusLine::new(!self.setup.quiet && stderr_is_terminal());
        let mut wrong = Vec::new();
        for split in first..=last {
            line.show(format_args!("prefix from memory: {split} of {last}"));
            let reused = session.begin_at_most(&self.ids, split)?.tokens;
            session.prefill(&self.ids[reused..], &mut |_| {})?;
            if reused != split || hash(session.logits()) != self.want.1 {
                wrong.push(split);
            }
        }
        drop(line);
        if !wrong.is_empty() {
            note(format_args!("wrong at {wrong:?}"));
        }
        self.check(format_args!("prefix from memory, {first} to {last} tokens"), wrong.is_empty());
        Ok(())
    }

    /// A prefix from disk: written by one engine, read by another, which also goes on as the first one.
    fn disk(&mut self, session: &mut Session) -> Result<(), Failure> {
        // The last prompt with a prefix from memory is still there.
        let want = reply(session)?;
        let mut setup = self.setup.clone();
        setup.cache.disk = Some(self.dir.clone());
        setup.quiet = true;
        // A disk that is full is no machine that computes wrong: it fails as what it is.
        (setup.cache.sync, setup.cache.max_bytes) = (true, u64::MAX);
        let mut writer = Session::start(self.model, &setup)?;
        // One token less than the whole prompt: with the tail all of that can be restored.
        writer.begin(&self.ids)?;
        writer.prefill(&self.ids[..self.ids.len() - 1], &mut |_| {})?;
        writer.settle(&setup)?;
        writer.finish(&setup);
        drop(writer);
        let mut reader = Session::start(self.model, &setup)?;
        let reused = reader.begin(&self.ids)?;
        let all = self.ids.len() - 1;
        self.check(format_args!("prefix from disk: {} of {all} tokens", reused.disk), reused.disk == all);
        reader.prefill(&self.ids[reused.tokens..], &mut |_| {})?;
        let good = hash(reader.logits()) == self.want.1 && reply(&mut reader)? == want;
        self.check(format_args!("what follows it"), good);
        Ok(())
    }
}

/// The hashes of the logits of every position of `ids`, computed cold, and of the last one.
fn score(session: &mut Session, ids: &[u32]) -> Result<(Hash, Hash), Failure> {
    let (mut all, mut last) = (Hasher::new(), Hash::from_bytes([0; 32]));
    session.keep(0)?;
    session.score(ids, &mut |_, row| {
        row.iter().for_each(|x| {
            all.update(&x.to_le_bytes());
        });
        last = hash(row);
    })?;
    Ok((all.finalize(), last))
}

fn hash(row: &[f32]) -> Hash {
    let mut hasher = Hasher::new();
    row.iter().for_each(|x| {
        hasher.update(&x.to_le_bytes());
    });
    hasher.finalize()
}

/// The most probable tokens that follow.
fn reply(session: &mut Session) -> Result<[u32; REPLY], Failure> {
    let mut tokens = [0; REPLY];
    for token in &mut tokens {
        *token = sample::argmax(session.logits()).map_err(Failure::new)?;
        session.step(*token)?;
    }
    Ok(tokens)
}
