//! The flags that say how a token is chosen, and the choosing. Must not know where logits come from.

use crate::failure::Failure;
use crate::generate::Choose;
use crate::map;
use crate::setup::Setup;
use crate::words::Words;
use core::hash::{BuildHasher, Hasher};
use kinglet_core::sample::{Params, Sampler, Scratch};

/// Help lines for the flags that [`Sampling::accept`] takes.
pub const FLAGS: &str = "Reply:
  -n N                     at most N tokens (default: until the model ends or the context is full)
      --ignore-eos         goes on where the model would end
      --temp T             temperature; 0 always takes the most probable token (default 0.8)
      --top-k K            of the K most probable tokens only; 0 = all (default 40)
      --top-p P            of the most probable tokens that sum up to P (default 0.95)
      --min-p P            of tokens at least P times as probable as the best (default 0.05)
      --repeat-penalty F   above 1: makes what was said less likely (default 1)
      --presence-penalty F, --frequency-penalty F
                           from -2 to 2, as in the OpenAI API (default 0)
      --repeat-last-n N    how many tokens the penalties look back on (default 64)
      --seed N             same seed, same text, on every machine (default: another one each time)
";

/// What the sampling flags say.
#[derive(Clone, Debug, PartialEq)]
pub struct Sampling {
    params: Params<'static>,
    seed: Option<u64>,
    /// Most tokens of a reply.
    pub most: Option<usize>,
    /// End tokens are tokens like any other.
    pub ignore_eos: bool,
}

impl Default for Sampling {
    fn default() -> Self {
        Sampling { params: Params::LLAMA_CPP, seed: None, most: None, ignore_eos: false }
    }
}

impl Sampling {
    /// Takes `flag`, and its value from `words`, if it is one of ours.
    ///
    /// # Errors
    /// A value that makes no sense.
    pub fn accept(&mut self, flag: &str, words: &mut Words) -> Result<bool, Failure> {
        let params = &mut self.params;
        match flag {
            "-n" => self.most = Some(words.number(1..=usize::MAX)?),
            "--ignore-eos" => self.ignore_eos = true,
            "--temp" => params.temperature = words.real(0.0..=1000.0)?,
            "--top-k" => params.top_k = words.number(0..=u32::MAX)?,
            "--top-p" => params.top_p = words.real(0.0..=1.0)?,
            "--min-p" => params.min_p = words.real(0.0..=1.0)?,
            "--repeat-penalty" => params.repetition_penalty = words.real(0.001..=1000.0)?,
            "--presence-penalty" => params.presence_penalty = words.real(-2.0..=2.0)?,
            "--frequency-penalty" => params.frequency_penalty = words.real(-2.0..=2.0)?,
            "--repeat-last-n" => params.last_n = words.number(0..=u32::MAX)?,
            "--seed" => self.seed = Some(words.number(0..=u64::MAX)?),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// A sampler for logits of `vocab` tokens. A seed that was not given is drawn, and told, so
    /// that a text can be had again.
    ///
    /// # Errors
    /// No memory.
    pub fn start(&self, vocab: usize, setup: &Setup) -> Result<Chooser, Failure> {
        let seed = self.seed.unwrap_or_else(|| {
            let seed = random_seed();
            if self.params.temperature > 0.0 {
                setup.note(format_args!("seed {seed}"));
            }
            seed
        });
        let region = map::region(Scratch::bytes(vocab))
            .map_err(|e| Failure::new(format_args!("no memory for the sampler: {e}")))?;
        let scratch = Scratch::new(region, vocab).map_err(Failure::new)?;
        Ok(Chooser { sampler: Sampler::new(seed), params: self.params, scratch })
    }
}

/// A seed by chance, short enough to be typed again.
pub fn random_seed() -> u64 {
    // The standard library's hasher keys are the system's random numbers.
    let hasher = std::collections::hash_map::RandomState::new().build_hasher();
    hasher.finish() % 1_000_000_000
}

/// A sampler with its parameters and memory.
#[derive(Debug)]
pub struct Chooser {
    sampler: Sampler,
    params: Params<'static>,
    scratch: Scratch<'static>,
}

impl Choose for Chooser {
    fn choose(&mut self, logits: &[f32], before: &[u32]) -> Result<u32, Failure> {
        self.sampler.sample(&self.params, logits, before, &mut self.scratch).map_err(Failure::new)
    }
}
