//! `bench`: tokens per second, reading and writing. Must not know text.

use crate::bench_restore;
use crate::decimal::fixed;
use crate::failure::Failure;
use crate::loader::Model;
use crate::report::object;
use crate::session::Session;
use crate::setup::{self, Setup};
use crate::signal;
use crate::term::{StatusLine, print, stderr_is_terminal};
use crate::words::{Help, Word, Words};
use core::fmt::Write as _;
use serde_json::Value;
use std::time::Instant;

/// Help text.
pub const HELP: Help = &[
    "usage: kinglet bench -m FILE [FLAGS]

Measures how fast a prompt is read (pp) and a reply is made (tg), like llama-bench: the mean of
some repetitions after a warm-up, and its standard deviation.

      --pp N               tokens of the prompt (default 512; 0 leaves this out)
      --tg N               tokens of the reply (default 128; 0 leaves this out)
      --reps N             repetitions (default 3), or restarts of --restore (default 5)
      --depth N            tokens that stand in the context before, not timed (default 0)
      --no-warmup          no run before those that count: for instruction counts
      --restore N          instead: a process reads N tokens and is killed, a new one gets them again with
                           --more tokens behind, takes what it can from disk, and is killed too;
                           the median over such restarts counts
      --more N             tokens behind the restored ones (default 31)
      --dir DIR            where --restore puts its cache (default: the system's folder for temporary files)
      --json               JSON in place of the table

",
    setup::FLAGS,
];

/// One line of the table.
struct Test {
    name: String,
    prompt: usize,
    reply: usize,
    /// Tokens per second of each repetition.
    samples: Vec<f64>,
}

/// Runs the command.
///
/// # Errors
/// Of the command line, the file, the engine.
pub fn command(words: &mut Words) -> Result<(), Failure> {
    let mut setup = Setup::default();
    let (mut pp, mut tg, mut reps, mut depth) = (512usize, 128usize, None, 0usize);
    let (mut restore, mut more, mut dir) = (None, 31usize, std::env::temp_dir());
    let (mut as_json, mut warmup) = (false, true);
    while let Some(word) = words.advance()? {
        let Word::Flag(flag) = &word else { return Err(words.unknown(word)) };
        match flag.as_str() {
            "--pp" => pp = words.number(0..=1 << 20)?,
            "--tg" => tg = words.number(0..=1 << 20)?,
            "--reps" => reps = Some(words.number(1..=1000)?),
            "--depth" => depth = words.number(0..=1 << 20)?,
            "--no-warmup" => warmup = false,
            "--restore" => restore = Some(words.number(16..=1 << 20)?),
            "--more" => more = words.number(1..=1 << 20)?,
            "--dir" => dir = words.path()?,
            "--json" => as_json = true,
            flag if setup.accept(flag, words)? => {}
            _ => return Err(words.unknown(word)),
        }
    }
    let path = words.need(setup.model.clone(), "-m FILE")?;
    if pp == 0 && tg == 0 {
        return Err(words.wrong("--pp 0 and --tg 0 leave nothing to measure"));
    }
    let model = Model::open_to_compute(&path)?;
    if let Some(prompt) = restore {
        let vocab = model.config()?.vocab as u32;
        let ids: Vec<u32> = (0..prompt + more).map(|i| token(i, vocab)).collect();
        let (prompt, more) = ids.split_at(prompt);
        let measured = bench_restore::measure(&setup, &dir, prompt, more, reps.unwrap_or(5))?;
        let text = if as_json { bench_restore::json(&measured) } else { bench_restore::table(&measured) };
        return print(&text);
    }
    let reps = reps.unwrap_or(3);
    // No more context than the tests need; --ctx asks for more.
    setup.ctx = Some(setup.ctx.unwrap_or(0).max(depth + pp).max(depth + tg + 1));
    let mut session = Session::start(&model, &setup)?;
    signal::install();
    let mut tests: Vec<Test> = [("pp", pp, 0), ("tg", 0, tg)]
        .into_iter()
        .filter(|(_, prompt, reply)| prompt + reply > 0)
        .map(|(name, prompt, reply)| Test {
            name: match depth {
                0 => format!("{name}{}", prompt + reply),
                _ => format!("{name}{}@{depth}", prompt + reply),
            },
            prompt,
            reply,
            samples: Vec::with_capacity(reps),
        })
        .collect();
    for test in &mut tests {
        let mut line = StatusLine::new(!setup.quiet && stderr_is_terminal());
        // The first one reads the weights from the disk.
        for rep in usize::from(!warmup)..=reps {
            line.show(format_args!("{}: {rep} of {reps}", test.name));
            let speed = measure(&mut session, depth, test.prompt, test.reply)?;
            if rep > 0 {
                test.samples.push(speed);
            }
        }
    }
    let about = || about(&model, &session, &setup);
    if as_json { print(&to_json(&about, depth, &tests)) } else { print(&to_table(&about(), &tests)) }
}

/// Which tokens is all the same to a dense model; these differ from each other.
fn token(i: usize, vocab: u32) -> u32 {
    (i as u32).wrapping_mul(2_654_435_761) % vocab
}

/// One repetition, after `depth` tokens that are computed first: tokens per second.
fn measure(session: &mut Session, depth: usize, prompt: usize, reply: usize) -> Result<f64, Failure> {
    let vocab = session.config().vocab as u32;
    let token = |i: usize| token(i, vocab);
    // Those of an earlier repetition are still there.
    session.keep(depth)?;
    let before: Vec<u32> = (session.tokens().len()..depth).map(token).collect();
    session.prefill(&before, &mut |_| {})?;
    let start = Instant::now();
    if prompt > 0 {
        let tokens: Vec<u32> = (depth..depth + prompt).map(token).collect();
        session.prefill(&tokens, &mut |_| {})?;
    }
    for i in 0..reply {
        if signal::interrupted() {
            return Err(Failure::Interrupted);
        }
        session.step(token(depth + i))?;
    }
    Ok((prompt + reply) as f64 / start.elapsed().as_secs_f64())
}

fn about(model: &Model, session: &Session, setup: &Setup) -> Vec<(&'static str, Value)> {
    let params: u64 = model.gguf.tensors().iter().map(|t| t.dims().iter().product::<u64>()).sum();
    vec![
        ("version", Value::from(env!("CARGO_PKG_VERSION"))),
        ("model", Value::from(model.name())),
        ("file", Value::from(model.path.to_string_lossy())),
        ("arch", Value::from(session.config().arch.name())),
        ("size", Value::from(model.bytes.len())),
        ("params", Value::from(params)),
        ("threads", Value::from(session.threads())),
        ("batch", Value::from(setup.batch)),
        ("kv_type", Value::from(setup.kv_type.name())),
        ("kernels", Value::from(setup.isa.name())),
    ]
}

/// Mean and standard deviation (of a sample; 0 for a single one).
fn statistics(samples: &[f64]) -> (f64, f64) {
    let n = samples.len().max(1) as f64;
    let mean = samples.iter().sum::<f64>() / n;
    let squares: f64 = samples.iter().map(|x| (x - mean) * (x - mean)).sum();
    (mean, if samples.len() > 1 { (squares / (n - 1.0)).sqrt() } else { 0.0 })
}

fn to_json(about: &dyn Fn() -> Vec<(&'static str, Value)>, depth: usize, tests: &[Test]) -> String {
    let list: Vec<Value> = tests
        .iter()
        .map(|test| {
            let (mean, sd) = statistics(&test.samples);
            let mut entries = about();
            entries.extend([
                ("test", Value::from(&*test.name)),
                ("n_prompt", Value::from(test.prompt)),
                ("n_gen", Value::from(test.reply)),
                ("n_depth", Value::from(depth)),
                ("tokens_per_second", Value::from(mean)),
                ("tokens_per_second_sd", Value::from(sd)),
                ("samples", Value::from(&*test.samples)),
            ]);
            object(&mut entries)
        })
        .collect();
    format!("{:#}\n", Value::Array(list))
}

fn to_table(about: &[(&str, Value)], tests: &[Test]) -> String {
    let value =
        |key: &str| about.iter().find(|(name, _)| *name == key).map_or(&Value::Null, |(_, value)| value);
    let text = |key: &str| match value(key) {
        Value::String(s) => s.clone(),
        other => other.to_string(),
    };
    let number = |key: &str| value(key).as_u64().unwrap_or(0) as f64;
    let size = format!("{} MiB", fixed(number("size") / f64::from(1 << 20), 2));
    let params = format!("{} M", fixed(number("params") / 1e6, 2));
    let model = text("model");
    let width = model.chars().count().max(5);
    let mut out = String::new();
    let _ = writeln!(
        out,
        "| {:<width$} | {:>12} | {:>10} | kernels | {:>7} | {:>7} | {:>8} | {:>16} |",
        "model", "size", "params", "threads", "kv type", "test", "t/s"
    );
    let _ = writeln!(
        out,
        "| {} | -----------: | ---------: | ------- | ------: | ------- | -------: | ---------------: |",
        "-".repeat(width)
    );
    for test in tests {
        let (mean, sd) = statistics(&test.samples);
        let speed = format!("{} ± {}", fixed(mean, 2), fixed(sd, 2));
        let _ = writeln!(
            out,
            "| {model:<width$} | {size:>12} | {params:>10} | {:<7} | {:>7} | {:<7} | {:>8} | {speed:>16} |",
            text("kernels"),
            text("threads"),
            text("kv_type"),
            test.name,
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics_are_those_of_a_sample() {
        assert_eq!(statistics(&[4.0]), (4.0, 0.0));
        let (mean, sd) = statistics(&[1.0, 2.0, 3.0]);
        assert_eq!((mean, sd), (2.0, 1.0));
    }
}
