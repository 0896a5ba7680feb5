//! The flags that every command with an engine has. Must not know the commands.

use crate::cache_flags::CacheFlags;
use crate::cpus;
use crate::failure::Failure;
use crate::trace;
use crate::words::Words;
use kinglet_core::{Isa, KvType};
use std::path::PathBuf;

/// Help lines for the flags that [`Setup::accept`] takes.
pub const FLAGS: &str = "Engine:
  -m, --model FILE         GGUF model (needed)
  -c, --ctx N              context in tokens (default 8192, or what the model was trained for)
      --batch N            tokens computed at a time while reading a prompt (default 512)
      --kv-type q8|f32     how keys and values are kept (default q8)
  -t, --threads N          threads (default: one for each CPU, fastest CPUs first)
      --cpus LIST          run on these CPUs only, one thread bound to each, e.g. 4-7
      --kernels auto|scalar|avx2|avx512
                           instruction set (default auto; the results are the same bits)
      --force              start even if memory does not seem to suffice
      --trace FILE         log frames for `cargo xtask logs` (static binary only)
      --quiet              no notes on standard error
";

/// Longest context that positions are exact for.
const MAX_CTX: usize = 1 << 24;
/// Largest batch the engine takes.
const MAX_BATCH: usize = 4096;

/// What the engine flags say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setup {
    /// The model file.
    pub model: Option<PathBuf>,
    /// Context in tokens; None: 8192, or less for a model trained for less.
    pub ctx: Option<usize>,
    /// Tokens of one step.
    pub batch: usize,
    /// How keys and values are kept.
    pub kv_type: KvType,
    /// Number of threads; None: one for each CPU.
    pub threads: Option<usize>,
    /// The CPUs to run on; None: all that are allowed.
    pub cpus: Option<Vec<usize>>,
    /// Instruction set.
    pub isa: Isa,
    /// Start whatever the memory arithmetic says.
    pub force: bool,
    /// Where log frames go.
    pub trace: Option<PathBuf>,
    /// No notes.
    pub quiet: bool,
    /// Rows of logits computed at a time; no flag of its own.
    pub logit_rows: usize,
    /// The life of the KV cache; its flags are those of the commands that use it.
    pub cache: CacheFlags,
    /// Whether there will be several prompts, so that it is told where their beginnings come from.
    pub several: bool,
}

impl Default for Setup {
    fn default() -> Self {
        Setup {
            model: None,
            ctx: None,
            batch: 512,
            kv_type: KvType::Q8,
            threads: None,
            cpus: None,
            isa: cpus::best_isa(),
            force: false,
            trace: None,
            quiet: false,
            logit_rows: 1,
            cache: CacheFlags::default(),
            several: false,
        }
    }
}

impl Setup {
    /// Takes `flag`, and its value from `words`, if it is one of the engine's.
    ///
    /// # Errors
    /// A value that makes no sense.
    pub fn accept(&mut self, flag: &str, words: &mut Words) -> Result<bool, Failure> {
        match flag {
            "-m" | "--model" => self.model = Some(words.path()?),
            "-c" | "--ctx" => self.ctx = Some(words.number(1..=MAX_CTX)?),
            "--batch" => self.batch = words.number(1..=MAX_BATCH)?,
            "--kv-type" => self.kv_type = [KvType::Q8, KvType::F32][words.choice(&["q8", "f32"])?],
            "-t" | "--threads" => self.threads = Some(words.number(1..=crate::pool::MAX_THREADS)?),
            "--cpus" => {
                let list = words.text()?;
                self.cpus = Some(cpus::parse_list(&list).map_err(|e| words.bad(&e))?);
            }
            "--kernels" => {
                let name = words.text()?;
                self.isa = cpus::isa_named(&name).map_err(|e| words.bad(&e))?;
            }
            "--force" => self.force = true,
            "--trace" => {
                let path = words.path()?;
                self.trace = Some(trace::accepted(path).map_err(|e| words.bad(e))?);
            }
            "--quiet" => self.quiet = true,
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// A line about the cache, where it has a life that is worth telling.
    pub fn tell(&self, line: core::fmt::Arguments<'_>) {
        if !self.quiet && (self.several || self.cache.disk.is_some()) {
            crate::term::log_line(line);
        }
    }

    /// One line to standard error, unless `--quiet`.
    pub fn note(&self, line: core::fmt::Arguments<'_>) {
        if !self.quiet {
            crate::term::note(line);
        }
    }
}
