//! The state of the server in numbers: for the page, and for Prometheus. Must not know requests.

use super::json::Json;
use super::records::{Records, Sums};
use super::served::Served;
use crate::decimal::fixed;
use crate::memory;
use crate::schedule::Status;
use core::time::Duration;

/// `/admin/api/status`.
pub fn json(served: &Served, records: &Records, up: Duration) -> String {
    let status = served.scheduler.status();
    let mut json = Json::object();
    json.put_bool("busy", status.active > 0).put_number("active", status.active as u64);
    json.put_number("queued", status.queued as u64).put_number("total_requests", records.sums().replies);
    let megabytes = |bytes: Option<usize>| bytes.unwrap_or(0) as u64 / 1_000_000;
    json.put_number("rss_mb", megabytes(memory::resident()));
    json.put_number("mem_avail_mb", megabytes(memory::available())).put_number("uptime_s", up.as_secs());
    json.put("model", &served.name).put_number("ctx", served.scheduler.ctx() as u64);
    json.put_number("parallel", status.parallel as u64).put_bool("stopping", status.stopping);
    let kv = &status.kv;
    json.key("kv").open('{');
    for (name, n) in [
        ("blocks", kv.blocks),
        ("free", kv.free),
        ("cached", kv.cached),
        ("private", kv.private),
        ("shared", kv.shared),
        ("pinned", kv.pinned),
        ("saved", kv.saved),
        ("block_tokens", kv.block_tokens),
    ] {
        json.put_number(name, n as u64);
    }
    json.put("map", &base64(&served.scheduler.kv_map())).close('}');
    disk(&mut json, &status);
    json.key("slots").open('[');
    for (id, slot) in (0u64..).zip(&status.slots) {
        json.open('{').put_number("id", id).put("state", slot.state.name());
        json.put_number("prompt_tokens", slot.prompt_tokens as u64);
        json.put_number("done_tokens", slot.done_tokens as u64);
        json.put_number("decoded_tokens", slot.decoded_tokens as u64).close('}');
    }
    json.close(']').key("tokens_per_s").open('{').put_real("prompt", status.prompt_rate);
    json.put_real("decode", status.decode_rate).close('}');
    records.write(&mut json, "last");
    json.end()
}

fn disk(json: &mut Json, status: &Status) {
    let Some(store) = &status.store else {
        json.put_raw("disk", "null");
        return;
    };
    json.key("disk").open('{').put("dir", status.folder.as_deref().unwrap_or(""));
    json.put_number("files", store.files.unwrap_or(0)).put_number("bytes", store.bytes_on_disk.unwrap_or(0));
    json.put_number("written", store.bytes_written).put_number("saved", store.blocks_saved);
    json.put_number("loaded", store.blocks_loaded).put_number("evicted", store.evicted);
    json.put_number("bad", store.bad).put_number("pending", store.pending as u64);
    json.put_or_null("paused", store.paused.map(|why| why.to_string()).as_deref()).close('}');
}

/// A list of numbers as Prometheus reads them.
struct Metrics(String);

impl Metrics {
    fn put(&mut self, name: &str, kind: &str, help: &str, value: &str) {
        let name = ["kinglet_", name].concat();
        for part in
            ["# HELP ", &name, " ", help, "\n# TYPE ", &name, " ", kind, "\n", &name, " ", value, "\n"]
        {
            self.0.push_str(part);
        }
    }

    fn counter(&mut self, name: &str, help: &str, n: u64) {
        self.put(name, "counter", help, &n.to_string());
    }

    fn gauge(&mut self, name: &str, help: &str, n: usize) {
        self.put(name, "gauge", help, &n.to_string());
    }
}

/// `/metrics`; without a model while it is being loaded.
pub fn metrics(served: Option<&Served>, records: &Records, up: Duration) -> String {
    let Sums { requests, replies, refused, failed } = records.sums();
    let mut out = Metrics(String::new());
    out.counter("http_requests_total", "Requests of any kind.", requests);
    out.counter("reply_requests_total", "Requests for a reply.", replies);
    out.counter("http_requests_refused_total", "Requests answered with 4xx.", refused);
    out.counter("http_requests_failed_total", "Requests answered with 5xx.", failed);
    out.gauge("uptime_seconds", "Time since the start.", up.as_secs() as usize);
    out.gauge("resident_bytes", "Memory of the process.", memory::resident().unwrap_or(0));
    out.gauge("ready", "Whether the model is loaded.", usize::from(served.is_some()));
    let Some(served) = served else { return out.0 };
    let status = served.scheduler.status();
    let totals = &status.totals;
    for (name, help, n) in [
        ("jobs_ended_total", "Replies that ended by themselves.", totals.ended),
        (
            "jobs_cancelled_total",
            "Replies whose clients went away, or that a stop string ended.",
            totals.cancelled,
        ),
        ("jobs_failed_total", "Replies that failed.", totals.failed),
        ("jobs_refused_total", "Replies refused because the queue was full.", totals.refused),
        (
            "jobs_preempted_total",
            "How often a reply had to give its memory to others for a while.",
            totals.preempted,
        ),
        ("prompt_tokens_total", "Tokens of prompts.", totals.prompt_tokens),
        ("cached_tokens_total", "Tokens of prompts that were cached.", totals.cached_tokens),
        ("disk_tokens_total", "Tokens of prompts that were cached on disk.", totals.disk_tokens),
        ("decoded_tokens_total", "Tokens of replies.", totals.decoded_tokens),
        ("kv_evicted_total", "KV blocks evicted from memory.", status.kv.evicted),
    ] {
        out.counter(name, help, n);
    }
    for (name, help, time) in [
        ("prefill_seconds_total", "Time for prompts.", totals.prefill),
        ("decode_seconds_total", "Time for replies.", totals.decode),
    ] {
        out.put(name, "counter", help, &fixed(time.as_secs_f64(), 3));
    }
    for (name, help, n) in [
        ("active", "Replies being computed.", status.active),
        ("queued", "Replies that wait.", status.queued),
        ("kv_blocks", "KV blocks in memory.", status.kv.blocks),
        ("kv_blocks_free", "Of those, empty.", status.kv.free),
        ("kv_blocks_cached", "Of those, cached.", status.kv.cached),
        ("kv_blocks_private", "Of those, used by one reply.", status.kv.private),
        ("kv_blocks_shared", "Of those, used by several replies.", status.kv.shared),
    ] {
        out.gauge(name, help, n);
    }
    for (name, help, rate) in [
        ("prompt_tokens_per_second", "Speed of late.", status.prompt_rate),
        ("decoded_tokens_per_second", "Speed of late, of all replies together.", status.decode_rate),
    ] {
        out.put(name, "gauge", help, &fixed(rate, 3));
    }
    if let Some(store) = &status.store {
        out.counter("disk_blocks_saved_total", "KV blocks written to disk.", store.blocks_saved);
        out.counter("disk_blocks_loaded_total", "KV blocks read from disk.", store.blocks_loaded);
        out.counter("disk_bytes_written_total", "Bytes written to disk.", store.bytes_written);
        out.gauge("disk_bytes", "Bytes on disk.", store.bytes_on_disk.unwrap_or(0) as usize);
        out.gauge("disk_paused", "Whether nothing is written.", usize::from(store.paused.is_some()));
    }
    out.0
}

/// Bytes as text.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let at = |i: usize| u32::from(group.get(i).copied().unwrap_or(0));
        let bits = at(0) << 16 | at(1) << 8 | at(2);
        for i in 0..4 {
            let digit = char::from(DIGITS[(bits >> (18 - 6 * i)) as usize % 64]);
            text.push(if i > group.len() { '=' } else { digit });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_become_text() {
        for (bytes, text) in [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg==")]
        {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
        assert_eq!(base64(&[255, 254, 0]), "//4A");
    }

    #[test]
    fn there_are_numbers_before_there_is_a_model() {
        let records = Records::default();
        records.add(503, None);
        let text = metrics(None, &records, Duration::from_secs(5));
        assert!(text.contains(
            "# TYPE kinglet_http_requests_failed_total counter\nkinglet_http_requests_failed_total 1\n"
        ));
        assert!(text.contains("\nkinglet_ready 0\n") && text.contains("\nkinglet_uptime_seconds 5\n"));
    }
}
