//! Thousands of connections that say anything but what they should.

use super::client::{Client, request};
use super::service::Served;
use kinglet::http::Limits;

/// xorshift64*
struct Rng(u64);

impl Rng {
    fn below(&mut self, most: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) as usize % most
    }
}

/// What requests are made of, sound and not.
const PIECES: [&str; 40] = [
    "GET / HTTP/1.1\r\n",
    "POST /stream HTTP/1.1\r\n",
    "HEAD /x HTTP/1.0\r\n",
    "OPTIONS * HTTP/1.1\r\n",
    "GET /none HTTP/1.1\r\n",
    "GET /cut HTTP/1.1\r\n",
    "GET http://h/ HTTP/1.1\r\n",
    "GET /%41%zz HTTP/1.1\r\n",
    "PRI * HTTP/2.0\r\n",
    "Host: h\r\n",
    "Host: h\r\n",
    "Host: h\r\n\r\n",
    "Connection: close\r\n",
    "Connection: keep-alive\r\n",
    "Content-Length: 5\r\n",
    "Content-Length: 0\r\n",
    "Content-Length: 99999999999\r\n",
    "Content-Length: -1\r\n",
    "Transfer-Encoding: chunked\r\n",
    "Transfer-Encoding: gzip\r\n",
    "Expect: 100-continue\r\n",
    "\r\n",
    "\r\n",
    "\r\n\r\n",
    "\n",
    "\r",
    " ",
    ":",
    "hello",
    "5\r\nhello\r\n",
    "5\r\nhello\r\n0\r\n\r\n",
    "0\r\n\r\n",
    "0\r\n",
    "ffffffffffffffff\r\n",
    "a;b=c\r\n",
    "\0",
    "é",
    concat!(
        "GET /",
        "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
        "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
        "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
    ),
    "Host: h\r\nContent-Length: 5\r\n\r\nhello",
    "Host: h\r\nTransfer-Encoding: chunked\r\n\r\n",
];

/// A few requests of which now and then a piece is another, or a byte.
fn garbage(rng: &mut Rng) -> Vec<u8> {
    let mut out = Vec::new();
    let mut add = |rng: &mut Rng, from: usize, to: usize| match rng.below(30) {
        0 => out.extend((0..rng.below(40)).map(|_| rng.below(256) as u8)),
        1 => out.extend(PIECES[rng.below(PIECES.len())].bytes()),
        _ => out.extend(PIECES[from + rng.below(to - from)].bytes()),
    };
    for _ in 0..1 + rng.below(3) {
        add(rng, 0, 9);
        add(rng, 9, 11);
        (0..rng.below(6)).for_each(|_| add(rng, 12, 21));
        add(rng, 21, 23);
        (0..rng.below(3)).for_each(|_| add(rng, 28, 35));
    }
    for _ in 0..rng.below(3) {
        let at = rng.below(out.len());
        out[at] = rng.below(256) as u8;
    }
    out
}

/// Whatever comes is answered by whole replies or none, and the end is always reached.
#[test]
fn garbage_never_hangs_or_kills_the_server() {
    let served = Served::new(Limits { header_bytes: 200, headers: 4, body_bytes: 100, ..Limits::default() });
    let mut rng = Rng(0x9E37_79B9_7F4A_7C15);
    let mut seen = [0; 600];
    for case in 0..4000 {
        let bytes = garbage(&mut rng);
        let mut client = Client::new(&served.address);
        let (front, back) = bytes.split_at(rng.below(bytes.len() + 1));
        let _ = client.try_send(front).and_then(|()| client.try_send(back));
        if case % 8 == 0 {
            continue;
        }
        client.shut();
        let text = client.rest();
        // What the service echoes may hold the version, but no status behind it.
        for line in text.split("HTTP/1.1 ").skip(1) {
            let status = line.get(..3).and_then(|status| status.parse::<usize>().ok());
            seen[status.filter(|&status| status < 600).unwrap_or(0)] += 1;
        }
        assert!(text.is_empty() || text.starts_with("HTTP/1.1 "), "{text:?}");
    }
    served.wait_for_connections(0);
    assert_eq!(Client::new(&served.address).ask(&request("GET /", "", "")).status, 200);
    // The inputs are no use if they all fail alike.
    let some: Vec<_> = (0..600).filter(|&at| seen[at] > 0).map(|at| (at, seen[at])).collect();
    println!("{some:?}");
    for status in [200, 400, 413, 414, 431, 500, 501, 505] {
        assert!(seen[status] > 0, "no {status}: {some:?}");
    }
    assert!(seen[200] > 300 && seen[400] > 1000, "{some:?}");
}
