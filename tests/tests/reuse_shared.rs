//! Blocks in several sequences at once: none sees what another writes, and failed steps leave nothing.

use kinglet_core::kv::{BlockId, KvError};
use kinglet_core::par::Single;
use kinglet_core::{Chunk, Engine, ForwardError, Isa, KvType, Limits, Logits, SeqId};
use kinglet_tests::model::{all_logits, bits, contents};
use kinglet_tests::random_model::{RandomModel, Rng, SMALL, small_limits};

const KV_TYPES: [KvType; 2] = [KvType::Q8, KvType::F32];
const ROOT: BlockId = BlockId([7; 16]);
const VOCAB: usize = SMALL.vocab;

/// A token whose row of the embedding matrix is spoilt.
const SPOILT: u32 = 36;

/// A model in which one token gives NaN.
fn model() -> RandomModel {
    let mut model = RandomModel::new(SMALL, &mut Rng(5));
    for tensor in model.tensors.iter_mut().filter(|t| t.name == "token_embd") {
        tensor.values[SPOILT as usize * SMALL.dim + 7] = f32::NAN;
    }
    model
}

fn tokens(n: usize, seed: u64) -> Vec<u32> {
    Rng(seed).tokens(n, SPOILT as usize)
}

fn engine(kv_type: KvType) -> Engine<'static> {
    model().engine(small_limits(kv_type), Isa::Scalar)
}

fn cold(kv_type: KvType, tokens: &[u32]) -> Vec<u32> {
    let mut engine = engine(kv_type);
    let seq = engine.open().unwrap();
    bits(&all_logits(&mut engine, &Single, seq, tokens, 128).unwrap())
}

/// Continues several sequences in one step; bits of all logits, for each.
fn step(engine: &mut Engine<'_>, chunks: &[(SeqId, &[u32])]) -> Result<Vec<Vec<u32>>, ForwardError> {
    let all: Vec<Chunk<'_>> =
        chunks.iter().map(|(seq, tokens)| Chunk { seq: *seq, tokens, logits: Logits::All }).collect();
    let mut out = vec![Vec::new(); all.len()];
    engine.forward(&Single, &all, &mut |row, logits| out[row.chunk].extend(bits(logits)))?;
    Ok(out)
}

fn admit(engine: &mut Engine<'_>, tokens: &[u32]) -> (SeqId, usize) {
    let admission = engine.admit(ROOT, &contents(tokens)).unwrap();
    (admission.seq, admission.reused)
}

#[test]
fn two_sequences_fork_one_head_in_one_step() {
    for kv_type in KV_TYPES {
        let mut engine = engine(kv_type);
        let head = tokens(75, 1);
        let (seq, _) = admit(&mut engine, &head);
        step(&mut engine, &[(seq, &head)]).unwrap();
        engine.close(seq).unwrap();
        let both = [2, 3].map(|seed| [&head[..], &tokens(20, seed)].concat());
        let seqs = [0, 1].map(|i| admit(&mut engine, &both[i]));
        assert_eq!(seqs.map(|(_, reused)| reused), [75, 75]);
        assert_eq!(engine.stats().shared, 2);
        let mut got = [Vec::new(), Vec::new()];
        for range in [75..76, 76..90, 90..95] {
            let chunks = [0, 1].map(|i| (seqs[i].0, &both[i][range.clone()]));
            let out = step(&mut engine, &chunks).unwrap();
            got.iter_mut().zip(out).for_each(|(got, out)| got.extend(out));
        }
        for i in 0..2 {
            assert!(got[i] == cold(kv_type, &both[i])[75 * VOCAB..], "{kv_type:?}, fork {i}");
        }
    }
}

#[test]
fn what_a_truncated_sequence_writes_is_its_own() {
    for kv_type in KV_TYPES {
        for keep in [1, 31, 33, 40, 63] {
            let mut engine = engine(kv_type);
            let a = tokens(80, 1);
            let (first, _) = admit(&mut engine, &a);
            step(&mut engine, &[(first, &a)]).unwrap();
            let (second, reused) = admit(&mut engine, &a[..64]);
            assert_eq!(reused, 32 + 31);
            step(&mut engine, &[(second, &a[63..64])]).unwrap();
            assert_eq!(engine.pool().table(second), Ok(&engine.pool().table(first).unwrap()[..2]));
            // One goes another way from within the shared blocks while the other goes on.
            engine.truncate(second, keep).unwrap();
            let b = [&a[..keep], &tokens(30, 2)].concat();
            let more = tokens(10, 3);
            let got = step(&mut engine, &[(second, &b[keep..]), (first, &more)]).unwrap();
            assert!(got[0] == cold(kv_type, &b)[keep * VOCAB..], "{kv_type:?}, kept {keep}");
            assert!(got[1] == cold(kv_type, &[&a[..], &more].concat())[80 * VOCAB..]);
            // And what is cached is still what was computed first.
            engine.close(first).unwrap();
            engine.close(second).unwrap();
            let (third, reused) = admit(&mut engine, &a);
            assert_eq!(reused, 79);
            let got = step(&mut engine, &[(third, &a[79..])]).unwrap();
            assert!(got[0] == cold(kv_type, &a)[79 * VOCAB..]);
        }
    }
}

#[test]
fn equal_blocks_of_one_step_become_one() {
    for kv_type in KV_TYPES {
        let mut engine = engine(kv_type);
        let a = tokens(70, 1);
        let seqs = [(); 3].map(|()| engine.open_under(ROOT).unwrap());
        let got = step(&mut engine, &seqs.map(|seq| (seq, &a[..40]))).unwrap();
        let want = cold(kv_type, &a);
        assert!(got.iter().all(|got| *got == want[..40 * VOCAB]));
        assert_eq!((engine.stats().shared, engine.stats().private), (1, 3));
        // The sequences have one block for the first 32 tokens; they go on alike, and otherwise.
        let other = tokens(30, 2);
        let got = step(&mut engine, &[(seqs[0], &a[40..]), (seqs[1], &other), (seqs[2], &a[40..])]).unwrap();
        assert!(got[0] == want[40 * VOCAB..] && got[2] == got[0]);
        assert!(got[1] == cold(kv_type, &[&a[..40], &other].concat())[40 * VOCAB..]);
        assert_eq!(engine.stats().shared, 2);
    }
}

/// A step that fails after blocks were filled: nothing of it is ever found.
#[test]
fn blocks_of_failed_steps_are_not_found() {
    for kv_type in KV_TYPES {
        let mut engine = engine(kv_type);
        let a = tokens(40, 1);
        let bad = [&tokens(30, 2)[..], &[SPOILT]].concat();
        let other = tokens(40, 3);
        let (seq, _) = admit(&mut engine, &a);
        step(&mut engine, &[(seq, &a)]).unwrap();
        let beside = engine.open_under(ROOT).unwrap();
        let before = engine.stats();
        for chunks in [[(seq, &bad[..]), (beside, &other)], [(beside, &other), (seq, &bad)]] {
            let done = step(&mut engine, &chunks);
            assert_eq!(done, Err(ForwardError::NonFinite { position: 70 }));
            assert_eq!(engine.stats(), before);
            assert_eq!((engine.len(seq), engine.len(beside)), (Ok(40), Ok(0)));
        }
        // Not even its sound part, by those who ask for the same tokens.
        let asked = [&a[..], &bad].concat();
        let (third, reused) = admit(&mut engine, &asked);
        assert_eq!(reused, 32);
        engine.close(third).unwrap();
        engine.close(beside).unwrap();
        let (beside, reused) = admit(&mut engine, &other);
        assert_eq!(reused, 0);
        let got = step(&mut engine, &[(beside, &other), (seq, &bad[..30])]).unwrap();
        assert!(got[0] == cold(kv_type, &other));
        assert!(got[1] == cold(kv_type, &asked[..70])[40 * VOCAB..]);
    }
}

/// The step that fails had to copy a block, or to take it out of the index.
#[test]
fn failed_steps_within_indexed_blocks() {
    for (kv_type, shared) in KV_TYPES.into_iter().flat_map(|kv| [(kv, false), (kv, true)]) {
        let mut engine = engine(kv_type);
        let a = tokens(64, 1);
        let (seq, _) = admit(&mut engine, &a);
        step(&mut engine, &[(seq, &a)]).unwrap();
        let other = shared.then(|| {
            let (other, _) = admit(&mut engine, &a);
            step(&mut engine, &[(other, &a[63..])]).unwrap();
            other
        });
        engine.truncate(seq, 50).unwrap();
        let bad = [&tokens(20, 2)[..], &[SPOILT]].concat();
        assert_eq!(step(&mut engine, &[(seq, &bad)]), Err(ForwardError::NonFinite { position: 70 }));
        assert_eq!(engine.len(seq), Ok(50));
        let more = tokens(20, 3);
        let got = step(&mut engine, &[(seq, &more)]).unwrap();
        assert!(got[0] == cold(kv_type, &[&a[..50], &more].concat())[50 * VOCAB..]);
        if let Some(other) = other {
            let got = step(&mut engine, &[(other, &more)]).unwrap();
            assert!(got[0] == cold(kv_type, &[&a[..], &more].concat())[64 * VOCAB..]);
        }
    }
}

/// With as many blocks as one sequence needs: the cache is never in its way.
#[test]
fn a_sequence_can_have_all_blocks() {
    for kv_type in KV_TYPES {
        let limits = Limits { kv_tokens: 100, max_seqs: 2, ..small_limits(kv_type) };
        let mut engine = model().engine(limits, Isa::Scalar);
        let a = tokens(100, 1);
        let (seq, _) = admit(&mut engine, &a);
        step(&mut engine, &[(seq, &a)]).unwrap();
        for keep in [50, 97, 31, 64, 1] {
            engine.truncate(seq, keep).unwrap();
            let b = [&a[..keep], &tokens(100 - keep, keep as u64)].concat();
            let got = step(&mut engine, &[(seq, &b[keep..])]).unwrap();
            assert!(got[0] == cold(kv_type, &b)[keep * VOCAB..], "{kv_type:?}, kept {keep}");
            engine.truncate(seq, keep).unwrap();
            step(&mut engine, &[(seq, &a[keep..])]).unwrap();
        }
        let (other, reused) = admit(&mut engine, &a);
        assert_eq!(reused, 96, "there is no place for a copy");
        let full = KvError::OutOfBlocks { needed: 1, free: 0 };
        assert_eq!(step(&mut engine, &[(other, &a[96..])]), Err(full.into()));
    }
}
