//! What the stand-in for a server says of itself: a KV region that fills as prompts are read, and is shared
//! when one comes again. Must not know HTTP.

use super::base64;
use serde_json::{Value, json};
use std::time::Instant;

/// Blocks of the region.
const BLOCKS: usize = 240;
/// Tokens of a block.
const BLOCK_TOKENS: usize = 32;
/// Blocks that are never let go.
const PINNED: usize = 2;

/// A server's state.
pub struct State {
    begin: Instant,
    /// Bodies of the chat requests so far.
    pub bodies: Vec<Value>,
    /// Replies whose reader went away.
    pub gone: usize,
    /// Times the status was asked for.
    pub polls: usize,
    /// The API key that is wanted.
    pub key: Option<String>,
    active: usize,
    cached: usize,
    private: usize,
    shared: usize,
    prompt: usize,
    decoded: usize,
    last: Vec<Value>,
}

impl State {
    /// An idle server that has seen nothing.
    pub fn new() -> State {
        State {
            begin: Instant::now(),
            bodies: Vec::new(),
            gone: 0,
            polls: 0,
            key: None,
            active: 0,
            cached: 0,
            private: 0,
            shared: 0,
            prompt: 0,
            decoded: 0,
            last: Vec::new(),
        }
    }

    /// A prompt comes in; gives how many of its tokens are there already.
    pub fn start(&mut self, prompt: usize) -> usize {
        let whole = prompt / BLOCK_TOKENS;
        self.active += 1;
        self.prompt = prompt;
        self.decoded = 0;
        self.shared = self.cached.min(whole);
        self.cached -= self.shared;
        self.private = whole + 1 - self.shared;
        self.shared * BLOCK_TOKENS
    }

    /// One more token is written.
    pub fn token(&mut self) {
        self.decoded += 1;
        if self.decoded.is_multiple_of(8) && self.cached + self.shared + self.private + PINNED < BLOCKS {
            self.private += 1;
        }
    }

    /// A request ends.
    pub fn end(&mut self, cached_tokens: usize, source: &str, finish: &str) {
        self.active -= 1;
        self.cached += self.shared + self.private;
        (self.shared, self.private) = (0, 0);
        let row = json!({
            "id": format!("chatcmpl-{}", self.bodies.len()), "path": "/v1/chat/completions", "status": 200,
            "prompt_tokens": self.prompt, "cached_tokens": cached_tokens,
            "source": if cached_tokens > 0 { source } else { "none" },
            "restore_ms": if cached_tokens > 0 { 2.5 } else { 0.0 },
            "prefill_ms": 410.0, "first_token_ms": 431.2,
            "decoded_tokens": self.decoded, "decode_ms": 40.0 * self.decoded as f64,
            "ms": 440.0 + 40.0 * self.decoded as f64, "age_s": 0, "finish": finish,
        });
        self.last.insert(0, row);
        self.last.truncate(20);
    }

    fn map(&self) -> Vec<u8> {
        const SAVED: u8 = 8;
        let parts = [(4, PINNED), (3 + SAVED, self.shared), (1 + SAVED, self.cached), (2, self.private)];
        let mut map: Vec<u8> = parts.iter().flat_map(|&(byte, n)| vec![byte; n]).collect();
        map.resize(BLOCKS, 0);
        map
    }

    /// The answer to `/admin/api/status`.
    pub fn report(&self) -> Value {
        let map = self.map();
        let of = |state: u8| map.iter().filter(|byte| *byte & 7 == state).count();
        let saved = self.cached + self.shared;
        let slots: Vec<Value> = (0..4)
            .map(|id| {
                let busy = id == 0 && self.active > 0;
                json!({"id": id, "state": if busy { "decode" } else { "idle" }, "prompt_tokens": self.prompt,
                    "done_tokens": self.prompt, "decoded_tokens": self.decoded})
            })
            .collect();
        json!({
            "busy": self.active > 0, "active": self.active, "queued": 0, "total_requests": self.bodies.len(),
            "rss_mb": 612, "mem_avail_mb": 6812, "uptime_s": self.begin.elapsed().as_secs(),
            "model": "fake-model",
            "ctx": BLOCKS * BLOCK_TOKENS, "parallel": 4,
            "kv": {"blocks": BLOCKS, "free": of(0), "cached": of(1), "private": of(2), "shared": of(3),
                "pinned": of(4), "saved": saved, "block_tokens": BLOCK_TOKENS, "map": base64::encode(&map)},
            "disk": {"dir": "cache", "files": saved, "bytes": saved * 409_600, "written": saved * 409_600,
                "paused": null},
            "slots": slots, "tokens_per_s": {"prompt": 210.4, "decode": 25.1}, "last": self.last,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_read_is_shared_when_it_comes_again() {
        let mut state = State::new();
        assert_eq!(state.start(100), 0);
        state.end(0, "ram", "stop");
        assert_eq!(state.report()["kv"]["cached"], 4);
        assert_eq!(state.start(110), 96);
        let report = state.report();
        assert_eq!((&report["kv"]["shared"], &report["kv"]["private"]), (&json!(3), &json!(1)));
        state.end(96, "ram", "stop");
        assert_eq!(state.report()["last"][0]["source"], "ram");
    }
}
