//! `bench --restore`: how much sooner a prompt is answered by a new process that finds its KV on disk.
//!
//! The experiment of everybody who restarts a server: one process reads a long prompt and is killed, another
//! one gets the same prompt with a little more behind it. Must not know how a cache works.

use crate::decimal::fixed;
use crate::failure::Failure;
use crate::report::object;
use crate::setup::Setup;
use core::time::Duration;
use serde_json::Value;
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Instant;

/// Ends the line that a process prints when it takes requests.
const READY: &str = "inference state ready";

/// What was measured.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Restored {
    /// Tokens of the first prompt.
    pub prompt: usize,
    /// Tokens behind it in the second one.
    pub more: usize,
    /// From request to first token, all computed.
    pub full: Duration,
    /// From the start of the second process until it took a request.
    pub boot: Duration,
    /// From request to first token, with the KV from disk.
    pub restored: Duration,
    /// Tokens that came from disk.
    pub loaded: usize,
    /// Milliseconds for finding, reading, checking and placing them.
    pub load_ms: f64,
    /// Bytes of all files of the cache.
    pub bytes: u64,
}

impl Restored {
    /// How many times sooner.
    pub fn ratio(&self) -> f64 {
        self.full.as_secs_f64() / self.restored.as_secs_f64().max(1e-9)
    }
}

/// Does the experiment in a folder of its own below `dir`, which is removed again.
///
/// # Errors
/// A process that cannot be started or does not do as it should; the folder.
pub fn measure(setup: &Setup, dir: &Path, prompt: &[u32], more: &[u32]) -> Result<Restored, Failure> {
    let dir = dir.join(format!("kinglet-restore-{}", std::process::id()));
    let measured = measure_in(setup, &dir, prompt, more);
    let _ = std::fs::remove_dir_all(&dir);
    measured
}

fn measure_in(setup: &Setup, dir: &Path, prompt: &[u32], more: &[u32]) -> Result<Restored, Failure> {
    let mut first = Process::start(setup, dir, prompt.len() + more.len() + 1)?;
    let full = first.ask(prompt)?;
    first.kill();
    let bytes = bytes_below(dir).map_err(|e| Failure::file(dir, e))?;

    let mut second = Process::start(setup, dir, prompt.len() + more.len() + 1)?;
    let whole: Vec<u32> = prompt.iter().chain(more).copied().collect();
    let restored = second.ask(&whole)?;
    let boot = second.boot;
    let said = second.kill();
    let (loaded, load_ms) = said.lines().find_map(loaded).ok_or_else(|| {
        Failure::new(format_args!("the second process took nothing from {}; it said: {said}", dir.display()))
    })?;
    Ok(Restored { prompt: prompt.len(), more: more.len(), full, boot, restored, loaded, load_ms, bytes })
}

/// Tokens and milliseconds of the line about what was loaded.
fn loaded(line: &str) -> Option<(usize, f64)> {
    let (tokens, rest) = line.strip_prefix("[KV-DISK] loaded ")?.split_once("-token ")?;
    let ms = rest.strip_suffix(" ms")?.rsplit_once(' ')?.1;
    Some((tokens.parse().ok()?, crate::decimal::parse_f32(ms).map(f64::from)?))
}

/// A `generate --jsonl` of this very program.
struct Process {
    child: Child,
    out: BufReader<ChildStdout>,
    boot: Duration,
}

impl Process {
    fn start(setup: &Setup, dir: &Path, ctx: usize) -> Result<Process, Failure> {
        let program = std::env::current_exe()
            .map_err(|e| Failure::new(format_args!("cannot find this program's own file: {e}")))?;
        let start = Instant::now();
        let mut child = Command::new(program)
            .args(arguments(setup, dir, ctx))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|e| Failure::new(format_args!("cannot start another process: {e}")))?;
        let out = child.stdout.take().map(BufReader::new);
        let mut process = match out {
            Some(out) => Process { child, out, boot: Duration::ZERO },
            None => return Err(Failure::new("a process has no standard output")),
        };
        let mut said = Vec::new();
        // Byte by byte, so that what follows is left for the end.
        while let Some(stderr) = &mut process.child.stderr {
            let mut byte = [0];
            let n = stderr.read(&mut byte).map_err(|e| Failure::new(format_args!("a pipe broke: {e}")))?;
            said.extend_from_slice(&byte[..n]);
            let text = String::from_utf8_lossy(&said);
            if n == 0 {
                return Err(Failure::new(format_args!("a process ended at once: {}", text.trim_end())));
            }
            if text.ends_with('\n') && text.lines().last().is_some_and(|l| l.starts_with(READY)) {
                break;
            }
        }
        process.boot = start.elapsed();
        Ok(process)
    }

    /// Time until the first token; waits until the reply has ended.
    fn ask(&mut self, ids: &[u32]) -> Result<Duration, Failure> {
        let broke = |e: std::io::Error| Failure::new(format_args!("a process broke off: {e}"));
        let mut line = String::with_capacity(8 * ids.len());
        for id in ids {
            line.push_str(&id.to_string());
            line.push(',');
        }
        line.push('\n');
        let start = Instant::now();
        let stdin = self.child.stdin.as_mut().ok_or_else(|| Failure::new("a process has no input"))?;
        stdin.write_all(line.as_bytes()).map_err(broke)?;
        let first = self.out.fill_buf().map_err(broke)?.is_empty();
        let time = start.elapsed();
        let mut reply = Vec::new();
        self.out.read_until(b'\n', &mut reply).map_err(broke)?;
        if first || reply.last() != Some(&b'\n') {
            let said = self.end();
            return Err(Failure::new(format_args!("a process ended without an answer: {}", said.trim_end())));
        }
        Ok(time)
    }

    /// SIGKILL, which no process can answer; what it said until then.
    fn kill(mut self) -> String {
        let _ = self.child.kill();
        self.end()
    }

    fn end(&mut self) -> String {
        let mut said = Vec::new();
        if let Some(stderr) = &mut self.child.stderr {
            let _ = stderr.read_to_end(&mut said);
        }
        let _ = self.child.wait();
        String::from_utf8_lossy(&said).into_owned()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The command line of [`Process`]: what the user set, where it matters here.
fn arguments(setup: &Setup, dir: &Path, ctx: usize) -> Vec<OsString> {
    let model = setup.model.clone().unwrap_or_default();
    let mut words: Vec<OsString> =
        ["generate", "--jsonl", "-n", "1", "--disk-kv-sync", "--disk-kv"].map(OsString::from).to_vec();
    words.extend([dir.into(), "-m".into(), model.into()]);
    let mut add = |flag: &str, value: String| words.extend([flag.into(), value.into()]);
    add("--ctx", setup.ctx.unwrap_or(0).max(ctx).to_string());
    add("--batch", setup.batch.to_string());
    add("--kv-type", setup.kv_type.name().to_string());
    add("--kernels", setup.isa.name().to_string());
    if let Some(threads) = setup.threads {
        add("--threads", threads.to_string());
    }
    if let Some(cpus) = &setup.cpus {
        add("--cpus", cpus.iter().map(usize::to_string).collect::<Vec<_>>().join(","));
    }
    if setup.force {
        words.push("--force".into());
    }
    words
}

/// For programs.
pub fn json(r: &Restored) -> String {
    let ms = |time: Duration| Value::from(time.as_secs_f64() * 1e3);
    let mut entries = vec![
        ("n_prompt", Value::from(r.prompt)),
        ("n_more", Value::from(r.more)),
        ("full_ms", ms(r.full)),
        ("boot_ms", ms(r.boot)),
        ("restored_ms", ms(r.restored)),
        ("ratio", Value::from(r.ratio())),
        ("loaded_tokens", Value::from(r.loaded)),
        ("load_ms", Value::from(r.load_ms)),
        ("bytes", Value::from(r.bytes)),
    ];
    format!("{:#}\n", object(&mut entries))
}

fn bytes_below(dir: &Path) -> std::io::Result<u64> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        let about = entry.metadata()?;
        bytes += if about.is_dir() { bytes_below(&entry.path())? } else { about.len() };
    }
    Ok(bytes)
}

/// For people.
pub fn table(r: &Restored) -> String {
    let ms = |time: Duration| fixed(time.as_secs_f64() * 1e3, 1);
    format!(
        "prompt of {} tokens, computed   first token after {:>10} ms\n\
         killed; new process             ready after       {:>10} ms\n\
         the same and {} more tokens    first token after {:>10} ms, {} times sooner\n\
         of it: {} tokens from disk      in                {:>10} ms\n\
         on disk                         {} bytes, {} a token\n",
        r.prompt,
        ms(r.full),
        ms(r.boot),
        r.more,
        ms(r.restored),
        fixed(r.ratio(), 1),
        r.loaded,
        fixed(r.load_ms, 1),
        r.bytes,
        fixed(r.bytes as f64 / r.prompt.max(1) as f64, 1),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_about_the_disk_is_read() {
        let line = "[KV-DISK] loaded 2000-token KV prefix from ab/cd.kv in 13.2 ms";
        let (tokens, ms) = loaded(line).unwrap();
        assert_eq!(tokens, 2000);
        assert!((ms - 13.2).abs() < 1e-4);
        assert_eq!(loaded("[KV-PREFIX] reused 5 tokens"), None);
    }
}
