//! The real model (Qwen2.5-Coder-0.5B-Instruct, Q4_K_M) against the float32 reference.

use kinglet_core::{Chunk, KvType, Limits, Logits};
use kinglet_tests::model::{Model, Scoped, all_logits, argmax};
use kinglet_tests::reference::{ids, json, kl_divergence, nll};

const BATCH: usize = 128;

fn limits(kv_type: KvType) -> Limits {
    Limits { max_seq: 512, kv_tokens: 512, max_batch: BATCH, max_logits: 32, kv_type, ..Limits::default() }
}

/// Teacher-forced: given the reference's tokens, the largest logit is the reference's next token
/// wherever its margin exceeds 0.1.
#[test]
fn greedy_ids_equal_the_reference_where_its_margin_is_clear() {
    let Some(model) = Model::real() else { return };
    let reference = json("qwen2.5-coder-0.5b/reference.json");
    let (mut compared, mut differing) = (0, 0);
    for kv_type in [KvType::F32, KvType::Q8] {
        for prompt in reference["prompts"].as_array().unwrap() {
            let (name, input) = (prompt["name"].as_str().unwrap(), ids(&prompt["input_ids"]));
            let want = ids(&prompt["greedy_ids"]);
            let margins: Vec<f64> =
                prompt["greedy_margins"].as_array().unwrap().iter().map(|m| m.as_f64().unwrap()).collect();
            let mut tokens = input.clone();
            tokens.extend(&want[..want.len() - 1]);
            let mut engine = model.engine(limits(kv_type));
            let seq = engine.open().unwrap();
            let (vocab, first) = (model.config.vocab, input.len() - 1);
            let all = all_logits(&mut engine, &Scoped(2), seq, &tokens, BATCH).unwrap();
            for (i, (want, margin)) in want.iter().zip(&margins).enumerate() {
                let got = argmax(&all[(first + i) * vocab..][..vocab]);
                compared += 1;
                if got == *want {
                    continue;
                }
                differing += 1;
                println!("{name} KV {}: id {i} is {got}, not {want}; margin {margin}", kv_type.name());
                assert!(*margin <= 0.1, "{name}: id {i} differs though its margin is {margin}");
            }
        }
    }
    println!("{differing} of {compared} ids differ, none where the margin exceeds 0.1");
    assert_eq!(compared, 2 * 6 * 64);
}

/// Mean NLL within 0.3 % of the reference (KV f32); KV q8 within 1e-3 nats of KV f32 in KL.
#[test]
fn mean_nll_and_the_cost_of_the_quantised_cache() {
    let Some(model) = Model::real() else { return };
    let reference = json("qwen2.5-coder-0.5b/reference.json");
    let vocab = model.config.vocab;
    for text in reference["texts"].as_array().unwrap() {
        let (name, tokens) = (text["name"].as_str().unwrap(), ids(&text["input_ids"]));
        let mut engines = [KvType::F32, KvType::Q8].map(|kv_type| {
            let mut engine = model.engine(limits(kv_type));
            let seq = engine.open().unwrap();
            (engine, seq, 0.0f64)
        });
        let mut divergence = 0.0;
        for (n, part) in tokens.chunks(BATCH).enumerate() {
            let both = engines.each_mut().map(|(engine, seq, total)| {
                let all = all_logits(engine, &Scoped(2), *seq, part, BATCH).unwrap();
                for (i, logits) in all.chunks_exact(vocab).enumerate() {
                    if let Some(next) = tokens.get(n * BATCH + i + 1) {
                        *total += nll(logits, *next);
                    }
                }
                all
            });
            let rows = both[0].chunks_exact(vocab).zip(both[1].chunks_exact(vocab));
            divergence += rows.map(|(f32, q8)| kl_divergence(f32, q8)).sum::<f64>();
        }
        let scored = (tokens.len() - 1) as f64;
        let want = text["mean_nll"].as_f64().unwrap();
        let [exact, q8] = engines.map(|(_, _, total)| total / scored);
        let (off, kl) = ((exact / want - 1.0).abs(), divergence / tokens.len() as f64);
        println!("{name}: NLL {exact:.5} (KV q8 {q8:.5}), reference {want:.5}, off by {:.3} %", 100.0 * off);
        println!("{name}: mean KL of KV q8 from KV f32 {kl:.3e}");
        assert!(off <= 0.003, "{name}: mean NLL {exact}, reference {want}");
        assert!((q8 / want - 1.0).abs() <= 0.003, "{name}: mean NLL with KV q8 {q8}, reference {want}");
        assert!(kl > 0.0 && kl <= 1e-3, "{name}: mean KL divergence {kl}");
    }
}

/// The last logits of every prompt are near the reference's 50 largest (8-bit activations: 0.2).
#[test]
fn the_fifty_largest_logits_are_near_the_reference() {
    let Some(model) = Model::real() else { return };
    let reference = json("qwen2.5-coder-0.5b/reference.json");
    let mut engine = model.engine(limits(KvType::F32));
    for prompt in reference["prompts"].as_array().unwrap() {
        let seq = engine.open().unwrap();
        let tokens = ids(&prompt["input_ids"]);
        let chunk = Chunk { seq, tokens: &tokens, logits: Logits::Last };
        let mut worst = 0.0f64;
        engine
            .forward(&Scoped(2), &[chunk], &mut |row, logits| {
                assert_eq!(row.position + 1, tokens.len());
                let want = prompt["top50_logits"].as_array().unwrap();
                for (id, want) in ids(&prompt["top50_ids"]).iter().zip(want) {
                    let got = f64::from(logits[*id as usize]);
                    worst = worst.max((got - want.as_f64().unwrap()).abs());
                }
            })
            .unwrap();
        println!("{}: largest difference {worst:.3}", prompt["name"]);
        // The worst of 50 tokens at one position: wider than the advice for a typical one.
        assert!(worst > 0.0 && worst <= 1.0, "{}: {worst}", prompt["name"]);
        engine.close(seq).unwrap();
    }
}
