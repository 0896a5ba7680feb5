//! Processes that answer lines of ids, and what they leave on disk. Must not know what is tested.

use super::{command, scratch, words};
use kinglet_core::kv::file::read_header;
use kinglet_core::kv::header::HEADER_BYTES;
use kinglet_core::kv::{BLOCK_TOKENS, BlockId, ContentId};
use std::collections::HashMap;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

/// Ids that tiny models know.
pub fn ids(n: usize, seed: usize) -> Vec<u32> {
    (0..n).map(|i| ((i * 7 + seed * 13 + i * i * seed) % 200) as u32).collect()
}

pub fn line(ids: &[u32]) -> String {
    ids.iter().map(u32::to_string).collect::<Vec<_>>().join(",") + "\n"
}

pub fn fresh(name: &str) -> PathBuf {
    let dir = scratch().join(name);
    let _ = std::fs::remove_dir_all(&dir);
    dir
}

/// Number behind the first line that begins with `start`.
pub fn number(err: &str, start: &str) -> Option<usize> {
    let rest = err.lines().find_map(|l| l.strip_prefix(start))?;
    rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

/// All files below `dir`, with their sizes.
pub fn files(dir: &Path) -> Vec<(PathBuf, u64)> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(dir).into_iter().flatten() {
        let entry = entry.unwrap();
        // A temporary file of the writer may have got its name meanwhile.
        let Ok(about) = entry.metadata() else { continue };
        if about.is_dir() { all.extend(files(&entry.path())) } else { all.push((entry.path(), about.len())) }
    }
    all
}

/// Tokens of the longest chain of whole block files that begins a sequence of `ids`: what is on disk of it.
pub fn durable(dir: &Path, ids: &[u32]) -> usize {
    let mut blocks: HashMap<(u32, Vec<ContentId>), (BlockId, BlockId)> = HashMap::new();
    for (path, _) in files(dir).into_iter().filter(|(path, _)| path.extension().is_some_and(|e| e == "kv")) {
        let bytes = std::fs::read(&path).unwrap();
        let header = read_header(&mut &bytes[..HEADER_BYTES]).unwrap();
        let key = (header.position(), header.contents().to_vec());
        blocks.insert(key, (*header.parent(), *header.id()));
    }
    let (mut tokens, mut before) = (0, None);
    for chunk in ids.chunks_exact(BLOCK_TOKENS) {
        let contents: Vec<ContentId> = chunk.iter().map(|id| ContentId::token(*id)).collect();
        match blocks.get(&((tokens / BLOCK_TOKENS) as u32, contents)) {
            Some((parent, id)) if before.is_none_or(|before| before == *parent) => before = Some(*id),
            _ => break,
        }
        tokens += BLOCK_TOKENS;
    }
    tokens
}

pub fn generate(model: &str, more: &str) -> Vec<String> {
    words(&format!("generate -m {model} --jsonl --ctx 1024 {more}"))
}

pub fn with_dir(model: &str, dir: &Path, more: &str) -> Vec<String> {
    generate(model, &format!("--disk-kv {} {more}", dir.display()))
}

/// A process that answers lines, and is killed when it is dropped.
pub struct Server(pub Child);

impl Server {
    pub fn start(args: &[String]) -> Server {
        Server(command(args).stdin(Stdio::piped()).spawn().unwrap())
    }

    pub fn say(&mut self, line: &str) {
        self.0.stdin.as_mut().unwrap().write_all(line.as_bytes()).unwrap();
    }

    pub fn answer(&mut self) -> String {
        let mut answer = String::new();
        // Not more than the line: bytes that a buffer took would be lost.
        let out = self.0.stdout.as_mut().unwrap();
        let mut byte = [0];
        while out.read(&mut byte).unwrap() == 1 && byte[0] != b'\n' {
            answer.push(char::from(byte[0]));
        }
        answer + "\n"
    }

    pub fn kill(mut self) -> String {
        self.0.kill().unwrap();
        let mut err = String::new();
        self.0.stderr.take().unwrap().read_to_string(&mut err).unwrap();
        err
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
