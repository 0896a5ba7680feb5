//! The access log: a line for each request, on standard error and, the latest, in memory. Must not know how
//! requests are answered.

use super::records::Record;
use crate::http::Request;
use crate::term;
use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::{SystemTime, UNIX_EPOCH};

/// Lines that are remembered.
const LAST: usize = 200;

/// What a request came to.
#[derive(Default)]
pub struct Told {
    /// Its numbers, if it was for a reply.
    pub record: Option<Record>,
    /// The prompt's text, if it is to be logged.
    pub prompt: Option<String>,
}

/// The latest lines, the oldest first.
#[derive(Debug, Default)]
pub struct Log(Mutex<VecDeque<String>>);

impl Log {
    /// One line for each request, without anything that its client wrote but the path; on standard error too,
    /// unless `quiet`.
    pub fn add(&self, request: &Request, status: u16, told: &Told, quiet: bool) {
        let path: String = request.path.chars().take(100).collect();
        // Any word can be a method.
        let method = request.method.get(..20).unwrap_or(&request.method);
        let (peer, path) = (&request.peer, path.escape_debug());
        let mut line = format!("{peer} {method} {path} {status}");
        if let Some(record) = &told.record {
            let (usage, ms) = (&record.usage, record.time.as_millis());
            let (prompt, cached, source) = (usage.prompt, usage.cached, usage.source());
            let (reply, finish) = (usage.decoded, record.finish);
            line.push_str(&format!(
                " {ms} ms: prompt {prompt}, cached {cached} ({source}), reply {reply}, {finish}"
            ));
        }
        if !quiet {
            term::note(format_args!("{line}"));
            if let Some(prompt) = &told.prompt {
                term::note(format_args!("prompt: {}", prompt.escape_debug()));
            }
        }
        // Seconds of the clock; its reader knows how to write dates.
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
        let mut lines = self.0.lock().unwrap_or_else(|e| e.into_inner());
        if lines.len() == LAST {
            lines.pop_front();
        }
        lines.push_back(format!("{now} {line}\n"));
    }

    /// All of them; each begins with the seconds since 1970 at which its request was over.
    pub fn text(&self) -> String {
        let lines = self.0.lock().unwrap_or_else(|e| e.into_inner());
        lines.iter().map(String::as_str).collect()
    }
}
