//! Keys and values of real models through files: what comes back is what was computed, and goes on as it
//! would have.

use kinglet_core::kv::{BLOCK_TOKENS, Geometry};
use kinglet_core::ops::attention::{Group, attend};
use kinglet_core::{Engine, KvType, Limits, Memory, Requirements};
use kinglet_tests::block::{copy_position, decode, encode, header};
use kinglet_tests::isas::all_isas;
use kinglet_tests::model::{Model, Scoped, all_logits, region};

/// Tokens of the sequence, and of its beginning that goes through files: a whole block and a tail.
const TOKENS: usize = 61;

/// The blocks of a sequence of the first `n` tokens, as the engine leaves them.
fn computed(model: &Model, kv_type: KvType, n: usize) -> Vec<u8> {
    let limits = Limits { max_seq: 64, kv_tokens: 64, max_batch: 17, max_seqs: 1, max_logits: 8, kv_type };
    let r = Requirements::of(&model.config, &limits).unwrap();
    let kv = region(r.kv);
    let memory = Memory { kv: &mut *kv, scratch: region(r.scratch), index: region(r.index) };
    let isa = *all_isas().last().unwrap();
    let mut engine = Engine::new(model.config, model.weights, limits, memory, isa).unwrap();
    let seq = engine.open().unwrap();
    // The first sequence of a new engine gets the first blocks in order.
    assert_eq!(engine.pool().table(seq), Ok(&[][..]));
    let tokens: Vec<u32> = (0..n).map(|i| (i * 7 + i * i % 11) as u32 + 3).collect();
    all_logits(&mut engine, &Scoped(1), seq, &tokens, 17).unwrap();
    assert_eq!(engine.pool().table(seq), Ok(&[0, 1][..]));
    kv[..2 * Geometry::of(&model.config, kv_type).block_bytes()].to_vec()
}

/// What queries of every head and layer get from the first `visible` positions.
fn attention(g: &Geometry, blocks: &[u8], visible: usize) -> Vec<u32> {
    let memory = region(blocks.len());
    memory.copy_from_slice(blocks);
    let (d, slab) = (g.head_dim, g.slab_bytes());
    let isa = *all_isas().last().unwrap();
    let mut out = Vec::new();
    for i in 0..g.n_layers * g.n_kv_heads {
        let query: Vec<f32> = (0..d).map(|j| ((i * 31 + j * 17) % 29) as f32 / 14.0 - 1.0).collect();
        let mut group = Group::new(isa, d, 1.0 / (d as f32).sqrt(), g.kv_type);
        group.push(&query, visible, &vec![1.0; d]);
        let slab = |block: usize| &memory[block * g.block_bytes() + i * slab..][..slab];
        attend(&mut group, slab, |_, reference| reference.fill(0.25));
        out.extend(group.result(0).iter().map(|x| x.to_bits()));
    }
    out
}

#[test]
fn a_restored_sequence_goes_on_as_it_was() {
    for name in ["qwen2-tiny.Q8_0.gguf", "qwen3-tiny.Q4_K_M.gguf"] {
        let model = Model::fixture(name);
        for kv_type in [KvType::Q8, KvType::F32] {
            let g = Geometry::of(&model.config, kv_type);
            let all = computed(&model, kv_type, TOKENS);
            for tail in [1, 2, 3, 4, 13, 28] {
                let n = BLOCK_TOKENS + tail;
                let before = computed(&model, kv_type, n);
                let mut restored = Vec::new();
                for (block, count) in before.chunks_exact(g.block_bytes()).zip([BLOCK_TOKENS, tail]) {
                    let (_, block) = decode(&encode(&mut header(g, count), block)).unwrap();
                    restored.extend(block);
                }
                let same = attention(&g, &restored, n) == attention(&g, &before, n);
                assert!(same, "{name}, {kv_type:?}: after {n} tokens");
                // Going on, position by position, as the engine went on in memory.
                for t in n..TOKENS {
                    let at = t / BLOCK_TOKENS * g.block_bytes()..(t / BLOCK_TOKENS + 1) * g.block_bytes();
                    copy_position(&g, &all[at.clone()], &mut restored[at], t % BLOCK_TOKENS);
                    let same = attention(&g, &restored, t + 1) == attention(&g, &all, t + 1);
                    assert!(same, "{name}, {kv_type:?}: {n} restored, {t} after");
                }
            }
        }
    }
}

/// The comparison sees a single wrong byte of a position that is there.
#[test]
fn the_comparison_is_sharp() {
    let model = Model::fixture("qwen2-tiny.Q8_0.gguf");
    let g = Geometry::of(&model.config, KvType::Q8);
    let good = computed(&model, KvType::Q8, TOKENS);
    let mut bad = good.clone();
    bad[g.block_bytes() + 64 * g.head_dim + 3] ^= 1;
    assert!(attention(&g, &good, TOKENS) != attention(&g, &bad, TOKENS));
}
