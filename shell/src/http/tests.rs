//! Tests of heads and bodies without sockets; those with sockets are in `shell/tests/http.rs`.

use super::Limits;
use super::body::Decoder;
use super::head::{Fault, Framing, Head, parse};

fn limits() -> Limits {
    Limits { header_bytes: 400, headers: 5, body_bytes: 1000, ..Limits::default() }
}

/// A head that is whole, with no byte left.
fn head(text: &str) -> Head {
    let (head, len) = parse(text.as_bytes(), &limits()).unwrap().expect("a whole head");
    assert_eq!(len, text.len());
    head
}

fn status(text: &str) -> u16 {
    parse(text.as_bytes(), &limits()).expect_err(text).status
}

/// A request whose headers are `lines`, each with its end.
fn with(lines: &str) -> String {
    format!("POST / HTTP/1.1\r\nHost: h\r\n{lines}\r\n")
}

#[test]
fn a_head_is_read_whole() {
    let text = "\r\nPOST /v1/a%20b%2Fc?x=%20&y HTTP/1.1\r\nHost: localhost:8080\r\nX-One: 1\r\n\
                x-one:  2 \t\r\nContent-Length: 12\r\n\r\n";
    let head = head(text);
    assert_eq!((&head.method[..], &head.path[..], &head.query[..]), ("POST", "/v1/a b/c", "x=%20&y"));
    assert_eq!((head.minor, head.keep_alive, head.expects), (1, true, false));
    assert_eq!(head.framing, Framing::Length(12));
    assert_eq!(head.headers.get("X-ONE"), Some("1"));
    assert_eq!(head.headers.all("x-One").collect::<Vec<_>>(), ["1", "2"]);
    assert_eq!(head.headers.get("x-two"), None);
    // Whatever follows is not part of it, and without any of its bytes it is not whole.
    let more = parse(format!("{text}{text}").as_bytes(), &limits()).unwrap().unwrap();
    assert_eq!(more, (head, text.len()));
    for len in 0..text.len() {
        assert_eq!(parse(&text.as_bytes()[..len], &limits()), Ok(None), "{len} bytes");
    }
}

#[test]
fn connections_stay_open_by_the_book() {
    let keeps = |version: &str, value: &str| {
        head(&format!("GET / HTTP/{version}\r\nHost: h\r\nConnection: {value}\r\n\r\n")).keep_alive
    };
    assert!(keeps("1.1", "keep-alive") && keeps("1.1", "upgrade") && !keeps("1.1", "Close"));
    assert!(keeps("1.0", "Keep-Alive") && !keeps("1.0", "x") && !keeps("1.0", "keep-alive, close"));
    assert!(!keeps("1.1", "x ,\tclose"));
    assert!(!head("GET / HTTP/1.0\r\n\r\n").keep_alive);
    assert!(head("GET / HTTP/1.1\r\nHost:\r\n\r\n").keep_alive);
}

#[test]
fn targets_have_four_forms() {
    let path = |line: &str| head(&format!("{line} HTTP/1.1\r\nHost: h:1\r\n\r\n")).path;
    assert_eq!(path("GET /a/../%c3%A4"), "/a/../ä");
    assert_eq!(path("GET HTTP://H:1"), "/");
    assert_eq!(path("GET http://h:1/a?b"), "/a");
    assert_eq!(path("OPTIONS *"), "*");
    let refused = |line: &str| status(&format!("{line} HTTP/1.1\r\nHost: h:1\r\n\r\n"));
    for line in ["GET *", "GET a", "GET ftp://h:1/", "GET http://other/", "GET http:///", "GET /a#b"] {
        assert_eq!(refused(line), 400, "{line}");
    }
    for line in ["GET /%", "GET /%4", "GET /%zz", "GET /%00", "GET /%0d%0A", "GET /%ff", "GET /%+1"] {
        assert_eq!(refused(line), 400, "{line}");
    }
    assert_eq!(refused("CONNECT h:1"), 501);
}

/// Each of them is a way to make two readers see two different requests.
#[test]
fn what_could_be_read_in_two_ways_is_refused() {
    for lines in [
        "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        "Content-Length: 5\r\nContent-Length: 5\r\n",
        "Content-Length: 5\r\nContent-Length: 6\r\n",
        "Content-Length: 5, 5\r\n",
        "Content-Length: +5\r\n",
        "Content-Length: -0\r\n",
        "Content-Length: 0x5\r\n",
        "Content-Length: 5 5\r\n",
        "Content-Length:\r\n",
        "Content-Length : 5\r\n",
        "Transfer-Encoding : chunked\r\n",
        "Transfer-Encoding: chunked, gzip\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: xchunked\r\n",
        "Transfer-Encoding: \"chunked\"\r\n",
        "Transfer-Encoding:\r\n",
        "Transfer-Encoding:\u{b}chunked\r\n",
        "X: y\r\n folded\r\n",
        "X: y\r\n\tTransfer-Encoding: chunked\r\n",
        "X: y\nTransfer-Encoding: chunked\r\n",
        "X: y\rTransfer-Encoding: chunked\r\n",
        "X: y\0\r\n",
        ": y\r\n",
        "X\r\n",
        "Host: h\r\n",
        "Host: g\r\n",
    ] {
        assert_eq!(status(&with(lines)), 400, "{lines:?}");
    }
    assert_eq!(status("GET / HTTP/1.1\n\n"), 400);
    assert_eq!(status("GET / HTTP/1.1\r\nHost: h\r\n\n"), 400);
    assert_eq!(status("GET / HTTP/1.1\r\n Host: h\r\n\r\n"), 400);
    assert_eq!(status("GET  / HTTP/1.1\r\nHost: h\r\n\r\n"), 400);
    assert_eq!(status("GET / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"), 400);
}

#[test]
fn every_fault_has_its_status() {
    assert_eq!(status("GET / HTTP/1.1\r\n\r\n"), 400);
    assert_eq!(status("GET / HTTP/1.1\r\nHost: a b\r\n\r\n"), 400);
    assert_eq!(status("GET / HTTP/1.1\r\nHost: u@h\r\n\r\n"), 400);
    assert_eq!(status("\x16\x03\x01\x02\0\x01\0\x01\x03\x03"), 400);
    assert_eq!(status("GET /\r\n"), 400);
    assert_eq!(status("GET / HTTP/1.1 x\r\nHost: h\r\n\r\n"), 400);
    assert_eq!(status("GET / FTP/1.1\r\n"), 400);
    assert_eq!(status("GET / HTTP/2.0\r\n"), 505);
    assert_eq!(status("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), 505);
    // No sooner than the whole word is there.
    assert_eq!(parse(b"GET / HTTP/2", &limits()), Ok(None));
    assert_eq!(status(&with("Transfer-Encoding: gzip, chunked\r\n")), 501);
    assert_eq!(status(&with("Expect: the-unexpected\r\n")), 417);
    assert_eq!(status(&with("Content-Length: 1001\r\n")), 413);
    assert_eq!(status(&with("Content-Length: 18446744073709551617\r\n")), 413);
    assert_eq!(head(&with("Content-Length: 1000\r\n")).framing, Framing::Length(1000));
    assert_eq!(head(&with("Content-Length: 0000012\r\n")).framing, Framing::Length(12));
    assert_eq!(head(&with("transfer-encoding: Chunked\r\n")).framing, Framing::Chunked);
    assert!(head(&with("expect: 100-Continue\r\n")).expects);
    assert!(!head("GET / HTTP/1.0\r\nExpect: 100-continue\r\n\r\n").expects);
}

#[test]
fn heads_are_bounded() {
    let just = |pad: usize| with(&format!("X: {}\r\n", "x".repeat(pad)));
    let most = 400 - just(0).len();
    head(&just(most));
    assert_eq!(status(&just(most + 1)), 431);
    // Also when it is not whole yet, and with whatever behind it.
    assert_eq!(status(&just(1000)[..400]), 431);
    assert_eq!(parse(&just(1000).as_bytes()[..399], &limits()), Ok(None));
    assert!(parse((just(most) + &"y".repeat(1000)).as_bytes(), &limits()).unwrap().is_some());
    assert_eq!(status(&format!("GET /{}", "x".repeat(395))), 414);
    assert_eq!(status(&format!("GET / HTTP/{}", "2".repeat(400))), 414);
    head(&with(&"X: y\r\n".repeat(4)));
    assert_eq!(status(&with(&"X: y\r\n".repeat(5))), 431);
}

#[test]
fn a_value_that_is_not_utf_8_is_latin_1() {
    let bytes = b"GET / HTTP/1.1\r\nHost: h\r\nX: \xe4\r\nY: \xc3\xa4\r\n\r\n";
    let (head, _) = parse(bytes, &limits()).unwrap().unwrap();
    assert_eq!((head.headers.get("x"), head.headers.get("y")), (Some("ä"), Some("ä")));
}

/// Gives the bytes in parts of `step`; the body, and how many bytes were not used.
fn decode(bytes: &[u8], framing: Framing, step: usize) -> Result<Option<(Vec<u8>, usize)>, Fault> {
    let mut decoder = Decoder::new(framing, &limits());
    let (mut body, mut used) = (Vec::new(), 0);
    for part in bytes.chunks(step) {
        let took = decoder.push(part, &mut body)?;
        used += took;
        if decoder.is_done() {
            break;
        }
        assert_eq!(took, part.len());
    }
    Ok(decoder.is_done().then_some((body, bytes.len() - used)))
}

/// However the bytes come.
fn chunks(bytes: &str) -> Result<Option<(Vec<u8>, usize)>, u16> {
    let whole = decode(bytes.as_bytes(), Framing::Chunked, usize::MAX);
    for step in 1..10 {
        assert_eq!(decode(bytes.as_bytes(), Framing::Chunked, step), whole, "{bytes:?} by {step}");
    }
    whole.map_err(|fault| fault.status)
}

#[test]
fn chunks_are_put_together() {
    let body = |text: &str, rest| Ok(Some((text.as_bytes().to_vec(), rest)));
    assert_eq!(chunks("0\r\n\r\n"), body("", 0));
    assert_eq!(chunks("5\r\nhello\r\n0\r\n\r\nGET"), body("hello", 3));
    assert_eq!(
        chunks("005;a=\"b\"\r\nhe\r\no\r\nB\r\n, world\r\n\r\n\r\n000\r\n\r\n"),
        body("he\r\no, world\r\n\r\n", 0)
    );
    assert_eq!(chunks("1\r\nx\r\n0\r\nDigest: y\r\nZ: \r\n\r\n\r\n"), body("x", 2));
    let sound = "3;x\r\nabc\r\n0\r\nT: u\r\n\r\n";
    for len in 0..sound.len() {
        assert_eq!(chunks(&sound[..len]), Ok(None), "{len} bytes");
    }
}

#[test]
fn malformed_chunks_are_refused() {
    for bytes in [
        "\r\n",
        "x",
        "g\r\n",
        "-1\r\n",
        "+1\r\n",
        "0x1\r\n",
        " 1\r\n",
        "1 \r\n",
        "1\n",
        "1\r\r\n",
        "1;\n",
        "1;\0",
        "1\r\nxx",
        "1\r\nx\n",
        "1\r\nx\rx",
        "0\r\n\n",
        "0\r\nT\n",
        "0\r\n T: u\r\n",
        "0\r\n\rx",
        "0\r\nT\r\r",
    ] {
        assert_eq!(chunks(bytes), Err(400), "{bytes:?}");
    }
    assert_eq!(chunks(&format!("1;{}", "x".repeat(300))), Err(400));
    assert_eq!(chunks(&format!("{}\r\n", "0".repeat(300))), Err(400));
}

#[test]
fn chunks_are_bounded() {
    let body = "x".repeat(1000);
    assert_eq!(chunks(&format!("3e8\r\n{body}\r\n0\r\n\r\n")), Ok(Some((body.clone().into_bytes(), 0))));
    // The size alone is enough, and so is one byte more in a second chunk.
    assert_eq!(chunks("3e9"), Err(413));
    assert_eq!(chunks("ffffffffffffffffff\r\n"), Err(413));
    assert_eq!(chunks(&format!("3e8\r\n{body}\r\n1\r\n")), Err(413));
    assert_eq!(chunks(&format!("0\r\n{}", "T: u\r\n".repeat(67))), Err(431));
}

#[test]
fn a_body_with_a_length_ends_there() {
    let decoded = |length, step| decode(b"hello", Framing::Length(length), step).unwrap();
    for step in 1..6 {
        assert_eq!(decoded(3, step), Some((b"hel".to_vec(), 2)));
        assert_eq!(decoded(5, step), Some((b"hello".to_vec(), 0)));
        assert_eq!(decoded(6, step), None);
        assert_eq!(decoded(0, step), Some((Vec::new(), 5)));
    }
}
