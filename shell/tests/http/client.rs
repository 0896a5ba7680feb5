//! A client that says exactly what it is told to, and reads replies strictly. Must not know what is tested.

use super::service::PATIENCE;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;

pub enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

pub struct Client {
    socket: Socket,
    bytes: Vec<u8>,
}

/// A reply from the wire.
#[derive(Debug, PartialEq, Eq)]
pub struct Answer {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: String,
}

impl Answer {
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut found = self.headers.iter().filter(|(own, _)| own == name);
        let value = found.next().map(|(_, value)| &value[..]);
        assert!(found.next().is_none(), "two of {name}");
        value
    }
}

impl Client {
    pub fn new(address: &str) -> Client {
        let socket = TcpStream::connect(address).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.set_write_timeout(Some(PATIENCE)).unwrap();
        socket.set_nodelay(true).unwrap();
        Client { socket: Socket::Tcp(socket), bytes: Vec::new() }
    }

    pub fn unix(path: &Path) -> Client {
        let socket = UnixStream::connect(path).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        Client { socket: Socket::Unix(socket), bytes: Vec::new() }
    }

    pub fn try_send(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        match &mut self.socket {
            Socket::Tcp(tcp) => tcp.write_all(bytes.as_ref()),
            Socket::Unix(unix) => unix.write_all(bytes.as_ref()),
        }
    }

    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.try_send(bytes).unwrap();
    }

    /// Each byte by itself.
    pub fn drip(&mut self, bytes: &str) {
        bytes.bytes().for_each(|byte| self.send([byte]));
    }

    /// Nothing more will be sent.
    pub fn shut(&self) {
        // It fails if the server was quicker.
        let _ = match &self.socket {
            Socket::Tcp(tcp) => tcp.shutdown(Shutdown::Write),
            Socket::Unix(unix) => unix.shutdown(Shutdown::Write),
        };
    }

    /// Reads some more; false at the end, also at one without manners.
    fn more(&mut self) -> bool {
        let mut part = [0; 4096];
        let read = match &mut self.socket {
            Socket::Tcp(tcp) => tcp.read(&mut part),
            Socket::Unix(unix) => unix.read(&mut part),
        };
        match read {
            Ok(n) => {
                self.bytes.extend_from_slice(&part[..n]);
                n > 0
            }
            Err(e) if e.kind() == io::ErrorKind::ConnectionReset => false,
            Err(e) => panic!("no answer: {e}; so far {:?}", String::from_utf8_lossy(&self.bytes)),
        }
    }

    /// Reads so many bytes of anything.
    pub fn skip(&mut self, len: usize) {
        self.take(len);
    }

    fn take(&mut self, len: usize) -> String {
        while self.bytes.len() < len {
            assert!(self.more(), "cut off after {:?}", String::from_utf8_lossy(&self.bytes));
        }
        String::from_utf8(self.bytes.drain(..len).collect()).unwrap()
    }

    fn line(&mut self) -> String {
        loop {
            if let Some(end) = self.bytes.windows(2).position(|two| two == b"\r\n") {
                let mut line = self.take(end + 2);
                line.truncate(end);
                return line;
            }
            assert!(self.more(), "cut off after {:?}", String::from_utf8_lossy(&self.bytes));
        }
    }

    /// The head of a reply.
    pub fn head(&mut self) -> Answer {
        let line = self.line();
        let status = line.strip_prefix("HTTP/1.1 ").unwrap_or_else(|| panic!("{line:?}"));
        let status = status[..3].parse().unwrap();
        let mut headers = Vec::new();
        loop {
            let line = self.line();
            if line.is_empty() {
                return Answer { status, headers, body: String::new() };
            }
            let (name, value) = line.split_once(": ").unwrap();
            headers.push((name.to_ascii_lowercase(), value.to_owned()));
        }
    }

    /// A whole reply.
    pub fn answer(&mut self) -> Answer {
        let mut answer = self.head();
        if answer.header("transfer-encoding").is_some() {
            assert_eq!(answer.header("content-length"), None);
            loop {
                let size = usize::from_str_radix(&self.line(), 16).unwrap();
                answer.body += &self.take(size);
                assert_eq!(self.line(), "");
                if size == 0 {
                    return answer;
                }
            }
        }
        if let Some(len) = answer.header("content-length") {
            let len = len.parse().unwrap();
            answer.body = self.take(len);
        } else if answer.status != 204 && answer.status != 304 {
            answer.body = self.rest();
        }
        answer
    }

    /// Everything up to the end.
    pub fn rest(&mut self) -> String {
        while self.more() {}
        String::from_utf8_lossy(&core::mem::take(&mut self.bytes)).into_owned()
    }

    /// Nothing but the end comes.
    pub fn end(&mut self) {
        assert_eq!(self.rest(), "");
    }

    pub fn ask(&mut self, request: &str) -> Answer {
        self.send(request);
        self.answer()
    }
}

/// A request with headers, each with its line end, and a body.
pub fn request(line: &str, headers: &str, body: &str) -> String {
    let length = if body.is_empty() { String::new() } else { format!("Content-Length: {}\r\n", body.len()) };
    format!("{line} HTTP/1.1\r\nHost: h\r\n{length}{headers}\r\n{body}")
}
