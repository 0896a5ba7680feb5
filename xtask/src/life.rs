//! The end of `cargo xtask demo`: a conversation survives `kill -9`.
//!
//! Three processes of `kinglet chat`: the first answers a question about a long text and is killed; the
//! second, started with the same folder, answers a second question; the third, without the folder, computes
//! everything again. The second's text must be the third's, and it comes much sooner.

use crate::sh::{Context, Failure, Outcome};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Long enough that reading it takes many seconds: about 2,000 tokens.
const TEXT_BYTES: usize = 8_000;
const FIRST: &str = "Above is a document. In one sentence: what is it about?";
const SECOND: &str = "Name three things it says must stay true.";

/// What one process answered.
struct Answer {
    text: String,
    /// From the end of the user's line to the first token, in milliseconds.
    first_token_ms: f64,
    /// Lines about the cache on standard error.
    cache_lines: Vec<String>,
}

/// Shows it; `text` is what the conversation is about.
pub fn show(binary: &Path, model: &Path, text: &str) -> Outcome {
    let dir = std::env::temp_dir().join(format!("kinglet-demo-{}", std::process::id()));
    std::fs::create_dir_all(&dir).context(format_args!("cannot make {}", dir.display()))?;
    let shown = life(binary, model, text, &dir);
    std::fs::remove_dir_all(&dir).context(format_args!("cannot remove {}", dir.display()))?;
    shown
}

fn life(binary: &Path, model: &Path, text: &str, dir: &Path) -> Outcome {
    let (cache, history, copy) = (dir.join("cache"), dir.join("talk"), dir.join("talk-copy"));
    let words: String = text.chars().take(TEXT_BYTES).map(|c| if c == '\n' { ' ' } else { c }).collect();
    eprintln!("\ndemo: the life of a cache. A question about a text of {} characters:", words.len());
    let first = ask(binary, model, &history, Some(&cache), &format!("{words} {FIRST}"))?;
    print_answer(&first);
    eprintln!("demo: that process was ended with kill -9; a new one gets the next question:");
    std::fs::copy(&history, &copy).context("cannot copy the conversation")?;
    let second = ask(binary, model, &history, Some(&cache), SECOND)?;
    print_answer(&second);
    eprintln!("demo: the same without the cache on disk:");
    let anew = ask(binary, model, &copy, None, SECOND)?;
    print_answer(&anew);

    let restored = second.cache_lines.iter().any(|l| l.starts_with("[KV-DISK] loaded "));
    if !restored {
        return Err(Failure::new("the second process took nothing from disk"));
    }
    if second.text != anew.text {
        return Err(Failure::new("the answers with and without the cache differ"));
    }
    println!("\nThe life of a cache (kill -9 between the two questions), time to first token:");
    println!("  restored from disk  {:>8.0} ms", second.first_token_ms);
    println!(
        "  computed anew       {:>8.0} ms, {:.1} times as long",
        anew.first_token_ms,
        anew.first_token_ms / second.first_token_ms.max(0.1)
    );
    println!("  the two answers are equal: yes");
    Ok(())
}

fn print_answer(answer: &Answer) {
    answer.cache_lines.iter().for_each(|line| eprintln!("{line}"));
    println!("{}", answer.text.trim_end());
}

/// Starts a chat, says one line, and kills the process as soon as its answer is there.
fn ask(binary: &Path, model: &Path, history: &PathBuf, cache: Option<&Path>, line: &str) -> Outcome<Answer> {
    let mut command = Command::new(binary);
    command.arg("chat").arg("-m").arg(model).args(["--temp", "0", "-n", "64", "--history"]).arg(history);
    if let Some(cache) = cache {
        command.arg("--disk-kv").arg(cache);
    }
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().context(format_args!("cannot start {}", binary.display()))?;
    let answer = converse(&mut child, line);
    // SIGKILL: the process can neither catch it nor finish anything.
    child.kill().context("cannot kill kinglet")?;
    child.wait().context("cannot wait for kinglet")?;
    let (mut answer, stdout) = answer?;
    // What it wrote before it died is in the pipe.
    let mut text = String::new();
    if let Some(mut stdout) = stdout {
        stdout.read_to_string(&mut text).context("cannot read the answer")?;
    }
    if text.trim().is_empty() {
        return Err(Failure::new("kinglet's answer is empty"));
    }
    answer.text = text;
    Ok(answer)
}

fn converse(child: &mut Child, line: &str) -> Outcome<(Answer, Option<std::process::ChildStdout>)> {
    let (Some(stdin), Some(stderr)) = (&mut child.stdin, child.stderr.take()) else {
        return Err(Failure::new("kinglet has no standard input or error"));
    };
    stdin.write_all(format!("{line}\n").as_bytes()).context("cannot write to kinglet")?;
    let mut answer = Answer { text: String::new(), first_token_ms: 0.0, cache_lines: Vec::new() };
    for read in BufReader::new(stderr).split(b'\n') {
        let read = String::from_utf8_lossy(&read.context("cannot read standard error")?).into_owned();
        if read.starts_with("[KV-") || read.starts_with("[PREFILL-") {
            answer.cache_lines.push(read);
        } else if let Some(ms) = first_token_ms(&read) {
            answer.first_token_ms = ms;
            answer.cache_lines.push(read);
            return Ok((answer, child.stdout.take()));
        } else {
            eprintln!("{read}");
        }
    }
    Err(Failure::new("kinglet ended before its answer was complete"))
}

/// The time in a report line.
fn first_token_ms(line: &str) -> Option<f64> {
    let (_, rest) = line.split_once("first token after ")?;
    rest.split_once(" ms")?.0.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_is_found_in_the_report() {
        let line =
            "[kinglet] prompt 31 tokens 180.1 tok/s, first token after 186 ms, reply 3 tokens 9.0 tok/s";
        assert_eq!(first_token_ms(line), Some(186.0));
        assert_eq!(first_token_ms("[kinglet] /help explains"), None);
    }
}
