//! `cargo xtask demo`: builds kinglet, fetches a real model, asks it three questions and lets a conversation
//! outlive its process.
//!
//! It runs the very binary a user runs, so what it shows is what a user gets.

use crate::sh::{self, Context, Failure, Outcome};
use crate::{life, model};
use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};

/// Longest reply, in tokens: enough to see that the answer makes sense.
const REPLY_TOKENS: &str = "128";

const PROMPTS: [&str; 3] = [
    "Write a Rust function that returns the n-th Fibonacci number.",
    "请用一句话解释什么是递归。",
    "Why is the sky blue? Answer in two sentences.",
];

/// The beginning of the line in which kinglet reports speed and memory on standard error.
const REPORT: &str = "[kinglet] ";

/// The task.
pub fn main(words: Vec<OsString>) -> Outcome {
    use lexopt::Arg::Long;
    let mut args = lexopt::Parser::from_args(words);
    if let Some(arg) = args.next()? {
        let Long("help") = arg else {
            return Err(arg.unexpected().into());
        };
        println!(
            "Usage: cargo xtask demo\n\nFetches a real model, lets kinglet answer three \
             prompts,\nand shows that a conversation goes on after kill -9."
        );
        return Ok(());
    }
    eprintln!("demo: building kinglet (release)");
    sh::run(sh::cargo().args(["build", "--release", "--package", "kinglet"]))?;
    let binary = sh::target_dir()?.join("release").join("kinglet");
    eprintln!("demo: fetching the model, about 490 MB the first time");
    let model = model::ensure()?;

    let mut reports = Vec::new();
    for (i, prompt) in PROMPTS.iter().enumerate() {
        eprintln!("\ndemo: prompt {} of {}: {prompt}", i + 1, PROMPTS.len());
        reports.push(ask(&binary, &model, prompt)?);
    }
    println!("\nSpeed and peak memory:");
    for (prompt, report) in PROMPTS.iter().zip(reports) {
        println!("  {report}\n    {prompt}");
    }
    life::show(&binary, &model, include_str!("../../ARCHITECTURE.md"))
}

/// Runs `kinglet run` on one prompt, output going through, and returns its report line.
fn ask(binary: &Path, model: &Path, prompt: &str) -> Outcome<String> {
    let mut command = Command::new(binary);
    command.arg("run").arg("-m").arg(model).args(["-p", prompt, "-n", REPLY_TOKENS, "--temp", "0"]);
    command.env(model::MODEL_ENV, model);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().context(format_args!("cannot start {}", binary.display()))?;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());

    // Both pipes are drained at once: a full one would stop the child.
    let report = std::thread::spawn(move || stderr.map_or(Ok(None), watch_report));
    let reply = stdout.map_or(Ok(false), |o| pass_on(o, io::stdout()));
    let status = child.wait().context("cannot wait for kinglet")?;
    let report = report.join().map_err(|_| Failure::new("the reader of standard error died"))?;
    println!();

    sh::check(status, "kinglet run")?;
    if !reply.context("cannot pass the reply on")? {
        return Err(Failure::new("kinglet ended well, but its reply is empty"));
    }
    let report = report.context("cannot read standard error")?;
    report.ok_or(Failure::new(format!("kinglet printed no line '{REPORT}...' with speed and memory")))
}

/// Copies bytes as they come; returns whether there was any but white space.
fn pass_on(mut from: impl Read, mut to: impl Write) -> io::Result<bool> {
    let (mut buffer, mut any) = ([0; 4096], false);
    loop {
        let n = match from.read(&mut buffer) {
            Ok(0) => return Ok(any),
            Ok(n) => n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        any |= buffer[..n].iter().any(|b| !b.is_ascii_whitespace());
        to.write_all(&buffer[..n])?;
        to.flush()?;
    }
}

/// Passes standard error on and returns the last report line without its beginning.
fn watch_report(from: impl Read) -> io::Result<Option<String>> {
    let mut report = None;
    for line in BufReader::new(from).split(b'\n') {
        let line = String::from_utf8_lossy(&line?).into_owned();
        // A progress line may stand before it, to be overwritten on a terminal.
        if let Some((_, rest)) = line.rsplit_once(REPORT) {
            // Other messages of kinglet may begin the same way.
            if rest.contains("tok/s") {
                report = Some(rest.trim_end().to_owned());
            }
        }
        eprintln!("{line}");
    }
    Ok(report)
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::path::PathBuf;

    /// A stand-in for kinglet: a shell script.
    fn with_script(name: &str, script: &str) -> Outcome<String> {
        use std::os::unix::fs::PermissionsExt;
        let file = format!("kinglet-xtask-{name}-{}", std::process::id());
        let path: PathBuf = std::env::temp_dir().join(file);
        std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        // Another thread that forks meanwhile may hold the script open for writing a moment.
        let mut asked = ask(&path, Path::new("m"), "p");
        for _ in 0..20 {
            if !asked.as_ref().is_err_and(|f| f.message.contains("busy")) {
                break;
            }
            std::thread::sleep(core::time::Duration::from_millis(50));
            asked = ask(&path, Path::new("m"), "p");
        }
        std::fs::remove_file(&path).unwrap();
        asked
    }

    #[test]
    fn the_report_is_the_last_line_with_speeds() {
        let report = "prompt 4 tokens 9.0 tok/s, reply 2 tokens 6.5 tok/s, peak memory 12 MB";
        let script = format!("echo hello; echo '[kinglet] model m' >&2; echo '[kinglet] {report}' >&2");
        assert_eq!(with_script("good", &script).unwrap(), report);
    }

    #[test]
    fn failures_are_failures() {
        let report = "echo '[kinglet] 1 tok/s' >&2";
        assert_eq!(with_script("code", &format!("echo a; {report}; exit 9")).unwrap_err().code, 9);
        assert!(with_script("empty", report).unwrap_err().message.contains("empty"));
        assert!(with_script("silent", "echo a").unwrap_err().message.contains("no line"));
    }
}
