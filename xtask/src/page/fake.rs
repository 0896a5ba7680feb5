//! A stand-in for the server: the packed page with its headers, and an API that answers what a test needs,
//! in pieces as awkward as networks make them. Must not know the browser.

use super::replies::{self, Answer, Reply};
use super::status::State;
use super::wire::{self, Message};
use crate::sh::{Context, Outcome};
use core::time::Duration;
use serde_json::{Value, json};
use std::io::{BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The server; its threads end with the process.
pub struct Fake {
    /// Where it listens.
    pub address: String,
    shared: Arc<Shared>,
}

struct Shared {
    page: Vec<u8>,
    policy: String,
    state: Mutex<State>,
}

impl Fake {
    /// Serves a packed page under its policy, on a free port of the loopback interface.
    ///
    /// # Errors
    /// There is no such port.
    pub fn start(page: Vec<u8>, policy: String) -> Outcome<Fake> {
        let listener = TcpListener::bind("127.0.0.1:0").context("cannot listen")?;
        let address = format!("http://{}", listener.local_addr().context("cannot listen")?);
        let shared = Arc::new(Shared { page, policy, state: Mutex::new(State::new()) });
        let all = shared.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let shared = all.clone();
                std::thread::spawn(move || shared.connection(stream));
            }
        });
        Ok(Fake { address, shared })
    }

    /// What the server knows, to look at and to change.
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state()
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn connection(&self, stream: TcpStream) {
        // A client that goes away in the middle is part of the tests; what it missed is counted.
        let Ok(copy) = stream.try_clone() else { return };
        if let Ok(Some(request)) = wire::read(&mut BufReader::new(copy)) {
            let _ = self.answer(&request, stream);
        }
    }

    fn answer(&self, request: &Message, mut to: TcpStream) -> std::io::Result<()> {
        let mut words = request.first.split(' ');
        let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let key = self.state().key.clone();
        let is_known =
            key.is_none_or(|key| request.field("authorization") == Some(format!("Bearer {key}").as_str()));
        match (method, path) {
            ("GET", "/") => {
                let fields = format!(
                    "Content-Type: text/html; charset=utf-8\r\nContent-Encoding: gzip\r\n\
                     Content-Security-Policy: {}\r\nX-Content-Type-Options: nosniff\r\n",
                    self.policy
                );
                send(&mut to, 200, &fields, &self.page)
            }
            _ if !is_known => refuse(&mut to, 401, "", "This key is not known."),
            ("GET", "/v1/models") => {
                send_json(&mut to, 200, "", &json!({"object": "list", "data": [{"id": "fake-model"}]}))
            }
            ("GET", "/admin/api/status") => {
                let mut state = self.state();
                state.polls += 1;
                let report = state.report();
                drop(state);
                send_json(&mut to, 200, "", &report)
            }
            ("POST", "/v1/chat/completions") => self.chat(request, to),
            _ => refuse(&mut to, 404, "", "There is nothing here."),
        }
    }

    fn chat(&self, request: &Message, mut to: TcpStream) -> std::io::Result<()> {
        let Ok(body) = serde_json::from_slice::<Value>(&request.body) else {
            return refuse(&mut to, 400, "", "This is no JSON.");
        };
        let question =
            body["messages"].as_array().and_then(|all| all.last()).map(|last| last["content"].clone());
        let length = body["messages"].to_string().len();
        let turn = {
            let mut state = self.state();
            state.bodies.push(body);
            state.bodies.len()
        };
        match question {
            Some(Value::String(text)) => match replies::to(&text, turn) {
                Answer::Reply(reply) => self.stream(&reply, 40 + length / 2, to),
                Answer::Refused(status, fields, message) => refuse(&mut to, status, fields, message),
            },
            _ => refuse(&mut to, 400, "", "fake-model cannot see images: messages[0].content[0] is one"),
        }
    }

    fn stream(&self, reply: &Reply, prompt: usize, to: TcpStream) -> std::io::Result<()> {
        let cached = self.state().start(prompt);
        let mut stream = Stream { to, events: 0 };
        let whole = self.pieces(reply, prompt, cached, &mut stream);
        let mut state = self.state();
        if whole.is_err() {
            state.gone += 1;
        }
        state.end(cached, reply.source, if whole.is_ok() { "stop" } else { "gone" });
        whole
    }

    fn pieces(&self, reply: &Reply, prompt: usize, cached: usize, to: &mut Stream) -> std::io::Result<()> {
        to.begin()?;
        let progress = json!({"total": prompt, "cache": cached, "processed": prompt / 2});
        to.event(&json!({"choices": [], "prompt_progress": progress}))?;
        to.event(&choice(json!({"role": "assistant", "content": ""}), None))?;
        for (name, text) in [("reasoning_content", reply.reasoning), ("content", &reply.text)] {
            let letters: Vec<char> = text.chars().collect();
            for piece in letters.chunks(4) {
                std::thread::sleep(reply.pause);
                to.event(&choice(json!({name: piece.iter().collect::<String>()}), None))?;
                self.state().token();
            }
        }
        if reply.breaks {
            return Ok(());
        }
        let source = if cached > 0 { reply.source } else { "none" };
        let disk = if source == "disk" { cached } else { 0 };
        let mut last = choice(json!({}), Some("stop"));
        last["timings"] = json!({
            "prompt_per_second": 210.4, "predicted_per_second": 25.13, "first_token_ms": 431.2,
            "cache": {"source": source, "tokens": cached, "disk_tokens": disk, "restore_ms": 2.5,
                "diverged_at": reply.diverged.map(|_| cached), "diverged_token": reply.diverged},
        });
        to.event(&last)?;
        let written = reply.text.chars().count().div_ceil(4);
        to.event(&json!({"choices": [], "usage": {
            "prompt_tokens": prompt, "completion_tokens": written, "total_tokens": prompt + written,
            "prompt_tokens_details": {"cached_tokens": cached},
        }}))?;
        to.raw(b"data: [DONE]\n\n")
    }
}

fn choice(delta: Value, finish: Option<&str>) -> Value {
    json!({"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 0, "model": "fake-model",
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})
}

/// Server-sent events that end where the connection does.
struct Stream {
    to: TcpStream,
    events: usize,
}

impl Stream {
    fn begin(&mut self) -> std::io::Result<()> {
        self.to.set_nodelay(true)?;
        self.raw(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n")
    }

    fn raw(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.to.write_all(bytes)
    }

    /// Now with one kind of line end, now with the other; with a heartbeat; torn anywhere, in letters too.
    fn event(&mut self, value: &Value) -> std::io::Result<()> {
        self.events += 1;
        let end = if self.events.is_multiple_of(2) { "\r\n" } else { "\n" };
        let heartbeat = if self.events.is_multiple_of(5) { ": still here\n\n" } else { "" };
        let text = format!("{heartbeat}data: {value}{end}{end}");
        // Within a letter, where there is one of several bytes.
        let letter = text.bytes().position(|byte| byte >= 0x80).map(|at| at + 1);
        let (left, right) = text.as_bytes().split_at(letter.unwrap_or(self.events * 7 % text.len()));
        self.raw(left)?;
        std::thread::sleep(Duration::from_millis(if letter.is_some() { 20 } else { 2 }));
        self.raw(right)
    }
}

fn refuse(to: &mut TcpStream, status: u16, fields: &str, message: &str) -> std::io::Result<()> {
    let error = json!({"message": message, "type": "invalid_request_error", "param": null, "code": null});
    send_json(to, status, fields, &json!({"error": error}))
}

fn send_json(to: &mut TcpStream, status: u16, fields: &str, body: &Value) -> std::io::Result<()> {
    send(to, status, &format!("{fields}Content-Type: application/json\r\n"), body.to_string().as_bytes())
}

fn send(to: &mut TcpStream, status: u16, fields: &str, body: &[u8]) -> std::io::Result<()> {
    let head =
        format!("HTTP/1.1 {status} -\r\n{fields}Content-Length: {}\r\nConnection: close\r\n\r\n", body.len());
    to.write_all(head.as_bytes())?;
    to.write_all(body)
}
