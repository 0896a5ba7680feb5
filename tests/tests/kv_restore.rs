//! Keys and values of real models through files, into an engine that has seen nothing of them: it goes on
//! with the logits that the first one goes on with, bit for bit.

use kinglet_core::kv::{BLOCK_TOKENS, ContentId, Geometry, Header, SaveState, file};
use kinglet_core::{Engine, KvType, Limits, SeqId};
use kinglet_tests::block::{encode, identity};
use kinglet_tests::model::{Model, Scoped, all_logits};

/// Tokens of the whole sequence; a beginning of it goes through files.
const TOKENS: usize = 77;

fn tokens() -> Vec<u32> {
    (0..TOKENS).map(|i| (i * 5 + i * i % 11) as u32 + 3).collect()
}

fn engine(model: &Model, kv_type: KvType) -> Engine<'static> {
    model.engine(Limits { max_seq: 96, kv_tokens: 96, max_batch: 17, max_seqs: 1, max_logits: 8, kv_type })
}

fn bits(logits: &[f32]) -> Vec<u32> {
    logits.iter().map(|x| x.to_bits()).collect()
}

/// The files of a sequence's blocks, in order of position; the last may be a tail.
fn files(engine: &mut Engine<'_>, seq: SeqId) -> Vec<Vec<u8>> {
    let identity = identity(Geometry::of(engine.config(), engine.limits().kv_type));
    let write = |view: kinglet_core::kv::BlockView<'_>| {
        let position = view.position as u32;
        let made = Header::new(&identity, &identity.fingerprint(), &view.parent, position, view.contents);
        let mut header = made.unwrap();
        assert_eq!(*header.id(), view.id);
        encode(&mut header, view.bytes)
    };
    let mut files = Vec::new();
    while let Some(view) = engine.next_unsaved() {
        let (block, id) = (view.block, view.id);
        files.push(write(view));
        engine.set_save_state(block, &id, SaveState::Saved);
    }
    files.extend(engine.tail(seq).unwrap().map(write));
    files
}

/// Loads files after each other, each after the contents it names.
fn load(engine: &mut Engine<'_>, seq: SeqId, files: &[Vec<u8>]) {
    for bytes in files {
        let mut rest = &bytes[..];
        let header = file::read_header(&mut rest).unwrap();
        assert_eq!(engine.parent_id(seq), Ok(*header.parent()));
        let mut fill = |block: &mut [u8]| file::decode(&mut rest, &header, block).is_ok();
        assert_eq!(engine.load(seq, header.contents(), &mut fill), Ok(true));
    }
}

#[test]
fn a_restored_sequence_goes_on_as_it_was() {
    let tokens = tokens();
    for name in ["qwen2-tiny.Q8_0.gguf", "qwen3-tiny.Q4_K_M.gguf"] {
        let model = Model::fixture(name);
        for kv_type in [KvType::Q8, KvType::F32] {
            for n in [1, 4, 13, 31, 32, 33, 35, 60, 64, 70] {
                let mut first = engine(&model, kv_type);
                first.track_saves(true);
                let seq = first.open().unwrap();
                all_logits(&mut first, &Scoped(1), seq, &tokens[..n], 17).unwrap();
                let files = files(&mut first, seq);
                assert_eq!(files.len(), n.div_ceil(BLOCK_TOKENS));
                let expected = all_logits(&mut first, &Scoped(1), seq, &tokens[n..], 17).unwrap();

                let mut second = engine(&model, kv_type);
                let seq = second.open().unwrap();
                load(&mut second, seq, &files);
                assert_eq!(second.len(seq), Ok(n));
                let got = all_logits(&mut second, &Scoped(1), seq, &tokens[n..], 17).unwrap();
                assert!(bits(&got) == bits(&expected), "{name}, {kv_type:?}: {n} tokens restored");
            }
        }
    }
}

/// The comparison sees a tail of other tokens under the same contents.
#[test]
fn the_comparison_is_sharp() {
    let model = Model::fixture("qwen2-tiny.Q8_0.gguf");
    let tokens = tokens();
    let run = |computed: &[u32]| {
        let mut first = engine(&model, KvType::Q8);
        let seq = first.open().unwrap();
        all_logits(&mut first, &Scoped(1), seq, computed, 17).unwrap();
        let block = first.tail(seq).unwrap().unwrap().bytes.to_vec();
        let mut second = engine(&model, KvType::Q8);
        let seq = second.open().unwrap();
        let contents: Vec<ContentId> = tokens[..13].iter().map(|t| ContentId::token(*t)).collect();
        let mut fill = |memory: &mut [u8]| {
            memory.copy_from_slice(&block);
            true
        };
        assert_eq!(second.load(seq, &contents, &mut fill), Ok(true));
        bits(&all_logits(&mut second, &Scoped(1), seq, &tokens[13..20], 17).unwrap())
    };
    let mut other = tokens[..13].to_vec();
    other[5] += 1;
    assert!(run(&tokens[..13]) != run(&other));
}
