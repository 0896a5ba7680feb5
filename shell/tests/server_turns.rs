//! `kinglet serve` and conversations: another topic, the same again and again, a server that is killed under
//! load. Must not know how.

mod common;

use common::life::fresh;
use common::load::*;
use common::server::Server;
use common::{command, qwen3, run, words};
use core::sync::atomic::{AtomicUsize, Ordering};
use core::time::Duration;
use serde_json::{Value, json};
use std::time::Instant;

fn start(more: &str) -> Server {
    Server::start(&format!("-m {} -t 1 {more}", qwen3()))
}

/// How often the server said that it took over a prefix, once it has logged `requests` replies.
fn reuses(server: &Server, requests: usize) -> usize {
    let start = Instant::now();
    loop {
        let log = server.log();
        if log.matches(" POST /v1/").count() == requests {
            return log.matches("[KV-PREFIX] reused").count();
        }
        assert!(start.elapsed() < Duration::from_secs(60), "{log}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn cached(reply: &Value) -> u64 {
    reply["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap()
}

/// The first experiment: A, A goes on, B about something else, A goes on.
#[test]
fn another_topic_reuses_nothing_and_the_first_one_is_there_when_it_returns() {
    let server = start("--ctx 2048");
    let ask = |prompt: &str| {
        let body = json!({"prompt": prompt, "temperature": 0, "max_tokens": 8});
        let reply = server.post(TEXT, &body.to_string()).ok();
        (String::from(reply["choices"][0]["text"].as_str().unwrap()), reply)
    };
    let mut topic = "The river runs through the old town, and the town has grown with it. ".repeat(8);
    let (said, first) = ask(&topic);
    assert_eq!((cached(&first), reuses(&server, 1)), (0, 0));
    topic += &(said + " And then?");
    let (said, second) = ask(&topic);
    let prompt = |reply: &Value| reply["usage"]["prompt_tokens"].as_u64().unwrap();
    assert!(cached(&second) >= prompt(&first), "{second}");
    assert_eq!(reuses(&server, 2), 1);
    let (_, other) = ask(&"Numbers: 17, 23, 42, 99, 1024. Sort them from the largest down. ".repeat(8));
    assert_eq!((cached(&other), reuses(&server, 3)), (0, 1), "{}", server.log());
    assert_eq!(other["timings"]["cache"]["source"], "none");
    topic += &(said + " And in the end?");
    let (_, third) = ask(&topic);
    assert!(cached(&third) >= prompt(&second), "{third}");
    assert_eq!((reuses(&server, 4), &third["timings"]["cache"]["source"]), (2, &"ram".into()));
    // Chats have the beginning of their template in common, and no more.
    let chat = |text: &str| {
        let body = json!({"messages": [{"role": "user", "content": text}], "max_tokens": 1});
        cached(&server.post(CHAT, &body.to_string()).ok())
    };
    chat(&"Tell me about the river. ".repeat(8));
    assert!(chat(&"17 and 23 are prime. ".repeat(8)) <= 3);
    assert!(chat(&"Tell me about the river. ".repeat(9)) > 32);
}

/// The second experiment: a prefix that is taken over takes no memory of its own.
#[test]
fn turns_that_reuse_a_prefix_take_no_memory() {
    let mut command = command(&words(&format!("serve --port 0 -m {} -t 1 --ctx 2048", qwen3())));
    // As in `server_load.rs`.
    command.env("MALLOC_ARENA_MAX", "1");
    let server = Server::of(command);
    let text = "A long story that is told once more, from its beginning on. ".repeat(20);
    let ask = |i: usize, reuse: bool| {
        let prompt = format!("{text}{i}");
        let body = json!({"prompt": prompt, "temperature": 0, "max_tokens": 16, "cache_prompt": reuse});
        cached(&server.post(TEXT, &body.to_string()).ok())
    };
    // Computed each time, and others, until every block of the cache has been in use.
    for i in 0..20 {
        assert_eq!(ask(i, false), 0);
        let other = json!({"prompt": format!("{i} {text}"), "max_tokens": 16});
        server.post(TEXT, &other.to_string()).ok();
    }
    let kv = server.status()["kv"].clone();
    assert_eq!(kv["free"].as_u64(), Some(0), "{kv}");
    let before = resident(&server);
    for i in 20..80 {
        let cached = ask(i, true);
        assert!(cached >= 200, "{cached}");
        let now = resident(&server);
        assert!(now * 100 <= before * 102, "{before} kB without reuse, {now} kB at turn {i}");
    }
    wait_idle(&server);
}

fn next(history: &[Value]) -> String {
    json!({"messages": history, "temperature": 0, "max_tokens": 10}).to_string()
}

fn content(reply: &Value) -> &Value {
    &reply["choices"][0]["message"]["content"]
}

#[test]
fn clients_of_a_server_that_was_killed_go_on_from_disk() {
    let dir = fresh("server-killed");
    let flags = format!("--ctx 8192 --disk-kv {}", dir.display());
    let mut server = start(&flags);
    let user = |text: String| json!({"role": "user", "content": text});
    let mut talks: Vec<Vec<Value>> =
        (0..4).map(|i| vec![user(format!("{i}{}", " and so on".repeat(60 + i)))]).collect();
    for talk in &mut talks {
        let reply = server.post(CHAT, &next(talk)).ok();
        talk.push(json!({"role": "assistant", "content": content(&reply)}));
    }
    server.wait_status(&|status| {
        status["disk"]["saved"].as_u64() >= Some(8) && status["disk"]["pending"].as_u64() == Some(0)
    });
    // They go on talking until the server is no more.
    let (address, turns) = (server.address.clone(), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for talk in &mut talks {
            let (address, turns, user) = (&address, &turns, &user);
            scope.spawn(move || {
                for turn in 0..100 {
                    talk.push(user(format!("turn {turn}, please")));
                    let Some(reply) = try_post(address, CHAT, &next(talk)) else { return };
                    talk.push(json!({"role": "assistant", "content": content(&reply)}));
                    turns.fetch_add(1, Ordering::Relaxed);
                }
                talk.push(user(String::from("enough")));
            });
        }
        while turns.load(Ordering::Relaxed) < 12 {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(server.signal(9), None);
    });
    let (again, plain) = (start(&flags), start("--ctx 8192"));
    for talk in &talks {
        assert!(talk.len() >= 3 && talk.last().unwrap()["role"] == "user");
        let (ours, theirs) = (again.post(CHAT, &next(talk)).ok(), plain.post(CHAT, &next(talk)).ok());
        let cache = &ours["timings"]["cache"];
        assert_eq!(cache["source"], "disk", "{cache}");
        assert!(cache["disk_tokens"].as_u64() >= Some(32), "{cache}");
        assert_eq!(content(&ours), content(&theirs));
        assert_eq!(ours["usage"]["prompt_tokens"], theirs["usage"]["prompt_tokens"]);
    }
    assert_eq!(again.status()["disk"]["bad"].as_u64(), Some(0));
    drop(again);
    run(&["kv", "fsck", "--disk-kv", &dir.display().to_string()]).ok();
}
