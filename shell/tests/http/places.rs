//! Who may connect: many at a time, too many, nobody any more; and Unix sockets.

use super::client::{Client, request};
use super::service::{PATIENCE, Served};
use core::time::Duration;
use kinglet::failure::Failure;
use kinglet::http::{Bind, Limits, Server};
use std::net::TcpStream;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::time::Instant;

#[test]
fn idle_and_slow_clients_keep_nobody_waiting() {
    let served = Served::new(Limits::default());
    let idle: Vec<Client> = (0..64).map(|_| Client::new(&served.address)).collect();
    let mut slow: Vec<Client> = (0..8).map(|_| Client::new(&served.address)).collect();
    served.wait_for_connections(72);
    let beginnings =
        ["GET /slow HTTP/1.1\r\nX: ", "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 9999\r\n\r\n"];
    for (i, client) in slow.iter_mut().enumerate() {
        client.send(beginnings[i % 2]);
    }
    std::thread::scope(|scope| {
        for real in 0..4 {
            let address = &served.address;
            scope.spawn(move || {
                let mut client = Client::new(address);
                for i in 0..100 {
                    let path = format!("/{real}/{i}");
                    let asked = request(&format!("POST {path}"), "", "body");
                    assert_eq!(client.ask(&asked).body, format!("POST {path}  false\nbody"));
                }
            });
        }
        for _ in 0..20 {
            slow.iter_mut().for_each(|client| client.send("x"));
        }
    });
    drop((idle, slow));
    served.wait_for_connections(0);
}

#[test]
fn too_many_connections_are_told_to_come_again() {
    let far = Duration::from_secs(3600);
    let served = Served::new(Limits { connections: 3, idle_time: far, ..Limits::default() });
    let mut clients: Vec<Client> = (0..3).map(|_| Client::new(&served.address)).collect();
    for client in &mut clients {
        assert_eq!(client.ask(&request("GET /", "", "")).status, 200);
    }
    for _ in 0..5 {
        let mut refused = Client::new(&served.address);
        let answer = refused.answer();
        assert_eq!((answer.status, answer.header("retry-after")), (503, Some("1")));
        assert_eq!(answer.header("connection"), Some("close"));
        refused.end();
    }
    // Far too many: some of them may see nothing, and all are gone in the end.
    let crowd: Vec<Client> = (0..50).map(|_| Client::new(&served.address)).collect();
    drop(crowd);
    served.wait_for_connections(3);
    for client in &mut clients {
        assert_eq!(client.ask(&request("GET /", "", "")).status, 200);
    }
    // A place that gets free is given away.
    clients.pop();
    served.wait_for_connections(2);
    assert_eq!(Client::new(&served.address).ask(&request("GET /", "", "")).status, 200);
}

/// When all places are taken, who does nothing with his has a tenth of the time: 4 seconds, not 40.
#[test]
fn who_only_holds_one_of_the_last_places_loses_it() {
    let limits = Limits { connections: 4, idle_time: Duration::from_secs(40), ..Limits::default() };
    let served = Served::new(limits);
    let mut clients = Vec::new();
    for i in 1..=4 {
        clients.push(Client::new(&served.address));
        served.wait_for_connections(i);
    }
    // Used after the places were counted, so that each waits anew.
    let begin = Instant::now();
    for client in &mut clients {
        assert_eq!(client.ask(&request("GET /", "", "")).status, 200);
    }
    clients[3].end();
    assert!(begin.elapsed() < Duration::from_secs(30), "{:?}", begin.elapsed());
}

#[test]
fn stopping_waits_for_answers_and_for_nothing_else() {
    let served = Served::new(Limits::default());
    let mut idle = Client::new(&served.address);
    assert_eq!(idle.ask(&request("GET /", "", "")).status, 200);
    let mut half = Client::new(&served.address);
    half.send("GET / HTTP/1.1\r\nHo");
    let mut body = Client::new(&served.address);
    body.send("POST / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 9\r\n\r\n");
    assert_eq!(body.head().status, 100);
    let mut busy = Client::new(&served.address);
    busy.send(request("GET /gate", "", ""));
    served.odd.wait_for("waiting");
    assert_eq!(served.running.connections(), 4);

    assert!(!served.running.stop(Duration::ZERO), "an answer is running");
    idle.end();
    // It may not have been read before the end came.
    let told = half.rest();
    assert!(told.is_empty() || told.starts_with("HTTP/1.1 503 "), "{told}");
    assert_eq!(body.answer().status, 503);
    served.wait_for_connections(1);
    assert!(TcpStream::connect(&served.address).is_err());
    assert!(!served.running.stop(Duration::from_millis(50)));

    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| served.running.stop(PATIENCE));
        served.odd.note("open");
        let answer = busy.answer();
        assert_eq!((&answer.body[..], answer.header("connection")), ("there", Some("close")));
        busy.end();
        assert!(waiting.join().unwrap());
    });
    assert_eq!(served.running.connections(), 0);
    assert!(served.running.stop(Duration::ZERO));
}

#[test]
fn an_address_that_is_taken_is_named() {
    let served = Served::new(Limits::default());
    let bind = Bind::Tcp(served.address.parse().unwrap());
    let Err(Failure::Failed(line)) = Server::bind(&bind, Limits::default()) else { panic!() };
    assert!(line.starts_with(&format!("cannot listen on {}: ", served.address)), "{line}");
    // It is free as soon as the server is gone, also with connections that have just ended.
    let mut client = Client::new(&served.address);
    assert_eq!(client.ask(&request("GET /", "Connection: close\r\n", "")).status, 200);
    client.end();
    drop(served);
    assert!(Server::bind(&bind, Limits::default()).is_ok());
}

fn place(name: &str) -> PathBuf {
    let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("http-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    // Addresses of Unix sockets are at most 107 bytes long; folders of builds can be deep.
    let path = std::path::absolute(dir).unwrap().join(name);
    let here = std::env::current_dir().unwrap();
    pathdiff(&path, &here)
}

/// `path` as seen from `base`.
fn pathdiff(path: &std::path::Path, base: &std::path::Path) -> PathBuf {
    let common = path.components().zip(base.components()).take_while(|(a, b)| a == b).count();
    let up = base.components().skip(common).map(|_| std::path::Component::ParentDir);
    up.chain(path.components().skip(common)).collect()
}

#[test]
fn unix_sockets_are_their_owners_alone() {
    let path = place("own");
    let served = Served::at(&Bind::Unix(path.clone()), Limits::default());
    assert_eq!(served.address, format!("unix:{}", path.display()));
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let mut client = Client::unix(&path);
    assert_eq!(client.ask(&request("POST /x", "", "body")).body, "POST /x  true\nbody");
    client.send(request("POST /stream", "", "a,b"));
    assert_eq!(client.answer().body, "ab");
    client.send(request("GET /watch", "", ""));
    served.odd.wait_for("watching");
    drop(client);
    served.odd.wait_for("gone");

    // Nobody takes it away while it answers.
    let inode = std::fs::metadata(&path).unwrap().ino();
    let Err(Failure::Failed(line)) = Server::bind(&Bind::Unix(path.clone()), Limits::default()) else {
        panic!()
    };
    assert!(line.contains("own: another program answers there"), "{line}");
    assert_eq!(std::fs::metadata(&path).unwrap().ino(), inode);
    assert!(served.running.stop(PATIENCE));
    assert!(!path.exists());
}

#[test]
fn stale_unix_sockets_are_replaced_and_nothing_else_is() {
    let path = place("stale");
    drop(UnixListener::bind(&path).unwrap());
    assert!(path.exists());
    let served = Served::at(&Bind::Unix(path.clone()), Limits::default());
    assert_eq!(Client::unix(&path).ask(&request("GET /", "", "")).status, 200);
    // What stands there in the end is not ours.
    std::fs::remove_file(&path).unwrap();
    std::fs::write(&path, "text").unwrap();
    drop(served);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "text");

    let Err(Failure::Failed(line)) = Server::bind(&Bind::Unix(path.clone()), Limits::default()) else {
        panic!()
    };
    assert!(line.contains("not a socket"), "{line}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "text");
    // Nor is what it points to.
    let link = place("link");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    assert!(Server::bind(&Bind::Unix(link.clone()), Limits::default()).is_err());
    assert!(link.is_symlink());
    let gone = place("no").join("such");
    assert!(Server::bind(&Bind::Unix(gone), Limits::default()).is_err());
    std::fs::remove_file(link).unwrap();
    std::fs::remove_file(path).unwrap();
}
