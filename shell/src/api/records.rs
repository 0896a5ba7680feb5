//! What was asked and how it went: numbers of the latest requests, and sums. No texts of users. Must not know
//! how replies come about.

use super::json::Json;
use super::outcome::Usage;
use super::reply::ms;
use core::time::Duration;
use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::Instant;

/// Requests that are remembered.
const LAST: usize = 16;

/// One request for a reply.
#[derive(Clone, Debug)]
pub struct Record {
    /// Name of the reply; empty if there was none.
    pub id: String,
    /// Where it was asked for.
    pub path: &'static str,
    /// HTTP's number.
    pub status: u16,
    /// Why the reply ended.
    pub finish: &'static str,
    /// Its numbers.
    pub usage: Usage,
    /// From the request to its end.
    pub time: Duration,
    /// When that was.
    pub ended: Instant,
}

/// Sums since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// Requests of any kind.
    pub requests: u64,
    /// Those for a reply.
    pub replies: u64,
    /// Answered with 4xx (499: the client has gone).
    pub refused: u64,
    /// Answered with 5xx.
    pub failed: u64,
}

/// All of it.
#[derive(Debug, Default)]
pub struct Records {
    inner: Mutex<(Sums, VecDeque<Record>)>,
}

impl Records {
    /// Counts a request that is over; those for replies are remembered.
    pub fn add(&self, status: u16, record: Option<Record>) {
        let mut inner = self.inner.lock().unwrap_or_else(|e| e.into_inner());
        let (sums, last) = &mut *inner;
        sums.requests += 1;
        sums.refused += u64::from((400..500).contains(&status));
        sums.failed += u64::from(status >= 500);
        if let Some(record) = record {
            sums.replies += 1;
            if last.len() == LAST {
                last.pop_back();
            }
            last.push_front(record);
        }
    }

    /// The sums.
    pub fn sums(&self) -> Sums {
        self.inner.lock().unwrap_or_else(|e| e.into_inner()).0
    }

    /// The latest requests, the last one first, as a list under a name.
    pub fn write(&self, json: &mut Json, name: &str) {
        json.key(name).open('[');
        let inner = self.inner.lock().unwrap_or_else(|e| e.into_inner());
        for record in &inner.1 {
            let usage = &record.usage;
            json.open('{').put("id", &record.id).put("path", record.path);
            json.put_number("status", u64::from(record.status));
            json.put_number("prompt_tokens", usage.prompt as u64)
                .put_number("cached_tokens", usage.cached as u64);
            json.put("source", usage.source()).put_real("restore_ms", ms(usage.restore));
            json.put_real("prefill_ms", ms(usage.prefill)).put_real("first_token_ms", ms(usage.first_token));
            json.put_number("decoded_tokens", usage.decoded as u64).put_real("decode_ms", ms(usage.decode));
            json.put_real("ms", ms(record.time));
            json.put_real("age_s", record.ended.elapsed().as_secs_f64())
                .put("finish", record.finish)
                .close('}');
        }
        json.close(']');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_come_first_and_all_are_counted() {
        let records = Records::default();
        for n in 0..LAST + 2 {
            let record = Record {
                id: n.to_string(),
                path: "/v1/completions",
                status: 200,
                finish: "stop",
                usage: Usage { prompt: n, ..Usage::default() },
                time: Duration::from_millis(2),
                ended: Instant::now(),
            };
            records.add(200, Some(record));
        }
        records.add(404, None);
        records.add(503, None);
        let mut json = Json::object();
        records.write(&mut json, "last");
        let value: serde_json::Value = serde_json::from_str(&json.end()).unwrap();
        let last = value["last"].as_array().unwrap();
        assert_eq!(
            (last.len(), &last[0]["id"], &last[0]["ms"]),
            (LAST, &"17".into(), &serde_json::from_str("2.000").unwrap())
        );
        let count = (LAST + 2) as u64;
        assert_eq!(records.sums(), Sums { requests: count + 2, replies: count, refused: 1, failed: 1 });
    }
}
