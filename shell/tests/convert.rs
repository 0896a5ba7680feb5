//! `kinglet convert` on tiny models, against files that llama.cpp quantised.

mod common;

use common::{fixture, model, qwen2, qwen3, run, scratch, vocabulary, words, write};
use kinglet_core::gguf::{Gguf, Meta, TensorInfo, Value};
use std::path::Path;

/// A parsed file that lives as long as the test.
fn parsed(bytes: Vec<u8>) -> Gguf<'static, 'static> {
    let bytes = bytes.leak();
    let counts = Gguf::counts(bytes).unwrap();
    let metas = vec![Meta::EMPTY; counts.metas].leak();
    let tensors = vec![TensorInfo::EMPTY; counts.tensors].leak();
    Gguf::parse(bytes, metas, tensors).unwrap()
}

/// Path of a file that is not there yet.
fn fresh(name: &str) -> String {
    let path = scratch().join(name);
    let _ = std::fs::remove_file(&path);
    path.into_os_string().into_string().unwrap()
}

#[test]
fn blocks_are_those_of_llama_cpp() {
    for (ty, name, file_type) in [("q8_0", "Q8_0", 7), ("q4_0", "Q4_0", 2)] {
        let out = fresh(&format!("peer.{name}.gguf"));
        run(&words(&format!("convert -m {} --type {ty} -o {out}", qwen2()))).ok();
        let (ours, source) = (parsed(std::fs::read(&out).unwrap()), parsed(fixture("gguf/qwen2-tiny.gguf")));
        let peer = parsed(fixture(&format!("gguf/qwen2-tiny.{name}.gguf")));
        let mut equal = 0;
        for tensor in ours.tensors() {
            let before = source.tensor(tensor.name()).unwrap();
            assert_eq!(tensor.dims(), before.dims(), "{}", tensor.name());
            if tensor.dims().len() == 1 {
                assert_eq!((tensor.ty(), tensor.data()), (before.ty(), before.data()), "{}", tensor.name());
                continue;
            }
            assert_eq!(tensor.ty().name(), name, "{}", tensor.name());
            // Theirs has the output matrix in a better type.
            let theirs = peer.tensor(tensor.name()).unwrap();
            if theirs.ty() == tensor.ty() {
                assert!(theirs.data() == tensor.data(), "{}: other blocks", tensor.name());
                equal += 1;
            }
        }
        assert!(equal >= 14, "only {equal} matrices of one type to compare");
        assert_eq!(ours.u32("general.file_type"), Ok(file_type));
        assert_eq!(ours.u32("general.quantization_version"), Ok(2));
        let keys = |gguf: &Gguf<'static, 'static>| -> Vec<&str> {
            gguf.metas().iter().map(Meta::key).filter(|k| *k != "general.quantization_version").collect()
        };
        assert_eq!(keys(&ours), keys(&source));
        assert_eq!(ours.str("general.architecture"), Ok("qwen2"));
        assert!(matches!(ours.get("tokenizer.ggml.tokens"), Some(Value::Array(a)) if !a.is_empty()));
    }
}

#[test]
fn a_converted_model_answers() {
    for source in [qwen3(), model("gguf/qwen3vl-tiny.gguf")] {
        for ty in ["q8_0", "q4_0"] {
            let out = fresh(&format!("answers.{ty}.gguf"));
            let said = run(&words(&format!("convert -m {source} --type {ty} -o {out}")));
            assert!(said.err.contains("tensors are Q"), "{}", said.err);
            assert_eq!(said.ok(), "");
            let ids = run(&words(&format!("generate -m {out} --ids 5,6,7 -n 4"))).ok();
            assert_eq!(ids.trim().split(',').count(), 4);
            // What has the type already is copied: nothing is rounded twice.
            let again = fresh(&format!("again.{ty}.gguf"));
            run(&words(&format!("convert -m {out} --type {ty} -o {again} --quiet"))).ok();
            assert!(std::fs::read(&out).unwrap() == std::fs::read(&again).unwrap());
        }
    }
}

#[test]
fn faults_leave_nothing_behind() {
    let says = |line: &str, code: i32, part: &str| {
        let said = run(&words(line)).line(code);
        assert!(said.contains(part), "{line}: {said}");
    };
    let source = qwen2();
    let out = write("there.gguf", b"precious");
    says(&format!("convert -m {source} --type q8_0 -o {out}"), 1, "exists; use --force");
    assert_eq!(std::fs::read(&out).unwrap(), b"precious");
    run(&words(&format!("convert -m {source} --type q8_0 -o {out} --force"))).ok();
    assert_eq!(std::fs::read(&out).unwrap()[..4], *b"GGUF");

    let folder = scratch();
    let folder = folder.to_str().unwrap();
    says(&format!("convert -m {source} --type q8_0 -o {folder} --force"), 1, "is a folder");
    says(&format!("convert -m {source} --type q8_0 -o {folder}/no/x.gguf"), 1, "no such folder");
    says(&format!("convert -m {source} --type q9 -o x"), 2, "none of: q8_0, q4_0");
    says(&format!("convert -m {source} --type q8_0"), 2, "-o FILE is missing");
    says(&format!("convert -m {} --type q8_0 -o {folder}/v.gguf", vocabulary()), 1, "no tensors");

    // A weight that is no number, late in the file: the part written before goes too.
    let bytes = fixture("gguf/qwen2-tiny.gguf");
    let gguf = parsed(bytes.clone());
    let last = gguf.tensors().iter().rfind(|t| t.dims().len() == 2).unwrap();
    let mut bad = bytes;
    let at = bad.windows(64).position(|w| *w == last.data()[..64]).expect("is there");
    bad[at..at + 2].copy_from_slice(&0x7C00u16.to_le_bytes());
    let path = write("inf.gguf", &bad);
    says(&format!("convert -m {path} --type q4_0 -o {folder}/inf.q4.gguf"), 1, "holds NaN or infinity");
    let left: Vec<_> = std::fs::read_dir(folder).unwrap().flatten().map(|e| e.file_name()).collect();
    assert!(!left.iter().any(|n| n.to_string_lossy().contains("inf.q4")), "{left:?}");
    assert!(!left.iter().any(|n| n.to_string_lossy().contains(".part-")), "{left:?}");
    assert!(!Path::new(&format!("{folder}/v.gguf")).exists());
}
