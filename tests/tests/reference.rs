//! Tiny models against the independent float32 reference.

use kinglet_core::forward::{Point, Trace};
use kinglet_core::{Chunk, KvType, Limits, Logits};
use kinglet_tests::model::{Model, Scoped, all_logits, greedy};
use kinglet_tests::reference::{Tensors, ids, json, max_difference, relative_distance};
use std::collections::HashMap;

fn limits(kv_type: KvType) -> Limits {
    Limits { max_seq: 256, kv_tokens: 256, max_batch: 64, kv_type, ..Limits::default() }
}

/// The 16-bit files, KV f32: logits within 5e-4, greedy ids equal.
#[test]
fn sixteen_bit_models_equal_the_reference() {
    for name in ["qwen2-tiny", "qwen3-tiny"] {
        let model = Model::fixture(&format!("{name}.gguf"));
        let cases = json(&format!("models/{name}/cases.json"));
        let expected = Tensors::fixture(&format!("models/{name}/expected.safetensors"));
        for case in cases["cases"].as_array().unwrap() {
            let (label, prompt) = (case["name"].as_str().unwrap(), ids(&case["input_ids"]));
            let mut engine = model.engine(limits(KvType::F32));
            let seq = engine.open().unwrap();
            let all = all_logits(&mut engine, &Scoped(2), seq, &prompt, 64).unwrap();
            let last = &all[all.len() - model.config.vocab..];
            let gap = max_difference(last, &expected.get(&format!("{label}.last_logits")));
            assert!(gap <= 5e-4, "{name} {label}: last logits differ by {gap}");
            if let Some(want) = expected.find(&format!("{label}.all_logits")) {
                let gap = max_difference(&all, &want);
                assert!(gap <= 5e-4, "{name} {label}: logits differ by {gap}");
            }
            let want = ids(&case["greedy_ids"]);
            engine.truncate(seq, 0).unwrap();
            let (got, last) = greedy(&mut engine, &Scoped(1), seq, &prompt, want.len()).unwrap();
            assert_eq!(got, want, "{name} {label}: greedy ids");
            let gap = max_difference(&last, &expected.get(&format!("{label}.greedy_last_logits")));
            assert!(gap <= 5e-4, "{name} {label}: greedy logits differ by {gap}");
        }
    }
}

/// The text side of qwen3vl (text prompts only).
#[test]
fn the_text_side_of_qwen3vl_equals_the_reference() {
    let model = Model::fixture("qwen3vl-tiny.gguf");
    let cases = json("gguf/cases.json");
    let expected = Tensors::fixture("gguf/expected.safetensors");
    let prompts = json("models/qwen3vl-tiny/prompts.json");
    let mut seen = 0;
    for case in cases["cases"].as_array().unwrap().iter().filter(|c| c["file"] == "qwen3vl-tiny.gguf") {
        let label = case["case"].as_str().unwrap();
        let mut engine = model.engine(limits(KvType::F32));
        let seq = engine.open().unwrap();
        let all = all_logits(&mut engine, &Scoped(2), seq, &ids(&prompts[label]), 64).unwrap();
        let want = expected.get(&format!("qwen3vl-tiny.gguf.{label}.last_logits"));
        let gap = max_difference(&all[all.len() - model.config.vocab..], &want);
        assert!(gap <= 5e-4, "{label}: logits differ by {gap}");
        seen += 1;
    }
    assert_eq!(seen, 3);
}

/// Keeps everything it sees.
#[derive(Default)]
struct Keep(HashMap<(Point, usize), Vec<f32>>);

impl Trace for Keep {
    fn see(&mut self, point: Point, layer: usize, activations: &[f32]) {
        self.0.entry((point, layer)).or_default().extend_from_slice(activations);
    }
}

#[test]
fn activations_equal_the_reference() {
    let in_block_0 = [
        ("embed", Point::Embed),
        ("layer0.input_layernorm", Point::AttnNorm),
        ("layer0.q_proj", Point::Q),
        ("layer0.k_proj", Point::K),
        ("layer0.v_proj", Point::V),
        ("layer0.q_norm", Point::QNorm),
        ("layer0.k_norm", Point::KNorm),
        ("layer0.attn_heads_out", Point::Heads),
        ("layer0.o_proj", Point::AttnOut),
        ("layer0.post_attention_layernorm", Point::FfnNorm),
        ("layer0.mlp", Point::FfnOut),
        ("final_norm", Point::FinalNorm),
    ];
    for (name, n_layers, least) in [("qwen2-tiny", 2, 14), ("qwen3-tiny", 3, 17)] {
        let model = Model::fixture(&format!("{name}.gguf"));
        assert!(model.config.n_layers >= n_layers);
        let expected = Tensors::fixture(&format!("models/{name}/expected.safetensors"));
        let cases = json(&format!("models/{name}/cases.json"));
        let case = cases["cases"].as_array().unwrap().iter().find(|c| c["name"] == "len17").unwrap();
        let mut engine = model.engine(limits(KvType::F32));
        let seq = engine.open().unwrap();
        let mut seen = Keep::default();
        let tokens = ids(&case["input_ids"]);
        let chunk = Chunk { seq, tokens: &tokens, logits: Logits::All };
        engine.forward_traced(&Scoped(2), &[chunk], &mut |_, _| {}, &mut seen).unwrap();
        let mut points: Vec<(String, (Point, usize))> =
            in_block_0.iter().map(|(n, p)| (n.to_string(), (*p, 0))).collect();
        points.extend((0..model.config.n_layers).map(|i| (format!("layer{i}.out"), (Point::Out, i))));
        let mut compared = 0;
        for (tensor, at) in points {
            let Some(want) = expected.find(&format!("len17.{tensor}")) else { continue };
            let got = &seen.0[&at];
            let size = want.iter().fold(1.0f32, |m, v| m.max(v.abs()));
            let gap = max_difference(got, &want);
            assert!(gap <= 1e-4 * size, "{name} {tensor}: {gap} of {size}");
            compared += 1;
        }
        // The reference repeats cos and sin for the second half of the head.
        for (tensor, point) in [("rope.cos", Point::RopeCos), ("rope.sin", Point::RopeSin)] {
            let want = expected.get(&format!("len17.{tensor}"));
            let half = model.config.head_dim / 2;
            let first: Vec<f32> =
                want.chunks_exact(2 * half).flat_map(|row| row[..half].iter().copied()).collect();
            assert!(max_difference(&seen.0[&(point, 0)], &first) <= 1e-6, "{name} {tensor}");
            compared += 1;
        }
        assert!(compared >= least, "{name}: only {compared} tensors compared");
    }
}

/// Quantised files: no farther from the exact answer than llama.cpp is, in the geometric mean.
///
/// `KINGLET_GGUF_DIR` names a folder with more of the files than the fixtures hold.
#[test]
fn quantised_models_are_no_farther_from_the_reference_than_the_peer() {
    let peer = json("gguf/peer_distance.json");
    let expected = Tensors::fixture("gguf/expected.safetensors");
    let mut prompts = HashMap::new();
    for name in ["qwen2-tiny", "qwen3-tiny"] {
        for case in json(&format!("models/{name}/cases.json"))["cases"].as_array().unwrap() {
            prompts.insert((name, case["name"].as_str().unwrap().to_string()), ids(&case["input_ids"]));
        }
    }
    for (kv_type, peer_kv) in [(KvType::F32, "kv_f32"), (KvType::Q8, "kv_q8_0")] {
        let (mut ours, mut theirs, mut rows) = (0.0, 0.0, 0);
        for row in peer["rows"].as_array().unwrap() {
            let (file, label) = (row["file"].as_str().unwrap(), row["case"].as_str().unwrap());
            let Some((&(name, _), prompt)) = prompts
                .iter()
                .find(|((name, case), _)| case == label && file.starts_with(&format!("{name}.")))
            else {
                continue;
            };
            if file == format!("{name}.gguf") {
                continue;
            }
            let Some(model) = quantised(file) else { continue };
            let mut engine = model.engine(limits(kv_type));
            let seq = engine.open().unwrap();
            let all = all_logits(&mut engine, &Scoped(2), seq, prompt, 64).unwrap();
            let last = &all[all.len() - model.config.vocab..];
            let gap = relative_distance(last, &expected.get(&format!("{file}.{label}.last_logits")));
            let peer_gap = row["rel_error"][peer_kv].as_f64().unwrap();
            println!("{file} {label} {}: {gap:.5}, peer {peer_gap:.5}", kv_type.name());
            assert!(gap > 1e-6, "{file}: suspiciously exact");
            ours += gap.ln();
            theirs += peer_gap.ln();
            rows += 1;
        }
        assert!(rows >= 24, "only {rows} rows compared");
        let (ours, theirs) = ((ours / f64::from(rows)).exp(), (theirs / f64::from(rows)).exp());
        println!("geometric mean over {rows} rows, KV {}: {ours:.5}, peer {theirs:.5}", kv_type.name());
        assert!(ours <= theirs, "KV {}: {ours} is farther than {theirs}", kv_type.name());
    }
}

fn quantised(file: &str) -> Option<Model> {
    if let Some(dir) = std::env::var_os("KINGLET_GGUF_DIR") {
        let bytes = std::fs::read(std::path::Path::new(&dir).join(file)).unwrap();
        return Some(Model::parse(bytes).unwrap());
    }
    let here = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("fixtures/gguf/{file}.gz"));
    here.exists().then(|| Model::fixture(file))
}
