//! The command line as its user meets it: wrong words, bad files, pipes, Ctrl-C.

mod common;

use common::{command, fixture, qwen2, qwen3, run, run_with, vocabulary, words, write};
use std::io::Read;
use std::process::{Command, Stdio};

#[track_caller]
fn usage(line: &str, part: &str) {
    let said = run(&words(line)).line(2);
    assert!(said.contains(part), "{line}: {said}");
}

#[track_caller]
fn failure(line: &str, part: &str) {
    let said = run(&words(line)).line(1);
    assert!(said.contains(part), "{line}: {said}");
}

#[test]
fn wrong_command_lines_exit_with_2_and_a_hint() {
    usage("", "a command is missing");
    usage("rnu", "did you mean run?");
    usage("run", "-m FILE is missing");
    usage("run -m x", "-p TEXT (or --file FILE) is missing");
    usage("run -m x -p hi --tmep 1", "unknown flag '--tmep'; did you mean --temp?");
    usage("run -m x -p hi --temp hot", "'hot' is no number from 0 to 1000");
    usage("run -m x -p hi --raw --no-think", "--raw has no template");
    usage("run -m x -p hi there", "unexpected 'there'");
    usage("run -m", "needs a value");
    usage("run -m x -p hi --threads 0", "'0' is no number from 1 to");
    usage("run -m x -p hi --cpus 3-1", "runs backwards");
    usage("run -m x -p hi --kv-type q4", "none of: q8, f32");
    usage("run -m x -p hi --force=yes", "force");
    usage("logits -m x --ids 1,2", "-o OUT or --hash is missing");
    usage("logits -m x --ids 1,x --hash", "'x' is no token id");
    usage("generate -m x --ids 1", "-n N is missing");
    usage("tokenize -m x", "--jsonl is missing");
    usage("inspect", "FILE is missing");
    usage("bench -m x --pp 0 --tg 0", "nothing to measure");
    usage("--frobnicate", "stands before the command");
}

#[test]
fn help_and_version_exit_with_0() {
    assert!(run(&["help"]).ok().contains("Commands:"));
    assert_eq!(run(&["--help"]).ok(), run(&["help"]).ok());
    assert!(run(&["help", "run"]).ok().starts_with("usage: kinglet run"));
    assert_eq!(run(&["chat", "--help"]).ok(), run(&["help", "chat"]).ok());
    assert!(run(&["--version"]).ok().starts_with(concat!("kinglet ", env!("CARGO_PKG_VERSION"))));
}

#[test]
fn bad_files_exit_with_1_and_say_what_to_do() {
    let at = |path: &str, part: &str| failure(&format!("run -m {path} -p hi"), part);
    at("no/such/file.gguf", "no/such/file.gguf: no such file; check the path");
    at(&write("empty.gguf", b""), "is empty; download or copy it again");
    at(&write("text.gguf", b"I am no model at all"), "not a GGUF file");
    at(env!("CARGO_MANIFEST_DIR"), "is a folder; name a .gguf file");
    let whole = fixture("gguf/qwen3-tiny.Q4_K_M.gguf");
    at(&write("cut.gguf", &whole[..whole.len() - 1000]), "is the download complete?");
    at(&write("head.gguf", &whole[..100]), "is the download complete?");
    at(&vocabulary(), "token_embd.weight");
    let mut other = whole.clone();
    replace(&mut other, b"qwen3", b"llama");
    at(&write("llama.gguf", &other), "'llama': this architecture is not supported");
    let mut other = whole.clone();
    replace(&mut other, b"gpt2", b"bert");
    at(
        &write("bert.gguf", &other),
        "'tokenizer.ggml.model': only byte-level BPE (\"gpt2\") is supported; use",
    );
}

/// Replaces the first occurrence; both are of one length.
fn replace(bytes: &mut [u8], from: &[u8], to: &[u8]) {
    let at = bytes.windows(from.len()).position(|w| w == from).expect("is there");
    bytes[at..at + to.len()].copy_from_slice(to);
}

#[test]
fn weights_that_are_no_numbers_end_a_reply_with_a_message() {
    let path = qwen2();
    let report: serde_json::Value = serde_json::from_str(&run(&["inspect", &path, "--json"]).ok()).unwrap();
    let tensors = report["tensors"].as_array().unwrap();
    let norm = tensors.iter().find(|t| t["name"] == "output_norm.weight").unwrap();
    let at = norm["file_offset"].as_u64().unwrap() as usize;
    let mut bytes = fixture("gguf/qwen2-tiny.gguf");
    bytes[at..at + 4].copy_from_slice(&f32::NAN.to_le_bytes());
    let path = write("nan.gguf", &bytes);
    failure(&format!("generate -m {path} --ids 1,2 -n 3"), "NaN or infinity came out");
    let ran = run(&["run", "-m", &path, "-p", "hi", "--quiet"]);
    assert_eq!((ran.code, ran.out.as_str()), (1, ""));
    assert!(ran.err.contains("compare its checksum or get it again"), "{}", ran.err);
}

#[test]
fn a_model_is_not_overwritten_by_its_own_logits() {
    let whole = fixture("gguf/qwen3-tiny.Q4_K_M.gguf");
    let path = write("own.gguf", &whole);
    let link = format!("{path}.link");
    let _ = std::fs::remove_file(&link);
    std::os::unix::fs::symlink(&path, &link).unwrap();
    for out in [&path, &link] {
        failure(&format!("logits -m {path} --ids 1 -o {out}"), "is the model itself; name another file");
    }
    assert_eq!(std::fs::read(&path).unwrap(), whole);
}

#[test]
fn a_name_of_any_length_fits_into_the_table() {
    // Longer by a multiple of the alignment, so that the data behind it stays where it belongs.
    let name = "n".repeat(1 << 17);
    let mut file = fixture("gguf/qwen3-tiny.Q4_K_M.gguf");
    let old = b"Qwen3 Tiny";
    let at = file.windows(old.len()).position(|w| w == old).expect("is there");
    file.splice(at..at + old.len(), name.bytes().chain(*b"          "));
    file[at - 8..at].copy_from_slice(&(name.len() as u64 + 10).to_le_bytes());
    let table =
        run(&["bench", "-m", &write("name.gguf", &file), "--pp", "1", "--tg", "0", "--reps", "1"]).ok();
    assert!(table.lines().all(|line| line.len() < 250), "{}", table.len());
}

#[test]
fn what_does_not_fit_is_said_before_any_work() {
    let (path, ids) = (qwen3(), vec!["1"; 65].join(","));
    failure(&format!("generate -m {path} --ids {ids} -n 1 --ctx 64"), "has 65 tokens, the context holds 64");
    let text = "many words ".repeat(60);
    let said = run(&["run", "-m", &path, "-p", &text, "--ctx", "64", "--quiet"]).line(1);
    assert!(said.contains("the context holds 64; use --ctx"), "{said}");
    let file = write("long.txt", text.as_bytes());
    failure(&format!("perplexity -m {path} --file {file} --ctx 32"), "the context holds 32; use --ctx");
    failure(&format!("generate -m {path} --ids 1,99999999 -n 1"), "token 99999999 is not in the vocabulary");
    failure(&format!("run -m {path} -p hi --cpus 1023 --quiet"), "CPU 1023 may not be used here");
}

#[test]
fn memory_that_is_not_there_is_refused_with_the_sum() {
    let line = format!("run -m {} -p hi --ctx 16777216 --kv-type f32 --quiet", qwen3());
    if kinglet::memory::available().is_some_and(|bytes| bytes < 64 << 30) {
        let said = run(&words(&line)).line(1);
        for part in
            ["weights 1.2 MB + kv ", " + scratch ", " + index ", " available ", "use --ctx ", "--force"]
        {
            assert!(said.contains(part), "{part}: {said}");
        }
    }
}

#[test]
fn a_closed_pipe_ends_quietly() {
    for line in [
        format!("run -m {} -p hi --ignore-eos --quiet --ctx 500", qwen3()),
        format!("generate -m {} --ids 1 -n 400 --ctx 500", qwen3()),
        format!("inspect {}", vocabulary()),
        String::from("help"),
    ] {
        let mut child = command(&words(&line)).spawn().unwrap();
        drop(child.stdout.take());
        let ran = child.wait_with_output().unwrap();
        assert_eq!(
            (ran.status.code(), String::from_utf8_lossy(&ran.stderr).as_ref()),
            (Some(0), ""),
            "{line}"
        );
    }
}

#[test]
fn the_first_ctrl_c_ends_a_reply_cleanly() {
    let line = format!("run -m {} -p hi --ignore-eos --ctx 8192 --temp 0", qwen3());
    let mut child = command(&words(&line)).spawn().unwrap();
    // The reply has begun: the handler is there.
    let mut out = child.stdout.take().unwrap();
    out.read_exact(&mut [0]).unwrap();
    let pid = child.id().to_string();
    assert!(Command::new("sh").args(["-c", "kill -INT $0", &pid]).status().unwrap().success());
    let mut rest = Vec::new();
    out.read_to_end(&mut rest).unwrap();
    assert_eq!(rest.last(), Some(&b'\n'));
    let ran = child.wait_with_output().unwrap();
    let err = String::from_utf8(ran.stderr).unwrap();
    assert_eq!(ran.status.code(), Some(130), "{err}");
    assert!(err.lines().last().unwrap().starts_with("[kinglet] prompt "), "{err}");
}

#[test]
fn prompts_come_from_anywhere() {
    let base = words(&format!("run -m {} --temp 0 -n 5 --quiet", qwen3()));
    let with =
        |more: &[&str]| base.iter().cloned().chain(more.iter().map(|s| s.to_string())).collect::<Vec<_>>();
    let direct = run(&with(&["-p", "Hello you"])).ok();
    assert!(direct.ends_with('\n'));
    assert_eq!(run_with(&with(&["-p", "-"]), b"Hello you").ok(), direct);
    let file = write("prompt.txt", b"Hello you");
    assert_eq!(run(&with(&["--file", &file])).ok(), direct);
    assert!(run_with(&with(&["-p", "-"]), b"\xff").line(1).contains("not UTF-8"));
    assert!(run(&with(&["--raw", "-p", ""])).line(1).contains("the prompt is empty"));
}

#[test]
fn standard_error_that_is_closed_does_not_matter() {
    let line = format!("run -m {} -p hi -n 3 --temp 0", qwen3());
    let mut child = command(&words(&line)).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stderr.take());
    assert!(child.wait_with_output().unwrap().status.success());
}
