//! As much of HTTP/1.1 as the browser's driver and the stand-in for a server need, over loopback sockets.
//! Must not know either of them.

use crate::sh::{Context, Failure, Outcome};
use core::time::Duration;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

/// First line, header fields and body of a request or an answer.
pub struct Message {
    /// Without its end.
    pub first: String,
    fields: Vec<(String, String)>,
    /// As many bytes as `Content-Length` says.
    pub body: Vec<u8>,
}

impl Message {
    /// The value of a field, whatever the case of its name.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }
}

/// Reads one message; `None` at the end of the connection.
///
/// # Errors
/// The connection breaks, or what comes is no HTTP.
pub fn read(from: &mut BufReader<TcpStream>) -> Outcome<Option<Message>> {
    let mut line = String::new();
    if from.read_line(&mut line).context("cannot read")? == 0 {
        return Ok(None);
    }
    let first = line.trim_end().to_owned();
    let mut fields = Vec::new();
    loop {
        line.clear();
        from.read_line(&mut line).context("cannot read")?;
        let text = line.trim_end();
        if text.is_empty() {
            break;
        }
        let (name, value) = text.split_once(':').ok_or(Failure::new(format!("no header field: {text}")))?;
        fields.push((name.to_owned(), value.trim().to_owned()));
    }
    let mut message = Message { first, fields, body: Vec::new() };
    let length = message.field("content-length").map_or(Ok(0), str::parse).context("wrong Content-Length")?;
    message.body.resize(length, 0);
    from.read_exact(&mut message.body).context("cannot read a body")?;
    Ok(Some(message))
}

/// One request on a connection of its own; gives status and body of the answer.
///
/// # Errors
/// There is no answer within two minutes.
pub fn ask(port: u16, method: &str, path: &str, body: &str) -> Outcome<(u16, Vec<u8>)> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).context("cannot connect")?;
    stream.set_read_timeout(Some(Duration::from_secs(120))).context("cannot set a limit")?;
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).context("cannot send")?;
    let answer = read(&mut BufReader::new(stream))?.ok_or(Failure::new("the connection was closed"))?;
    let status = answer.first.split(' ').nth(1).and_then(|word| word.parse().ok());
    Ok((status.ok_or(Failure::new(format!("no HTTP: {}", answer.first)))?, answer.body))
}
