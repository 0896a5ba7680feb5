//! `bench --restore`: how much sooner a prompt is answered by a new process that finds its KV on disk.
//!
//! The experiment of everybody who restarts a server: one process reads a long prompt and is killed, another
//! one gets the same prompt with a little more behind it. The second part takes a fraction of a second, in
//! which anything else that runs tells; so it is repeated. Must not know how a cache works.

use crate::decimal::fixed;
use crate::failure::Failure;
use crate::report::object;
use crate::setup::Setup;
use crate::term::{StatusLine, stderr_is_terminal};
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
    /// Tokens behind it in the later ones.
    pub more: usize,
    /// From request to first token, all computed.
    pub full: Duration,
    /// Bytes of all files of the cache that the first process left.
    pub bytes: u64,
    /// One entry a new process, at least one.
    pub restarts: Vec<Restart>,
}

/// A process that came after one that was killed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Restart {
    /// From the start of the process until it took a request.
    pub boot: Duration,
    /// From request to first token, with the KV from disk.
    pub restored: Duration,
    /// Tokens that came from disk.
    pub loaded: usize,
    /// Milliseconds for finding, reading, checking and placing them.
    pub load_ms: f64,
}

impl Restored {
    /// How many times sooner, by the median of the restarts.
    pub fn ratio(&self) -> f64 {
        self.full.as_secs_f64() * 1e3 / self.middle(Restart::restored_ms).max(1e-6)
    }

    /// The median over the restarts.
    fn middle(&self, of: fn(&Restart) -> f64) -> f64 {
        let mut all: Vec<f64> = self.restarts.iter().map(of).collect();
        all.sort_by(f64::total_cmp);
        let upper = all.get(all.len() / 2).copied().unwrap_or(0.0);
        let lower = all.get(all.len().saturating_sub(1) / 2).copied().unwrap_or(0.0);
        (lower + upper) / 2.0
    }

    /// The fewest tokens that any restart found.
    fn loaded(&self) -> usize {
        self.restarts.iter().map(|r| r.loaded).min().unwrap_or(0)
    }
}

impl Restart {
    fn boot_ms(&self) -> f64 {
        self.boot.as_secs_f64() * 1e3
    }

    fn restored_ms(&self) -> f64 {
        self.restored.as_secs_f64() * 1e3
    }

    fn load_ms(&self) -> f64 {
        self.load_ms
    }
}

/// Does the experiment in a folder of its own below `dir`, which is removed again: `prompt` once, then
/// `restarts` times a new process with `more` behind it. Each finds what the first process left, and nothing
/// that another restart has saved.
///
/// # Errors
/// A process that cannot be started or does not do as it should; the folder.
pub fn measure(
    setup: &Setup,
    dir: &Path,
    prompt: &[u32],
    more: &[u32],
    restarts: usize,
) -> Result<Restored, Failure> {
    let dir = dir.join(format!("kinglet-restore-{}", std::process::id()));
    let measured = measure_in(setup, &dir, prompt, more, restarts);
    let _ = std::fs::remove_dir_all(&dir);
    measured
}

fn measure_in(
    setup: &Setup,
    dir: &Path,
    prompt: &[u32],
    more: &[u32],
    restarts: usize,
) -> Result<Restored, Failure> {
    let whole = [prompt, more].concat();
    let ctx = whole.len() + 1;
    let (left, copy) = (dir.join("left"), dir.join("copy"));
    let mut line = StatusLine::new(!setup.quiet && stderr_is_terminal());
    line.show(format_args!("reading {} tokens", prompt.len()));
    let mut first = Process::start(setup, &left, ctx)?;
    let full = first.ask(prompt)?;
    first.kill();
    let mut measured = Restored { prompt: prompt.len(), more: more.len(), full, ..Restored::default() };
    for i in 1..=restarts {
        line.show(format_args!("restart {i} of {restarts}"));
        measured.bytes = copy_below(&left, &copy).map_err(|e| Failure::file(&left, e))?;
        measured.restarts.push(restart(setup, &copy, ctx, &whole)?);
        std::fs::remove_dir_all(&copy).map_err(|e| Failure::file(&copy, e))?;
    }
    Ok(measured)
}

/// Asks a new process, and kills it.
fn restart(setup: &Setup, dir: &Path, ctx: usize, ids: &[u32]) -> Result<Restart, Failure> {
    let mut process = Process::start(setup, dir, ctx)?;
    let restored = process.ask(ids)?;
    let boot = process.boot;
    let said = process.kill();
    let (loaded, load_ms) = said.lines().find_map(loaded).ok_or_else(|| {
        Failure::new(format_args!("a new process took nothing from {}; it said: {said}", dir.display()))
    })?;
    Ok(Restart { boot, restored, loaded, load_ms })
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

/// For programs: medians, and every restart.
pub fn json(r: &Restored) -> String {
    let all = |of: fn(&Restart) -> f64| r.restarts.iter().map(of).collect::<Vec<_>>();
    let mut entries = vec![
        ("n_prompt", Value::from(r.prompt)),
        ("n_more", Value::from(r.more)),
        ("full_ms", Value::from(r.full.as_secs_f64() * 1e3)),
        ("boot_ms", Value::from(r.middle(Restart::boot_ms))),
        ("restored_ms", Value::from(r.middle(Restart::restored_ms))),
        ("ratio", Value::from(r.ratio())),
        ("loaded_tokens", Value::from(r.loaded())),
        ("load_ms", Value::from(r.middle(Restart::load_ms))),
        ("bytes", Value::from(r.bytes)),
        ("loaded_tokens_samples", Value::from(r.restarts.iter().map(|r| r.loaded).collect::<Vec<_>>())),
        ("boot_ms_samples", Value::from(all(Restart::boot_ms))),
        ("restored_ms_samples", Value::from(all(Restart::restored_ms))),
        ("load_ms_samples", Value::from(all(Restart::load_ms))),
    ];
    format!("{:#}\n", object(&mut entries))
}

/// Copies a folder with all that is in it; the bytes of its files.
fn copy_below(from: &Path, to: &Path) -> std::io::Result<u64> {
    std::fs::create_dir_all(to)?;
    let mut bytes = 0;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let to = to.join(entry.file_name());
        if entry.metadata()?.is_dir() {
            bytes += copy_below(&entry.path(), &to)?;
            continue;
        }
        // Not by `fs::copy`, of which the program has no other use: a kilobyte.
        let file = std::fs::read(entry.path())?;
        std::fs::write(to, &file)?;
        bytes += file.len() as u64;
    }
    Ok(bytes)
}

/// For people.
pub fn table(r: &Restored) -> String {
    let all = |of: fn(&Restart) -> f64| {
        let ms: Vec<_> = r.restarts.iter().map(|r| fixed(of(r), 1).to_string()).collect();
        if ms.len() > 1 { format!("  (median of {})", ms.join(", ")) } else { String::new() }
    };
    let line = |of: fn(&Restart) -> f64| format!("{:>10} ms", fixed(r.middle(of), 1));
    format!(
        "prompt of {} tokens, computed   first token after {:>10} ms\n\
         killed; new process             ready after       {}{}\n\
         the same and {} more tokens     first token after {}{}\n\
         of it: {} tokens from disk    in                {}{}\n\
         {} times sooner; on disk {} bytes, {} a token\n",
        r.prompt,
        fixed(r.full.as_secs_f64() * 1e3, 1),
        line(Restart::boot_ms),
        all(Restart::boot_ms),
        r.more,
        line(Restart::restored_ms),
        all(Restart::restored_ms),
        r.loaded(),
        line(Restart::load_ms),
        all(Restart::load_ms),
        fixed(r.ratio(), 1),
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

    #[test]
    fn the_median_of_an_even_number_lies_between_two() {
        let restart = |ms| Restart { restored: Duration::from_millis(ms), ..Restart::default() };
        let of = |ms: &[u64]| Restored {
            full: Duration::from_secs(10),
            restarts: ms.iter().copied().map(restart).collect(),
            ..Restored::default()
        };
        assert!((of(&[200]).ratio() - 50.0).abs() < 1e-9);
        assert!((of(&[900, 100, 200]).ratio() - 50.0).abs() < 1e-9);
        assert!((of(&[300, 900, 100, 200]).ratio() - 40.0).abs() < 1e-9);
    }
}
