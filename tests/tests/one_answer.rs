//! One answer: the same bits for every instruction set, every split of the prompt, every number of
//! threads, and whatever else is in the batch.

use kinglet_core::{Chunk, Engine, KvType, Limits, Logits, Requirements, SeqId};
use kinglet_tests::isas::{all_isas, names};
use kinglet_tests::model::{Model, Scoped, all_logits, bits};

fn limits(kv_type: KvType) -> Limits {
    Limits { max_seq: 128, kv_tokens: 384, max_batch: 128, max_seqs: 3, max_logits: 8, kv_type }
}

/// Token ids spread over the vocabulary.
fn prompt(len: usize, seed: u32, vocab: usize) -> Vec<u32> {
    let id =
        |i: u32| (i.wrapping_mul(2_654_435_761).wrapping_add(seed.wrapping_mul(40_503)) >> 8) % vocab as u32;
    (0..len as u32).map(id).collect()
}

fn check(name: &str, model: &Model, kv_type: KvType, len: usize, batches: &[usize], threads: &[usize]) {
    let tokens = prompt(len, 1, model.config.vocab);
    let mut engine = model.engine(limits(kv_type));
    let run = |engine: &mut Engine<'_>, batch: usize, threads: usize| {
        let seq = engine.open().unwrap();
        let all = all_logits(engine, &Scoped(threads), seq, &tokens, batch).unwrap();
        engine.close(seq).unwrap();
        // Else the next run would go on with these blocks as soon as its own, which are equal, are full.
        engine.forget();
        bits(&all)
    };
    let want = run(&mut engine, len, 1);
    for &batch in batches {
        for &threads in threads {
            let same = run(&mut engine, batch, threads) == want;
            assert!(same, "{name}, KV {}: batch {batch}, {threads} threads", kv_type.name());
        }
    }
    let isas = all_isas();
    println!("{name}: {}", names(&isas));
    for isa in isas {
        let mut engine = model.engine_of(isa, limits(kv_type));
        // In one batch and, as in decoding, by single tokens at the end.
        let (head, tail) = tokens.split_at(len - 3);
        let seq = engine.open().unwrap();
        let mut all = all_logits(&mut engine, &Scoped(2), seq, head, 32).unwrap();
        all.extend(all_logits(&mut engine, &Scoped(2), seq, tail, 1).unwrap());
        assert!(bits(&all) == want, "{name}, KV {}: kernels {}", kv_type.name(), isa.name());
    }
}

/// Three sequences of different lengths decode in one batch; each gets what it gets alone.
fn check_batched_decode(name: &str, model: &Model, steps: usize) {
    let vocab = model.config.vocab;
    let tokens: Vec<Vec<u32>> =
        [40, 3, 33].iter().zip(7..).map(|(n, seed)| prompt(n + steps, seed, vocab)).collect();
    let mut engine = model.engine(limits(KvType::Q8));
    let alone: Vec<Vec<f32>> = tokens
        .iter()
        .map(|tokens| {
            let seq = engine.open().unwrap();
            let (head, tail) = tokens.split_at(tokens.len() - steps);
            all_logits(&mut engine, &Scoped(1), seq, head, 128).unwrap();
            let out = all_logits(&mut engine, &Scoped(1), seq, tail, 1).unwrap();
            engine.close(seq).unwrap();
            engine.forget();
            out
        })
        .collect();
    let seqs: Vec<SeqId> = tokens.iter().map(|_| engine.open().unwrap()).collect();
    let mut together = vec![Vec::new(); tokens.len()];
    // All prompts in one step, then one token of each sequence a step.
    let heads = |logits| move |(seq, tokens): (&SeqId, &'static [u32])| Chunk { seq: *seq, tokens, logits };
    let leaked: Vec<&'static [u32]> = tokens.iter().map(|t| &*t.clone().leak()).collect();
    let prompts: Vec<Chunk<'_>> =
        seqs.iter().zip(leaked.iter().map(|t| &t[..t.len() - steps])).map(heads(Logits::None)).collect();
    engine.forward(&Scoped(2), &prompts, &mut |_, _| panic!("no logits were asked for")).unwrap();
    for i in 0..steps {
        let step: Vec<Chunk<'_>> = seqs
            .iter()
            .zip(leaked.iter().map(|t| &t[t.len() - steps + i..][..1]))
            .map(heads(Logits::Last))
            .collect();
        engine
            .forward(&Scoped(2), &step, &mut |row, logits| together[row.chunk].extend_from_slice(logits))
            .unwrap();
    }
    for (i, (alone, together)) in alone.iter().zip(&together).enumerate() {
        assert!(bits(alone) == bits(together), "{name}: sequence {i} depends on its neighbours");
    }
}

/// Sequences of one step of which all logits, the last, and none are wanted; each gets what it gets alone.
fn check_wanted(name: &str, model: &Model, kv_type: KvType) {
    let vocab = model.config.vocab;
    let tokens: Vec<Vec<u32>> = [9, 41, 34].iter().zip(20..).map(|(n, s)| prompt(*n, s, vocab)).collect();
    let mut engine = model.engine(limits(kv_type));
    // The logits of every position alone, and of one token more.
    let next = 5;
    let alone: Vec<[Vec<f32>; 2]> = tokens
        .iter()
        .map(|tokens| {
            let seq = engine.open().unwrap();
            let all = all_logits(&mut engine, &Scoped(1), seq, tokens, 128).unwrap();
            let more = all_logits(&mut engine, &Scoped(1), seq, &[next], 1).unwrap();
            engine.close(seq).unwrap();
            engine.forget();
            [all, more]
        })
        .collect();
    for wanted in [
        [Logits::All, Logits::Last, Logits::None],
        [Logits::None, Logits::All, Logits::Last],
        [Logits::Last, Logits::None, Logits::None],
        [Logits::None, Logits::None, Logits::All],
    ] {
        let seqs: Vec<SeqId> = tokens.iter().map(|_| engine.open().unwrap()).collect();
        let chunks: Vec<Chunk<'_>> =
            (0..3).map(|i| Chunk { seq: seqs[i], tokens: &tokens[i], logits: wanted[i] }).collect();
        let mut got = vec![Vec::new(); 3];
        engine
            .forward(&Scoped(2), &chunks, &mut |row, logits| {
                assert!(wanted[row.chunk] != Logits::None);
                assert!(wanted[row.chunk] == Logits::All || row.position + 1 == tokens[row.chunk].len());
                got[row.chunk].extend_from_slice(logits);
            })
            .unwrap();
        for i in 0..3 {
            let want = match wanted[i] {
                Logits::All => &alone[i][0][..],
                Logits::Last => &alone[i][0][(tokens[i].len() - 1) * vocab..],
                Logits::None => &[],
            };
            assert!(bits(&got[i]) == bits(want), "{name}: {wanted:?}, sequence {i}");
            // Its keys and values are those of a sequence of which all was wanted.
            let more = all_logits(&mut engine, &Scoped(1), seqs[i], &[next], 1).unwrap();
            assert!(bits(&more) == bits(&alone[i][1]), "{name}: after {wanted:?}, sequence {i}");
            engine.close(seqs[i]).unwrap();
        }
        engine.forget();
    }
}

#[test]
fn tiny_models_give_one_answer() {
    for name in [
        "qwen2-tiny.gguf",
        "qwen2-tiny.Q4_0.gguf",
        "qwen3-tiny.gguf",
        "qwen3-tiny.Q4_K_M.gguf",
        "qwen3-tiny.Q2_K.gguf",
        "qwen3-tiny.Q3_K_M.gguf",
        "qwen3-tiny.IQ4_XS.gguf",
        "qwen3vl-tiny.gguf",
    ] {
        let model = Model::fixture(name);
        for kv_type in [KvType::Q8, KvType::F32] {
            check(name, &model, kv_type, 75, &[1, 7, 32, 75], &[1, 2, 3, 8]);
            check_wanted(name, &model, kv_type);
        }
        check_batched_decode(name, &model, 4);
    }
}

#[test]
fn the_real_model_gives_one_answer() {
    let Some(model) = Model::real() else { return };
    check("real", &model, KvType::Q8, 40, &[7, 40], &[1, 2, 3]);
    check("real", &model, KvType::Q8, 36, &[1], &[2]);
    check("real", &model, KvType::F32, 36, &[7], &[2]);
    check_batched_decode("real", &model, 3);
}

/// A shorter history does not show through: after `truncate` the sequence is as if never longer.
#[test]
fn truncating_is_forgetting() {
    let model = Model::fixture("qwen3-tiny.Q4_K_M.gguf");
    let tokens = prompt(70, 3, model.config.vocab);
    let mut engine = model.engine(limits(KvType::Q8));
    let seq = engine.open().unwrap();
    let want = bits(&all_logits(&mut engine, &Scoped(1), seq, &tokens, 128).unwrap());
    for keep in [69, 64, 63, 63, 33, 32, 31, 31, 1, 1, 0, 0] {
        engine.truncate(seq, keep).unwrap();
        if !keep.is_multiple_of(2) {
            engine.forget();
        }
        let got = bits(&all_logits(&mut engine, &Scoped(2), seq, &tokens[keep..], 16).unwrap());
        assert!(got == want[keep * model.config.vocab..], "kept {keep}");
    }
}

/// What is in the room of a step between two steps does not show through.
#[test]
fn scratch_may_be_lost_between_steps() {
    for name in ["qwen2-tiny.Q4_0.gguf", "qwen3-tiny.Q4_K_M.gguf", "qwen3vl-tiny.gguf"] {
        let model = Model::fixture(name);
        let tokens = prompt(75, 4, model.config.vocab);
        for kv_type in [KvType::Q8, KvType::F32] {
            let mut engine = model.engine(limits(kv_type));
            let seq = engine.open().unwrap();
            let want = bits(&all_logits(&mut engine, &Scoped(1), seq, &tokens, 7).unwrap());
            engine.close(seq).unwrap();
            engine.forget();
            let seq = engine.open().unwrap();
            let mut got = Vec::new();
            for (i, step) in tokens.chunks(7).enumerate() {
                got.extend(bits(&all_logits(&mut engine, &Scoped(1), seq, step, 7).unwrap()));
                let mut lent = 0;
                engine.lend_scratch(&mut |array| {
                    array.fill([f32::NAN, 0.0][i % 2]);
                    lent += size_of_val(array);
                });
                let all = Requirements::of(&model.config, engine.limits()).unwrap().scratch;
                assert!(2 * lent > all && lent < all, "{lent} of {all} bytes");
            }
            assert!(got == want, "{name}, KV {}", kv_type.name());
        }
    }
}
