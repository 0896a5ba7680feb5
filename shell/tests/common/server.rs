//! A server of the built binary, and a plain client. Must not know what is tested.
#![allow(dead_code, reason = "each test file uses a part of it")]

use super::{command, words};
use core::time::Duration;
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command};
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// Longest wait for anything.
const PATIENCE: Duration = Duration::from_secs(60);

/// A running server; killed when it is dropped.
pub struct Server {
    pub child: Child,
    /// Host and port.
    pub address: String,
    log: Arc<Mutex<String>>,
}

/// What came back.
#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    /// In lower case.
    pub head: String,
    pub body: String,
}

impl Reply {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|e| panic!("{e}: {self:?}"))
    }

    /// The JSON of a reply that went well.
    #[track_caller]
    pub fn ok(&self) -> Value {
        assert_eq!(self.status, 200, "{self:?}");
        self.json()
    }

    /// The data of all events.
    #[track_caller]
    pub fn events(&self) -> Vec<String> {
        assert_eq!(self.status, 200, "{self:?}");
        self.body.lines().filter_map(|line| line.strip_prefix("data: ")).map(String::from).collect()
    }

    /// The events that are JSON.
    #[track_caller]
    pub fn values(&self) -> Vec<Value> {
        self.events().iter().filter_map(|data| serde_json::from_str(data).ok()).collect()
    }
}

impl Server {
    /// Starts it at a free port and waits until the model is loaded.
    pub fn start(flags: &str) -> Server {
        Server::of(command(&words(&format!("serve --port 0 {flags}"))))
    }

    /// The same of a command.
    pub fn of(command: Command) -> Server {
        let mut server = Server::of_command(command);
        let line = server.wait_for("listening at http://");
        server.address = String::from(line.split("http://").nth(1).unwrap().trim());
        server
    }

    /// Starts it and waits for nothing.
    pub fn spawn(flags: &str) -> Server {
        Server::of_command(command(&words(&format!("serve --port 0 {flags}"))))
    }

    fn of_command(mut command: Command) -> Server {
        let mut child = command.spawn().unwrap();
        let log = Arc::new(Mutex::new(String::new()));
        let (err, kept) = (child.stderr.take().unwrap(), Arc::clone(&log));
        std::thread::spawn(move || {
            for line in BufReader::new(err).lines().map_while(Result::ok) {
                let mut kept = kept.lock().unwrap();
                kept.push_str(&line);
                kept.push('\n');
            }
        });
        Server { child, address: String::new(), log }
    }

    /// All that it said.
    pub fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    /// The first line with `text` in it, once there is one.
    #[track_caller]
    pub fn wait_for(&mut self, text: &str) -> String {
        let start = Instant::now();
        loop {
            if let Some(line) = self.log().lines().find(|line| line.contains(text)) {
                return String::from(line);
            }
            let ended = self.child.try_wait().unwrap();
            assert!(ended.is_none() && start.elapsed() < PATIENCE, "no '{text}': {ended:?}\n{}", self.log());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    pub fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// Sends a request without waiting for the reply.
    pub fn send(&self, method: &str, path: &str, headers: &str, body: &str) -> TcpStream {
        let mut stream = self.connect();
        let (host, len) = (&self.address, body.len());
        let head = format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{headers}");
        stream.write_all(format!("{head}Content-Length: {len}\r\n\r\n{body}").as_bytes()).unwrap();
        stream
    }

    pub fn ask(&self, method: &str, path: &str, headers: &str, body: &str) -> Reply {
        read(self.send(method, path, headers, body))
    }

    pub fn get(&self, path: &str) -> Reply {
        self.ask("GET", path, "", "")
    }

    pub fn post(&self, path: &str, body: &str) -> Reply {
        self.ask("POST", path, "Content-Type: application/json\r\n", body)
    }

    pub fn status(&self) -> Value {
        self.get("/admin/api/status").ok()
    }

    /// Waits until `is` holds for the status.
    #[track_caller]
    pub fn wait_status(&self, is: &dyn Fn(&Value) -> bool) -> Value {
        let start = Instant::now();
        loop {
            let status = self.status();
            if is(&status) {
                return status;
            }
            assert!(start.elapsed() < PATIENCE, "{status}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Sends a signal; the exit code.
    pub fn signal(&mut self, signal: i32) -> Option<i32> {
        let name = format!("-{signal}");
        let sent = std::process::Command::new("kill").arg(name).arg(self.child.id().to_string()).status();
        assert!(sent.unwrap().success());
        let start = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code();
            }
            assert!(start.elapsed() < PATIENCE, "{}", self.log());
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads a reply to the end of its connection.
pub fn read(mut stream: impl Read) -> Reply {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    let end = bytes.windows(4).position(|w| w == b"\r\n\r\n").unwrap_or_else(|| panic!("no head: {bytes:?}"));
    let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    let head = head.to_ascii_lowercase();
    let mut rest = &bytes[end + 4..];
    let mut body = Vec::new();
    if head.contains("transfer-encoding: chunked") {
        loop {
            let line = rest.windows(2).position(|w| w == b"\r\n").expect("a chunk that is whole");
            let size = usize::from_str_radix(core::str::from_utf8(&rest[..line]).unwrap(), 16).unwrap();
            body.extend_from_slice(&rest[line + 2..line + 2 + size]);
            rest = &rest[line + 2 + size + 2..];
            if size == 0 {
                break;
            }
        }
    } else {
        body.extend_from_slice(rest);
    }
    Reply { status, head, body: String::from_utf8(body).unwrap() }
}
