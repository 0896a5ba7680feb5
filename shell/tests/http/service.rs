//! A service that does one odd thing for each path, and a server around it. Must not know what is tested.

use core::time::Duration;
use kinglet::http::{Bind, Limits, Reply, Request, Running, Server, Service};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Instant;

/// Longer than anything takes, unless it hangs.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Keeps a list of what happened.
#[derive(Default)]
pub struct Odd {
    notes: Mutex<Vec<String>>,
    news: Condvar,
}

impl Odd {
    pub fn note(&self, what: &str) {
        self.notes.lock().unwrap().push(what.to_owned());
        self.news.notify_all();
    }

    pub fn has(&self, what: &str) -> bool {
        self.notes.lock().unwrap().iter().any(|note| note == what)
    }

    /// Waits until `what` has happened.
    pub fn wait_for(&self, what: &str) {
        let notes = self.notes.lock().unwrap();
        let missing = |notes: &mut Vec<String>| !notes.iter().any(|note| note == what);
        let (notes, late) = self.news.wait_timeout_while(notes, PATIENCE, missing).unwrap();
        assert!(!late.timed_out(), "waited for {what:?}; there are {notes:?}");
    }
}

const TEXT: (&str, &str) = ("Content-Type", "text/plain");

impl Service for Odd {
    fn answer(&self, request: &Request, reply: Reply<'_>) {
        let done = match &request.path[..] {
            "/none" => return,
            "/panic" => panic!("meant"),
            "/status" => reply.send(request.query.parse().unwrap(), &[TEXT], b"body"),
            "/split" => reply.send(200, &[("X", "a\r\nEvil: 1\r\n\r\n")], b""),
            "/large" => reply.send(200, &[TEXT], &vec![b'x'; request.query.parse().unwrap()]),
            "/stream" => reply.stream(200, &[TEXT]).and_then(|mut stream| {
                for piece in request.body.split(|&byte| byte == b',') {
                    stream.write(piece)?;
                }
                stream.finish()
            }),
            "/cut" | "/late-panic" => {
                let begun = reply.stream(200, &[TEXT]).and_then(|mut stream| stream.write(b"begun"));
                assert!(request.path == "/cut", "meant");
                begun
            }
            // Until it is told to, and then what it saw.
            "/gate" => {
                self.note("waiting");
                self.wait_for("open");
                let seen = if reply.is_gone() { &b"gone"[..] } else { b"there" };
                reply.send(200, &[TEXT], seen)
            }
            "/gate-stream" => reply.stream(200, &[TEXT]).and_then(|mut stream| {
                self.note("waiting");
                self.wait_for("open");
                stream.write(b"end")?;
                stream.finish()
            }),
            "/watch" => {
                assert!(!reply.is_gone());
                self.note("watching");
                let begin = Instant::now();
                while !reply.is_gone() {
                    assert!(begin.elapsed() < PATIENCE);
                    std::thread::sleep(Duration::from_millis(1));
                }
                self.note("gone");
                return;
            }
            "/endless" => {
                let mut stream = reply.stream(200, &[TEXT]).unwrap();
                loop {
                    if let Err(e) = stream.write(&[b'x'; 65_536]) {
                        self.note(if e.kind() == std::io::ErrorKind::TimedOut { "late" } else { "broken" });
                        return;
                    }
                }
            }
            // Goes on though a piece could not be sent whole.
            "/stubborn" => reply.stream(200, &[TEXT]).and_then(|mut stream| {
                while stream.write(&[b'x'; 65_536]).is_ok() {}
                self.note("late");
                self.wait_for("open");
                assert!(stream.write(b"more").is_err());
                self.note("no more");
                stream.finish()
            }),
            _ => {
                let Request { method, path, query, peer, .. } = request;
                let mut body = format!("{method} {path} {query} {}\n", peer == "unix").into_bytes();
                body.extend_from_slice(&request.body);
                reply.send(200, &[TEXT], &body)
            }
        };
        if let Err(e) = done {
            self.note(&format!("{}: {e}", request.path));
        }
    }

    fn fault(&self, status: u16, what: &str) -> (&'static str, Vec<u8>) {
        self.note(&format!("fault {status}"));
        ("text/fault", what.as_bytes().to_vec())
    }
}

/// A server of an [`Odd`].
pub struct Served {
    pub odd: Arc<Odd>,
    pub running: Running,
    /// Host and port.
    pub address: String,
}

impl Served {
    pub fn new(limits: Limits) -> Served {
        Served::at(&Bind::Tcp("127.0.0.1:0".parse().unwrap()), limits)
    }

    pub fn at(bind: &Bind, limits: Limits) -> Served {
        let server = Server::bind(bind, limits).unwrap();
        let address = server.address().trim_start_matches("http://").to_owned();
        let odd = Arc::new(Odd::default());
        let running = server.start(Arc::<Odd>::clone(&odd)).unwrap();
        Served { odd, running, address }
    }

    /// Waits until so many connections are open.
    pub fn wait_for_connections(&self, count: usize) {
        let begin = Instant::now();
        while self.running.connections() != count {
            assert!(begin.elapsed() < PATIENCE, "{} connections", self.running.connections());
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
