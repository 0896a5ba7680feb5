//! Models and engines for tests. Memory is leaked: a test process is short.

use core::sync::atomic::{AtomicUsize, Ordering};
use kinglet_core::gguf::{Gguf, Meta, TensorInfo};
use kinglet_core::kv::ContentId;
use kinglet_core::par::Workers;
use kinglet_core::weights::Layer;
use kinglet_core::{
    Chunk, Config, Engine, ForwardError, Isa, Limits, Logits, Memory, Requirements, SeqId, Weights,
};

/// A parsed model file.
#[derive(Clone, Copy)]
pub struct Model {
    /// The file's tables.
    pub gguf: Gguf<'static, 'static>,
    /// Dimensions.
    pub config: Config,
    /// Views of the tensors.
    pub weights: Weights<'static, 'static>,
}

impl Model {
    /// Parses `bytes`.
    ///
    /// # Errors
    /// The text of whatever the parser or the model loader finds.
    pub fn parse(bytes: Vec<u8>) -> Result<Model, String> {
        Self::parse_static(bytes.leak())
    }

    /// As [`Model::parse`], over bytes that live on.
    ///
    /// # Errors
    /// As [`Model::parse`].
    pub fn parse_static(bytes: &'static [u8]) -> Result<Model, String> {
        let counts = Gguf::counts(bytes).map_err(|e| e.to_string())?;
        let metas = vec![Meta::EMPTY; counts.metas].leak();
        let tensors = vec![TensorInfo::EMPTY; counts.tensors].leak();
        let gguf = Gguf::parse(bytes, metas, tensors).map_err(|e| e.to_string())?;
        let config = Config::from_gguf(&gguf).map_err(|e| e.to_string())?;
        let layers = vec![Layer::EMPTY; config.n_layers].leak();
        let weights = Weights::load(&gguf, &config, layers).map_err(|e| e.to_string())?;
        Ok(Model { gguf, config, weights })
    }

    /// The fixture `gguf/NAME`.
    ///
    /// # Panics
    /// If it is not there or no model.
    pub fn fixture(name: &str) -> Model {
        Self::parse(crate::fixture(&format!("gguf/{name}"))).unwrap()
    }

    /// The real model, mapped, if `KINGLET_TEST_MODEL` names it.
    ///
    /// # Panics
    /// If the variable names a file that is no model. If it is not set, unless `KINGLET_NO_MODEL` says
    /// that leaving real-model tests out is intended.
    pub fn real() -> Option<Model> {
        let Ok(path) = std::env::var("KINGLET_TEST_MODEL") else {
            assert!(
                std::env::var_os("KINGLET_NO_MODEL").is_some(),
                "KINGLET_TEST_MODEL is not set: run `cargo xtask test`, which fetches the model, \
                 or set KINGLET_NO_MODEL=1 to leave real-model tests out"
            );
            eprintln!("real-model test LEFT OUT: KINGLET_NO_MODEL is set");
            return None;
        };
        let bytes = std::fs::read(&path).unwrap_or_else(|e| panic!("{path}: {e}"));
        Some(Self::parse(bytes).unwrap())
    }

    /// As [`Model::engine_of`], with the fastest kernels of this machine.
    ///
    /// # Panics
    /// If the limits are out of range.
    pub fn engine(&self, limits: Limits) -> Engine<'static> {
        self.engine_of(*crate::isas::all_isas().last().unwrap(), limits)
    }

    /// An engine with memory of exactly the required size, filled with rubbish first.
    ///
    /// # Panics
    /// If the limits are out of range.
    pub fn engine_of(&self, isa: Isa, limits: Limits) -> Engine<'static> {
        let r = Requirements::of(&self.config, &limits).unwrap();
        let memory = Memory { kv: region(r.kv), scratch: region(r.scratch), index: region(r.index) };
        Engine::new(self.config, self.weights, limits, memory, isa).unwrap()
    }
}

/// `len` bytes at a multiple of 64, filled with a pattern that makes NaNs of floats.
pub fn region(len: usize) -> &'static mut [u8] {
    let all = vec![0xFFu8; len + 64].leak();
    let skip = all.as_ptr().align_offset(64);
    &mut all[skip..skip + len]
}

/// Threads made anew for every run: slow to start, but without any state.
pub struct Scoped(pub usize);

impl Workers for Scoped {
    fn count(&self) -> usize {
        self.0
    }

    fn run(&self, tasks: usize, f: &(dyn Fn(usize) + Sync)) {
        let next = AtomicUsize::new(0);
        let work = || {
            loop {
                match next.fetch_add(1, Ordering::Relaxed) {
                    i if i < tasks => f(i),
                    _ => return,
                }
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..self.0.min(tasks) {
                scope.spawn(work);
            }
            work();
        });
    }
}

/// Continues `seq` by `tokens` in steps of `batch`; logits of all positions, `[tokens, vocab]`.
///
/// # Errors
/// The first error of a step.
pub fn all_logits(
    engine: &mut Engine<'_>,
    workers: &dyn Workers,
    seq: SeqId,
    tokens: &[u32],
    batch: usize,
) -> Result<Vec<f32>, ForwardError> {
    let mut out = Vec::new();
    for tokens in tokens.chunks(batch) {
        let chunk = Chunk { seq, tokens, logits: Logits::All };
        engine.forward(workers, &[chunk], &mut |_, logits| out.extend_from_slice(logits))?;
    }
    Ok(out)
}

/// The tokens as contents of positions.
pub fn contents(tokens: &[u32]) -> Vec<ContentId> {
    tokens.iter().map(|t| ContentId::token(*t)).collect()
}

/// The logits as bits, which can be compared.
pub fn bits(logits: &[f32]) -> Vec<u32> {
    logits.iter().map(|l| l.to_bits()).collect()
}

/// Greedy continuation of a prompt by `n` tokens, without stopping, and the last logits used.
///
/// # Errors
/// The first error of a step.
pub fn greedy(
    engine: &mut Engine<'_>,
    workers: &dyn Workers,
    seq: SeqId,
    prompt: &[u32],
    n: usize,
) -> Result<(Vec<u32>, Vec<f32>), ForwardError> {
    let (mut ids, mut last) = (Vec::new(), Vec::new());
    let mut next = prompt.to_vec();
    let batch = engine.limits().max_batch;
    while ids.len() < n {
        for (i, tokens) in next.chunks(batch).enumerate() {
            let logits = if (i + 1) * batch >= next.len() { Logits::Last } else { Logits::None };
            let mut keep = |_, logits: &[f32]| last = logits.to_vec();
            engine.forward(workers, &[Chunk { seq, tokens, logits }], &mut keep)?;
        }
        next = vec![argmax(&last)];
        ids.extend(&next);
    }
    Ok((ids, last))
}

/// Index of the largest value, the first among equals.
pub fn argmax(logits: &[f32]) -> u32 {
    (0..logits.len()).fold(0, |best, i| if logits[i] > logits[best] { i } else { best }) as u32
}
