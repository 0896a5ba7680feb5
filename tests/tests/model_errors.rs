//! Dimensions and tensors of a model on bad files: every fault has its exact error and name.

use kinglet_core::Config;
use kinglet_core::config::{ModelError, ModelFault};
use kinglet_core::gguf::{Gguf, GgufFault, Meta, TensorInfo};
use kinglet_core::name::Name;
use kinglet_core::quant::WeightType;
use kinglet_core::weights::{Layer, Weights};
use kinglet_tests::gguf_writer::{GgufWriter, MetaValue, RawTensor};

/// A model of one layer: metadata and tensors, to be made wrong before the file is written.
struct Parts {
    metas: Vec<(&'static str, MetaValue)>,
    tensors: Vec<(&'static str, Vec<u64>)>,
}

fn good() -> Parts {
    let metas = vec![
        ("general.architecture", "qwen2".into()),
        ("qwen2.block_count", 1u32.into()),
        ("qwen2.embedding_length", 32u32.into()),
        ("qwen2.attention.head_count", 2u32.into()),
        ("qwen2.attention.head_count_kv", 1u32.into()),
        ("qwen2.feed_forward_length", 48u32.into()),
        ("qwen2.context_length", 64u32.into()),
        ("qwen2.rope.freq_base", 1e6f32.into()),
        ("qwen2.attention.layer_norm_rms_epsilon", 1e-6f32.into()),
        ("tokenizer.ggml.tokens", MetaValue::array(["a", "b", "c"])),
    ];
    let tensors = vec![
        ("token_embd.weight", vec![32, 3]),
        ("output_norm.weight", vec![32]),
        ("blk.0.attn_norm.weight", vec![32]),
        ("blk.0.attn_q.weight", vec![32, 32]),
        ("blk.0.attn_k.weight", vec![32, 16]),
        ("blk.0.attn_v.weight", vec![32, 16]),
        ("blk.0.attn_q.bias", vec![32]),
        ("blk.0.attn_k.bias", vec![16]),
        ("blk.0.attn_v.bias", vec![16]),
        ("blk.0.attn_output.weight", vec![32, 32]),
        ("blk.0.ffn_norm.weight", vec![32]),
        ("blk.0.ffn_gate.weight", vec![32, 48]),
        ("blk.0.ffn_up.weight", vec![32, 48]),
        ("blk.0.ffn_down.weight", vec![48, 32]),
    ];
    Parts { metas, tensors }
}

fn load(parts: &Parts, half: &str) -> Option<ModelError> {
    let mut w = GgufWriter::new();
    for (key, value) in &parts.metas {
        w.meta(key, value.clone());
    }
    for (name, dims) in &parts.tensors {
        let ty = if *name == half { WeightType::F16 } else { WeightType::F32 };
        let bytes = dims.iter().product::<u64>() as usize * ty.block_bytes();
        w.raw_tensor(RawTensor::new(name, ty, dims, vec![0; bytes]));
    }
    let bytes = w.finish();
    let (mut metas, mut tensors) = ([Meta::EMPTY; 64], [TensorInfo::EMPTY; 64]);
    let gguf = Gguf::parse(&bytes, &mut metas, &mut tensors).unwrap();
    let mut layers = [Layer::EMPTY; 4];
    match Config::from_gguf(&gguf) {
        Ok(config) => Weights::load(&gguf, &config, &mut layers[..config.n_layers.min(4)]).err(),
        Err(error) => Some(error),
    }
}

#[track_caller]
fn fault(change: impl FnOnce(&mut Parts), name: &str, fault: ModelFault) {
    let mut parts = good();
    change(&mut parts);
    assert_eq!(load(&parts, ""), Some(ModelError { fault, name: Name::new(name) }));
}

fn set(key: &'static str, value: impl Into<MetaValue>) -> impl FnOnce(&mut Parts) {
    let value = value.into();
    move |p| {
        p.metas.retain(|(k, _)| *k != key);
        p.metas.push((key, value));
    }
}

#[test]
fn the_good_model_is_good() {
    assert_eq!(load(&good(), ""), None);
    assert_eq!(load(&good(), "blk.0.attn_q.weight"), None);
}

#[test]
fn every_dimension_is_checked() {
    for key in [
        "block_count",
        "embedding_length",
        "attention.head_count",
        "attention.head_count_kv",
        "feed_forward_length",
        "context_length",
        "attention.key_length",
    ] {
        let key: &'static str = format!("qwen2.{key}").leak();
        fault(set(key, 0u32), key, ModelFault::Dimension { found: 0 });
        fault(set(key, "many"), key, ModelFault::Gguf(GgufFault::ValueType));
        fault(set(key, -1i32), key, ModelFault::Gguf(GgufFault::ValueType));
        fault(set(key, MetaValue::array([1u32])), key, ModelFault::Gguf(GgufFault::ValueType));
        if !key.ends_with("context_length") {
            let found = u64::from(u32::MAX);
            fault(set(key, u32::MAX), key, ModelFault::Dimension { found });
        }
        if !key.ends_with("_kv") && !key.ends_with("key_length") {
            fault(|p| p.metas.retain(|(k, _)| *k != key), key, ModelFault::Gguf(GgufFault::MissingKey));
        }
    }
    fault(
        set("qwen2.attention.head_count_kv", 3u32),
        "qwen2.attention.head_count_kv",
        ModelFault::Dimension { found: 3 },
    );
    fault(
        set("qwen2.attention.key_length", 24u32),
        "qwen2.attention.key_length",
        ModelFault::Dimension { found: 24 },
    );
    fault(
        set("qwen2.attention.key_length", 272u32),
        "qwen2.attention.key_length",
        ModelFault::Dimension { found: 272 },
    );
    fault(
        set("qwen2.attention.value_length", 32u32),
        "qwen2.attention.value_length",
        ModelFault::Dimension { found: 32 },
    );
    for bad in [0.0f32, -1.0, f32::NAN, f32::INFINITY] {
        for key in ["qwen2.rope.freq_base", "qwen2.attention.layer_norm_rms_epsilon"] {
            fault(set(key, bad), key, ModelFault::Gguf(GgufFault::ValueType));
        }
    }
    fault(set("general.architecture", "llama"), "llama", ModelFault::Arch);
    fault(
        set("tokenizer.ggml.tokens", MetaValue::array(["a"])),
        "tokenizer.ggml.tokens",
        ModelFault::Vocabulary { tokens: 1, rows: 3 },
    );
    fault(set("qwen2.rope.scaling.type", "yarn"), "qwen2.rope.scaling.type", ModelFault::Rope);
}

#[test]
fn scaled_positions_without_a_type_are_refused_too() {
    // llama.cpp takes a missing type for "linear", and the old key for the factor.
    fault(set("qwen2.rope.scaling.factor", 4.0f32), "qwen2.rope.scaling.factor", ModelFault::Rope);
    fault(set("qwen2.rope.scale_linear", 4.0f32), "qwen2.rope.scale_linear", ModelFault::Rope);
}

#[test]
fn every_tensor_is_needed_in_its_shape() {
    let n = good().tensors.len();
    for i in 0..n {
        let (name, dims) = good().tensors[i].clone();
        fault(|p| drop(p.tensors.remove(i)), name, ModelFault::MissingTensor);
        let mut parts = good();
        parts.tensors[i].1.push(2);
        let error = load(&parts, "").unwrap();
        // The number of rows of the embedding is the vocabulary's size, so a third dimension is what shows.
        assert_eq!(error.name, Name::new(name), "{dims:?}");
        assert!(matches!(error.fault, ModelFault::Shape { .. }), "{name}: {error}");
        if dims.len() == 1 {
            let error = load(&good(), name).unwrap();
            assert_eq!(error, ModelError { fault: ModelFault::VectorType, name: Name::new(name) });
        }
    }
}
