//! `cargo xtask logs FILE`: what `kinglet --trace FILE` wrote, in words; and the step that proves it.
//!
//! The reader is a crate of its own (`xtask/logs/`): its decoder takes longer to compile than all tasks.

use crate::aarch64::{self, output, unpacked};
use crate::cross::{self, Built, Log, Target};
use crate::elf::Elf;
use crate::sh::{self, Context, Failure, Outcome};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const HELP: &str = "\
Usage: cargo xtask logs FILE [--target aarch64|x86_64] [--elf ELF]

Prints the log frames that `kinglet COMMAND --trace FILE` wrote: seconds, level, text.

  --target NAME  the program was built for this target (default aarch64)
  --elf ELF      the unstripped program, if it was not built here; kinglet.symbols of the same build
";

const MODEL: &str = "qwen3-tiny.Q4_K_M.gguf";
/// What the model's texts say of it.
const MODEL_LINE: &str = "model: 3 layers, dim 256, ffn 256, heads 4 and 2 of 128, vocabulary 512";
const LAYERS: usize = 3;
const THREADS: usize = 4;
const BATCH: usize = 16;
/// A prompt of two whole batches and a part of one, and tokens after it.
const IDS: usize = 36;
const STEPS: usize = 3;
const CTX: usize = 64;

/// The task.
pub fn main(words: Vec<OsString>) -> Outcome {
    use lexopt::Arg::{Long, Value};
    use lexopt::ValueExt;
    let mut args = lexopt::Parser::from_args(words);
    let (mut target, mut elf, mut file) = (Target::Aarch64, None, None);
    while let Some(arg) = args.next()? {
        match arg {
            Long("target") => target = Target::named(&args.value()?.string()?)?,
            Long("elf") => elf = Some(PathBuf::from(args.value()?)),
            Long("help") => {
                print!("{HELP}");
                return Ok(());
            }
            Value(path) if file.is_none() => file = Some(PathBuf::from(path)),
            other => return Err(other.unexpected().into()),
        }
    }
    let file = file.ok_or_else(|| Failure::usage(format!("no FILE\n{HELP}")))?;
    let elf = match elf {
        Some(elf) => elf,
        None => cross::symbols(target, Log::Frames)?,
    };
    if !elf.is_file() {
        return Err(Failure::new(format!(
            "no {}: build the program with `cargo xtask cross`, or name its kinglet.symbols with --elf",
            elf.display()
        )));
    }
    sh::run(Command::new(reader()?).arg(elf).arg(file))
}

/// Builds the reader; its path.
fn reader() -> Outcome<PathBuf> {
    let folder = sh::target_dir()?.join("logs");
    let mut cargo = sh::cargo();
    cargo.args(["build", "--quiet", "--locked", "--manifest-path", "xtask/logs/Cargo.toml"]);
    sh::run(cargo.arg("--target-dir").arg(&folder))?;
    Ok(folder.join("debug").join("kinglet-logs"))
}

/// The step: traces a run of the program for the boards under emulation, and reads the trace.
///
/// # Errors
/// No emulator, texts in the shipped file, or a trace that does not say what the run did.
pub fn check() -> Outcome {
    if !aarch64::has_qemu() {
        return Err(Failure::new("no qemu-aarch64: run `cargo xtask setup`"));
    }
    let built = cross::build(Target::Aarch64, None, Log::Frames)?;
    check_texts(&built)?;
    let reader = reader()?;
    let folder = sh::target_dir()?.join("logs-run");
    fs::create_dir_all(&folder).context(format_args!("cannot make {}", folder.display()))?;
    let model = unpacked(MODEL, &folder)?;
    let trace = folder.join("trace");
    output(&mut generate(&built.binary, &model, &trace))?;

    let read = |name: &str, bytes: &[u8]| -> Outcome<(Option<i32>, Vec<String>, String)> {
        let path = folder.join(name);
        fs::write(&path, bytes).context(path.display())?;
        let Output { status, stdout, stderr } =
            Command::new(&reader).arg(&built.symbols).arg(&path).output().context(reader.display())?;
        let lines = String::from_utf8_lossy(&stdout).lines().map(str::to_owned).collect();
        Ok((status.code(), lines, String::from_utf8_lossy(&stderr).into_owned()))
    };
    let bytes = fs::read(&trace).context(trace.display())?;
    let (code, lines, said) = read("whole", &bytes)?;
    check_lines(&lines).map_err(|wrong| Failure::new(format!("{wrong}, in:\n{}", lines.join("\n"))))?;
    expect(code == Some(0) && !said.contains("cut off"), "a whole trace is read as such", &said)?;

    let (code, fewer, said) = read("cut", &bytes[..bytes.len() - 2])?;
    let is_cut = code == Some(0) && said.contains("cut off") && fewer == lines[..lines.len() - 1];
    expect(is_cut, "a last frame without an end is named, and the others are read", &said)?;
    // A text that no number names, in the middle.
    let middle = bytes.iter().skip(bytes.len() / 2).position(|&b| b == 0).unwrap_or(0) + bytes.len() / 2 + 1;
    let damaged = [&bytes[..middle], &[0xff, 0xff, 0xff, 0], &bytes[middle..]].concat();
    let (code, same, said) = read("damaged", &damaged)?;
    let is_named = code == Some(1) && said.contains("1 frames cannot be read") && same == lines;
    expect(is_named, "a damaged frame is an error, and the others are read", &said)?;

    let stderr = |trace: &Path| {
        let run = generate(&built.binary, &model, trace).output().context("qemu-aarch64")?;
        Ok::<_, Failure>(String::from_utf8_lossy(&run.stderr).into_owned())
    };
    let said = stderr(&model)?;
    expect(said.contains("is the model itself"), "the model is not overwritten by its trace", &said)?;
    let said = stderr(Path::new("/dev/full"))?;
    expect(said.contains("the trace ends early"), "a full disk is named", &said)?;
    allocates_nothing()?;
    eprintln!("logs: {} frames of {THREADS} threads, {} bytes, as the run went", lines.len(), bytes.len());
    Ok(())
}

fn expect(holds: bool, what: &str, said: &str) -> Outcome {
    if holds { Ok(()) } else { Err(Failure::new(format!("not so: {what}; it said: {said}"))) }
}

/// The test that a reply allocates nothing, with the log in and a trace being written.
fn allocates_nothing() -> Outcome {
    let mut cargo = cross::find(Target::Aarch64, None)?.cargo_for_tests(Target::Aarch64)?;
    cargo.env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_MUSL_RUNNER", "qemu-aarch64 -cpu cortex-a76");
    // Compiling takes longer than the test.
    cargo.env("CARGO_PROFILE_TEST_OPT_LEVEL", "1");
    cargo.env("DEFMT_LOG", cross::LOG_LEVEL).env("KINGLET_NO_MODEL", "1");
    cargo.args(["--package", "kinglet", "--features", "kinglet/defmt", "--test", "allocations"]);
    sh::run(&mut cargo)
}

/// A traced run under emulation.
fn generate(binary: &Path, model: &Path, trace: &Path) -> Command {
    let ids: Vec<String> = (1..=IDS).map(|id| id.to_string()).collect();
    let mut command = Command::new("qemu-aarch64");
    command.args(["-cpu", "cortex-a76"]).arg(binary).arg("generate").arg("--model").arg(model);
    command.args(["--ids", &ids.join(","), "-n", &STEPS.to_string(), "--batch", &BATCH.to_string()]);
    command.args(["--ctx", &CTX.to_string(), "--threads", &THREADS.to_string(), "--force", "--trace"]);
    command.arg(trace);
    command
}

/// The texts are in the unstripped program, each under its own number, and not in the one that is shipped.
fn check_texts(built: &Built) -> Outcome {
    let shipped = fs::read(&built.binary).context(built.binary.display())?;
    let bytes = fs::read(&built.symbols).context(built.symbols.display())?;
    let elf = Elf::parse(&bytes).context(built.symbols.display())?;
    let index = elf.sections.iter().position(|s| s.name == ".defmt" && !s.is_loaded());
    let index = index.ok_or_else(|| Failure::new("no section .defmt that is not loaded"))?;
    let symbols = elf.symbols().context(built.symbols.display())?;
    let texts = || symbols.iter().filter(|s| s.section == index && s.name.starts_with('{'));
    let mut numbers: Vec<u64> = texts().map(|s| s.address).collect();
    let count = numbers.len();
    numbers.sort();
    numbers.dedup();
    if numbers.len() != count || !texts().any(|s| s.name.contains("forward: ")) {
        return Err(Failure::new(format!("{count} log texts with {} numbers", numbers.len())));
    }
    for symbol in texts() {
        let text = symbol.name.split("\"data\":\"").nth(1).and_then(|rest| rest.split('"').next());
        let text = text.unwrap_or(symbol.name).as_bytes();
        if text.len() > 4 && shipped.windows(text.len()).any(|w| w == text) {
            return Err(Failure::new(format!("the shipped program holds {}", symbol.name)));
        }
    }
    eprintln!(
        "logs: {count} texts in .defmt, {} bytes that are not loaded; none in {}",
        elf.sections[index].len,
        built.binary.display()
    );
    Ok(())
}

/// What the log of [`generate`] must say, without times and the workers' lines.
fn wanted() -> Vec<String> {
    let mut lines = vec![format!("debug prompt: {IDS} tokens")];
    let batches = (0..IDS).step_by(BATCH).map(|start| (start, IDS.min(start + BATCH)));
    let steps = (IDS..IDS + STEPS - 1).map(|start| (start, start + 1));
    for (start, end) in batches.chain(steps) {
        let logits = if end < IDS { "None" } else { "Last" };
        lines.push(format!("debug forward: {} tokens in 1 chunks", end - start));
        lines.push(format!("debug chunk: SeqId(0), positions {start}..{end}, logits {logits}"));
        lines.extend((0..LAYERS).map(|i| format!("trace layer {i}")));
        lines.push("debug forward: done".into());
    }
    lines
}

/// Checks the lines of a trace of [`generate`].
fn check_lines(lines: &[String]) -> Result<(), String> {
    let times: Vec<f64> =
        lines.iter().map(|l| l.split(' ').next().and_then(|t| t.parse().ok()).unwrap_or(f64::NAN)).collect();
    if times.iter().any(|t| t.is_nan()) || !times.is_sorted() {
        return Err("times are missing or go back".into());
    }
    let texts: Vec<String> = lines
        .iter()
        .map(|l| {
            l.split_once(' ').map_or("", |(_, rest)| rest).split_whitespace().collect::<Vec<_>>().join(" ")
        })
        .collect();
    // Workers' lines come from their own threads, at any time.
    let (workers, own): (Vec<&String>, Vec<&String>) = texts.iter().partition(|t| t.contains("worker "));
    let begin = own.iter().position(|t| t.contains("prompt: ")).unwrap_or(own.len());
    let wanted = wanted();
    if let Some((got, want)) = own[begin..].iter().zip(&wanted).find(|(got, want)| **got != *want) {
        return Err(format!("{got:?} stands where {want:?} should"));
    }
    if own.len() - begin != wanted.len() {
        return Err(format!("{} lines from the prompt on, not {}", own.len() - begin, wanted.len()));
    }
    let version = format!("info kinglet {}, numerics", env!("CARGO_PKG_VERSION"));
    for start in [&version, "info kernels dotprod", &format!("info {MODEL_LINE}"), "info memory: kv "] {
        if !own[..begin].iter().any(|t| t.starts_with(start)) {
            return Err(format!("no {start:?} before the prompt"));
        }
    }
    for worker in 1..THREADS {
        for event in [format!("debug worker {worker}: starts"), format!("debug worker {worker}: ends after ")]
        {
            if workers.iter().filter(|t| t.starts_with(&event)).count() != 1 {
                return Err(format!("not one {event:?}"));
            }
        }
    }
    if workers.len() != 2 * (THREADS - 1) {
        return Err(format!("{} lines of workers", workers.len()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> Vec<String> {
        let mut texts: Vec<String> =
            [&format!("info kinglet {}, numerics 1", env!("CARGO_PKG_VERSION")), "info kernels dotprod"]
                .map(String::from)
                .to_vec();
        texts.push(format!("info {MODEL_LINE}"));
        texts.push("info memory: kv 1, scratch 2, index 3 bytes".into());
        texts.extend((1..THREADS).map(|i| format!("debug worker {i}: starts")));
        texts.extend(wanted());
        texts.extend((1..THREADS).map(|i| format!("debug worker {i}: ends after 7 tasks")));
        texts.iter().enumerate().map(|(i, t)| format!("0.{i:06} {t}")).collect()
    }

    #[test]
    fn a_trace_must_say_what_the_run_did() {
        assert_eq!(check_lines(&good()), Ok(()));
        let change = |from: &str, to: &str| {
            let lines: Vec<String> = good().iter().map(|l| l.replace(from, to)).collect();
            assert_ne!(lines, good(), "{from}");
            assert!(check_lines(&lines).is_err(), "{from}");
        };
        change("positions 16..32", "positions 16..31");
        change("16 tokens in", "15 tokens in");
        change("logits None", "logits All");
        change("worker 2: starts", "worker 1: starts");
        change("0.000009", "0.000090");
        change("dim 256", "dim 255");
        for i in 0..good().len() {
            let mut lines = good();
            lines.remove(i);
            assert!(check_lines(&lines).is_err(), "without line {i}");
        }
        assert!(check_lines(&[]).is_err());
    }
}
