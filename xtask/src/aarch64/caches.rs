//! Caches on emulated boards: `kinglet verify` gives the host's hash, and what one machine has written
//! another one goes on with, bit for bit.

use super::{CPUS, emulated, output};
use crate::sh::{self, Context, Failure, Outcome};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Tokens of the first prompt: whole blocks and a tail.
const PROMPT: usize = 70;
/// How many ids a prompt is continued by.
const REPLY: &str = "6";

/// All of it, for one model.
///
/// # Errors
/// A check that fails on one of the machines, or answers that differ.
pub fn check(host: &Path, board: &Path, gguf: &Path) -> Outcome {
    verify(host, board, gguf)?;
    let dir = sh::target_dir()?.join("aarch64").join("caches");
    for cpu in CPUS {
        let (host, board) = (Command::new(host), emulated(cpu, board));
        travel(&host, &board, &host, gguf, &dir)?;
        travel(&board, &host, &host, gguf, &dir)?;
    }
    let name = gguf.file_name().unwrap_or_default().to_string_lossy();
    eprintln!("aarch64: {name}: blocks written here go on on {}, and back", CPUS.join(", "));
    Ok(())
}

/// As [`check`], of one CPU and without `verify`: for a large model.
///
/// # Errors
/// As there.
pub fn check_large(host: &Path, board: &Path, gguf: &Path) -> Outcome {
    let dir = sh::target_dir()?.join("aarch64").join("caches");
    // Whole blocks are all that is saved while a prompt is read; a few tokens more are computed there.
    let host = Command::new(host);
    travel(&host, &emulated(CPUS[0], board), &host, gguf, &dir)?;
    eprintln!("aarch64: real model: blocks written here go on on {}", CPUS[0]);
    Ok(())
}

fn verify(host: &Path, board: &Path, gguf: &Path) -> Outcome {
    let dir = sh::target_dir()?.join("aarch64");
    let run = |mut command: Command| {
        command.arg("verify").arg("-m").arg(gguf).arg("--dir").arg(&dir);
        command.args(["--threads", "2", "--force", "--quiet"]);
        output(&mut command)
    };
    let want = run(Command::new(host))?;
    let name = gguf.file_name().unwrap_or_default().to_string_lossy().into_owned();
    for cpu in CPUS {
        let got = run(emulated(cpu, board))?;
        if got != want || !got.trim_end().ends_with(" PASS") {
            return Err(Failure::new(format!("{name}: verify says {got:?} on {cpu}, {want:?} here")));
        }
    }
    eprintln!("aarch64: {name}: verify {} here and on {}", want.trim_end(), CPUS.join(", "));
    Ok(())
}

/// `writer` reads a prompt, `reader` goes on from its files: the ids must be those of a cold run of `cold`.
fn travel(writer: &Command, reader: &Command, cold: &Command, gguf: &Path, dir: &PathBuf) -> Outcome {
    let _ = fs::remove_dir_all(dir);
    let ids: Vec<String> = (0..PROMPT + 3).map(|i| (11 + 37 * i % 200).to_string()).collect();
    let generate = |command: &Command, ids: &[String], more: &[&str]| {
        let mut command = copy(command);
        command.arg("generate").arg("-m").arg(gguf).args(["--ids", &ids.join(",")]);
        command.args(["-n", REPLY, "--ctx", "256", "--threads", "2", "--force"]).args(more);
        command
    };
    let disk = ["--disk-kv", dir.to_str().ok_or(Failure::new("the target folder's path is not UTF-8"))?];
    output(&mut generate(writer, &ids[..PROMPT], &disk))?;
    let mut go_on = generate(reader, &ids, &disk);
    let ran = go_on.output().context(format_args!("cannot start `{}`", sh::shown(&go_on)))?;
    sh::check(ran.status, &sh::shown(&go_on))?;
    let (got, said) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    // The prompt is whole, its reply differs: blocks of 32, and the tail up to where they part.
    let least = PROMPT / 32 * 32;
    let loaded =
        said.lines().find_map(|l| l.strip_prefix("[KV-DISK] loaded ")?.split('-').next()?.parse().ok());
    if loaded.is_none_or(|n: usize| n < least) {
        return Err(Failure::new(format!(
            "`{}` took no {least} tokens from disk: {said}",
            sh::shown(&go_on)
        )));
    }
    let want = output(&mut generate(cold, &ids, &["--no-prefix-kv"]))?;
    if got != want {
        let what = sh::shown(&go_on);
        return Err(Failure::new(format!("`{what}` says {got:?} from disk and {want:?} without")));
    }
    Ok(())
}

/// A command is used several times.
fn copy(command: &Command) -> Command {
    let mut copy = Command::new(command.get_program());
    copy.args(command.get_args());
    copy
}
