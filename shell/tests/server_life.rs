//! `kinglet serve`: clients that leave, queues that are full, ends and beginnings. Must not know how.

mod common;

use common::life::fresh;
use common::server::{Server, read};
use common::{command, qwen3, scratch, words};
use core::time::Duration;
use serde_json::Value;
use std::io::Read;
use std::os::unix::net::UnixDatagram;

const CHAT: &str = "/v1/chat/completions";
/// A stream that goes on for long.
const LONG: &str = r#"{"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 7000,
    "ignore_eos": true, "stream": true}"#;

fn start(more: &str) -> Server {
    Server::start(&format!("-m {} -t 1 --ctx 8192 {more}", qwen3()))
}

fn value(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

/// Reads until the first token has come.
fn first_token(stream: &mut impl Read) {
    let mut text = Vec::new();
    let mut part = [0; 1024];
    while !String::from_utf8_lossy(&text).contains(r#""content":""#) {
        let len = stream.read(&mut part).unwrap();
        assert!(len > 0, "{}", String::from_utf8_lossy(&text));
        text.extend_from_slice(&part[..len]);
    }
}

fn metric(server: &Server, name: &str) -> u64 {
    let text = server.get("/metrics").body;
    let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.trim().parse().unwrap()
}

#[test]
fn a_client_that_leaves_ends_its_reply() {
    let server = start("");
    for (body, reads) in
        [(LONG.into(), true), (LONG.replace(r#""stream": true"#, r#""stream": false"#), false)]
    {
        let before = metric(&server, "kinglet_jobs_cancelled_total ");
        let mut stream = server.send("POST", CHAT, "", &body);
        if reads {
            first_token(&mut stream);
        }
        server.wait_status(&|status| status["active"] == value("1"));
        drop(stream);
        server.wait_status(&|status| status["active"] == value("0"));
        assert_eq!(metric(&server, "kinglet_jobs_cancelled_total "), before + 1);
    }
    server.wait_status(&|status| status["last"][0]["status"] == value("499"));
}

#[test]
fn a_full_queue_says_when_to_come_again() {
    let server = start("--parallel 1 --queue 0");
    let mut stream = server.send("POST", CHAT, "", LONG);
    first_token(&mut stream);
    let refused = server.post(CHAT, r#"{"messages": [{"role": "user", "content": "Hi"}]}"#);
    assert_eq!((refused.status, &refused.json()["error"]["code"]), (429, &"queue_full".into()));
    assert!(refused.head.contains("retry-after: "), "{}", refused.head);
    drop(stream);
    server.wait_status(&|status| status["active"] == value("0"));
    // More replies than places: they take turns.
    let many = server
        .post("/v1/completions", r#"{"prompt": ["a", "b", "c"], "n": 2, "max_tokens": 3, "temperature": 0}"#)
        .ok();
    assert_eq!(many["choices"].as_array().unwrap().len(), 6);
    assert_eq!(many["choices"][0]["text"], many["choices"][1]["text"]);
}

#[test]
fn company_changes_no_reply() {
    let server = start("--parallel 3");
    let body = |i: usize| {
        format!(
            r#"{{"messages": [{{"role": "user", "content": "tell me about {i}"}}], "max_tokens": 40,
                "temperature": 0}}"#
        )
    };
    let text = |reply: Value| String::from(reply["choices"][0]["message"]["content"].as_str().unwrap());
    let alone: Vec<String> = (0..5).map(|i| text(server.post(CHAT, &body(i)).ok())).collect();
    assert_eq!(server.post("/admin/api/kv/clear", "").status, 200);
    let together: Vec<String> = std::thread::scope(|scope| {
        let server = &server;
        let asked: Vec<_> =
            (0..5).map(|i| scope.spawn(move || text(server.post(CHAT, &body(i)).ok()))).collect();
        asked.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(together, alone);
}

#[test]
fn a_killed_server_goes_on_from_disk() {
    let dir = fresh("server-disk");
    let flags = format!("--disk-kv {}", dir.display());
    let long = "The history of a long conversation, told again and again. ".repeat(12);
    let body = format!(
        r#"{{"messages": [{{"role": "user", "content": "{long}"}}], "max_tokens": 8, "temperature": 0}}"#
    );
    let mut server = start(&flags);
    let first = server.post(CHAT, &body).ok();
    server.wait_status(&|status| {
        let kv = |name: &str| status["kv"][name].as_u64().unwrap();
        kv("saved") >= 3 && status["disk"]["pending"] == value("0")
    });
    assert_eq!(server.signal(9), None);
    let server = start(&flags);
    let again = server.post(CHAT, &body).ok();
    assert_eq!(again["choices"], first["choices"]);
    let cache = &again["timings"]["cache"];
    assert_eq!(cache["source"], "disk", "{cache}");
    assert!(
        cache["disk_tokens"].as_u64().unwrap() >= 96 && cache["restore_ms"].as_f64().unwrap() > 0.0,
        "{cache}"
    );
    let status = server.status();
    assert_eq!((&status["last"][0]["source"], &status["disk"]["paused"]), (&"disk".into(), &Value::Null));
}

#[test]
fn sigterm_lets_replies_end_and_tells_systemd() {
    let path = scratch().join("notify");
    let _ = std::fs::remove_file(&path);
    let systemd = UnixDatagram::bind(&path).unwrap();
    systemd.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let mut command = command(&words(&format!("serve --port 0 -m {} -t 1 --ctx 1024", qwen3())));
    command.env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", "400000");
    let mut server = Server::of(command);
    let heard = |word: &str| {
        let mut buffer = [0; 64];
        for _ in 0..100 {
            let len = systemd.recv(&mut buffer).unwrap();
            if buffer[..len] == *word.as_bytes() {
                return;
            }
        }
        panic!("{word}");
    };
    heard("READY=1");
    heard("WATCHDOG=1");
    let body = r#"{"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 200, "ignore_eos": true,
        "stream": true}"#;
    let stream = server.send("POST", CHAT, "", body);
    server.wait_status(&|status| status["active"] == value("1"));
    assert_eq!(server.signal(15), Some(143));
    heard("STOPPING=1");
    let reply = read(stream);
    let values = reply.values();
    let last = &values.last().unwrap()["choices"][0];
    assert_eq!(
        (reply.events().last().unwrap().as_str(), &last["finish_reason"]),
        ("[DONE]", &"length".into())
    );
}

#[test]
fn an_admin_shuts_it_down() {
    let mut server = start("");
    assert_eq!(server.post("/admin/api/shutdown", "").status, 202);
    let start = std::time::Instant::now();
    let code = loop {
        if let Some(status) = server.child.try_wait().unwrap() {
            break status.code();
        }
        assert!(start.elapsed() < Duration::from_secs(30), "{}", server.log());
        std::thread::sleep(Duration::from_millis(20));
    };
    assert_eq!(code, Some(0));
}

/// Time that the threads of a name have computed so far, in ticks of the system.
fn ticks(server: &Server, name: &str) -> u64 {
    let mut sum = 0;
    for task in std::fs::read_dir(format!("/proc/{}/task", server.child.id())).unwrap() {
        // A thread may end meanwhile.
        let Ok(stat) = std::fs::read_to_string(task.unwrap().path().join("stat")) else { continue };
        let (front, back) = stat.rsplit_once(") ").unwrap();
        if front.ends_with(&format!("({name}")) {
            sum += back.split(' ').skip(11).take(2).map(|n| n.parse::<u64>().unwrap()).sum::<u64>();
        }
    }
    sum
}

/// A request with more replies than places has had its first one, and the place goes to another.
#[test]
fn who_waits_for_a_place_takes_no_time_from_the_engine() {
    let server = start("--parallel 1 --queue 0");
    let n = |value: &Value| value.as_u64().unwrap();
    let many = r#"{"prompt": "a", "n": 8, "max_tokens": 150, "ignore_eos": true}"#;
    let mut first = server.send("POST", "/v1/completions", "", many);
    server.wait_status(&|status| n(&status["active"]) == 1);
    let long = r#"{"prompt": "b b b b b b b b b b b b", "max_tokens": 8000, "ignore_eos": true}"#;
    std::thread::scope(|scope| {
        let asked = scope.spawn(|| {
            loop {
                let reply = server.post("/v1/completions", long);
                if reply.status != 429 {
                    break reply.status;
                }
                std::thread::sleep(Duration::from_millis(2));
            }
        });
        let since = |least: u64| {
            server.wait_status(&|status| {
                let slot = &status["slots"][0];
                n(&slot["prompt_tokens"]) > 9 && n(&slot["decoded_tokens"]) > least
            })
        };
        since(0);
        let (engine, http) = (ticks(&server, "engine"), ticks(&server, "http"));
        since(4000);
        let (engine, http) = (ticks(&server, "engine") - engine, ticks(&server, "http").saturating_sub(http));
        assert!(2 * http < engine, "{http} ticks for connections, {engine} for the engine");
        assert_eq!(asked.join().unwrap(), 200);
    });
    let mut text = String::new();
    first.read_to_string(&mut text).unwrap();
    let reply = value(text.split_once("\r\n\r\n").unwrap().1);
    assert_eq!(reply["choices"].as_array().unwrap().len(), 8);
}

/// What is forgotten is what nobody uses, whenever it is asked for, and by however many.
#[test]
fn clearing_and_leaving_while_replies_are_written_change_nothing() {
    let server = start("--parallel 2");
    let body = r#"{"prompt": "one two three four five six seven eight nine ten", "max_tokens": 300,
        "ignore_eos": true, "temperature": 0}"#;
    let text =
        || String::from(server.post("/v1/completions", body).ok()["choices"][0]["text"].as_str().unwrap());
    let alone = text();
    std::thread::scope(|scope| {
        let replies: Vec<_> = (0..2).map(|_| scope.spawn(|| [text(), text(), text()])).collect();
        let clears: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    for _ in 0..40 {
                        assert_eq!(server.post("/admin/api/kv/clear", "").status, 200);
                        // Gone before it is answered, or even placed.
                        drop(server.send("POST", "/v1/completions", "", body));
                    }
                })
            })
            .collect();
        clears.into_iter().for_each(|thread| thread.join().unwrap());
        for reply in replies {
            assert_eq!(reply.join().unwrap(), [alone.as_str(); 3]);
        }
    });
    server.wait_status(&|status| status["active"] == value("0") && status["queued"] == value("0"));
    assert_eq!(metric(&server, "kinglet_jobs_failed_total "), 0);
    server.post("/admin/api/kv/clear", "").ok();
    let status = server.status();
    assert_eq!(status["kv"]["free"], status["kv"]["blocks"], "{status}");
}
