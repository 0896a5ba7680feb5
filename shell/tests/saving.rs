//! What is written to the cache on disk, when, and what that takes.

mod common;

use common::life::{Server, durable, files, fresh, generate, ids, line, number, with_dir};
use common::{qwen2, run, run_with, words};
use core::time::Duration;
use kinglet_core::kv::file::read_header;
use kinglet_core::kv::header::HEADER_BYTES;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// The block files below `dir`, with their sizes.
fn blocks(dir: &Path) -> Vec<(PathBuf, u64)> {
    let is_block = |(path, _): &(PathBuf, u64)| path.extension().is_some_and(|e| e == "kv");
    files(dir).into_iter().filter(is_block).collect()
}

/// Waits for what the process does in the background; if it does not come, its lines say why.
fn until(server: Server, what: &str, over: &mut dyn FnMut() -> bool) -> Server {
    let start = Instant::now();
    while !over() {
        if start.elapsed() > Duration::from_secs(120) {
            panic!("{what} did not come: {}", server.kill());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    server
}

#[test]
fn only_new_blocks_are_written() {
    let model = qwen2();
    let dir = fresh("shared");
    let head = ids(320, 1);
    let with = |tail: &[u32]| -> Vec<u32> { head.iter().chain(tail).copied().collect() };
    let ask = |ids: &[u32]| {
        let before = blocks(&dir);
        let ran = run_with(&with_dir(&model, &dir, "-n 1"), line(ids).as_bytes());
        assert_eq!(ran.code, 0, "{}", ran.err);
        let after = blocks(&dir);
        assert!(before.iter().all(|block| after.contains(block)));
        after.len() - before.len()
    };
    assert_eq!(ask(&with(&ids(70, 8))), 12);
    // Another conversation with the same ten blocks adds its own two.
    assert_eq!(ask(&with(&ids(70, 9))), 2);
    // A follow-up turn adds what is new.
    let more: Vec<u32> = ids(70, 9).into_iter().chain(ids(60, 4)).collect();
    assert_eq!(ask(&with(&more)), 2);
    assert_eq!(ask(&with(&more)), 0);
    // All files are a header and what the tokens take in memory.
    let sizes: Vec<u64> = blocks(&dir).into_iter().map(|(_, bytes)| bytes).collect();
    let payload = sizes[0] - HEADER_BYTES as u64;
    assert!(sizes.iter().all(|bytes| *bytes == sizes[0]));
    assert_eq!(payload, kv_bytes_per_token(&model) * 32);
}

/// What `inspect` says of the KV of a token: the memory's arithmetic, not the file's.
fn kv_bytes_per_token(model: &str) -> u64 {
    let report = run(&words(&format!("inspect {model} --json"))).ok();
    let report: serde_json::Value = serde_json::from_str(&report).unwrap();
    let row = &report["memory"][0];
    row["kv"].as_u64().unwrap() / row["ctx"].as_u64().unwrap()
}

#[test]
fn with_sync_an_answer_means_that_all_of_it_is_safe() {
    let model = qwen2();
    let dir = fresh("sync");
    // Many more blocks than buffers, which are two and one for each block of a batch.
    let prompt = ids(900, 2);
    let mut server = Server::start(&with_dir(&model, &dir, "-n 40 --batch 32 --disk-kv-sync"));
    server.say(&line(&prompt));
    let answer = server.answer();
    server.kill();
    let mut whole = prompt.clone();
    whole.extend(answer.trim().split(',').map(|id| id.parse::<u32>().unwrap()));
    // The last token was never computed.
    assert_eq!(durable(&dir, &whole), 939 / 32 * 32);
    // The tail too: a follow-up finds every token.
    whole.extend([1, 2, 3]);
    let ran = run_with(&with_dir(&model, &dir, "-n 1"), line(&whole).as_bytes());
    assert_eq!(number(&ran.err, "[KV-DISK] loaded "), Some(939), "{}", ran.err);
}

#[test]
fn files_that_went_are_written_again() {
    let model = qwen2();
    let dir = fresh("again");
    let mut server = Server::start(&with_dir(&model, &dir, "-n 1 --disk-kv-sync"));
    let mut prompt = ids(200, 3);
    server.say(&line(&prompt));
    server.answer();
    assert_eq!(durable(&dir, &prompt), 192);
    // Another process makes room, from the end of a conversation to its beginning; this one has it in
    // memory.
    let mut there = blocks(&dir);
    assert_eq!(there.len(), 6);
    let position = |path: &Path| {
        let bytes = std::fs::read(path).unwrap();
        read_header(&mut &bytes[..HEADER_BYTES]).unwrap().position()
    };
    there.sort_by_key(|(path, _)| position(path));
    there[2..].iter().for_each(|(path, _)| std::fs::remove_file(path).unwrap());
    assert_eq!(durable(&dir, &prompt), 64);
    // What goes on in memory is whole on disk again after its next turn.
    prompt.extend(ids(60, 4));
    server.say(&line(&prompt));
    server.answer();
    let err = server.kill();
    assert!(err.contains("[KV-PREFIX] reused 200 tokens"), "{err}");
    assert_eq!(durable(&dir, &prompt), 256);
}

#[test]
fn a_pause_ends_while_nothing_is_asked() {
    let model = qwen2();
    let (dir, aside) = (fresh("pause"), fresh("pause-aside"));
    let mut server = Server::start(&with_dir(&model, &dir, "-n 1"));
    server.say(&line(&ids(50, 3)));
    server.answer();
    server = until(server, "the first block", &mut || durable(&dir, &ids(50, 3)) == 32);
    // The folder of the model becomes a file, so nothing can be made in it.
    let folder = std::fs::read_dir(&dir).unwrap().map(|e| e.unwrap().path()).find(|p| p.is_dir()).unwrap();
    std::fs::rename(&folder, &aside).unwrap();
    std::fs::write(&folder, b"").unwrap();
    let prompt = ids(200, 5);
    server.say(&line(&prompt));
    let want = run_with(&generate(&model, "-n 1 --quiet"), line(&prompt).as_bytes()).ok();
    assert_eq!(server.answer(), want);
    assert_eq!(durable(&dir, &prompt), 0);
    std::fs::remove_file(&folder).unwrap();
    std::fs::rename(&aside, &folder).unwrap();
    // It tries again by itself; nobody asks for anything.
    server = until(server, "another try", &mut || durable(&dir, &prompt) == 192);
    drop(server.0.stdin.take());
    assert!(server.0.wait().unwrap().success());
}

#[test]
fn memory_does_not_grow_over_a_thousand_requests() {
    let model = qwen2();
    let dir = fresh("thousand");
    let mut server = Server::start(&with_dir(&model, &dir, "-n 2 --disk-kv-max-bytes 4000000"));
    // Or it would wait for somebody to read its lines.
    let mut stderr = server.0.stderr.take().unwrap();
    let lines = std::thread::spawn(move || {
        let mut err = String::new();
        stderr.read_to_string(&mut err).map(|_| err)
    });
    let status = format!("/proc/{}/status", server.0.id());
    let resident = || {
        let text = std::fs::read_to_string(&status).unwrap();
        number(&text.replace([' ', '\t'], ""), "VmRSS:").unwrap()
    };
    let mut after_some = 0;
    for request in 0..1000 {
        // Three in four are new, every fourth comes back; of different lengths.
        let seed = if request % 4 == 3 { request % 40 } else { request };
        server.say(&line(&ids(40 + request % 7 * 25, seed)));
        server.answer();
        if request == 199 {
            // By then every page of the pool and of the buffers has been touched, and the limit is reached.
            after_some = resident();
        }
    }
    let end = resident();
    drop(server);
    let err = lines.join().unwrap().unwrap();
    assert!(err.matches("[KV-PREFIX] reused ").count() >= 100, "{err}");
    let on_disk: u64 = files(&dir).iter().map(|(_, bytes)| *bytes).sum();
    assert!(on_disk > 1_000_000, "{on_disk}");
    assert!(end * 100 <= after_some * 102, "{after_some} kB after 200 requests, {end} kB after 1,000");
}
