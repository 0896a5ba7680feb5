//! The step `aarch64`: the deployed binary and the core's tests on emulated boards.
//!
//! `qemu-aarch64` stands for the CPUs: cortex-a76 has the dot product, cortex-a53 has not and
//! traps where a kernel wants it all the same. The binary must give the host's logits bit for bit.

mod caches;

use crate::cross::{self, Log, Target};
use crate::model;
use crate::sh::{self, Context, Failure, Outcome};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

/// The emulator.
pub const QEMU: &str = "qemu-aarch64";
/// Debian's package of it.
pub const QEMU_PACKAGE: &str = "qemu-user";
/// The big core of the boards, one without dot product, and all that QEMU knows.
pub const CPUS: [&str; 3] = ["cortex-a76", "cortex-a53", "max"];
/// The kernels that must be chosen on each.
const KERNELS: [&str; 3] = ["dotprod", "neon", "dotprod"];
/// Integration tests of kernels and engine that are quick enough for an emulator.
const TESTS: [&str; 7] =
    ["matmul", "attention", "elementwise", "one_answer", "reference", "kv_file", "kv_fixtures"];
/// Slow ones among them: half a minute and more each, and what they show follows from equal logits and the
/// same tests on the host.
const SKIPPED: [&str; 3] = [
    "tiny_models_give_one_answer",
    "quantised_models_are_no_farther_from_the_reference_than_the_peer",
    "sixteen_bit_models_equal_the_reference",
];
/// Tiny models of every family.
pub const FIXTURES: [&str; 6] = [
    "qwen2-tiny.Q4_0.gguf",
    "qwen2-tiny.Q8_0.gguf",
    "qwen3-tiny.gguf",
    "qwen3-tiny.Q4_K_M.gguf",
    "qwen3-tiny.IQ4_XS.gguf",
    "qwen3vl-tiny.gguf",
];
/// Token ids for all models, and how many of them the real one reads.
const IDS: [u32; 40] = {
    let mut ids = [0; 40];
    let mut i = 0;
    while i < ids.len() {
        ids[i] = 11 + 37 * i as u32 % 200;
        i += 1;
    }
    ids
};
const REAL_IDS: usize = 4;

/// Whether the emulator is there.
pub fn has_qemu() -> bool {
    sh::output(QEMU, &["--version"]).is_some()
}

/// Runs everything; with the real model too unless `no_model`.
///
/// # Errors
/// No emulator, a failing test, or logits that differ.
pub fn check(no_model: bool) -> Outcome {
    if !has_qemu() {
        return Err(Failure::new(format!(
            "no {QEMU}: run `cargo xtask setup`, or install the package {QEMU_PACKAGE}"
        )));
    }
    let board = cross::build(Target::Aarch64, None, Log::Frames)?.binary;
    sh::run(sh::cargo().args(["build", "--release", "--package", "kinglet"]))?;
    let host = sh::target_dir()?.join("release").join("kinglet");

    let scratch = sh::target_dir()?.join("aarch64");
    fs::create_dir_all(&scratch).context(format_args!("cannot make {}", scratch.display()))?;
    let first = unpacked(FIXTURES[0], &scratch)?;
    for (cpu, kernels) in CPUS.into_iter().zip(KERNELS) {
        sign_of_life(cpu, kernels, &board, &first)?;
    }
    for name in FIXTURES {
        same_logits(&host, &board, &unpacked(name, &scratch)?, &IDS)?;
    }
    if !no_model {
        let real = model::ensure()?;
        same_logits(&host, &board, &real, &IDS[..REAL_IDS])?;
        caches::check_large(&host, &board, &real)?;
    }
    for name in [FIXTURES[1], FIXTURES[3]] {
        caches::check(&host, &board, &unpacked(name, &scratch)?)?;
    }
    // The first compiles them. Half of the time is one long test, so that the others fit side by side.
    tests(CPUS[0])?;
    thread::scope(|scope| {
        let others: Vec<_> = CPUS[1..].iter().map(|cpu| scope.spawn(|| tests(cpu))).collect();
        others.into_iter().try_for_each(|other| match other.join() {
            Ok(outcome) => outcome,
            Err(_) => Err(Failure::new("the tests panicked")),
        })
    })
}

/// A program under the emulator.
fn emulated(cpu: &str, program: &Path) -> Command {
    let mut command = Command::new(QEMU);
    command.args(["-cpu", cpu]).arg(program);
    command
}

/// Prints target, version and the kernels that are chosen on this CPU, which must be `kernels`.
fn sign_of_life(cpu: &str, kernels: &str, board: &Path, gguf: &Path) -> Outcome {
    let version = output(emulated(cpu, board).arg("--version"))?;
    let expected = format!("kinglet {}", env!("CARGO_PKG_VERSION"));
    if !version.starts_with(&expected) {
        let said = version.trim();
        return Err(Failure::new(format!("`kinglet --version` does not say {expected}, but {said:?}")));
    }
    let mut bench = emulated(cpu, board);
    bench.arg("bench").arg("--model").arg(gguf);
    bench.args(["--pp", "4", "--tg", "0", "--reps", "1", "--ctx", "64", "--force", "--json"]);
    let report = output(&mut bench)?;
    let chosen = report.split("\"kernels\"").nth(1).and_then(|rest| rest.split('"').nth(1)).unwrap_or("none");
    eprintln!("aarch64: {} on {cpu}: {}, kernels {chosen}", Target::Aarch64.triple(), version.trim());
    if chosen == kernels {
        return Ok(());
    }
    Err(Failure::new(format!("kernels {chosen} are chosen on {cpu}, not {kernels}")))
}

/// The host's logits and the board's on both CPUs.
fn same_logits(host: &Path, board: &Path, gguf: &Path, ids: &[u32]) -> Outcome {
    let words: Vec<String> = ids.iter().map(u32::to_string).collect();
    let hash = |mut command: Command| -> Outcome<String> {
        command.arg("logits").arg("--model").arg(gguf);
        command.args(["--hash", "--force", "--ctx", "64", "--threads", "2", "--ids", &words.join(",")]);
        let hash = output(&mut command)?.trim().to_owned();
        let is_hash = hash.len() == 64 && hash.bytes().all(|b| b.is_ascii_hexdigit());
        is_hash.then_some(hash).ok_or_else(|| Failure::new(format!("no hash from `{}`", sh::shown(&command))))
    };
    let name = gguf.file_name().unwrap_or_default().to_string_lossy();
    let want = hash(Command::new(host))?;
    for cpu in CPUS {
        let got = hash(emulated(cpu, board))?;
        if got != want {
            return Err(Failure::new(format!("{name}: logits {got} on {cpu}, {want} on this machine")));
        }
    }
    let ids = ids.len();
    eprintln!("aarch64: {name}, {ids} tokens: logits {}.. here and on {}", &want[..16], CPUS.join(", "));
    Ok(())
}

/// The kernels' and the engine's tests, compiled for the board.
fn tests(cpu: &str) -> Outcome {
    let route = cross::find(Target::Aarch64, None)?;
    eprintln!("aarch64: tests on {cpu}");
    let run = |package: &[&str]| {
        let mut cargo = route.cargo_for_tests(Target::Aarch64)?;
        cargo.env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_MUSL_RUNNER", format!("{QEMU} -cpu {cpu}"));
        cargo.env("KINGLET_NO_MODEL", "1").env_remove(model::MODEL_ENV);
        cargo.args(package).arg("--");
        SKIPPED.iter().for_each(|name| {
            cargo.args(["--skip", name]);
        });
        sh::run(&mut cargo)
    };
    run(&["--package", "kinglet-core", "--lib"])?;
    let mut words = vec!["--package", "kinglet-tests"];
    TESTS.iter().for_each(|name| words.extend(["--test", name]));
    run(&words)
}

/// A fixture model, unpacked into `folder`.
///
/// # Errors
/// No gzip, no such fixture, or a file that cannot be written.
pub fn unpacked(name: &str, folder: &Path) -> Outcome<PathBuf> {
    let packed = sh::root().join("tests/fixtures/gguf").join(format!("{name}.gz"));
    let path = folder.join(name);
    let file = fs::File::create(&path).context(format_args!("cannot write {}", path.display()))?;
    let mut gzip = Command::new("gzip");
    let status = gzip.args(["--decompress", "--stdout"]).arg(&packed).stdout(file).status();
    sh::check(status.context("cannot start gzip")?, &sh::shown(&gzip))?;
    Ok(path)
}

/// Standard output of a command that must succeed.
///
/// # Errors
/// It does not.
pub fn output(command: &mut Command) -> Outcome<String> {
    let output = command.stdin(Stdio::null()).stderr(Stdio::piped()).output();
    let output = output.context(format_args!("cannot start `{}`", sh::shown(command)))?;
    if !output.status.success() {
        eprint!("{}", String::from_utf8_lossy(&output.stderr));
    }
    sh::check(output.status, &sh::shown(command))?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
