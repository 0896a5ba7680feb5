//! What all replies of OpenAI's API have in common: names, usage, timings, probabilities. Must not know who
//! asked for what.

use super::json::Json;
use super::outcome::{Told, Usage};
use core::hash::{BuildHasher, Hasher};
use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;
use kinglet_core::token::{MAX_TOKEN_BYTES, Tokenizer};
use std::time::SystemTime;

/// What stands at the top of a reply and of each of its pieces.
pub struct Head {
    /// Name of the reply.
    pub id: String,
    /// Seconds since 1970.
    pub created: u64,
    /// Name of the model.
    pub model: String,
    /// Its tokens.
    pub tokenizer: &'static Tokenizer<'static>,
}

/// A name that no other reply has.
pub fn unique(prefix: &str) -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    // The standard library's hasher keys are the system's random numbers.
    let mut hasher = std::collections::hash_map::RandomState::new().build_hasher();
    hasher.write_u64(COUNT.fetch_add(1, Ordering::Relaxed));
    let mut bits = hasher.finish();
    let mut name = String::from(prefix);
    for _ in 0..16 {
        name.push(char::from(b"0123456789abcdef"[(bits % 16) as usize]));
        bits /= 16;
    }
    name
}

/// Seconds since 1970.
pub fn now() -> u64 {
    SystemTime::UNIX_EPOCH.elapsed().map_or(0, |time| time.as_secs())
}

/// Milliseconds.
pub fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// Things in a second; 0 for no time.
pub fn rate(n: usize, time: Duration) -> f64 {
    crate::generate::rate(n, time)
}

impl Head {
    /// An object that begins so.
    pub fn open(&self, object: &str) -> Json {
        let mut json = Json::object();
        json.put("id", &self.id).put("object", object).put_number("created", self.created);
        json.put("model", &self.model);
        json
    }

    /// The text of a token alone.
    pub fn token(&self, id: u32) -> String {
        String::from_utf8_lossy(&self.token_bytes(id)).into_owned()
    }

    fn token_bytes(&self, id: u32) -> Vec<u8> {
        let mut bytes = vec![0; MAX_TOKEN_BYTES];
        // Holes of the embedding matrix beyond the vocabulary have no text.
        let len = self.tokenizer.token_bytes(id, &mut bytes).map_or(0, <[u8]>::len);
        bytes.truncate(len);
        bytes
    }

    /// `timings`, as llama.cpp names them, and where the prompt's beginning came from.
    pub fn timings(&self, json: &mut Json, usage: &Usage) {
        let prompt = usage.prompt.saturating_sub(usage.cached);
        json.key("timings").open('{');
        json.put_number("cache_n", usage.cached as u64);
        json.put_number("prompt_n", prompt as u64).put_real("prompt_ms", ms(usage.prefill));
        json.put_real("prompt_per_second", rate(prompt, usage.prefill));
        json.put_number("predicted_n", usage.decoded as u64).put_real("predicted_ms", ms(usage.decode));
        json.put_real("predicted_per_second", rate(usage.decoded, usage.decode));
        json.put_real("first_token_ms", ms(usage.first_token));
        json.key("cache").open('{').put("source", usage.source());
        json.put_number("tokens", usage.cached as u64).put_number("disk_tokens", usage.disk as u64);
        json.put_real("restore_ms", ms(usage.restore));
        match usage.diverged {
            Some((at, token)) => {
                json.put_number("diverged_at", at as u64).put("diverged_token", &self.token(token));
            }
            None => {
                json.put_raw("diverged_at", "null").put_raw("diverged_token", "null");
            }
        }
        json.close('}').close('}');
    }

    fn told_token(&self, json: &mut Json, token: u32, logprob: f32) {
        let bytes = self.token_bytes(token);
        json.put("token", &String::from_utf8_lossy(&bytes)).key("logprob").logprob(logprob);
        json.key("bytes").open('[');
        bytes.iter().for_each(|byte| {
            json.number(u64::from(*byte));
        });
        json.close(']');
    }

    /// `logprobs` as chats have them.
    pub fn chat_logprobs(&self, json: &mut Json, told: &[Told]) {
        json.key("logprobs").open('{').key("content").open('[');
        for one in told {
            json.open('{');
            self.told_token(json, one.token, one.logprob);
            json.key("top_logprobs").open('[');
            for (token, logprob) in &one.top {
                json.open('{');
                self.told_token(json, *token, *logprob);
                json.close('}');
            }
            json.close(']').close('}');
        }
        json.close(']').close('}');
    }

    /// `logprobs` as completions have them; `offset` is where the first token's text begins, in characters.
    pub fn text_logprobs(&self, json: &mut Json, told: &[Told], mut offset: usize) {
        json.key("logprobs").open('{').key("tokens").open('[');
        let texts: Vec<String> = told.iter().map(|one| self.token(one.token)).collect();
        texts.iter().for_each(|text| {
            json.str(text);
        });
        json.close(']').key("token_logprobs").open('[');
        for one in told {
            json.logprob(one.logprob);
        }
        json.close(']').key("top_logprobs").open('[');
        for one in told {
            json.open('{');
            for (token, logprob) in &one.top {
                json.key(&self.token(*token)).logprob(*logprob);
            }
            json.close('}');
        }
        json.close(']').key("text_offset").open('[');
        for text in &texts {
            json.number(offset as u64);
            offset += text.chars().count();
        }
        json.close(']').close('}');
    }
}

/// `usage` of `replies`, of which there are `n` to each prompt.
pub fn usage(json: &mut Json, replies: &[Usage], n: usize) {
    let prompts = || replies.iter().step_by(n.max(1));
    let prompt: usize = prompts().map(|usage| usage.prompt).sum();
    let cached: usize = prompts().map(|usage| usage.cached).sum();
    let decoded: usize = replies.iter().map(|usage| usage.decoded).sum();
    json.key("usage").open('{').put_number("prompt_tokens", prompt as u64);
    json.put_number("completion_tokens", decoded as u64);
    json.put_number("total_tokens", (prompt + decoded) as u64);
    json.key("prompt_tokens_details")
        .open('{')
        .put_number("cached_tokens", cached as u64)
        .close('}')
        .close('}');
}

/// `prompt_progress` of a piece.
pub fn progress(json: &mut Json, usage: &Usage, done: usize, time: Duration) {
    json.key("prompt_progress").open('{').put_number("total", usage.prompt as u64);
    json.put_number("cache", usage.cached as u64).put_number("processed", done as u64);
    json.put_number("time_ms", time.as_millis() as u64).close('}');
}
