//! Heads of requests from bytes (RFC 9112), without a socket. Must not know where the bytes come from.
//!
//! Strict wherever two readers could see two different requests: line ends are CR LF, a body has one length,
//! a header is one line. What `httparse` lets through of that is refused here.

use super::{Headers, Limits};

/// Why a request cannot be answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault {
    /// The status of the reply.
    pub status: u16,
    /// What is wrong, for people.
    pub what: &'static str,
}

/// A fault of the request's form.
pub(super) const fn bad(what: &'static str) -> Fault {
    Fault { status: 400, what }
}

/// How long the body is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// So many bytes, within the limit.
    Length(usize),
    /// It says so as it comes.
    Chunked,
}

/// What a head says.
#[derive(Debug, PartialEq, Eq)]
pub struct Head {
    /// The method, as it was sent.
    pub method: String,
    /// Percent-decoded, without the query; begins with `/`, or is `*`.
    pub path: String,
    /// What came after `?`, as it was sent.
    pub query: String,
    /// All headers.
    pub headers: Headers,
    /// 0 for HTTP/1.0, 1 for HTTP/1.1.
    pub minor: u8,
    /// Whether the client wants the connection to stay open.
    pub keep_alive: bool,
    /// Whether the client waits for `100 Continue` before it sends the body.
    pub expects: bool,
    /// How long the body is.
    pub framing: Framing,
}

/// Reads the head at the beginning of `bytes`; with its length in bytes, or `None` while it is not whole.
/// Bytes past the limit are not looked at, so nothing depends on how much has come.
///
/// # Errors
/// It can never become a head, or it is one that must be refused.
pub fn parse(bytes: &[u8], limits: &Limits) -> Result<Option<(Head, usize)>, Fault> {
    let bytes = &bytes[..bytes.len().min(limits.header_bytes)];
    let mut fields = vec![httparse::EMPTY_HEADER; limits.headers];
    let mut raw = httparse::Request::new(&mut fields);
    let len = match raw.parse(bytes) {
        Ok(httparse::Status::Complete(len)) => len,
        Ok(httparse::Status::Partial) if bytes.len() < limits.header_bytes => return Ok(None),
        Ok(httparse::Status::Partial) => return Err(too_long(bytes)),
        Err(httparse::Error::Version) => return unknown_version(bytes, limits),
        Err(error) => return Err(malformed(error)),
    };
    let lines = &bytes[..len];
    if lines.iter().enumerate().any(|(at, &byte)| byte == b'\n' && (at == 0 || lines[at - 1] != b'\r')) {
        return Err(bad("a line ends in LF without CR"));
    }
    let mut headers = Headers::default();
    for field in raw.headers.iter() {
        headers.push(field.name, field.value);
    }
    // They are there: the head is whole.
    let (method, target) = (raw.method.unwrap_or(""), raw.path.unwrap_or(""));
    let minor = raw.version.unwrap_or(0);
    let framing = framing(&headers, minor, limits)?;
    let (path, query) = target_of(method, target, host(&headers, minor)?)?;
    let expects = expects(&headers)?;
    let head = Head {
        method: String::from(method),
        path,
        query: String::from(query),
        minor,
        keep_alive: !headers.lists("connection", "close")
            && (minor > 0 || headers.lists("connection", "keep-alive")),
        // RFC 9110, 10.1.1: ignored in HTTP/1.0.
        expects: expects && minor > 0,
        framing,
        headers,
    };
    Ok(Some((head, len)))
}

/// Which part of a head is too long.
fn too_long(bytes: &[u8]) -> Fault {
    match bytes.trim_ascii_start().contains(&b'\n') {
        true => Fault { status: 431, what: "the headers are too long" },
        false => Fault { status: 414, what: "the request line is too long" },
    }
}

/// HTTP, but another version of it, or something else.
fn unknown_version(bytes: &[u8], limits: &Limits) -> Result<Option<(Head, usize)>, Fault> {
    let line = bytes.trim_ascii_start();
    let Some(end) = line.iter().position(|&byte| byte == b'\n') else {
        return if bytes.len() < limits.header_bytes { Ok(None) } else { Err(too_long(bytes)) };
    };
    let word = line[..end].trim_ascii_end().rsplit(|&byte| byte == b' ').next().unwrap_or(b"");
    match word {
        [b'H', b'T', b'T', b'P', b'/', major, b'.', minor]
            if major.is_ascii_digit() && minor.is_ascii_digit() =>
        {
            Err(Fault { status: 505, what: "only HTTP/1.0 and HTTP/1.1 are spoken here" })
        }
        _ => Err(bad("the request line is malformed")),
    }
}

fn malformed(error: httparse::Error) -> Fault {
    match error {
        httparse::Error::TooManyHeaders => Fault { status: 431, what: "there are too many headers" },
        httparse::Error::HeaderName => bad("the name of a header is malformed"),
        httparse::Error::HeaderValue => bad("the value of a header is malformed"),
        _ => bad("the request line is malformed"),
    }
}

/// RFC 9112, 6.3; of what it leaves to the server, everything ambiguous is refused.
fn framing(headers: &Headers, minor: u8, limits: &Limits) -> Result<Framing, Fault> {
    let mut lengths = headers.all("content-length");
    let length = lengths.next();
    if lengths.next().is_some() {
        return Err(bad("there is more than one Content-Length"));
    }
    let mut codings = headers.all("transfer-encoding").peekable();
    if codings.peek().is_some() {
        if length.is_some() {
            return Err(bad("there are both Content-Length and Transfer-Encoding"));
        }
        if minor == 0 {
            return Err(bad("HTTP/1.0 has no Transfer-Encoding"));
        }
        // How often "chunked" came, and whether it came last.
        let (mut count, mut chunked, mut chunks) = (0, false, 0);
        for coding in codings.flat_map(|value| value.split(',')) {
            chunked = coding.trim_ascii().eq_ignore_ascii_case("chunked");
            chunks += usize::from(chunked);
            count += 1;
        }
        return match (chunked && chunks == 1, count) {
            (true, 1) => Ok(Framing::Chunked),
            (true, _) => Err(Fault { status: 501, what: "the only known Transfer-Encoding is chunked" }),
            (false, _) => Err(bad("the last Transfer-Encoding is not chunked")),
        };
    }
    let Some(length) = length else { return Ok(Framing::Length(0)) };
    let mut bytes = 0usize;
    if length.is_empty() {
        return Err(bad("Content-Length is not a number"));
    }
    for digit in length.bytes() {
        if !digit.is_ascii_digit() {
            return Err(bad("Content-Length is not a number"));
        }
        bytes = bytes.saturating_mul(10).saturating_add(usize::from(digit - b'0'));
    }
    if bytes > limits.body_bytes {
        return Err(TOO_LARGE);
    }
    Ok(Framing::Length(bytes))
}

/// The body is larger than the limit.
pub(super) const TOO_LARGE: Fault = Fault { status: 413, what: "the body is too large" };

/// The one host, empty if it may be missing and is.
fn host(headers: &Headers, minor: u8) -> Result<&str, Fault> {
    let mut hosts = headers.all("host");
    let host = match hosts.next() {
        Some(host) => host,
        None if minor == 0 => "",
        None => return Err(bad("there is no Host")),
    };
    if hosts.next().is_some() {
        return Err(bad("there is more than one Host"));
    }
    let is_part_of_a_host = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~:[]%!$&'()*+;=".contains(&byte);
    if !host.bytes().all(is_part_of_a_host) {
        return Err(bad("Host is malformed"));
    }
    Ok(host)
}

fn expects(headers: &Headers) -> Result<bool, Fault> {
    let mut any = false;
    for value in headers.all("expect") {
        if !value.eq_ignore_ascii_case("100-continue") {
            return Err(Fault { status: 417, what: "the only known expectation is 100-continue" });
        }
        any = true;
    }
    Ok(any)
}

/// Path, decoded, and query of a request's target.
fn target_of<'t>(method: &str, target: &'t str, host: &str) -> Result<(String, &'t str), Fault> {
    if method == "CONNECT" {
        return Err(Fault { status: 501, what: "this is not a proxy" });
    }
    if target == "*" && method == "OPTIONS" {
        return Ok((String::from("*"), ""));
    }
    let mut rest = target;
    if !target.starts_with('/') {
        // As to a proxy: `http://host/path`.
        let parts = target.split_once(':');
        let Some((scheme, tail)) = parts.and_then(|(scheme, rest)| Some((scheme, rest.strip_prefix("//")?)))
        else {
            return Err(bad("the request's target is malformed"));
        };
        let (authority, tail) = tail.split_at(tail.find(['/', '?']).unwrap_or(tail.len()));
        let is_http = scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("https");
        if !is_http || authority.is_empty() {
            return Err(bad("the request's target is malformed"));
        }
        // Whoever looks at one of them must not be deceived by the other.
        if !authority.eq_ignore_ascii_case(host) {
            return Err(bad("the request's target has another host than Host"));
        }
        rest = tail;
    }
    if rest.contains('#') {
        return Err(bad("the request's target has a fragment"));
    }
    let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
    Ok((if path.is_empty() { String::from("/") } else { decoded(path)? }, query))
}

/// Without percent signs.
fn decoded(path: &str) -> Result<String, Fault> {
    const MALFORMED: Fault = bad("the request's path is malformed");
    let mut out = Vec::with_capacity(path.len());
    let mut bytes = path.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        let mut digit = || bytes.next().and_then(|byte| char::from(byte).to_digit(16)).ok_or(MALFORMED);
        out.push((digit()? << 4 | digit()?) as u8);
    }
    if out.iter().any(u8::is_ascii_control) {
        return Err(MALFORMED);
    }
    String::from_utf8(out).map_err(|_| MALFORMED)
}
