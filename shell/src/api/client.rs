//! The other end of a request: a reply at once, or events as they come. Must not know what they say.

use super::error::{ApiError, Manner};
use crate::http::{Reply, Stream};
use core::time::Duration;
use std::io;
use std::time::Instant;

/// A stream that says nothing for so long gets a sign of life: what stands between may give up otherwise.
const HEARTBEAT: Duration = Duration::from_secs(10);

/// The client has gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gone;

impl From<io::Error> for Gone {
    fn from(_: io::Error) -> Gone {
        Gone
    }
}

/// Where events go.
pub trait Events {
    /// Writes an event; `name` is empty where events have none.
    ///
    /// # Errors
    /// The client has gone.
    fn event(&mut self, name: &str, data: &str) -> Result<(), Gone>;

    /// To be called now and then: a sign of life if nothing else was said for a while.
    ///
    /// # Errors
    /// The client has gone.
    fn idle(&mut self) -> Result<(), Gone>;
}

/// What a request is answered with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// HTTP's number.
    pub status: u16,
    /// Of the body.
    pub content_type: &'static str,
    /// The body.
    pub body: Vec<u8>,
    /// More headers.
    pub headers: Vec<(&'static str, String)>,
}

impl Answer {
    /// JSON, 200.
    pub fn json(body: String) -> Answer {
        Answer::text("application/json", body)
    }

    /// Text of any type, 200.
    pub fn text(content_type: &'static str, body: String) -> Answer {
        Answer { status: 200, content_type, body: body.into_bytes(), headers: Vec::new() }
    }

    /// An error.
    pub fn error(error: &ApiError, manner: Manner) -> Answer {
        let mut answer = Answer { status: error.status, ..Answer::json(error.body(manner)) };
        if let Some(seconds) = error.retry_after {
            answer.headers.push(("Retry-After", seconds.to_string()));
        }
        if error.status == 401 {
            answer.headers.push(("WWW-Authenticate", String::from("Bearer")));
        }
        answer
    }
}

/// The other end.
pub struct Client<'r> {
    reply: Option<Reply<'r>>,
    stream: Option<Stream<'r>>,
    /// The page that may ask besides our own.
    cors: Option<&'r str>,
    last: Instant,
    /// What was answered, once it was.
    pub status: u16,
}

impl<'r> Client<'r> {
    /// Nothing is said yet.
    pub fn new(reply: Reply<'r>, cors: Option<&'r str>) -> Client<'r> {
        Client { reply: Some(reply), stream: None, cors, last: Instant::now(), status: 0 }
    }

    /// Answers at once.
    pub fn send(&mut self, answer: &Answer) {
        let Some(reply) = self.reply.take() else { return };
        self.status = answer.status;
        let more = answer.headers.iter().map(|(name, value)| (*name, value.as_str()));
        let mut headers: Vec<(&str, &str)> = more.collect();
        if !answer.content_type.is_empty() {
            headers.push(("Content-Type", answer.content_type));
        }
        self.allow(&mut headers);
        // Whoever does not hear it has gone.
        let _ = reply.send(answer.status, &headers, &answer.body);
    }

    /// The headers for pages of other sites.
    fn allow<'h>(&self, headers: &mut Vec<(&'h str, &'h str)>)
    where
        'r: 'h,
    {
        if let Some(origin) = self.cors {
            headers.push(("Access-Control-Allow-Origin", origin));
            headers.push(("Vary", "Origin"));
        }
    }

    /// Begins a stream of events.
    ///
    /// # Errors
    /// The client has gone.
    pub fn begin(&mut self) -> Result<(), Gone> {
        let reply = self.reply.take().ok_or(Gone)?;
        self.status = 200;
        let mut headers = vec![("Content-Type", "text/event-stream"), ("Cache-Control", "no-cache")];
        // nginx would keep events back.
        headers.push(("X-Accel-Buffering", "no"));
        self.allow(&mut headers);
        self.stream = Some(reply.stream(200, &headers)?);
        Ok(())
    }

    /// Whether a stream has begun.
    pub fn is_streaming(&self) -> bool {
        self.stream.is_some()
    }

    fn write(&mut self, text: &str) -> Result<(), Gone> {
        self.last = Instant::now();
        self.stream.as_mut().ok_or(Gone)?.write(text.as_bytes())?;
        Ok(())
    }

    /// Whether the client has closed.
    pub fn is_gone(&self) -> bool {
        match (&self.reply, &self.stream) {
            (Some(reply), _) => reply.is_gone(),
            (_, Some(stream)) => stream.is_gone(),
            _ => true,
        }
    }

    /// Ends a stream.
    pub fn end(&mut self) {
        if let Some(stream) = self.stream.take() {
            let _ = stream.finish();
        }
    }

    /// Says what went wrong, in the way that is still open.
    pub fn fail(&mut self, error: &ApiError, manner: Manner) {
        if self.is_streaming() {
            let name = if manner == Manner::Anthropic { "error" } else { "" };
            let _ = self.event(name, &error.body(manner));
            self.end();
            self.status = error.status;
        } else {
            self.send(&Answer::error(error, manner));
        }
    }
}

impl Events for Client<'_> {
    fn event(&mut self, name: &str, data: &str) -> Result<(), Gone> {
        let mut text = String::with_capacity(data.len() + 32);
        if !name.is_empty() {
            text.push_str("event: ");
            text.push_str(name);
            text.push('\n');
        }
        text.push_str("data: ");
        text.push_str(data);
        text.push_str("\n\n");
        self.write(&text)
    }

    fn idle(&mut self) -> Result<(), Gone> {
        if self.is_gone() {
            return Err(Gone);
        }
        if self.is_streaming() && self.last.elapsed() >= HEARTBEAT {
            self.write(": still here\n\n")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::{Bind, Limits, Request, Server, Service};
    use std::io::{Read, Write};
    use std::net::TcpStream;
    use std::sync::Arc;

    /// Streams an event, and is idle before and after the time of a sign of life has come.
    struct Quiet;

    impl Service for Quiet {
        fn answer(&self, _: &Request, reply: Reply<'_>) {
            let mut client = Client::new(reply, None);
            let silent = |client: &mut Client<'_>| {
                client.last = Instant::now().checked_sub(HEARTBEAT).unwrap();
                client.idle()
            };
            // Before a stream begins there is no way to give one.
            assert_eq!(silent(&mut client), Ok(()));
            client.begin().unwrap();
            assert_eq!(client.event("", "one"), Ok(()));
            assert_eq!(client.idle(), Ok(()));
            assert_eq!(silent(&mut client), Ok(()));
            // That was one, so that the time begins anew.
            assert_eq!(client.idle(), Ok(()));
            assert_eq!(client.event("", "two"), Ok(()));
            client.end();
        }

        fn fault(&self, _: u16, what: &str) -> (&'static str, Vec<u8>) {
            panic!("{what}");
        }
    }

    #[test]
    fn a_silent_stream_gives_a_sign_of_life() {
        let server = Server::bind(&Bind::Tcp(([127, 0, 0, 1], 0).into()), Limits::default()).unwrap();
        let address = server.address();
        let _running = server.start(Arc::new(Quiet)).unwrap();
        let mut socket = TcpStream::connect(address.strip_prefix("http://").unwrap()).unwrap();
        socket.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
        let mut said = String::new();
        socket.read_to_string(&mut said).unwrap();
        let (_, body) = said.split_once("\r\n\r\n").unwrap();
        assert_eq!(body, "data: one\n\n: still here\n\ndata: two\n\n");
    }
}
