//! Many requests, sound and not, and what becomes of a server's memory. Must not know what is tested.
#![allow(dead_code, reason = "each test file uses a part of it")]

use super::server::Server;
use serde_json::Value;
use std::io::{Read, Write};
use std::net::TcpStream;

pub const CHAT: &str = "/v1/chat/completions";
pub const TEXT: &str = "/v1/completions";
pub const MESSAGES: &str = "/v1/messages";

/// xorshift64*
pub struct Rng(pub u64);

impl Rng {
    pub fn below(&mut self, most: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) as usize % most
    }

    pub fn pick<'t>(&mut self, from: &[&'t str]) -> &'t str {
        from[self.below(from.len())]
    }
}

/// Resident memory of a server in kB.
pub fn resident(server: &Server) -> u64 {
    let path = format!("/proc/{}/status", server.child.id());
    let text = std::fs::read_to_string(path).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse().unwrap()
}

/// A number of `/metrics`.
pub fn metric(server: &Server, name: &str) -> u64 {
    let text = server.get("/metrics").body;
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap().parse().unwrap()
}

/// Waits until nothing is under way; the numbers must say so too.
#[track_caller]
pub fn wait_idle(server: &Server) -> Value {
    let n = |value: &Value| value.as_u64().unwrap();
    let status = server.wait_status(&|status| {
        let kv = &status["kv"];
        // What is shown of the blocks is at most a moment older.
        n(&status["active"]) + n(&status["queued"]) + n(&kv["private"]) + n(&kv["shared"]) == 0
    });
    let kv = &status["kv"];
    assert_eq!(n(&kv["free"]) + n(&kv["cached"]), n(&kv["blocks"]), "{status}");
    assert!(status["slots"].as_array().unwrap().iter().all(|slot| slot["state"] == "idle"), "{status}");
    assert_eq!(status["busy"], false);
    status
}

/// What an answer says, whichever API it is of, whole or as a stream.
#[track_caller]
pub fn said(path: &str, reply: &super::server::Reply) -> String {
    if !reply.head.contains("text/event-stream") {
        let reply = reply.ok();
        let text = match path {
            CHAT => &reply["choices"][0]["message"]["content"],
            TEXT => &reply["choices"][0]["text"],
            _ => &reply["content"][0]["text"],
        };
        return text.as_str().unwrap_or_else(|| panic!("{reply}")).into();
    }
    let text = |value: &Value| match path {
        CHAT => value["choices"][0]["delta"]["content"].as_str().map(String::from),
        TEXT => value["choices"][0]["text"].as_str().map(String::from),
        _ => value["delta"]["text"].as_str().map(String::from),
    };
    let last = if path == MESSAGES { r#"{"type":"message_stop"}"# } else { "[DONE]" };
    assert_eq!(reply.events().last().map(String::as_str), Some(last));
    reply.values().iter().filter_map(text).collect()
}

/// Deepest nesting of malformed requests.
const DEEPEST: usize = 20_000;

/// The largest malformed request that [`bad_json`] makes, to an endpoint that has no numbers of its own.
pub fn largest(server: &Server) -> String {
    let (body, host) = ("\"a\":[".repeat(DEEPEST), &server.address);
    format!("POST /tokenize HTTP/1.1\r\nHost: {host}\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

/// A request whose body is no JSON, or JSON that is not a request; what it must say is 400.
pub fn bad_json(rng: &mut Rng) -> (&'static str, Vec<u8>) {
    let sound = r#"{"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2, "prompt": "Hi"}"#;
    let path = rng.pick(&[CHAT, TEXT, MESSAGES]);
    let mut bytes = Vec::from(sound);
    match rng.below(5) {
        0 => bytes.truncate(rng.below(bytes.len())),
        1 => {
            bytes = [&[b"["[0], b"{"[0]][rng.below(2)..][..1], b"\"a\":["].concat().repeat(rng.below(DEEPEST))
        }
        // No text is UTF-8 with this in it.
        2 => bytes.insert(rng.below(sound.len()), 0xFF),
        3 => {
            let odd = ["\\ud800", "\\udc00\\ud800", "\\x", "\n", "\0", "\\u12", "\""];
            bytes = sound.replace("Hi", rng.pick(&odd)).into();
        }
        _ => {
            let (name, values): (&str, &[&str]) = match rng.below(9) {
                0 => ("n", &["0", "-1", "9", "1e300", "1.5", "\"1\"", "99999999999999999999999"]),
                1 => ("temperature", &["-0.1", "1e400", "-1e400", "101", "\"hot\"", "[]", "{}"]),
                2 => ("top_p", &["2", "-1e-9", "true"]),
                3 => ("stop", &["[\"\"]", "\"\"", "5", "[[\"x\"]]", "{}"]),
                4 => ("logit_bias", &["{\"999999999\": 1}", "{\"-1\": 1}", "{\"1\": 1e9}", "[1]", "7"]),
                5 => ("seed", &["1.5", "1e30", "\"x\"", "[0]"]),
                6 => ("stream", &["1", "\"true\"", "[]"]),
                7 => ("model", &["1", "{}", "[\"m\"]"]),
                _ => ("top_k", &["-2", "1e99", "4294967296", "\"4\""]),
            };
            let value = rng.pick(values);
            bytes = sound.replacen('{', &format!("{{\"{name}\": {value}, "), 1).into();
        }
    }
    (path, bytes)
}

/// Asks a server that may end meanwhile.
pub fn try_post(address: &str, path: &str, body: &str) -> Option<Value> {
    let mut stream = TcpStream::connect(address).ok()?;
    let head = format!("POST {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n");
    stream.write_all(format!("{head}Content-Length: {}\r\n\r\n{body}", body.len()).as_bytes()).ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    let (head, body) = text.split_once("\r\n\r\n")?;
    assert!(head.starts_with("HTTP/1.1 200"), "{text}");
    serde_json::from_str(body).ok()
}

/// Bytes that are no HTTP request, or none that may be answered.
pub fn bad_http(rng: &mut Rng) -> Vec<u8> {
    let host = "Host: localhost\r\n";
    let body = "{\"prompt\": \"Hi\"}";
    let post = format!("POST {TEXT} HTTP/1.1\r\n");
    let text = match rng.below(12) {
        0 => return (0..1 + rng.below(300)).map(|_| rng.below(256) as u8).chain(*b"\r\n\r\n").collect(),
        1 => format!("{post}Content-Length: 16\r\n\r\n{body}"),
        2 => format!("{post}{host}Content-Length: 16\r\nContent-Length: 16\r\n\r\n{body}"),
        3 => format!("{post}{host}Content-Length: -16\r\n\r\n{body}"),
        4 => format!("{post}{host}Content-Length: 99999999999999999999\r\n\r\n{body}"),
        5 => format!("{post}{host}Transfer-Encoding: chunked\r\nContent-Length: 16\r\n\r\n{body}"),
        6 => format!(
            "{post}{host}Transfer-Encoding: chunked\r\n\r\n{}\r\n{body}",
            rng.pick(&["x", "-1", "10"])
        ),
        7 => format!("{post}{host}{}\r\n", "X: y\r\n".repeat(90 + rng.below(2000))),
        8 => format!("{post}Host : localhost\r\n\r\n"),
        9 => format!("{}{host}\r\n", post.replace("1.1", rng.pick(&["2.0", "1.2", "3", "0.9", "x"]))),
        10 => format!("{}{host}\r\n", post.replace(TEXT, &"/x".repeat(9000))),
        // Cut off: the whole of it never comes.
        _ => post[..1 + rng.below(post.len() - 1)].into(),
    };
    text.into_bytes()
}

/// Sends bytes and reads what comes back until the end; all of it must be answers, and none a success.
#[track_caller]
pub fn send_bad(server: &Server, bytes: &[u8]) {
    let mut stream = server.connect();
    // It may have been refused before all is sent.
    let _ = stream.write_all(bytes);
    let _ = stream.shutdown(std::net::Shutdown::Write);
    let mut back = Vec::new();
    let _ = stream.read_to_end(&mut back);
    let text = String::from_utf8_lossy(&back);
    assert!(back.is_empty() || text.starts_with("HTTP/1.1 4") || text.starts_with("HTTP/1.1 50"), "{text}");
    assert!(!text.starts_with("HTTP/1.1 500"), "{text} to {}", String::from_utf8_lossy(bytes));
}

/// Reads a stream until `text` has come.
pub fn read_until(stream: &mut TcpStream, text: &str) {
    let mut all = Vec::new();
    let mut part = [0; 512];
    while !String::from_utf8_lossy(&all).contains(text) {
        let len = stream.read(&mut part).unwrap();
        assert!(len > 0, "{}", String::from_utf8_lossy(&all));
        all.extend_from_slice(&part[..len]);
    }
}
