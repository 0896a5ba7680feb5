//! Every weight type against the values of the reference implementation, bit for bit.
//!
//! `fixtures/gguf-dequant`: blocks that are random, made by the reference quantiser, or taken
//! from a published model, each with the f32 values the reference dequantiser gives.

use flate2::read::GzDecoder;
use kinglet_core::ops;
use kinglet_core::quant::{WeightType, dequantize};
use kinglet_core::weights::Matrix;
use safetensors::SafeTensors;
use std::io::Read;

/// Type, source, bytes, expected bits.
type Case = (WeightType, String, Vec<u8>, Vec<u32>);

fn cases() -> Vec<Case> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/gguf-dequant");
    let list = std::fs::read(format!("{folder}/cases.json")).unwrap();
    let list: serde_json::Value = serde_json::from_slice(&list).unwrap();
    let packed = std::fs::read(format!("{folder}/expected.safetensors.gz")).unwrap();
    let mut tensors = Vec::new();
    GzDecoder::new(&packed[..]).read_to_end(&mut tensors).unwrap();
    let tensors = SafeTensors::deserialize(&tensors).unwrap();
    let case = |case: &serde_json::Value| {
        let (name, source) = (case["type"].as_str().unwrap(), case["source"].as_str().unwrap());
        let ty = WeightType::from_ggml(case["ggml_type_id"].as_u64().unwrap() as u32).unwrap();
        assert_eq!(ty.name(), name);
        let bytes = tensors.tensor(&format!("{name}.{source}.bytes")).unwrap().data().to_vec();
        let floats = tensors.tensor(&format!("{name}.{source}.f32")).unwrap();
        let bits = floats.data().as_chunks().0.iter().map(|b| u32::from_le_bytes(*b)).collect();
        (ty, source.to_owned(), bytes, bits)
    };
    list["cases"].as_array().unwrap().iter().map(case).collect()
}

/// How many values differ.
fn differences(ty: WeightType, bytes: &[u8], expected: &[u32]) -> usize {
    let mut out = vec![f32::NAN; expected.len()];
    dequantize(ty, bytes, &mut out).unwrap();
    out.iter().zip(expected).filter(|(ours, theirs)| ours.to_bits() != **theirs).count()
}

#[test]
fn every_value_has_the_bits_of_the_reference() {
    let cases = cases();
    for (ty, source, bytes, expected) in &cases {
        assert_eq!(differences(*ty, bytes, expected), 0, "{} {source}", ty.name());
    }
    let number_of = |source| cases.iter().filter(|case| case.1 == source).count();
    assert_eq!([number_of("random"), number_of("quantized"), number_of("real")], [12, 7, 4]);
    for ty in (0..=30).filter_map(WeightType::from_ggml) {
        assert!(ty == WeightType::F32 || cases.iter().any(|case| case.0 == ty), "no case for {}", ty.name());
    }
}

#[test]
fn one_flipped_bit_is_noticed() {
    for (ty, source, mut bytes, expected) in cases() {
        let middle = bytes.len() / 2 + 5;
        bytes[middle] ^= 1;
        assert_ne!(differences(ty, &bytes, &expected), 0, "{} {source}", ty.name());
    }
}

#[test]
fn f32_is_itself() {
    let bits = [0u32, 1, 0x8000_0000, 0x3F80_0001, 0x7F7F_FFFF, 0xFF80_0000];
    let bytes: Vec<u8> = bits.iter().flat_map(|b| b.to_le_bytes()).collect();
    assert_eq!(differences(WeightType::F32, &bytes, &bits), 0);
}

#[test]
fn embed_takes_the_row_asked_for() {
    let (ty, _, bytes, expected) = cases().into_iter().find(|case| case.1 == "real").unwrap();
    let mut two_rows = bytes.clone();
    two_rows.iter_mut().for_each(|b| *b = 0);
    two_rows.extend(&bytes);
    let w = Matrix::new(ty, 2, expected.len(), &two_rows).unwrap();
    let mut out = vec![f32::NAN; expected.len()];
    ops::embed(&w, 1, &mut out);
    assert!(out.iter().map(|v| v.to_bits()).eq(expected.iter().copied()));
    ops::embed(&w, 0, &mut out);
    assert!(out.iter().all(|v| *v == 0.0));
}
