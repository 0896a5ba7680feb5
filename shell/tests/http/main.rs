//! The HTTP server over real sockets, asked in bytes. What is in a request is of no concern here.
//!
//! No test depends on how long something takes: limits are either far away, or it is only waited for what
//! they do.

mod bounds;
mod client;
mod garbage;
mod places;
mod service;

use client::{Client, request};
use kinglet::http::Limits;
use service::Served;

#[test]
fn requests_follow_each_other_on_one_connection() {
    let served = Served::new(Limits::default());
    let mut client = Client::new(&served.address);
    let answer = client.ask(&request("POST /a%20b?q=1", "", "body"));
    assert_eq!((answer.status, &answer.body[..]), (200, "POST /a b q=1 false\nbody"));
    assert_eq!(answer.header("content-type"), Some("text/plain"));
    assert_eq!(answer.header("connection"), None);
    assert_eq!(answer.header("date").unwrap().len(), "Sun, 06 Nov 1994 08:49:37 GMT".len());
    for i in 0..100 {
        assert_eq!(client.ask(&request(&format!("GET /{i}"), "", "")).body, format!("GET /{i}  false\n"));
    }
    let last = client.ask(&request("GET /", "Connection: close\r\n", ""));
    assert_eq!(last.header("connection"), Some("close"));
    client.end();
    served.wait_for_connections(0);
}

#[test]
fn http_1_0_closes_unless_it_is_asked_not_to() {
    let served = Served::new(Limits::default());
    let mut client = Client::new(&served.address);
    let kept = client.ask("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    assert_eq!(kept.header("connection"), Some("keep-alive"));
    let closed = client.ask("GET / HTTP/1.0\r\n\r\n");
    assert_eq!((closed.status, closed.header("connection")), (200, Some("close")));
    client.end();
    // It knows no chunks: the end is the end of the connection, whatever it wished for.
    let mut client = Client::new(&served.address);
    client.send("POST /stream HTTP/1.0\r\nConnection: keep-alive\r\nContent-Length: 7\r\n\r\none,two");
    let answer = client.answer();
    assert_eq!((answer.header("transfer-encoding"), answer.header("connection")), (None, Some("close")));
    assert_eq!(answer.body, "onetwo");
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let served = Served::new(Limits::default());
    let mut client = Client::new(&served.address);
    let mut all = String::new();
    for i in 0..50 {
        all += &request(&format!("POST /{i}"), "", &"x".repeat(i));
        all += &request("POST /stream", "", "a,b");
    }
    client.send(&all);
    for i in 0..50 {
        assert_eq!(client.answer().body, format!("POST /{i}  false\n{}", "x".repeat(i)));
        assert_eq!(client.answer().body, "ab");
    }
    // One that closes is the last, whatever comes behind it.
    client.send(request("GET /last", "Connection: close\r\n", "") + &request("GET /never", "", ""));
    assert_eq!(client.answer().body, "GET /last  false\n");
    client.end();
}

#[test]
fn bytes_may_come_one_by_one() {
    let served = Served::new(Limits::default());
    let mut client = Client::new(&served.address);
    client.drip(&("\r\n".to_owned() + &request("POST /a", "", "slow")));
    assert_eq!(client.answer().body, "POST /a  false\nslow");
    client.drip(
        &(request("POST /b", "Transfer-Encoding: chunked\r\n", "")
            + "2;e\r\nab\r\n1\r\nc\r\n0\r\nT: u\r\n\r\n"),
    );
    assert_eq!(client.answer().body, "POST /b  false\nabc");
    assert_eq!(client.ask(&request("GET /c", "", "")).body, "GET /c  false\n");
}

#[test]
fn bodies_in_chunks() {
    let served = Served::new(Limits { body_bytes: 100_000, ..Limits::default() });
    let chunked = request("POST /", "Transfer-Encoding: chunked\r\n", "");
    let mut client = Client::new(&served.address);
    let data = "0123456789".repeat(10_000);
    let mut all = chunked.clone();
    for part in data.as_bytes().chunks(999) {
        all += &format!("{:X}\r\n{}\r\n", part.len(), str::from_utf8(part).unwrap());
    }
    client.send(all + "0\r\n\r\n" + &request("GET /next", "", ""));
    assert_eq!(client.answer().body, format!("POST /  false\n{data}"));
    assert_eq!(client.answer().body, "GET /next  false\n");
    for (body, status) in [("x\r\n", 400), ("5\r\nhello!", 400), ("186a1\r\n", 413), ("0\r\nT\r\n\r\n", 200)]
    {
        let mut client = Client::new(&served.address);
        let answer = client.ask(&(chunked.clone() + body));
        assert_eq!(answer.status, status, "{body:?}");
        if status != 200 {
            assert_eq!(answer.header("connection"), Some("close"));
            client.end();
        }
    }
}

#[test]
fn the_body_may_wait_for_a_continue() {
    let served = Served::new(Limits { body_bytes: 10, ..Limits::default() });
    let mut client = Client::new(&served.address);
    for _ in 0..2 {
        client.send("POST /e HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n");
        assert_eq!(client.head().status, 100);
        assert_eq!(client.ask("body").body, "POST /e  false\nbody");
    }
    // Nobody waits if the body is there, or if there is none.
    assert_eq!(client.ask(&request("POST /e", "Expect: 100-continue\r\n", "here")).status, 200);
    assert_eq!(client.ask(&request("POST /e", "Expect: 100-continue\r\n", "")).status, 200);
    // A body that would be refused is not asked for.
    client.send("POST /e HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 11\r\n\r\n");
    assert_eq!(client.answer().status, 413);
    client.end();
    let mut client = Client::new(&served.address);
    assert_eq!(client.ask(&request("POST /e", "Expect: something\r\n", "")).status, 417);
}

#[test]
fn answers_without_a_body_have_none() {
    let served = Served::new(Limits::default());
    let mut client = Client::new(&served.address);
    client.send(request("HEAD /status?200", "", ""));
    assert_eq!(client.head().header("content-length"), Some("4"));
    client.send(request("HEAD /stream", "", "a,b"));
    assert_eq!(client.head().header("transfer-encoding"), Some("chunked"));
    for status in [204, 304] {
        let answer = client.ask(&request(&format!("GET /status?{status}"), "", ""));
        assert_eq!((answer.status, answer.header("content-length"), &answer.body[..]), (status, None, ""));
    }
    // Nothing was left behind.
    assert_eq!(client.ask(&request("GET /status?418", "", "")).body, "body");
    client.send(request("HEAD /none", "", ""));
    assert_eq!(client.head().status, 500);
    client.end();
}

#[test]
fn streams_come_piece_by_piece() {
    let served = Served::new(Limits::default());
    let mut client = Client::new(&served.address);
    // An empty piece is not the end.
    client.send(request("POST /stream", "", "one,,three"));
    assert_eq!(client.head().header("transfer-encoding"), Some("chunked"));
    let chunks = "3\r\none\r\n5\r\nthree\r\n0\r\n\r\n";
    client.send(request("GET /close", "Connection: close\r\n", ""));
    assert!(client.rest().starts_with(&format!("{chunks}HTTP/1.1 200 OK\r\n")));
    // The head is there before the first piece.
    let mut client = Client::new(&served.address);
    client.send(request("GET /gate-stream", "", ""));
    assert_eq!(client.head().status, 200);
    served.odd.note("open");
    client.send(request("GET /close", "Connection: close\r\n", ""));
    assert!(client.rest().starts_with("3\r\nend\r\n0\r\n\r\nHTTP/1.1 200 OK\r\n"));
}

#[test]
fn a_service_that_fails_harms_nobody() {
    let served = Served::new(Limits::default());
    let mut other = Client::new(&served.address);
    assert_eq!(other.ask(&request("GET /", "", "")).status, 200);
    for path in ["/panic", "/none"] {
        let mut client = Client::new(&served.address);
        let answer = client.ask(&request(&format!("GET {path}"), "", ""));
        assert_eq!((answer.status, answer.header("content-type")), (500, Some("text/fault")));
        client.end();
    }
    // An answer that has begun is cut off: its last chunk is missing.
    for path in ["/cut", "/late-panic"] {
        let mut client = Client::new(&served.address);
        client.send(request(&format!("GET {path}"), "", ""));
        assert_eq!(client.head().status, 200);
        assert_eq!(client.rest(), "5\r\nbegun\r\n");
    }
    assert_eq!(other.ask(&request("GET /", "", "")).status, 200);
    drop(other);
    served.wait_for_connections(0);
}

#[test]
fn a_header_cannot_break_out_of_its_line() {
    let served = Served::new(Limits::default());
    let mut client = Client::new(&served.address);
    let answer = client.ask(&request("GET /split", "", ""));
    assert_eq!(answer.header("x"), Some("a  Evil: 1    "));
    assert_eq!(client.ask(&request("GET /", "", "")).status, 200);
}

#[test]
fn clients_that_vanish_are_noticed() {
    let served = Served::new(Limits::default());
    // While it waits, with another request already sent.
    let mut client = Client::new(&served.address);
    client.send(request("GET /watch", "", "") + &request("GET /next", "", ""));
    served.odd.wait_for("watching");
    assert!(!served.odd.has("gone"));
    drop(client);
    served.odd.wait_for("gone");
    // In the middle of a stream.
    let mut client = Client::new(&served.address);
    client.send(request("GET /endless", "", ""));
    assert_eq!(client.head().status, 200);
    drop(client);
    served.odd.wait_for("broken");
    // In the middle of a request.
    for part in ["GET /", "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nab"] {
        let mut client = Client::new(&served.address);
        client.send(part);
        served.wait_for_connections(1);
    }
    served.wait_for_connections(0);
    // One that only waits sees its answer.
    let mut client = Client::new(&served.address);
    client.send(request("GET /gate", "", ""));
    served.odd.wait_for("waiting");
    served.odd.note("open");
    assert_eq!(client.answer().body, "there");
}
