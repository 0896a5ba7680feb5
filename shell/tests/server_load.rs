//! `kinglet serve` under load: connections that do nothing, requests that make no sense, clients that leave
//! or do not read. Must not know how.
//!
//! Memory is compared with what there is after 300 requests: until then the blocks of the cache are touched
//! for the first time, the lists of the latest requests and log lines fill up, and the heap grows to what
//! four clients need at a time. The allocator is told to have one heap, as that of the binary for the boards
//! has: glibc's otherwise makes one for each of many threads, which grow to that size one by one, as chance
//! has it.

mod common;

use common::load::*;
use common::server::{Server, read};
use common::{command, qwen3, words};
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use core::time::Duration;
use std::io::{Read, Write};
use std::net::TcpStream;

fn start(more: &str) -> Server {
    Server::start(&format!("-m {} -t 1 {more}", qwen3()))
}

/// Prompts that differ from their first word on, and are longer than a block.
fn prompt(i: usize) -> String {
    let words = ["one", "two", "river", "stone", "cloud", "seven", "green", "of", "night", "bread"];
    (0..30 + i * 3).map(|k| words[(i + k * (i + 1)) % words.len()]).collect::<Vec<_>>().join(" ")
}

/// Path and body of well-formed request `i`; greedy.
fn sound(i: usize, stream: bool) -> (&'static str, String) {
    let text = prompt(i % 10);
    let said = format!(r#""messages": [{{"role": "user", "content": "{text}"}}]"#);
    let (path, what) = match i % 3 {
        0 => (CHAT, said),
        1 => (TEXT, format!(r#""prompt": "{text}""#)),
        _ => (MESSAGES, said),
    };
    (path, format!(r#"{{{what}, "temperature": 0, "max_tokens": 12, "stream": {stream}}}"#))
}

const KINDS: usize = 30;

/// The right answers, each given alone.
fn alone(server: &Server) -> Vec<String> {
    let ask = |i| {
        let (path, body) = sound(i, false);
        said(path, &server.post(path, &body))
    };
    (0..KINDS).map(ask).collect()
}

#[test]
fn idle_and_slow_connections_keep_nobody_out() {
    let server = start("--ctx 1024");
    let expected = alone(&server);
    let idle: Vec<TcpStream> = (0..64).map(|_| server.connect()).collect();
    let host = &server.address;
    let text = format!(r#"{{"content": "{}"}}"#, "slow ".repeat(4000));
    let head = format!("POST /tokenize HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n");
    let length = format!("Content-Length: {}\r\n\r\n", text.len());
    // Four are slow with a head, four with a body.
    let mut slow: Vec<(TcpStream, Vec<u8>)> = (0..8)
        .map(|i| {
            let mut stream = server.connect();
            let early = if i < 4 { String::new() } else { [head.as_str(), &length].concat() };
            stream.write_all(early.as_bytes()).unwrap();
            (stream, if i < 4 { [head.as_str(), &length, &text].concat() } else { text.clone() }.into())
        })
        .collect();
    let (left, sent) = (AtomicUsize::new(4), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for client in 0..4 {
            let (server, expected, left) = (&server, &expected, &left);
            scope.spawn(move || {
                for i in (0..KINDS).skip(client).step_by(4) {
                    let (path, body) = sound(i, i % 2 == 0);
                    assert_eq!(said(path, &server.post(path, &body)), expected[i]);
                }
                left.fetch_sub(1, Ordering::Relaxed);
            });
        }
        while left.load(Ordering::Relaxed) > 0 {
            let at = sent.load(Ordering::Relaxed);
            for (stream, bytes) in &mut slow {
                // Whoever is too slow is sent away.
                let _ = bytes.get(at..at + 1).map(|byte| stream.write_all(byte));
            }
            sent.store(at + 1, Ordering::Relaxed);
            std::thread::sleep(Duration::from_millis(5));
        }
    });
    // Those that are in time are answered after all, the others were told.
    for (mut stream, bytes) in slow {
        let _ = stream.write_all(&bytes[sent.load(Ordering::Relaxed).min(bytes.len())..]);
        let mut back = Vec::new();
        let _ = stream.read_to_end(&mut back);
        let answered = [&b"HTTP/1.1 200"[..], b"HTTP/1.1 408"].iter().any(|start| back.starts_with(start));
        assert!(answered, "{}", String::from_utf8_lossy(&back));
    }
    let mut one = idle.into_iter().next_back().unwrap();
    one.write_all(format!("GET /health HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").as_bytes())
        .unwrap();
    assert_eq!(read(one).status, 200);
    wait_idle(&server);
}

/// What request `i` of the thousand is: 200 malformed, 100 that leave, 700 sound, well mixed.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Sound,
    BadHttp,
    BadJson,
    Leaves,
}

fn kind(i: usize) -> Kind {
    match i * 7 % 10 {
        0 => Kind::BadHttp,
        1 => Kind::BadJson,
        2 => Kind::Leaves,
        _ => Kind::Sound,
    }
}

fn one_of_many(server: &Server, expected: &[String], i: usize) {
    let mut rng = Rng(0x9E37_79B9_7F4A_7C15 ^ (i as u64) << 7);
    match kind(i) {
        Kind::Sound => {
            let (path, body) = sound(i % KINDS, i % 4 < 2);
            assert_eq!(said(path, &server.post(path, &body)), expected[i % KINDS], "{i}");
        }
        Kind::BadHttp => send_bad(server, &bad_http(&mut rng)),
        Kind::BadJson => {
            let (path, body) = bad_json(&mut rng);
            let host = &server.address;
            let head = format!("POST {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n");
            let mut stream = server.connect();
            stream.write_all(format!("{head}Content-Length: {}\r\n\r\n", body.len()).as_bytes()).unwrap();
            stream.write_all(&body).unwrap();
            let reply = read(stream);
            assert_eq!(reply.status, 400, "{i} {reply:?} to {}", String::from_utf8_lossy(&body));
        }
        Kind::Leaves => {
            let body = r#"{"prompt": "Hi", "max_tokens": 500, "ignore_eos": true, "stream": true}"#;
            let mut stream = server.send("POST", TEXT, "", body);
            read_until(&mut stream, "data: {");
        }
    }
}

#[test]
fn a_thousand_requests_of_which_many_are_malformed_or_given_up() {
    let mut command = command(&words(&format!("serve --port 0 -m {} -t 1 --ctx 1024", qwen3())));
    command.env("MALLOC_ARENA_MAX", "1");
    let server = Server::of(command);
    let expected = alone(&server);
    let http = metric(&server, "kinglet_http_requests_total");
    let count = |of: Kind, n: usize| (0..n).filter(|&i| kind(i) == of).count();
    assert_eq!(
        [Kind::Sound, Kind::BadHttp, Kind::BadJson, Kind::Leaves].map(|of| count(of, 1000)),
        [700, 100, 100, 100]
    );
    let run = |range: core::ops::Range<usize>| {
        let next = AtomicUsize::new(range.start);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    loop {
                        let i = next.fetch_add(1, Ordering::Relaxed);
                        if i >= range.end {
                            return;
                        }
                        one_of_many(&server, &expected, i);
                    }
                });
            }
        });
        wait_idle(&server)
    };
    run(0..300);
    // The largest there are, all at once, and more tokens than the cache holds.
    std::thread::scope(|scope| {
        for i in 0..4 {
            let (server, long) = (&server, "a b c d ".repeat(200 + i));
            scope.spawn(move || {
                send_bad(server, largest(server).as_bytes());
                server.post(TEXT, &format!(r#"{{"prompt": "{i} {long}", "max_tokens": 1}}"#)).ok();
            });
        }
    });
    wait_idle(&server);
    let before = resident(&server);
    let status = run(300..1000);
    let after = resident(&server);
    assert!(after * 100 <= before * 102, "{before} kB after 300 requests, {after} kB after 1000");

    // Requests for replies: the sound ones, those that left, and those whose JSON was wrong.
    let replies =
        KINDS + 4 + count(Kind::Sound, 1000) + count(Kind::Leaves, 1000) + count(Kind::BadJson, 1000);
    assert_eq!(status["total_requests"].as_u64(), Some(replies as u64));
    assert!(metric(&server, "kinglet_http_requests_total") > http + (replies - KINDS) as u64);
    let [ended, cancelled, failed, refused] = ["ended", "cancelled", "failed", "refused"]
        .map(|n| metric(&server, &format!("kinglet_jobs_{n}_total")));
    assert_eq!((failed, refused), (0, 0));
    assert_eq!(ended + cancelled, (KINDS + 4 + 800) as u64);
    // Hardly any reply of 500 tokens is over before its client has left.
    assert!((1..=100).contains(&cancelled), "{cancelled}");
    // Another version of HTTP is answered with 505; nothing else failed.
    assert!(metric(&server, "kinglet_http_requests_failed_total") <= count(Kind::BadHttp, 1000) as u64);
    assert!(server.log().lines().all(|line| !line.contains(" 500 ")), "{}", server.log());
    assert_eq!(alone(&server), expected);
}

/// Replies to clients that do not read them are computed all the same, and wait in memory; nobody else does.
#[test]
fn clients_that_do_not_read_hold_nobody_up() {
    let server = start("--ctx 4096 --parallel 4");
    let expected = alone(&server);
    // More than sockets hold: some megabytes of probabilities each.
    let body = r#"{"prompt": "Hi", "max_tokens": 3000, "ignore_eos": true, "stream": true, "logprobs": 20,
        "temperature": 0}"#;
    let before = resident(&server);
    let mut deaf: Vec<TcpStream> = (0..4).map(|_| server.send("POST", TEXT, "", body)).collect();
    let done = AtomicBool::new(false);
    let most = std::thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let mut most = 0;
            while !done.load(Ordering::Relaxed) {
                most = resident(&server).max(most);
                std::thread::sleep(Duration::from_millis(20));
            }
            most
        });
        for (i, expected) in expected.iter().enumerate() {
            let (path, body) = sound(i, true);
            assert_eq!(said(path, &server.post(path, &body)), *expected);
        }
        // The engine has long been through with them when they begin to read.
        wait_idle(&server);
        done.store(true, Ordering::Relaxed);
        watcher.join().unwrap()
    });
    assert!(most < before + 32_000, "{before} kB before, {most} kB meanwhile");
    drop(deaf.pop());
    for stream in deaf {
        let reply = read(stream);
        assert_eq!(reply.events().last().unwrap(), "[DONE]");
        assert!(reply.values().len() > 1000 && reply.body.len() > 1_000_000, "{}", reply.body.len());
    }
}

#[test]
fn a_second_sigterm_does_not_wait_for_replies() {
    let mut server = start("--ctx 8192");
    let body = r#"{"prompt": "Hi", "max_tokens": 8000, "ignore_eos": true, "stream": true, "logprobs": 5}"#;
    let mut streams: Vec<_> = (0..4).map(|_| server.send("POST", TEXT, "", body)).collect();
    streams.iter_mut().for_each(|stream| read_until(stream, "data: {"));
    let pid = server.child.id().to_string();
    assert!(std::process::Command::new("kill").args(["-15", &pid]).status().unwrap().success());
    server.wait_for("stopping");
    // Meanwhile it says that it ends, and takes nothing new.
    assert_eq!(server.get("/health").status, 503);
    let refused = server.post(TEXT, r#"{"prompt": "Hi"}"#);
    assert_eq!((refused.status, &refused.json()["error"]["code"]), (503, &"stopping".into()));
    assert_eq!(server.signal(15), Some(143));
}
