//! The built binary and the fixtures for it. Must not know what is tested.
#![allow(dead_code, reason = "each test file uses a part of it")]

pub mod cache;
pub mod jobs;
pub mod life;
pub mod load;
pub mod server;

use flate2::read::GzDecoder;
use std::ffi::OsStr;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, PoisonError};

/// What a run of the binary gave.
#[derive(Debug)]
pub struct Ran {
    pub code: i32,
    pub out: String,
    pub bytes: Vec<u8>,
    pub err: String,
}

impl Ran {
    fn of(output: Output) -> Ran {
        Ran {
            code: output.status.code().expect("no signal"),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            bytes: output.stdout,
            err: String::from_utf8(output.stderr).expect("UTF-8 on standard error"),
        }
    }

    /// Standard output of a run that went well.
    #[track_caller]
    pub fn ok(self) -> String {
        assert_eq!(self.code, 0, "{}", self.err);
        self.out
    }

    /// The one line of a run that failed with `code`.
    #[track_caller]
    pub fn line(self, code: i32) -> String {
        assert_eq!(self.code, code, "{}{}", self.out, self.err);
        assert_eq!(self.err.lines().count(), 1, "{}", self.err);
        assert!(self.err.starts_with("kinglet: "), "{}", self.err);
        assert_eq!(self.out, "");
        self.err.trim_end().to_string()
    }
}

pub fn command<S: AsRef<OsStr>>(args: &[S]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kinglet"));
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

pub fn run<S: AsRef<OsStr>>(args: &[S]) -> Ran {
    Ran::of(command(args).output().unwrap())
}

/// As [`run`], with standard input.
pub fn run_with<S: AsRef<OsStr>>(args: &[S], input: &[u8]) -> Ran {
    let mut child = command(args).stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    std::thread::scope(|scope| {
        // The program may end without reading all of it.
        scope.spawn(move || drop(stdin.write_all(input)));
        Ran::of(child.wait_with_output().unwrap())
    })
}

/// The words of a command line.
pub fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(String::from).collect()
}

/// A folder for this test process.
pub fn scratch() -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("cli-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    dir
}

pub fn write(name: &str, bytes: &[u8]) -> String {
    let path = scratch().join(name);
    std::fs::write(&path, bytes).unwrap();
    path.into_os_string().into_string().unwrap()
}

/// A fixture of the workspace, unpacked.
pub fn fixture(name: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures").join(format!("{name}.gz"));
    let packed = std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let mut bytes = Vec::new();
    GzDecoder::new(&packed[..]).read_to_end(&mut bytes).unwrap();
    bytes
}

/// The path of a fixture, unpacked once.
pub fn model(name: &str) -> String {
    static UNPACKED: Mutex<()> = Mutex::new(());
    let _guard = UNPACKED.lock().unwrap_or_else(PoisonError::into_inner);
    let path = scratch().join(name.replace('/', "-"));
    if !path.exists() {
        std::fs::write(&path, fixture(name)).unwrap();
    }
    path.into_os_string().into_string().unwrap()
}

pub fn qwen3() -> String {
    model("gguf/qwen3-tiny.Q4_K_M.gguf")
}

pub fn qwen2() -> String {
    model("gguf/qwen2-tiny.gguf")
}

pub fn vocabulary() -> String {
    model("qwen3-tokenizer/qwen3-vocab.gguf")
}
