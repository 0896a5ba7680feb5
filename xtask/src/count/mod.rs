//! `cargo xtask count`: instructions per token of the board's binary, beside llama.cpp's.
//!
//! Counted under QEMU's user mode, by the difference of two run lengths, so that loading, tables and
//! the logits of a prompt's last token are left out. Instructions are no cycles, but they are the same
//! on every machine: what a change costs or saves shows to the last digit.

mod counts;
mod report;

use crate::cross::{self, Log, Target};
use crate::elf::Elf;
use crate::emulator::Emulator;
use crate::requantized::{self, WeightType};
use crate::sh::{Context, Failure, Outcome};
use crate::symbols::Functions;
use core::sync::atomic::{AtomicUsize, Ordering};
use counts::Counts;
use report::{Measured, Report};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Instant;

const HELP: &str = "\
Usage: cargo xtask count [OPTIONS]

Builds the static aarch64 binary, runs it under qemu-aarch64 on one thread, and prints millions of
instructions per token of prefill (64 tokens against 128) and decode (4 against 12), beside those of
llama.cpp, and the functions they go to. Takes some minutes for each file.

  --type TYPE    only the file of this type (q4_k_m, q8_0, q4_0); may be repeated
  --deep         decode after 256 tokens too
  --top N        functions listed for each measurement (default 8)
  --jobs N       runs at the same time (default 1)
  --cpu NAME     the CPU that is emulated (default cortex-a76)
  --kv-type T    q8 (default) or f32
  --binary FILE  count this program, not stripped, instead of building one
  --json         JSON in place of the tables
";

/// Tokens in the context of deep decoding.
const DEPTH: usize = 256;
/// Enough for the longest run; the same for all, so that it cancels out.
const CTX: usize = 512;

/// What is measured: two runs that differ in their length only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// A prompt of 64 and of 128 tokens, in one batch.
    Prefill,
    /// 4 and 12 tokens one by one.
    Decode,
    /// The same after [`DEPTH`] tokens.
    DeepDecode,
}

impl Phase {
    const ALL: [Phase; 3] = [Phase::Prefill, Phase::Decode, Phase::DeepDecode];

    /// For tables.
    fn name(self) -> &'static str {
        match self {
            Phase::Prefill => "prefill",
            Phase::Decode => "decode",
            Phase::DeepDecode => "decode at 256",
        }
    }

    /// Tokens of the short and the long run.
    fn tokens(self) -> [usize; 2] {
        match self {
            Phase::Prefill => [64, 128],
            Phase::Decode | Phase::DeepDecode => [4, 12],
        }
    }

    /// Tokens by which the long run is longer.
    fn difference(self) -> usize {
        let [short, long] = self.tokens();
        long - short
    }

    /// Command line of `kinglet` for a run of `tokens`.
    fn args(self, model: &Path, kv_type: &str, tokens: usize) -> Vec<String> {
        let (pp, tg, depth) = match self {
            Phase::Prefill => (tokens, 0, 0),
            Phase::Decode => (0, tokens, 0),
            Phase::DeepDecode => (0, tokens, DEPTH),
        };
        let numbers = format!("--pp {pp} --tg {tg} --depth {depth} --ctx {CTX} --kv-type {kv_type}");
        let mut args = vec!["bench".to_owned(), "--model".to_owned(), model.display().to_string()];
        args.extend(numbers.split(' ').map(str::to_owned));
        args.extend("--reps 1 --no-warmup --threads 1 --force --quiet".split(' ').map(str::to_owned));
        args
    }
}

/// What the command line asks for.
struct Wanted {
    types: Vec<WeightType>,
    phases: Vec<Phase>,
    top: usize,
    jobs: usize,
    cpu: String,
    kv_type: String,
    binary: Option<PathBuf>,
    json: bool,
}

impl Wanted {
    /// `None` where only the help was asked for.
    fn of(words: Vec<OsString>) -> Outcome<Option<Self>> {
        use lexopt::Arg::Long;
        use lexopt::ValueExt;
        let mut args = lexopt::Parser::from_args(words);
        let mut wanted = Wanted {
            types: Vec::new(),
            phases: vec![Phase::Prefill, Phase::Decode],
            top: 8,
            jobs: 1,
            cpu: "cortex-a76".into(),
            kv_type: "q8".into(),
            binary: None,
            json: false,
        };
        while let Some(arg) = args.next()? {
            match arg {
                Long("type") => wanted.types.push(WeightType::named(&args.value()?.string()?)?),
                Long("deep") => wanted.phases = Phase::ALL.to_vec(),
                Long("top") => wanted.top = args.value()?.parse()?,
                Long("jobs") => wanted.jobs = args.value()?.parse()?,
                Long("cpu") => wanted.cpu = args.value()?.string()?,
                Long("kv-type") => wanted.kv_type = args.value()?.string()?,
                Long("binary") => wanted.binary = Some(args.value()?.into()),
                Long("json") => wanted.json = true,
                Long("help") => return Ok(None),
                other => return Err(other.unexpected().into()),
            }
        }
        if wanted.types.is_empty() {
            wanted.types = WeightType::ALL.to_vec();
        }
        Ok(Some(wanted))
    }
}

/// The task.
pub fn main(words: Vec<OsString>) -> Outcome {
    let Some(wanted) = Wanted::of(words)? else {
        print!("{HELP}");
        return Ok(());
    };
    let emulator = Emulator::new()?;
    let program = match &wanted.binary {
        Some(path) => path.clone(),
        // The one with symbols: its code is that of the file that is shipped.
        None => cross::build(Target::Aarch64, None, Log::Frames)?.symbols,
    };
    let bytes = fs::read(&program).context(program.display())?;
    let functions = Functions::of(&Elf::parse(&bytes).context(program.display())?)?;
    let mut report = Report { kv_type: wanted.kv_type.clone(), measured: Vec::new() };
    for measurement in measure(&emulator, &program, &wanted)? {
        report.measured.push(Measured::new(measurement, &functions));
    }
    print!("{}", if wanted.json { report.json(wanted.top) } else { report.text(wanted.top) });
    Ok(())
}

/// A file, what was measured with it, and what the long run did more than the short one.
type Measurement = (WeightType, Phase, Counts);

/// Does all runs, `jobs` at a time.
fn measure(emulator: &Emulator, program: &Path, wanted: &Wanted) -> Outcome<Vec<Measurement>> {
    let mut runs = Vec::new();
    for &ty in &wanted.types {
        let model = requantized::ensure(ty)?;
        for &phase in &wanted.phases {
            runs.extend(phase.tokens().map(|tokens| (ty, phase, tokens, model.clone())));
        }
    }
    let next = AtomicUsize::new(0);
    let done: Mutex<Vec<Option<Outcome<Counts>>>> = Mutex::new(runs.iter().map(|_| None).collect());
    let work = || {
        while let Some((ty, phase, tokens, model)) = runs.get(next.fetch_add(1, Ordering::Relaxed)) {
            let start = Instant::now();
            let args = phase.args(model, &wanted.kv_type, *tokens);
            let name = format!("{}-{}-{tokens}", ty.name(), phase.name().replace(' ', "-"));
            let counts = emulator
                .run(&wanted.cpu, program, &args, &name, &["pcs=on".to_owned()])
                .and_then(|text| Counts::parse(&text).context(&name));
            eprintln!("count: {name}: {:.0} s", start.elapsed().as_secs_f64());
            let at = runs.iter().position(|run| (run.0, run.1, run.2) == (*ty, *phase, *tokens));
            if let (Ok(mut done), Some(at)) = (done.lock(), at) {
                done[at] = Some(counts);
            }
        }
    };
    std::thread::scope(|scope| (0..wanted.jobs.max(1)).for_each(|_| drop(scope.spawn(work))));
    let done = done.into_inner().map_err(|_| Failure::new("a run was lost"))?;
    let mut counts = done.into_iter();
    let mut take = || counts.next().flatten().unwrap_or(Err(Failure::new("a run was lost")));
    let mut measured = Vec::new();
    for pair in runs.chunks(2) {
        let (short, long) = (take()?, take()?);
        measured.push((pair[0].0, pair[0].1, long.minus(&short)));
    }
    Ok(measured)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_a_pair_differ_in_their_length_only() {
        for phase in Phase::ALL {
            let [short, long] = phase.tokens().map(|n| phase.args(Path::new("m.gguf"), "q8", n));
            let differ: Vec<_> = short.iter().zip(&long).filter(|(a, b)| a != b).collect();
            assert_eq!(differ.len(), 1, "{phase:?}");
            assert!(phase.tokens()[1] + DEPTH <= CTX && phase.difference() > 0);
        }
        let args = Phase::DeepDecode.args(Path::new("m.gguf"), "f32", 4).join(" ");
        assert!(args.contains("--tg 4 --depth 256") && args.contains("--kv-type f32"), "{args}");
        assert!(args.contains("--threads 1") && args.contains("--no-warmup"), "{args}");
    }

    #[test]
    fn all_files_are_counted_unless_some_are_named() {
        let wanted = |words: &[&str]| Wanted::of(words.iter().map(OsString::from).collect()).unwrap();
        assert_eq!(wanted(&[]).unwrap().types, WeightType::ALL);
        assert_eq!(wanted(&["--type", "q4_0", "--deep"]).unwrap().types, [WeightType::Q4_0]);
        assert_eq!(wanted(&["--deep"]).unwrap().phases, Phase::ALL);
        assert!(wanted(&["--help"]).is_none());
        assert_eq!(Wanted::of(vec!["--typ".into()]).err().map(|f| f.code), Some(2));
    }
}
