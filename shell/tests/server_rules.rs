//! `kinglet serve`: small endpoints, errors, keys. Must not know how.

mod common;

use common::server::{Server, read};
use common::{command, fixture, qwen3, scratch, words, write};
use kinglet::api::{Api, Options};
use kinglet::http::{Bind, Limits, Server as Http};
use serde_json::Value;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

const CHAT: &str = "/v1/chat/completions";
const HI: &str = r#"{"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2, "temperature": 0}"#;

fn start(more: &str) -> Server {
    Server::start(&format!("-m {} -t 1 --ctx 256 {more}", qwen3()))
}

fn value(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

#[test]
fn small_endpoints_answer() {
    let server = start("--alias tiny");
    assert_eq!(server.get("/health").ok(), value(r#"{"status":"ok"}"#));
    let head = server.ask("HEAD", "/health", "", "");
    assert_eq!((head.status, head.body.as_str()), (200, ""));
    let models = server.get("/v1/models").ok();
    assert_eq!(
        (&models["data"][0]["id"], &models["data"][0]["meta"]["n_ctx"]),
        (&"tiny".into(), &value("256"))
    );
    // Anthropic's client reads it as a date.
    let created = models["data"][0]["created_at"].as_str().unwrap();
    assert!(created.starts_with("20") && created.len() == 20 && created.ends_with('Z'), "{created}");
    assert_eq!(server.get("/v1/models/tiny").ok()["id"], "tiny");
    assert_eq!(server.get("/v1/models/other").status, 404);
    let props = server.get("/props").ok();
    assert_eq!((&props["total_slots"], &props["modalities"]["vision"]), (&value("4"), &false.into()));
    let text = "Grüße, 世界!";
    let ids = server.post("/tokenize", &format!(r#"{{"content": "{text}"}}"#)).ok()["tokens"].clone();
    assert_eq!(server.post("/detokenize", &format!(r#"{{"tokens": {ids}}}"#)).ok()["content"], text);
    let pieces =
        server.post("/tokenize", r#"{"content": "a b", "with_pieces": true}"#).ok()["tokens"].clone();
    let joined: String = pieces.as_array().unwrap().iter().map(|p| p["piece"].as_str().unwrap()).collect();
    assert_eq!(joined, "a b");
    let prompt = server.post("/apply-template", HI).ok();
    assert_eq!(prompt["prompt"], "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
    let replied = server.post(CHAT, HI).ok();
    assert_eq!(replied["model"], "tiny");
    let status = server.status();
    let last = &status["last"][0];
    assert_eq!((&last["id"], &last["path"], &last["status"]), (&replied["id"], &CHAT.into(), &value("200")));
    assert_eq!(
        (&last["decoded_tokens"], &last["finish"], &last["source"]),
        (&value("2"), &"length".into(), &"none".into())
    );
    assert_eq!(
        (&status["total_requests"], &status["model"], &status["disk"]),
        (&value("1"), &"tiny".into(), &Value::Null)
    );
    assert!(status["rss_mb"].as_u64().unwrap() > 0 && status["mem_avail_mb"].as_u64().unwrap() > 0);
    let kv = &status["kv"];
    let blocks = |name: &str| kv[name].as_u64().unwrap();
    assert_eq!(blocks("free") + blocks("cached") + blocks("private") + blocks("shared"), blocks("blocks"));
    assert_eq!(kv["map"].as_str().unwrap().len() as u64, blocks("blocks").div_ceil(3) * 4);
    let metrics = server.get("/metrics");
    assert!(metrics.head.contains("content-type: text/plain"), "{}", metrics.head);
    for line in [
        "kinglet_ready 1",
        "kinglet_reply_requests_total 1",
        "kinglet_decoded_tokens_total 2",
        "kinglet_jobs_ended_total 1",
    ] {
        assert!(metrics.body.lines().any(|l| l == line), "{line}: {}", metrics.body);
    }
    let log = server.log();
    let line = log.lines().find(|line| line.contains(CHAT)).unwrap();
    assert!(line.contains(" POST ") && line.contains(" 200 ") && line.contains("reply 2, length"), "{line}");
    assert!(!log.contains("Hi"), "{log}");
}

#[test]
fn errors_say_what_is_wrong() {
    let server = start("");
    let long = format!(r#"{{"messages": [{{"role": "user", "content": "{}"}}]}}"#, "word ".repeat(300));
    for (method, path, body, status, code, param) in [
        ("GET", "/nothing", "", 404, "", ""),
        ("GET", "/v1/embeddings", "", 404, "", ""),
        ("GET", CHAT, "", 405, "", ""),
        ("DELETE", "/v1/models", "", 405, "", ""),
        ("POST", CHAT, "", 400, "", ""),
        ("POST", CHAT, "{", 400, "", ""),
        ("POST", CHAT, "[]", 400, "", ""),
        ("POST", CHAT, "{}", 400, "", "messages"),
        ("POST", CHAT, r#"{"messages": [], "temperature": "hot"}"#, 400, "", "temperature"),
        ("POST", CHAT, &long, 400, "context_length_exceeded", ""),
        ("POST", "/v1/completions", r#"{"prompt": ""}"#, 400, "", "prompt"),
        ("POST", "/v1/completions", r#"{"prompt": [99999999]}"#, 400, "", "prompt"),
        ("POST", "/tokenize", "{}", 400, "", "content"),
        ("POST", "/detokenize", r#"{"tokens": [-1]}"#, 400, "", "tokens"),
        ("POST", "/apply-template", "{}", 400, "", "messages"),
    ] {
        let reply = server.ask(method, path, "", body);
        assert_eq!(reply.status, status, "{method} {path} {body}: {reply:?}");
        assert!(reply.head.contains("content-type: application/json"));
        let error = &reply.json()["error"];
        assert!(!error["message"].as_str().unwrap().is_empty() && error["type"].is_string());
        assert_eq!(error["code"].as_str().unwrap_or(""), code, "{path} {body}: {error}");
        assert_eq!(error["param"].as_str().unwrap_or(""), param, "{path} {body}: {error}");
    }
    let deep = format!("{{\"messages\": {}", "[".repeat(5000));
    assert_eq!(server.post(CHAT, &deep).status, 400);
    // It lives.
    assert_eq!(server.post(CHAT, HI).status, 200);
}

#[test]
fn keys_are_asked_for_and_kept_apart() {
    let file = write("keys", b"# two of them\nfirst\n\nsecond\n");
    let server = start(&format!("--api-key-file {file} --admin-key root --log-prompts"));
    let with = |key: &str, path: &str, body: &str| {
        let method = if body.is_empty() { "GET" } else { "POST" };
        server.ask(method, path, &format!("Authorization: Bearer {key}\r\n"), body)
    };
    assert_eq!(server.get("/health").status, 200);
    for path in ["/v1/models", "/metrics", "/props", "/admin/api/status"] {
        let refused = server.get(path);
        assert_eq!(refused.status, 401, "{path}");
        assert!(refused.head.contains("www-authenticate: bearer"), "{}", refused.head);
        assert_eq!(refused.json()["error"]["code"], "invalid_api_key");
    }
    assert_eq!(with("wrong", "/v1/models", "").status, 401);
    assert_eq!(with("first", "/v1/models", "").status, 200);
    assert_eq!(server.ask("GET", "/v1/models", "X-Api-Key: second\r\n", "").status, 200);
    assert_eq!(with("first", "/admin/api/status", "").status, 401);
    assert_eq!(with("root", "/admin/api/status", "").status, 200);
    let words = r#"{"messages": [{"role": "user",
        "content": "a b c d e f g h i j k l m n o p q r s t u v w x y z 1 2 3 4 5"}],
        "max_tokens": 1}"#;
    let cached = |key: &str| {
        with(key, CHAT, words).ok()["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap()
    };
    assert_eq!(cached("first"), 0);
    assert!(cached("first") > 0);
    // What another key has computed cannot be told by its time.
    assert_eq!(cached("second"), 0);
    let log = server.log();
    assert!(log.contains("prompt: <|im_start|>user\\na b c d") && !log.contains("first"), "{log}");
}

#[test]
fn pages_of_other_sites_need_leave() {
    let server = start("--cors https://app.example --strict-model");
    let with = |headers: &str| server.ask("GET", "/v1/models", headers, "");
    let allowed = with("Origin: https://app.example\r\n");
    assert_eq!(allowed.status, 200);
    assert!(allowed.head.contains("access-control-allow-origin: https://app.example"), "{}", allowed.head);
    assert_eq!(with("Origin: https://evil.example\r\n").status, 403);
    let asked = server.ask("OPTIONS", CHAT, "Origin: https://app.example\r\n", "");
    assert_eq!(asked.status, 204);
    assert!(asked.head.contains("access-control-allow-headers: authorization"), "{}", asked.head);
    let mut stream = server.connect();
    stream
        .write_all(b"GET /v1/models HTTP/1.1\r\nHost: rebound.example\r\nConnection: close\r\n\r\n")
        .unwrap();
    assert_eq!(read(stream).status, 403);
    let named = |name: &str| server.post(CHAT, &HI.replacen('{', &format!(r#"{{"model": "{name}", "#), 1));
    assert_eq!(
        (named("gpt-4").status, named("gpt-4").json()["error"]["code"].clone()),
        (404, "model_not_found".into())
    );
    let name = server.get("/v1/models").ok()["data"][0]["id"].clone();
    assert_eq!(named(name.as_str().unwrap()).status, 200);
}

#[test]
fn a_unix_socket_serves_as_well() {
    let path = scratch().join("socket");
    let mut server = Server::spawn(&format!("-m {} -t 1 --ctx 256 --unix {}", qwen3(), path.display()));
    server.wait_for("listening at unix:");
    let mut stream = UnixStream::connect(&path).unwrap();
    stream.write_all(b"GET /v1/models HTTP/1.1\r\nHost: any\r\nConnection: close\r\n\r\n").unwrap();
    assert_eq!(read(stream).status, 200);
}

#[test]
fn until_the_model_is_loaded_all_is_not_yet() {
    let http = Http::bind(&Bind::Tcp("127.0.0.1:0".parse().unwrap()), Limits::default()).unwrap();
    let address = http.address();
    let api = Arc::new(Api::new(Options { loopback: true, ..Options::default() }));
    let running = http.start(api).unwrap();
    for (path, status) in
        [("/health", 503), ("/v1/models", 503), ("/admin/api/status", 503), ("/metrics", 200), ("/x", 404)]
    {
        let mut stream = std::net::TcpStream::connect(address.strip_prefix("http://").unwrap()).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
        let reply = read(stream);
        assert_eq!(reply.status, status, "{path}");
        if status == 503 {
            assert!(reply.head.contains("retry-after: 1"), "{}", reply.head);
            assert_eq!(reply.json()["error"]["code"], "loading");
        }
    }
    assert!(running.stop(core::time::Duration::from_secs(5)));
}

#[test]
fn flags_come_from_the_line_the_environment_and_a_file_in_this_order() {
    let model = qwen3();
    let file = write(
        "serve.conf",
        format!("# board\nmodel = {model}\nctx = 128\nalias = file\nthreads = 1\n").as_bytes(),
    );
    let started = |line: &str, variables: &[(&str, &str)]| {
        let mut command = command(&words(&format!("serve --port 0 --config {file} {line}")));
        command.envs(variables.iter().copied());
        let server = Server::of(command);
        let models = server.get("/v1/models").ok();
        let one = &models["data"][0];
        (String::from(one["id"].as_str().unwrap()), one["meta"]["n_ctx"].as_u64().unwrap())
    };
    assert_eq!(started("", &[]), (String::from("file"), 128));
    assert_eq!(
        started("", &[("KINGLET_ALIAS", "variable"), ("KINGLET_CTX", "160")]),
        (String::from("variable"), 160)
    );
    assert_eq!(started("--alias line", &[("KINGLET_ALIAS", "variable")]), (String::from("line"), 128));
    let bad = write("bad.conf", b"quiet\nprot = 5\n");
    let ran = common::run(&words(&format!("serve --config {bad}")));
    assert!(ran.line(1).contains("line 2: serve: unknown flag '--prot'; did you mean --port?"));
    let mut wrong = command(&words("serve"));
    let output = wrong.env("KINGLET_PORT", "x").output().unwrap();
    assert!(
        String::from_utf8(output.stderr).unwrap().contains("KINGLET_PORT: serve --port: 'x' is no number")
    );
    assert!(common::run(&["serve"]).line(2).contains("-m FILE is missing"));
    assert!(
        common::run(&["serve", "-m", &model, "--host", "nowhere"]).line(2).contains("must be an address")
    );
    let broken = write("broken.gguf", &fixture("gguf/qwen2-tiny.gguf")[..1000]);
    assert!(!common::run(&["serve", "--port", "0", "-m", &broken]).line(1).is_empty());
}
