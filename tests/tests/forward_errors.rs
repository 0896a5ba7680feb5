//! Steps that fail, and what must not have happened then.

use kinglet_core::config::Arch;
use kinglet_core::forward::EngineError;
use kinglet_core::kv::KvError;
use kinglet_core::par::{Single, Workers};
use kinglet_core::requirements::LimitsError;
use kinglet_core::{
    Chunk, Config, Engine, ForwardError, Isa, KvType, Limits, Logits, Memory, Requirements, SeqId,
};
use kinglet_tests::isas::all_isas;
use kinglet_tests::model::all_logits;
use kinglet_tests::random_model::{RandomModel, Rng, SMALL, small_limits};

/// Tokens of the two sequences before the step that fails: one past a block, and within one.
const LENS: [usize; 2] = [40, 3];

/// A token whose row of the embedding matrix tests may spoil.
const SPOILT: u32 = 36;

const KV_TYPES: [KvType; 2] = [KvType::Q8, KvType::F32];

/// Values that are no numbers.
const NON_FINITE: [f32; 3] = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY];

/// An engine in the middle of its work: two sequences have tokens already.
struct Trial {
    engine: Engine<'static>,
    seqs: [SeqId; 2],
}

fn chunk(seq: SeqId, tokens: &[u32]) -> Chunk<'_> {
    Chunk { seq, tokens, logits: Logits::All }
}

/// Tokens other than [`SPOILT`].
fn sound_tokens(n: usize, seed: u64) -> Vec<u32> {
    Rng(seed).tokens(n, SPOILT as usize)
}

impl Trial {
    fn new(model: &RandomModel, limits: Limits, isa: Isa) -> Trial {
        let mut engine = model.engine(limits, isa);
        let seqs = LENS.map(|len| {
            let seq = engine.open().unwrap();
            all_logits(&mut engine, &Single, seq, &sound_tokens(len, len as u64), len).unwrap();
            seq
        });
        Trial { engine, seqs }
    }

    /// Lengths of the sequences, and free blocks.
    fn state(&self) -> ([usize; 2], usize) {
        (self.seqs.map(|seq| self.engine.len(seq).unwrap()), self.engine.pool().free_blocks())
    }

    /// The step fails as expected and changes nothing that can be seen from outside.
    fn fails(&mut self, chunks: &[Chunk<'_>], want: ForwardError) {
        let before = self.state();
        let no_logits = &mut |_, _: &[f32]| panic!("logits of a step that fails");
        assert_eq!(self.engine.forward(&Single, chunks, no_logits), Err(want));
        assert_eq!(self.state(), before, "{want}");
    }

    /// Bits of what follows: 30 more tokens of both in one step, then one token each.
    fn goes_on(mut self) -> Vec<u32> {
        let mut bits = Vec::new();
        for n in [30, 1] {
            let tokens = sound_tokens(n, 99);
            let chunks = self.seqs.map(|seq| chunk(seq, &tokens));
            let mut keep = |_, logits: &[f32]| bits.extend(logits.iter().map(|l| l.to_bits()));
            self.engine.forward(&Single, &chunks, &mut keep).unwrap();
        }
        bits
    }
}

/// Runs `step` in a new trial, for each kind of KV; what comes after must be as without it.
fn leaves_no_trace(limits: impl Fn(KvType) -> Limits, step: impl Fn(&mut Trial)) {
    let model = RandomModel::new(SMALL, &mut Rng(5));
    for kv_type in KV_TYPES {
        let trial = || Trial::new(&model, limits(kv_type), Isa::Scalar);
        let mut tried = trial();
        step(&mut tried);
        assert!(tried.goes_on() == trial().goes_on(), "a failed step left something behind");
    }
}

#[test]
fn empty_steps_and_chunks() {
    leaves_no_trace(small_limits, |trial| {
        let [a, b] = trial.seqs;
        trial.fails(&[], ForwardError::Empty);
        trial.fails(&[chunk(a, &[1]), chunk(b, &[])], ForwardError::Empty);
    });
}

#[test]
fn steps_longer_than_a_batch() {
    let limits = |kv_type| Limits { max_batch: 64, ..small_limits(kv_type) };
    leaves_no_trace(limits, |trial| {
        let [a, b] = trial.seqs;
        let tokens = sound_tokens(40, 1);
        let want = ForwardError::BatchTooLarge { tokens: 65, most: 64 };
        trial.fails(&[chunk(a, &tokens), chunk(b, &tokens[..25])], want);
    });
}

#[test]
fn sequences_given_twice_or_unknown() {
    leaves_no_trace(small_limits, |trial| {
        let [a, b] = trial.seqs;
        let twice = [chunk(a, &[1]), chunk(b, &[2]), chunk(a, &[3])];
        trial.fails(&twice, ForwardError::RepeatedSequence);
        let closed = trial.engine.open().unwrap();
        trial.engine.close(closed).unwrap();
        let unknown = ForwardError::Kv(KvError::UnknownSequence);
        trial.fails(&[chunk(a, &[1]), chunk(closed, &[2])], unknown);
    });
}

#[test]
fn tokens_outside_the_vocabulary() {
    leaves_no_trace(small_limits, |trial| {
        let [a, b] = trial.seqs;
        let vocab = SMALL.vocab;
        for token in [vocab as u32, u32::MAX] {
            let want = ForwardError::UnknownToken { token, vocab };
            trial.fails(&[chunk(a, &[1]), chunk(b, &[2, token, 3])], want);
        }
    });
}

#[test]
fn a_full_context() {
    leaves_no_trace(small_limits, |trial| {
        let [a, b] = trial.seqs;
        let want = ForwardError::Kv(KvError::ContextFull { needed: 101, most: 100 });
        trial.fails(&[chunk(b, &[1]), chunk(a, &sound_tokens(61, 1))], want);
    });
}

/// Each chunk alone would fit; together they do not.
#[test]
fn blocks_for_some_of_the_chunks() {
    // Six blocks, of which the sequences have three.
    let limits = |kv_type| Limits { kv_tokens: 192, ..small_limits(kv_type) };
    leaves_no_trace(limits, |trial| {
        let [a, b] = trial.seqs;
        let tokens = sound_tokens(64, 1);
        let want = ForwardError::Kv(KvError::OutOfBlocks { needed: 4, free: 3 });
        trial.fails(&[chunk(a, &tokens[..57]), chunk(b, &tokens[..62])], want);
        // One token less, and all of it fits.
        let before = trial.state();
        let chunks = [chunk(a, &tokens[..56]), chunk(b, &tokens[..61])];
        trial.engine.forward(&Single, &chunks, &mut |_, _| {}).unwrap();
        assert_eq!(trial.state(), ([96, 64], 1));
        for (seq, len) in trial.seqs.into_iter().zip(before.0) {
            trial.engine.truncate(seq, len).unwrap();
        }
    });
}

/// The other sequence of the step is sound, and neither has changed.
#[test]
fn a_value_that_is_no_number_fails_the_whole_step() {
    for value in NON_FINITE {
        let mut model = RandomModel::new(SMALL, &mut Rng(5));
        model.tensors.iter_mut().for_each(|tensor| {
            if tensor.name == "token_embd" {
                tensor.values[SPOILT as usize * SMALL.dim + 7] = value;
            }
        });
        for (kv_type, isa) in KV_TYPES.into_iter().flat_map(|kv| all_isas().into_iter().map(move |i| (kv, i)))
        {
            let trial = || Trial::new(&model, small_limits(kv_type), isa);
            let mut tried = trial();
            let [a, b] = tried.seqs;
            let spoilt = [1, SPOILT, 2];
            let tokens = sound_tokens(40, 1);
            let want = ForwardError::NonFinite { position: LENS[1] + 1 };
            tried.fails(&[chunk(a, &tokens), chunk(b, &spoilt)], want);
            tried.fails(&[chunk(b, &spoilt), chunk(a, &tokens)], want);
            assert!(tried.goes_on() == trial().goes_on(), "{value}, {kv_type:?}, {}", isa.name());
        }
    }
}

/// A prompt through the model; every token of the vocabulary is in it.
fn prompt_through(model: &RandomModel, kv_type: KvType, isa: Isa) -> Result<Vec<f32>, ForwardError> {
    let mut engine = model.engine(small_limits(kv_type), isa);
    let seq = engine.open().unwrap();
    let tokens: Vec<u32> = (0..SMALL.vocab as u32).chain(0..4).collect();
    let done = all_logits(&mut engine, &Single, seq, &tokens, tokens.len());
    assert_eq!(engine.len(seq), Ok(if done.is_ok() { tokens.len() } else { 0 }));
    done
}

/// The same where no logits are wanted, and then those of one token more.
fn in_two_steps(model: &RandomModel, kv_type: KvType, isa: Isa) -> Result<(), ForwardError> {
    let mut engine = model.engine(small_limits(kv_type), isa);
    let seq = engine.open().unwrap();
    let tokens: Vec<u32> = (0..SMALL.vocab as u32).chain(0..4).collect();
    let first = Chunk { logits: Logits::None, ..chunk(seq, &tokens) };
    engine.forward(&Single, &[first], &mut |_, _| panic!("no logits were asked for"))?;
    engine.forward(&Single, &[chunk(seq, &[1])], &mut |_, _| {})
}

/// Wherever it is, it is an error and no answer.
#[test]
fn a_value_that_is_no_number_is_found_in_every_tensor() {
    for arch in [Arch::Qwen2, Arch::Qwen3] {
        let mut rng = Rng(11);
        let sound = RandomModel::new(Config { arch, ..SMALL }, &mut rng);
        for (kv_type, isa) in KV_TYPES.into_iter().flat_map(|kv| all_isas().into_iter().map(move |i| (kv, i)))
        {
            assert!(prompt_through(&sound, kv_type, isa).is_ok());
            for (i, tensor) in sound.tensors.iter().enumerate() {
                for value in NON_FINITE {
                    let mut model = sound.clone();
                    let at = rng.number() as usize % tensor.values.len();
                    model.tensors[i].values[at] = value;
                    let done = prompt_through(&model, kv_type, isa);
                    let what = (tensor.name, tensor.layer, at, value, kv_type, isa.name());
                    assert!(matches!(done, Err(ForwardError::NonFinite { .. })), "{what:?}: {done:?}");
                    let done = in_two_steps(&model, kv_type, isa);
                    assert!(matches!(done, Err(ForwardError::NonFinite { .. })), "{what:?}, two: {done:?}");
                }
            }
        }
    }
}

/// Numbers in the weights, numbers before they are stored: only what the cache makes of a key of the last
/// block is none. Nothing but the next step would read it.
#[test]
fn a_key_that_overflows_in_the_cache_is_found_in_its_own_step() {
    let mut model = RandomModel::new(Config { arch: Arch::Qwen3, ..SMALL }, &mut Rng(11));
    let last = SMALL.n_layers - 1;
    let norm = model.tensors.iter_mut().find(|t| t.name == "attn_k_norm" && t.layer == last).unwrap();
    norm.values.fill(6e37);
    for isa in all_isas() {
        let done = in_two_steps(&model, KvType::Q8, isa);
        assert!(matches!(done, Err(ForwardError::NonFinite { .. })), "{}: {done:?}", isa.name());
        let mut engine = model.engine(small_limits(KvType::Q8), isa);
        let seq = engine.open().unwrap();
        let unasked = Chunk { logits: Logits::None, ..chunk(seq, &[1, 2, 3]) };
        let done = engine.forward(&Single, &[unasked], &mut |_, _| {});
        assert!(matches!(done, Err(ForwardError::NonFinite { .. })), "{}: {done:?}", isa.name());
        assert_eq!(engine.len(seq), Ok(0));
    }
}

/// Says any number and runs everything on the calling thread.
struct Boaster(usize);

impl Workers for Boaster {
    fn count(&self) -> usize {
        self.0
    }

    fn run(&self, tasks: usize, f: &(dyn Fn(usize) + Sync)) {
        (0..tasks).for_each(f);
    }
}

#[test]
fn absurd_numbers_of_workers_change_nothing() {
    let model = RandomModel::new(SMALL, &mut Rng(5));
    let tokens = sound_tokens(9, 1);
    let logits = |workers: &dyn Workers| {
        let mut engine = model.engine(small_limits(KvType::Q8), Isa::Scalar);
        let seq = engine.open().unwrap();
        all_logits(&mut engine, workers, seq, &tokens, 4).unwrap()
    };
    let want = logits(&Single);
    for count in [0, usize::MAX, usize::MAX / 4] {
        assert_eq!(logits(&Boaster(count)), want, "{count} workers");
    }
}

/// Dimensions that did not come through `Config::from_gguf`.
#[test]
fn dimensions_out_of_range_are_refused() {
    let config = Config { arch: Arch::Qwen3, ..SMALL };
    let weights = RandomModel::new(config, &mut Rng(1)).weights();
    let limits = small_limits(KvType::Q8);
    for (field, found, config) in [
        ("attention.key_length", 0, Config { head_dim: 0, ..config }),
        ("attention.key_length", 8, Config { head_dim: 8, ..config }),
        ("attention.key_length", 18, Config { head_dim: 18, ..config }),
        ("attention.key_length", 272, Config { head_dim: 272, ..config }),
        ("attention.head_count_kv", 0, Config { n_kv_heads: 0, ..config }),
        ("attention.head_count_kv", 3, Config { n_kv_heads: 3, ..config }),
        ("attention.head_count", 0, Config { n_heads: 0, ..config }),
        ("block_count", 0, Config { n_layers: 0, ..config }),
        ("embedding_length", usize::MAX, Config { dim: usize::MAX, ..config }),
        ("feed_forward_length", 0, Config { ffn_dim: 0, ..config }),
        ("vocab_size", usize::MAX, Config { vocab: usize::MAX, ..config }),
    ] {
        let want = LimitsError::Config { field, found };
        assert_eq!(Requirements::of(&config, &limits), Err(want));
        let memory = Memory { kv: &mut [], scratch: &mut [], index: &mut [] };
        let engine = Engine::new(config, weights, limits, memory, Isa::Scalar);
        assert_eq!(engine.err(), Some(EngineError::Limits(want)));
    }
}
