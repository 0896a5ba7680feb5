//! Prefixes found again: the logits after them are those of a cold run, bit for bit, wherever the prefix
//! ends and wherever its blocks come from.

use kinglet_core::config::Arch;
use kinglet_core::kv::{BlockId, ContentId, MIN_REUSE, SaveState};
use kinglet_core::{Config, Engine, KvType, Limits};
use kinglet_tests::isas::all_isas;
use kinglet_tests::model::{Model, Scoped, all_logits, bits, contents};
use kinglet_tests::random_model::{RandomModel, Rng, SMALL};
use std::collections::HashMap;

const KV_TYPES: [KvType; 2] = [KvType::Q8, KvType::F32];
const MODELS: [&str; 2] = ["qwen2-tiny.Q4_0.gguf", "qwen3-tiny.Q4_K_M.gguf"];
const ROOT: BlockId = BlockId([7; 16]);

fn limits(kv_type: KvType, blocks: usize) -> Limits {
    Limits { max_seq: 160, kv_tokens: blocks * 32, max_batch: 160, max_seqs: 3, max_logits: 160, kv_type }
}

/// Token ids; those of different seeds differ at every position.
fn prompt(len: usize, seed: u32, vocab: usize) -> Vec<u32> {
    let id = |i: u32| ((i.wrapping_mul(2_654_435_761) >> 8).wrapping_add(seed)) % vocab as u32;
    (0..len as u32).map(id).collect()
}

/// All logits of `tokens`, computed by an engine that has nothing cached.
fn cold(model: &Model, kv_type: KvType, tokens: &[u32]) -> Vec<u32> {
    let mut engine = model.engine(limits(kv_type, 5));
    let seq = engine.open().unwrap();
    bits(&all_logits(&mut engine, &Scoped(1), seq, tokens, 160).unwrap())
}

/// Admits `tokens`, computes what is not cached in steps of `batch`, and ends; what was cached, and the
/// bits of the logits of the rest.
fn serve(engine: &mut Engine<'_>, tokens: &[u32], batch: usize) -> (usize, Vec<u32>) {
    let admission = engine.admit(ROOT, &contents(tokens)).unwrap();
    let reused = admission.reused;
    assert_eq!(engine.len(admission.seq), Ok(reused));
    let rest = all_logits(engine, &Scoped(1), admission.seq, &tokens[reused..], batch).unwrap();
    engine.close(admission.seq).unwrap();
    (reused, bits(&rest))
}

/// What `serve` has to find if `n` tokens are cached.
fn to_be_reused(n: usize, len: usize) -> usize {
    let n = n.min(len - 1);
    if n < MIN_REUSE { 0 } else { n }
}

/// What is cached ends at `split`, or goes on otherwise for less than a block, or for more.
fn check_split(engine: &mut Engine<'_>, what: &str, tokens: &[u32], want: &[u32], split: usize) {
    let vocab = engine.config().vocab;
    for more in [0, 1, 40] {
        let before = [&tokens[..split], &prompt(split + more, 2, vocab)[split..]].concat();
        engine.forget();
        if !before.is_empty() {
            serve(engine, &before, 160);
        }
        let (reused, got) = serve(engine, tokens, 17);
        assert_eq!(reused, to_be_reused(split, tokens.len()), "{split} and {more}");
        assert!(got == want[reused * vocab..], "{what}, {split} and {more}");
    }
}

#[test]
fn at_every_split_point() {
    for (arch, kv_type) in [Arch::Qwen2, Arch::Qwen3].into_iter().flat_map(|a| KV_TYPES.map(|kv| (a, kv))) {
        let model = RandomModel::new(Config { arch, ..SMALL }, &mut Rng(3));
        let isa = *all_isas().last().unwrap();
        let tokens = prompt(100, 1, SMALL.vocab);
        let (_, want) = serve(&mut model.engine(limits(kv_type, 5), isa), &tokens, 160);
        let mut engine = model.engine(limits(kv_type, 12), isa);
        for split in 0..=tokens.len() {
            check_split(&mut engine, &format!("{arch:?}, {kv_type:?}"), &tokens, &want, split);
        }
    }
}

#[test]
fn around_the_ends_of_blocks() {
    for (name, kv_type) in MODELS.into_iter().flat_map(|name| KV_TYPES.map(|kv| (name, kv))) {
        let model = Model::fixture(name);
        let tokens = prompt(100, 1, model.config.vocab);
        let want = cold(&model, kv_type, &tokens);
        let mut engine = model.engine(limits(kv_type, 12));
        for split in [16, 31, 33, 64, 99] {
            check_split(&mut engine, &format!("{name}, {kv_type:?}"), &tokens, &want, split);
        }
    }
}

/// Nothing is forgotten between: whatever is cached of prefixes and of what branches off them.
#[test]
fn out_of_a_cache_that_is_used() {
    for kv_type in KV_TYPES {
        let model = Model::fixture(MODELS[1]);
        let vocab = model.config.vocab;
        let tokens = prompt(150, 1, vocab);
        let want = cold(&model, kv_type, &tokens);
        // Less than all of it needs, so that blocks are evicted all the time.
        let mut engine = model.engine(limits(kv_type, 11));
        let mut found = 0;
        for i in 0..100 {
            let split = 1 + i * 67 % 150;
            let other = [&tokens[..split], &prompt(150, 2 + i as u32 % 5, vocab)[split..]].concat();
            serve(&mut engine, &other[..(split + i * 31 % 60).min(150)], 33);
            let (reused, got) = serve(&mut engine, &tokens[..split], 9);
            found += usize::from(reused > 0);
            assert!(got == want[reused * vocab..split * vocab], "{kv_type:?}, round {i}");
        }
        assert!(found > 80 && engine.stats().evicted > 40, "{found}, {:?}", engine.stats());
    }
}

#[test]
fn a_change_of_topic_destroys_nothing() {
    let model = Model::fixture(MODELS[0]);
    let vocab = model.config.vocab;
    let (a, b) = (prompt(100, 1, vocab), prompt(90, 2, vocab));
    let mut engine = model.engine(limits(KvType::Q8, 8));
    let (_, want) = serve(&mut engine, &a, 160);
    assert_eq!(serve(&mut engine, &b, 160).0, 0);
    let next = [&a[..], &prompt(20, 3, vocab)].concat();
    let (reused, got) = serve(&mut engine, &next, 160);
    assert_eq!(reused, 100);
    assert!(got == cold(&model, KvType::Q8, &next)[100 * vocab..]);
    assert!(want == cold(&model, KvType::Q8, &a));
    assert_eq!(serve(&mut engine, &b, 160).0, 89);
}

#[test]
fn short_prefixes_and_prompts_covered_whole() {
    let model = Model::fixture(MODELS[0]);
    let vocab = model.config.vocab;
    let a = prompt(96, 1, vocab);
    let want = cold(&model, KvType::Q8, &a);
    let mut engine = model.engine(limits(KvType::Q8, 12));
    serve(&mut engine, &a, 160);
    for (len, reused) in [(96, 95), (64, 63), (65, 64), (33, 32), (32, 31), (17, 16), (16, 0), (1, 0)] {
        let (n, got) = serve(&mut engine, &a[..len], 160);
        assert_eq!(n, reused, "{len} tokens");
        assert!(got == want[reused * vocab..len * vocab]);
    }
    // Another root finds nothing.
    assert_eq!(engine.admit(BlockId([8; 16]), &contents(&a)).unwrap().reused, 0);
}

#[test]
fn prompts_that_come_once_do_not_push_out_a_conversation() {
    let model = Model::fixture(MODELS[0]);
    let vocab = model.config.vocab;
    let talk = prompt(140, 1, vocab);
    let mut engine = model.engine(limits(KvType::Q8, 12));
    serve(&mut engine, &talk, 160);
    assert_eq!(serve(&mut engine, &talk, 160).0, 139);
    for seed in 2..20 {
        assert_eq!(serve(&mut engine, &prompt(100, seed, vocab), 160).0, 0);
    }
    let (reused, got) = serve(&mut engine, &talk, 160);
    assert_eq!(reused, 139);
    assert!(got == cold(&model, KvType::Q8, &talk)[139 * vocab..]);
}

/// Bytes and contents of blocks by their ids.
type Store = HashMap<BlockId, (Vec<ContentId>, Vec<u8>)>;

/// Takes out all that is to be saved, and the tail of the prompt as it is before its sequence ends.
fn save(engine: &mut Engine<'_>, tokens: &[u32]) -> Store {
    let mut store = Store::new();
    engine.track_saves(true);
    let seq = engine.admit(ROOT, &contents(tokens)).unwrap().seq;
    all_logits(engine, &Scoped(1), seq, tokens, 160).unwrap();
    while let Some(view) = engine.next_unsaved() {
        assert!(view.position == 0 || store.contains_key(&view.parent), "a child before its parent");
        let (block, id) = (view.block, view.id);
        store.insert(id, (view.contents.to_vec(), view.bytes.to_vec()));
        engine.set_save_state(block, &id, SaveState::Saved);
    }
    if let Some(view) = engine.tail(seq).unwrap() {
        store.insert(view.id, (view.contents.to_vec(), view.bytes.to_vec()));
    }
    assert_eq!(engine.stats().unsaved, 0);
    engine.close(seq).unwrap();
    store
}

#[test]
fn out_of_another_engine() {
    for (name, kv_type) in MODELS.into_iter().flat_map(|name| KV_TYPES.map(|kv| (name, kv))) {
        let model = Model::fixture(name);
        let vocab = model.config.vocab;
        let tokens = prompt(110, 1, vocab);
        let want = cold(&model, kv_type, &tokens);
        let store = save(&mut model.engine(limits(kv_type, 6)), &tokens[..100]);
        assert_eq!(store.len(), 4);
        let mut engine = model.engine(limits(kv_type, 6));
        engine.track_saves(true);
        let seq = engine.open_under(ROOT).unwrap();
        let wanted = contents(&tokens[..100]);
        for block in wanted.chunks(32) {
            let id = match block.try_into() {
                Ok(whole) => engine.next_id(seq, whole).unwrap(),
                Err(_) => engine.parent_id(seq).unwrap().child(block),
            };
            let (stored, bytes) = &store[&id];
            assert_eq!(stored, block);
            let before = engine.stats();
            assert_eq!(engine.load(seq, block, &mut |_| false), Ok(false));
            assert_eq!(engine.stats(), before);
            let done = engine.load(seq, block, &mut |memory| {
                memory.copy_from_slice(bytes);
                true
            });
            assert_eq!(done, Ok(true));
        }
        assert_eq!((engine.len(seq), engine.stats().unsaved), (Ok(100), 0));
        let got = bits(&all_logits(&mut engine, &Scoped(1), seq, &tokens[100..], 3).unwrap());
        assert!(got == want[100 * vocab..], "{name}, {kv_type:?}");
        // What was loaded is cached as what was computed is.
        engine.close(seq).unwrap();
        let (reused, got) = serve(&mut engine, &tokens, 160);
        assert_eq!(reused, 109);
        assert!(got == want[109 * vocab..]);
    }
}
