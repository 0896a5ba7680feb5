//! `cargo xtask pair`: speed by the clock of this machine, ours and llama.cpp's in turn.
//!
//! A tool, not a test: absolute figures do not carry over to another run or machine, and a busy machine
//! hits the two differently. In turn, a change of the machine's speed hits both.

use crate::requantized::{self, WeightType};
use crate::sh::{self, Context, Failure, Outcome};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const HELP: &str = "\
Usage: cargo xtask pair --python PATH [OPTIONS]

Measures prefill of 512 and 2048 tokens and decode of 128, ours (KV q8) and llama.cpp's (flash
attention, KV f16) in turn, and prints medians, their ratio and the spread. Each measurement is a
process of its own with one run before the one that counts. The machine should have nothing else to do.

  --python PATH  a Python that has the package llama-cpp-python
  --type TYPE    only the file of this type (q4_k_m, q8_0, q4_0); may be repeated (default q4_k_m
                 and q8_0)
  --rounds N     pairs of each measurement (default 5)
  --threads N    threads of each side (default 2)
  --kv-type T    ours: q8 (default) or f32
";

/// Tokens of a prompt and of a reply.
const TESTS: [(usize, usize); 3] = [(512, 0), (2048, 0), (0, 128)];

/// What the command line asks for.
struct Wanted {
    python: PathBuf,
    types: Vec<WeightType>,
    rounds: usize,
    threads: usize,
    kv_type: String,
}

/// The task.
pub fn main(words: Vec<OsString>) -> Outcome {
    use lexopt::Arg::Long;
    use lexopt::ValueExt;
    let mut args = lexopt::Parser::from_args(words);
    let (mut python, mut types, mut rounds, mut threads) = (None::<PathBuf>, Vec::new(), 5usize, 2usize);
    let mut kv_type = String::from("q8");
    while let Some(arg) = args.next()? {
        match arg {
            Long("python") => python = Some(args.value()?.into()),
            Long("type") => types.push(WeightType::named(&args.value()?.string()?)?),
            Long("rounds") => rounds = args.value()?.parse()?,
            Long("threads") => threads = args.value()?.parse()?,
            Long("kv-type") => kv_type = args.value()?.string()?,
            Long("help") => {
                print!("{HELP}");
                return Ok(());
            }
            other => return Err(other.unexpected().into()),
        }
    }
    let python = python.ok_or_else(|| Failure::usage("--python PATH is missing; see --help"))?;
    if types.is_empty() {
        types = vec![WeightType::Q4KM, WeightType::Q8_0];
    }
    run(&Wanted { python, types, rounds: rounds.max(1), threads, kv_type })
}

fn run(wanted: &Wanted) -> Outcome {
    let has = Command::new(&wanted.python).args(["-c", "import llama_cpp"]).stdin(Stdio::null()).output();
    if !has.context(wanted.python.display())?.status.success() {
        return Err(Failure::new(format!(
            "{} has no package llama_cpp: `{} -m pip install llama-cpp-python`",
            wanted.python.display(),
            wanted.python.display()
        )));
    }
    sh::run(sh::cargo().args(["build", "--release", "--package", "kinglet"]))?;
    let kinglet = sh::target_dir()?.join("release").join("kinglet");
    let mut table = format!(
        "tokens/s, {} threads, medians of {} in turn; KV {} against f16\n\
         {:<8} {:<8} {:>10} {:>10} {:>7}   spread\n",
        wanted.threads, wanted.rounds, wanted.kv_type, "file", "test", "kinglet", "llama.cpp", "ratio"
    );
    for &ty in &wanted.types {
        let model = requantized::ensure(ty)?;
        for (prompt, reply) in TESTS {
            let name = if prompt > 0 { format!("pp{prompt}") } else { format!("tg{reply}") };
            let (mut ours, mut theirs) = (Vec::new(), Vec::new());
            for round in 1..=wanted.rounds {
                let a = speed(&mut our_command(&kinglet, &model, prompt, reply, wanted), our_speed)?;
                let b = speed(&mut peer_command(&model, prompt, reply, wanted), peer_speed)?;
                eprintln!("pair: {} {name} {round}/{}: {a:.2} {b:.2}", ty.name(), wanted.rounds);
                ours.push(a);
                theirs.push(b);
            }
            table.push_str(&row(ty.name(), &name, &mut ours, &mut theirs));
        }
    }
    print!("{table}");
    Ok(())
}

fn our_command(kinglet: &Path, model: &Path, prompt: usize, reply: usize, wanted: &Wanted) -> Command {
    let mut command = Command::new(kinglet);
    command.arg("bench").arg("--model").arg(model).args(["--reps", "1", "--json", "--quiet"]);
    command.args(["--kv-type", &wanted.kv_type, "--threads", &wanted.threads.to_string()]);
    command.args(["--pp", &prompt.to_string(), "--tg", &reply.to_string()]);
    command
}

fn peer_command(model: &Path, prompt: usize, reply: usize, wanted: &Wanted) -> Command {
    let mut command = Command::new(&wanted.python);
    command.arg(sh::root().join("xtask/pair/peer.py")).arg(model);
    command.args([prompt, reply, wanted.threads].map(|n| n.to_string()));
    command
}

/// Runs one measurement and reads its result.
fn speed(command: &mut Command, read: fn(&str) -> Option<f64>) -> Outcome<f64> {
    let output = command.stdin(Stdio::null()).output().context(sh::shown(command))?;
    if !output.status.success() {
        eprint!("{}", String::from_utf8_lossy(&output.stderr));
    }
    sh::check(output.status, &sh::shown(command))?;
    let said = String::from_utf8_lossy(&output.stdout);
    read(&said).ok_or_else(|| Failure::new(format!("no speed from `{}`: {said}", sh::shown(command))))
}

/// The speed in the report of `kinglet bench --json`.
fn our_speed(report: &str) -> Option<f64> {
    let rest = report.split("\"tokens_per_second\":").nth(1)?;
    rest.split([',', '}']).next()?.trim().parse().ok()
}

/// The speed in the only line of `peer.py`.
fn peer_speed(said: &str) -> Option<f64> {
    said.trim().parse().ok()
}

/// The middle of sorted values; of two in the middle their mean.
fn median(sorted: &[f64]) -> f64 {
    let n = sorted.len();
    (sorted[(n - 1) / 2] + sorted[n / 2]) / 2.0
}

/// A line of the table; sorts the samples.
fn row(file: &str, test: &str, ours: &mut [f64], theirs: &mut [f64]) -> String {
    let spread = |sorted: &[f64]| format!("{:.1}-{:.1}", sorted[0], sorted[sorted.len() - 1]);
    [&mut *ours, &mut *theirs].into_iter().for_each(|samples| samples.sort_by(f64::total_cmp));
    let (a, b) = (median(ours), median(theirs));
    format!("{file:<8} {test:<8} {a:>10.2} {b:>10.2} {:>7.2}   {} {}\n", a / b, spread(ours), spread(theirs))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speeds_are_read() {
        let report = "[\n {\n \"test\": \"pp512\",\n \"tokens_per_second\": 248.125,\n \
                      \"tokens_per_second_sd\": 0.0\n}]";
        assert_eq!(our_speed(report), Some(248.125));
        assert_eq!(our_speed("[]"), None);
        assert_eq!(peer_speed("50.250\n"), Some(50.25));
        assert_eq!(peer_speed("no model"), None);
    }

    #[test]
    fn rows_have_medians_and_their_ratio() {
        assert_eq!(median(&[1.0, 2.0, 9.0]), 2.0);
        assert_eq!(median(&[1.0, 2.0, 4.0, 9.0]), 3.0);
        let row = row("Q8_0", "pp512", &mut [30.0, 10.0, 20.0], &mut [41.0, 40.0, 39.0]);
        assert_eq!(
            row.split_whitespace().collect::<Vec<_>>()[2..],
            ["20.00", "40.00", "0.50", "10.0-30.0", "39.0-41.0"]
        );
    }

    #[test]
    fn a_python_must_be_named() {
        assert_eq!(main(Vec::new()).unwrap_err().code, 2);
    }
}
