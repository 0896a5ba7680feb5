//! Fuzzing of HTTP requests without sockets: heads and chunked bodies out of arbitrary bytes, and out of the
//! pieces that requests are made of. What is let through is checked against the plainest reading of RFC 9112.
//!
//! `cargo test` calls it on seeded inputs, `cargo xtask fuzz http` under libFuzzer.

use kinglet::http::Limits;
use kinglet::http::body::Decoder;
use kinglet::http::head::{Fault, Framing, Head, parse};

/// What requests are made of, sound and not.
const PIECES: [&str; 32] = [
    "GET / HTTP/1.1\r\n",
    "POST http://h/%20?a HTTP/1.1\r\n",
    "HEAD /a HTTP/1.0\r\n",
    "OPTIONS * HTTP/1.1\r\n",
    "CONNECT h:1 HTTP/1.1\r\n",
    "GET / HTTP/2.0\r\n",
    "Host: h\r\n",
    "Host: h\r\n\r\n",
    "Connection: close\r\n",
    "Content-Length: 5\r\n",
    "Content-Length: 99999999999999999999\r\n",
    "Transfer-Encoding: chunked\r\n",
    "Transfer-Encoding: gzip, chunked\r\n",
    "Expect: 100-continue\r\n",
    "Expect: x\r\n",
    "X: y\r\n",
    "\r\n",
    "\n",
    "\r",
    " ",
    ":",
    "%",
    "#",
    "5\r\nhello\r\n",
    "1;a=b\r\n0\r\n",
    "0\r\n",
    "0\r\n\r\n",
    "A\r\n",
    "f",
    "hello",
    "\t",
    concat!(
        "GET /",
        "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
        "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
        "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
    ),
];

/// What the inputs reached.
#[derive(Debug, Default)]
pub struct Seen {
    /// Whole heads.
    pub heads: usize,
    /// Bodies in chunks that were whole.
    pub bodies: usize,
    /// Faults, by status.
    pub faults: Vec<u16>,
}

fn limits() -> Limits {
    Limits { header_bytes: 200, headers: 6, body_bytes: 64, ..Limits::default() }
}

/// Reads `data` as a request, then one made of pieces chosen by `data`, then both as chunks.
///
/// # Panics
/// A reader panics, or lets something through that it should not.
pub fn fuzz_http(data: &[u8]) -> Seen {
    let mut seen = Seen::default();
    check(data, &mut seen);
    let mut made = Vec::new();
    for &byte in data {
        match PIECES.get(usize::from(byte)) {
            Some(piece) => made.extend_from_slice(piece.as_bytes()),
            None => made.push(byte),
        }
    }
    check(&made, &mut seen);
    seen
}

fn check(bytes: &[u8], seen: &mut Seen) {
    check_chunks(bytes, seen);
    match parse(bytes, &limits()) {
        Ok(None) => assert!(bytes.len() < limits().header_bytes),
        Ok(Some((head, len))) => {
            seen.heads += 1;
            check_head(&head, &bytes[..len]);
            // Neither what follows nor when it came changes anything, and all of it was needed.
            assert_eq!(parse(&bytes[..len - 1], &limits()), Ok(None));
            let (alone, same) = parse(&bytes[..len], &limits()).unwrap().unwrap();
            assert_eq!((alone, same), (head, len));
        }
        Err(fault) => {
            check_fault(fault, seen);
            // More bytes do not heal it.
            assert!(parse(&[bytes, b"\r\n\r\n"].concat(), &limits()).is_err());
        }
    }
}

fn check_fault(fault: Fault, seen: &mut Seen) {
    assert!([400, 413, 414, 417, 431, 501, 505].contains(&fault.status), "{fault:?}");
    assert!(!fault.what.is_empty() && fault.what.is_ascii());
    seen.faults.push(fault.status);
}

/// Reads the lines of a head that was let through as anybody would.
fn check_head(head: &Head, bytes: &[u8]) {
    assert!(bytes.len() <= limits().header_bytes && bytes.ends_with(b"\r\n\r\n"));
    let text: String = bytes.iter().map(|&byte| char::from(byte)).collect();
    let text = text.trim_start_matches("\r\n").strip_suffix("\r\n\r\n").unwrap();
    let mut lines = text.split("\r\n");
    let first: Vec<&str> = lines.next().unwrap().split(' ').collect();
    assert_eq!(first.len(), 3);
    assert_eq!((first[0], first[2]), (&head.method[..], &format!("HTTP/1.{}", head.minor)[..]));
    assert!(head.path.starts_with('/') || (head.path == "*" && head.method == "OPTIONS"));
    assert!(!head.path.chars().any(|c| c.is_ascii_control()));

    let mut fields: Vec<(String, &str)> = Vec::new();
    for line in lines {
        assert!(!line.contains(['\r', '\n', '\0']), "{line:?}");
        let (name, value) = line.split_once(':').expect("a colon");
        // No line goes on from the one before, and no name is hidden behind a space.
        assert!(!name.is_empty() && !name.contains([' ', '\t']), "{line:?}");
        fields.push((name.to_ascii_lowercase(), value.trim_matches([' ', '\t'])));
    }
    assert!(fields.len() <= limits().headers);
    let all = |wanted: &str| -> Vec<&str> {
        fields.iter().filter(|(name, _)| name == wanted).map(|(_, value)| *value).collect()
    };
    for (name, value) in &fields {
        assert_eq!(head.headers.all(name).count(), all(name).len());
        assert!(!value.is_ascii() || head.headers.all(name).any(|other| other == *value));
    }
    let (lengths, codings) = (all("content-length"), all("transfer-encoding"));
    match head.framing {
        Framing::Chunked => {
            assert!(lengths.is_empty() && head.minor == 1);
            assert!(codings.len() == 1 && codings[0].eq_ignore_ascii_case("chunked"), "{codings:?}");
        }
        Framing::Length(len) => {
            assert!(codings.is_empty() && len <= limits().body_bytes);
            match lengths[..] {
                [] => assert_eq!(len, 0),
                [length] => {
                    assert!(length.bytes().all(|byte| byte.is_ascii_digit()));
                    assert_eq!(length.parse(), Ok(len));
                }
                _ => panic!("{lengths:?}"),
            }
        }
    }
    let hosts = all("host").len();
    assert!(hosts == 1 || (hosts == 0 && head.minor == 0));
}

/// Chunks in parts of every size, against all at once and against [`plain`].
fn check_chunks(bytes: &[u8], seen: &mut Seen) {
    let whole = decode(bytes, bytes.len().max(1));
    for step in [1, 2, 7] {
        assert_eq!(decode(bytes, step), whole);
    }
    match whole {
        Ok(Some((body, used))) => {
            seen.bodies += 1;
            assert!(body.len() <= limits().body_bytes);
            assert_eq!(plain(&bytes[..used]), Some(body));
        }
        Ok(None) => {}
        Err(fault) => check_fault(fault, seen),
    }
}

/// The body and how many bytes it took.
fn decode(bytes: &[u8], step: usize) -> Result<Option<(Vec<u8>, usize)>, Fault> {
    let mut decoder = Decoder::new(Framing::Chunked, &limits());
    let (mut body, mut used) = (Vec::new(), 0);
    for part in bytes.chunks(step) {
        let took = decoder.push(part, &mut body)?;
        used += took;
        if decoder.is_done() {
            return Ok(Some((body, used)));
        }
        assert_eq!(took, part.len());
    }
    Ok(None)
}

/// Chunks that are known to be whole, read line by line; `None` if they are not what they should be.
fn plain(mut rest: &[u8]) -> Option<Vec<u8>> {
    fn line<'b>(rest: &mut &'b [u8]) -> Option<&'b [u8]> {
        let end = rest.windows(2).position(|two| two == b"\r\n")?;
        let (line, behind) = rest.split_at(end);
        *rest = &behind[2..];
        (!line.contains(&b'\n') && !line.contains(&b'\r')).then_some(line)
    }
    let mut body = Vec::new();
    loop {
        let size = line(&mut rest)?;
        let size = core::str::from_utf8(size.split(|&byte| byte == b';').next()?).ok()?;
        if size.starts_with('+') {
            return None;
        }
        let size = usize::from_str_radix(size, 16).ok()?;
        if size == 0 {
            while !line(&mut rest)?.is_empty() {}
            return rest.is_empty().then_some(body);
        }
        body.extend_from_slice(rest.get(..size)?);
        rest = rest.get(size..)?;
        if !line(&mut rest)?.is_empty() {
            return None;
        }
    }
}
