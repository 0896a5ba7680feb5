//! The cache outlives its process: kill -9 at any moment, SIGTERM, damage, several processes at once.

mod common;

use common::life::{Server, durable, files, fresh, generate, ids, line, number, with_dir};
use common::{fixture, qwen2, qwen3, run, run_with, scratch, words, write};
use core::time::Duration;
use kinglet_core::kv::BLOCK_TOKENS;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::time::{Instant, SystemTime};

#[test]
fn a_hundred_kills_lose_nothing_that_was_durable() {
    let model = qwen2();
    let prompt = ids(300, 3);
    let want = run_with(&generate(&model, "-n 40 --quiet"), line(&prompt).as_bytes()).ok();
    let whole: Vec<u32> =
        prompt.iter().copied().chain(want.trim().split(',').map(|id| id.parse().unwrap())).collect();
    // How long all of it takes here, so that kills fall everywhere.
    let start = Instant::now();
    let dir = fresh("kills-timing");
    run_with(&with_dir(&model, &dir, "-n 40 --batch 32"), line(&prompt).as_bytes()).ok();
    let all = start.elapsed();
    let dir = fresh("kills");
    let (mut seed, mut restored, mut partial) = (88_172_645_463_325_252u64, 0, 0);
    for round in 0..100 {
        if round % 3 == 0 {
            let _ = std::fs::remove_dir_all(&dir);
        }
        let mut server = Server::start(&with_dir(&model, &dir, "-n 40 --batch 32"));
        server.say(&line(&prompt));
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        std::thread::sleep(all.mul_f64((seed % 1000) as f64 / 1000.0));
        server.kill();
        let there = durable(&dir, &whole);
        let ran = run_with(&with_dir(&model, &dir, "-n 40"), line(&prompt).as_bytes());
        let loaded = number(&ran.err, "[KV-DISK] loaded ").unwrap_or(0);
        assert_eq!(ran.out, want, "round {round}: {}", ran.err);
        let usable = there.min((prompt.len() - 1) / BLOCK_TOKENS * BLOCK_TOKENS);
        assert!(loaded >= usable, "round {round}: {there} tokens were there, {loaded} came: {}", ran.err);
        restored += usize::from(loaded > 0);
        partial += usize::from(loaded > 0 && loaded < 288);
        assert!(!files(&dir).iter().any(|(path, _)| path.extension().is_some_and(|e| e == "bad")));
    }
    println!("{restored} of 100 restarts took something from disk, {partial} a part");
    assert!(restored > 30, "the kills fell elsewhere: {restored}");
}

#[test]
fn sigterm_flushes_and_a_new_process_goes_on_with_the_last_token() {
    let model = qwen3();
    let (dir, prompt) = (fresh("sigterm"), ids(100, 5));
    let mut server = Server::start(&with_dir(&model, &dir, "-n 8"));
    server.say(&line(&prompt));
    let answer = server.answer();
    let pid = server.0.id().to_string();
    assert!(std::process::Command::new("sh").args(["-c", "kill -TERM $0", &pid]).status().unwrap().success());
    assert_eq!(server.0.wait().unwrap().code(), Some(143));
    // The reply's last token was never computed; all before it is there, tail included.
    let mut next = prompt.clone();
    next.extend(answer.trim().split(',').map(|id| id.parse::<u32>().unwrap()));
    next.extend([1, 2, 3]);
    let ran = run_with(&with_dir(&model, &dir, "-n 5"), line(&next).as_bytes());
    assert_eq!(number(&ran.err, "[KV-DISK] loaded "), Some(107), "{}", ran.err);
    assert_eq!(number(&ran.err, "[PREFILL-TIMING] n="), Some(4), "{}", ran.err);
    let cold = run_with(&generate(&model, "-n 5 --no-prefix-kv"), line(&next).as_bytes());
    assert_eq!(ran.ok(), cold.ok());
}

#[test]
fn a_topic_that_comes_back_is_still_in_memory() {
    let model = qwen2();
    let (a, b) = (ids(400, 1), ids(500, 2));
    let input = line(&a) + &line(&b) + &line(&a) + &line(&b);
    let ran = run_with(&generate(&model, "-n 4"), input.as_bytes());
    let reused: Vec<usize> = ran.err.lines().filter_map(|l| number(l, "[KV-PREFIX] reused ")).collect();
    assert_eq!(reused, [399, 499], "{}", ran.err);
    let none = run_with(&generate(&model, "-n 4 --no-prefix-kv"), input.as_bytes());
    assert_eq!(number(&none.err, "[KV-PREFIX] reused "), None);
    assert_eq!(ran.ok(), none.ok());
}

#[test]
fn caches_of_another_model_type_or_quantisation_are_not_used_and_the_log_says_why() {
    let dir = fresh("guards");
    let prompt = ids(100, 5);
    let seen = |model: &str, more: &str| {
        let ran = run_with(&with_dir(model, &dir, &format!("-n 3 {more}")), line(&prompt).as_bytes());
        assert_eq!(ran.code, 0, "{}", ran.err);
        ran
    };
    let first = seen(&qwen2(), "");
    assert_eq!(number(&first.err, "[KV-DISK] loaded "), None);
    assert_eq!(number(&seen(&qwen2(), "").err, "[KV-DISK] loaded "), Some(99));
    let differs = |model: &str, more: &str, part: &str| {
        let ran = seen(model, more);
        assert_eq!(number(&ran.err, "[KV-DISK] loaded "), None, "{}", ran.err);
        assert!(
            ran.err.lines().any(|l| l.starts_with("[KV-DISK] ") && l.contains(part)),
            "{part}: {}",
            ran.err
        );
        let cold = run_with(&generate(model, &format!("-n 3 {more}")), line(&prompt).as_bytes());
        assert_eq!(ran.ok(), cold.ok());
    };
    differs(&qwen2(), "--kv-type f32", "KV type");
    // One weight changed: the geometry is the same.
    let mut other = fixture("gguf/qwen2-tiny.gguf");
    let at = other.len() - 4096;
    other[at] ^= 1;
    differs(&write("other.gguf", &other), "", "weights");
    // The base of rope.
    let mut rope = fixture("gguf/qwen2-tiny.gguf");
    let key = b"qwen2.rope.freq_base";
    let at = rope.windows(key.len()).position(|w| w == key).unwrap() + key.len() + 4;
    rope[at + 2] ^= 0x10;
    differs(&write("rope.gguf", &rope), "", "rope");
    // Another quantisation of the same model.
    let quantised = scratch().join("quantised.gguf");
    let convert = format!("convert -m {} --type q8_0 -o {} --quiet", qwen2(), quantised.display());
    let ran = run(&words(&convert));
    assert_eq!(ran.code, 0, "{}", ran.err);
    differs(quantised.to_str().unwrap(), "", "weight types");
    // All of them are there side by side, and the first is found as before.
    assert_eq!(number(&seen(&qwen2(), "").err, "[KV-DISK] loaded "), Some(99));
}

#[test]
fn two_processes_share_a_folder() {
    let model = qwen2();
    let dir = fresh("two");
    let head = ids(200, 1);
    let mut servers: Vec<Server> =
        (0..2).map(|_| Server::start(&with_dir(&model, &dir, "-n 4 --batch 32"))).collect();
    for turn in 0..6 {
        // Both save the same blocks at once, then different ones.
        let prompts: Vec<Vec<u32>> =
            (0..2).map(|i| head.iter().copied().chain(ids(40 + turn * 30, turn + i * 7)).collect()).collect();
        servers.iter_mut().zip(&prompts).for_each(|(server, prompt)| server.say(&line(prompt)));
        for (server, prompt) in servers.iter_mut().zip(&prompts) {
            let want = run_with(&generate(&model, "-n 4 --quiet"), line(prompt).as_bytes()).ok();
            assert_eq!(server.answer(), want, "turn {turn}");
        }
    }
    for mut server in servers {
        drop(server.0.stdin.take());
        assert!(server.0.wait().unwrap().success());
    }
    assert!(files(&dir).iter().all(|(path, _)| path.extension().is_none_or(|e| e != "bad" && e != "tmp")));
    let ran = run(&words(&format!("kv fsck --disk-kv {}", dir.display())));
    assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
}

#[test]
fn a_chat_that_was_killed_goes_on() {
    let model = qwen2();
    let (dir, talk) = (fresh("chat"), scratch().join("talk.jsonl"));
    let _ = std::fs::remove_file(&talk);
    let line = |more: &str| {
        let line =
            format!("chat -m {model} --temp 0 -n 40 --ignore-eos --ctx 600 --history {}", talk.display());
        words(&format!("{line} {more}"))
    };
    let disk = format!("--disk-kv {}", dir.display());
    let mut server = Server::start(&line(&disk));
    server.say("Hello there\n");
    let mut err = BufReader::new(server.0.stderr.take().unwrap());
    let mut said = String::new();
    // The line with the numbers is the turn's last.
    while !said.contains("[kinglet] prompt ") {
        assert!(err.read_line(&mut said).unwrap() > 0, "{said}");
    }
    // It is written in the background; what is not there yet may be lost.
    let is_block = |(path, _): &(PathBuf, u64)| path.extension().is_some_and(|e| e == "kv");
    let start = Instant::now();
    while !files(&dir).iter().any(is_block) {
        assert!(start.elapsed() < Duration::from_secs(60), "no block was saved");
        std::thread::sleep(Duration::from_millis(10));
    }
    server.0.kill().unwrap();
    server.0.wait().unwrap();
    let kept = std::fs::read(&talk).unwrap();
    let ran = run_with(&line(&disk), b"And then?\n");
    assert!(number(&ran.err, "[KV-DISK] loaded ").is_some_and(|n| n >= 32), "{}", ran.err);
    assert!(ran.err.contains("going on after 2 messages"), "{}", ran.err);
    std::fs::write(&talk, kept).unwrap();
    let cold = run_with(&line("--no-prefix-kv"), b"And then?\n");
    assert_eq!(ran.ok(), cold.ok());
}

#[test]
fn a_folder_that_cannot_be_used_is_said_and_the_reply_comes_all_the_same() {
    let model = qwen2();
    let prompt = ids(100, 5);
    let want = run_with(&generate(&model, "-n 3 --quiet"), line(&prompt).as_bytes()).ok();
    let file = write("no-folder", b"");
    let args = with_dir(&model, Path::new(&file), "-n 3");
    let said = run_with(&args, line(&prompt).as_bytes()).line(1);
    assert!(said.contains("no-folder"), "{said}");
    // The folder goes away while the process lives.
    let dir = fresh("gone");
    let mut server = Server::start(&with_dir(&model, &dir, "-n 3"));
    server.say(&line(&prompt));
    assert_eq!(server.answer(), want);
    std::thread::sleep(Duration::from_millis(100));
    std::fs::remove_dir_all(&dir).unwrap();
    let other = ids(150, 6);
    server.say(&line(&other));
    assert_eq!(server.answer(), run_with(&generate(&model, "-n 3 --quiet"), line(&other).as_bytes()).ok());
    drop(server.0.stdin.take());
    assert!(server.0.wait().unwrap().success());
    // Wrong flags are said before anything is done.
    let said = run(&words(&format!("generate -m {model} --ids 1 -n 1 --disk-kv-sync"))).line(2);
    assert!(said.contains("need --disk-kv DIR"), "{said}");
}

#[test]
fn the_limits_hold() {
    let model = qwen2();
    let dir = fresh("limits");
    let prompt = |seed| ids(300, seed);
    let block = {
        run_with(&with_dir(&model, &dir, "-n 1"), line(&prompt(1)).as_bytes()).ok();
        files(&dir).iter().map(|(_, bytes)| *bytes).max().unwrap()
    };
    let input: String = (2..8).map(|seed| line(&prompt(seed))).collect();
    run_with(&with_dir(&model, &dir, "-n 1"), input.as_bytes()).ok();
    // An hour passes.
    let hour = SystemTime::now() - Duration::from_secs(3600);
    for (path, _) in files(&dir) {
        std::fs::File::open(path).unwrap().set_modified(hour).unwrap();
    }
    let most = block * 20;
    let limited = with_dir(&model, &dir, &format!("-n 1 --disk-kv-max-bytes {most}"));
    let ran = run_with(&limited, line(&prompt(8)).as_bytes());
    assert_eq!(ran.code, 0, "{}", ran.err);
    let bytes: u64 = files(&dir).iter().map(|(_, bytes)| *bytes).sum();
    assert!(bytes <= most, "{bytes} of {most}");
    // What was used last is there still.
    let ran = run_with(&with_dir(&model, &dir, "-n 1"), line(&prompt(8)).as_bytes());
    assert_eq!(number(&ran.err, "[KV-DISK] loaded "), Some(299), "{}", ran.err);
}

#[test]
fn verify_passes_here() {
    for model in [qwen2(), qwen3()] {
        let args = words(&format!("verify -m {model} --dir {}", scratch().display()));
        let out = run(&args).ok();
        let (hash, verdict) = out.trim_end().split_once(' ').unwrap();
        assert_eq!((hash.len(), verdict), (64, "PASS"));
        let scalar = words(&format!("verify -m {model} --kernels scalar --threads 1 --quiet"));
        assert_eq!(run(&scalar).ok(), out);
    }
}

#[test]
fn the_experiment_of_the_bench_runs() {
    let dir = scratch().join("bench");
    std::fs::create_dir_all(&dir).unwrap();
    let args = words(&format!(
        "bench -m {} --restore 200 --more 5 --reps 3 --json --dir {}",
        qwen2(),
        dir.display()
    ));
    let report: serde_json::Value = serde_json::from_str(&run(&args).ok()).unwrap();
    // What one restart saves is neither in the way of the next nor found by it.
    assert_eq!(report["loaded_tokens_samples"], serde_json::json!([200, 200, 200]));
    assert_eq!(report["loaded_tokens"], 200);
    assert_eq!(report["restored_ms_samples"].as_array().unwrap().len(), 3);
    assert!(report["ratio"].as_f64().unwrap() > 0.0);
    assert!(report["bytes"].as_u64().unwrap() > 0);
    assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 0, "nothing stays behind");
}
