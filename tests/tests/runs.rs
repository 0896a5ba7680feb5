//! How often a step calls its workers: every run ends with all of them waiting for the last. A token's
//! run takes some ten microseconds on a board, and there are hundreds of runs in it.
//!
//! | operator | one token | many |
//! |---|---|---|
//! | embedding, angles (once a step) | | 1 |
//! | residual, norm and quantisation | | 1 |
//! | q, k and v | 1 | 1 |
//! | norm of q and k heads (qwen3) | | 1 |
//! | rope | | 1 |
//! | keys and values into the cache | | 1, if there are several KV heads |
//! | attention | 1 | 1 |
//! | quantisation | | 1 |
//! | attention output | 1 | 1 |
//! | residual, norm and quantisation | | 1 |
//! | gate, up and silu | 1 | 1 |
//! | quantisation | | 1 |
//! | down | 1 | 1 |
//! | output matrix (once a step) | 1 | 1 |
//!
//! With one token the rest is done by the caller, sooner than others would wake up. Of the last block of a
//! prompt only the rows whose logits are wanted go past keys and values: then their q is a run of its own.

use core::sync::atomic::{AtomicUsize, Ordering};
use kinglet_core::par::Workers;
use kinglet_core::{Chunk, KvType, Limits, Logits};
use kinglet_tests::model::Model;

/// Counts the runs and does the tasks in order.
#[derive(Default)]
struct Counted(AtomicUsize);

impl Workers for Counted {
    fn count(&self) -> usize {
        4
    }

    fn run(&self, tasks: usize, f: &(dyn Fn(usize) + Sync)) {
        assert!(tasks > 1, "one task is no work to share");
        self.0.fetch_add(1, Ordering::Relaxed);
        (0..tasks).for_each(f);
    }
}

/// Runs of a prompt of 40 tokens of which all logits are wanted, of one of which only the last are, and of a
/// token after it.
fn runs(model: &Model) -> [usize; 3] {
    let limits = Limits {
        max_seq: 64,
        kv_tokens: 192,
        max_batch: 64,
        max_seqs: 2,
        max_logits: 40,
        kv_type: KvType::Q8,
    };
    let mut engine = model.engine(limits);
    let (first, second) = (engine.open().unwrap(), engine.open().unwrap());
    let tokens: Vec<u32> = (5..45).collect();
    let steps =
        [(first, &tokens[..], Logits::All), (second, &tokens, Logits::Last), (second, &[7], Logits::Last)];
    steps.map(|(seq, tokens, logits)| {
        let workers = Counted::default();
        engine.forward(&workers, &[Chunk { seq, tokens, logits }], &mut |_, _| {}).unwrap();
        workers.0.into_inner()
    })
}

#[test]
fn a_step_has_few_runs() {
    // Beside the eight operators that all have: those that quantise their input apart, and norms of heads.
    for (name, quantise, norms) in [
        ("qwen2-tiny.Q4_0.gguf", 2, 0),
        ("qwen3-tiny.Q4_K_M.gguf", 2, 1),
        ("qwen3vl-tiny.gguf", 0, 1),
        ("qwen2-tiny.gguf", 0, 0),
    ] {
        let model = Model::fixture(name);
        let layers = model.config.n_layers;
        let [many, last, one] = runs(&model);
        assert_eq!(one, 5 * layers + 1, "{name}: one token");
        let store = usize::from(model.config.n_kv_heads > 1);
        let layer = 8 + store + norms + quantise;
        // Beside the layers: embedding, the last norm, the output matrix.
        assert_eq!(many, layer * layers + 3, "{name}: many tokens");
        // One row is left after the last block's keys and values: its q is apart, but its norms are nobody's
        // run, nor is its quantisation.
        assert_eq!(last, layer * layers - quantise + 2, "{name}: many tokens, the last's logits");
    }
}
