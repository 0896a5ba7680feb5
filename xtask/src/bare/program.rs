//! The step `bare-run`: kinglet-core on an emulated machine without an operating system.
//!
//! The program of `tests/bare/` is linked by `linker/bare.ld` and started on QEMU's `virt`. Its logits
//! and tokens must be those of the host, for both KV types, the CPU's best kernels and the scalar ones.

use super::{Route, TARGET};
use crate::aarch64::{output, unpacked};
use crate::elf::{self, Elf};
use crate::sh::{self, Context, Failure, Outcome};
use crate::size::crate_of;
use core::time::Duration;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

const QEMU: &str = "qemu-system-aarch64";
/// Debian's package of it.
pub const QEMU_PACKAGE: &str = "qemu-system-arm";
/// As much as `linker/bare.ld` says.
const RAM: &str = "32M";
/// Machines that start at EL1, EL2 and EL3; a CPU with dot product and one without; its kernels.
const BOARDS: [(&str, &str, &str); 3] = [
    ("virt", "cortex-a76", "dotprod"),
    ("virt,virtualization=on", "cortex-a53", "neon"),
    ("virt,virtualization=on,secure=on", "cortex-a76", "dotprod"),
];
const FIXTURES: [&str; 3] = ["qwen2-tiny.Q4_0.gguf", "qwen3-tiny.Q4_K_M.gguf", "qwen3-tiny.IQ4_XS.gguf"];
const KV_TYPES: [&str; 2] = ["q8", "f32"];
/// A prompt longer than a KV block, and tokens to write after it.
const IDS: &str = "11,48,85,122,159,196,33,70,107,144,181,18,55,92,129,166,203,40,77,114,151,188,25,62,99,\
                   136,173,210,47,84,121,158,195,32,69,106";
const STEPS: &str = "12";
/// Far longer than a run takes.
const PATIENCE: Duration = Duration::from_secs(120);
/// The program's exit code after a fault of the CPU.
const EXIT_FAULT: i32 = 2;
/// Sections that nothing loads.
const REGIONS: [&str; 4] = [".model", ".kv", ".scratch", ".index"];

/// Whether the emulator is there.
pub fn has_qemu() -> bool {
    sh::output(QEMU, &["--version"]).is_some()
}

/// Builds the program, runs it on all boards and compares.
///
/// # Errors
/// No emulator, no compiler, a program that holds what it must not, or answers that differ.
pub fn run() -> Outcome {
    if !has_qemu() {
        return Err(Failure::new(format!(
            "no {QEMU}: run `cargo xtask setup`, or install the package {QEMU_PACKAGE}"
        )));
    }
    let program = build()?;
    check_image(&program)?;
    sh::run(sh::cargo().args(["build", "--release", "--package", "kinglet"]))?;
    let host = sh::target_dir()?.join("release").join("kinglet");
    let folder = sh::target_dir()?.join("bare-run");
    fs::create_dir_all(&folder).context(format_args!("cannot make {}", folder.display()))?;

    let models: Vec<PathBuf> = FIXTURES.iter().map(|name| unpacked(name, &folder)).collect::<Outcome<_>>()?;
    for (i, (model, name)) in models.iter().zip(FIXTURES).enumerate() {
        let wanted = host_answers(&host, model)?;
        // What differs between boards does not depend on the model.
        let boards = if i == 0 { &BOARDS[..] } else { &BOARDS[..1] };
        for (n, &(machine, cpu, kernels)) in boards.iter().enumerate() {
            let said = start(&program, &folder, (machine, cpu), &[name, IDS, STEPS], 0)?;
            let want = lines(&wanted, kernels);
            compare(&said, kernels, &want).map_err(|wrong| {
                Failure::new(format!("{name} on {machine}, {cpu}: {wrong}; the program said:\n{said}"))
            })?;
            if n == 0 {
                let is_fact = |l: &&str| ["image", "region", "stack"].iter().any(|word| l.starts_with(word));
                said.lines().filter(is_fact).for_each(|line| eprintln!("bare-run: {line}"));
            }
            let hash = wanted[0].1.get(..16).unwrap_or_default();
            eprintln!("bare-run: {name}: logits {hash}.. and tokens as on the host: {machine}, {cpu}");
        }
    }
    for fault in ["write-code", "overflow"] {
        let said = start(&program, &folder, (BOARDS[0].0, BOARDS[0].1), &[fault], EXIT_FAULT)?;
        let line = said.lines().find(|l| l.contains("data abort") && l.contains("ESR 0x9600004"));
        let line = line.ok_or_else(|| Failure::new(format!("{fault}: no report of it, but:\n{said}")))?;
        eprintln!("bare-run: {fault} is stopped: {line}");
    }
    Ok(())
}

/// Compiles and links the program; its path.
fn build() -> Outcome<PathBuf> {
    let folder = sh::target_dir()?.join("bare-program");
    let mut cargo = match super::route() {
        Some(Route::Installed(target)) if target == TARGET => {
            lint(&folder)?;
            let mut cargo = sh::cargo();
            cargo.arg("build").env("RUSTFLAGS", "-Csymbol-mangling-version=v0");
            cargo
        }
        Some(Route::Debian) => {
            let mut cargo = super::debian_cargo();
            cargo.args(["build", "-Zbuild-std=core", "-Zbuild-std-features=compiler-builtins-mem"]);
            // Debian's compiler brings no linker for this target; gcc's package does.
            let linker = "-Clinker=aarch64-linux-gnu-ld -Clinker-flavor=ld";
            cargo.env("RUSTFLAGS", format!("-Csymbol-mangling-version=v0 {linker}"));
            cargo
        }
        _ => {
            return Err(Failure::new(format!(
                "cannot compile for {TARGET}: run `cargo xtask setup`, or `rustup target add {TARGET}`"
            )));
        }
    };
    cargo.env_remove("CARGO_ENCODED_RUSTFLAGS");
    cargo.args(["--release", "--locked", "--target", TARGET, "--target-dir"]).arg(&folder);
    cargo.args(["--manifest-path", "tests/bare/Cargo.toml"]);
    sh::run(&mut cargo)?;
    Ok(folder.join(TARGET).join("release").join("kinglet-bare"))
}

/// Lints of the program, which is no member of the workspace.
fn lint(folder: &Path) -> Outcome {
    let mut cargo = sh::cargo();
    cargo.args(["clippy", "--locked", "--manifest-path", "tests/bare/Cargo.toml", "--target", TARGET]);
    cargo.arg("--target-dir").arg(folder).args(["--", "-D", "warnings"]);
    sh::run(&mut cargo)
}

/// Checks that the program holds no std, no alloc and none of the regions' bytes.
fn check_image(program: &Path) -> Outcome {
    let bytes = fs::read(program).context(program.display())?;
    let elf = Elf::parse(&bytes).context(program.display())?;
    elf.check_static(elf::AARCH64).context(program.display())?;
    let symbols = elf.symbols().context(program.display())?;
    let names: Vec<String> = symbols.iter().map(|s| crate_of(s.name)).collect();
    // Without this a stripped file would pass.
    if !names.iter().any(|name| name == "kinglet_core") {
        return Err(Failure::new("the bare-metal program has no symbols of kinglet_core"));
    }
    if let Some(at) = names.iter().position(|name| name == "alloc" || name == "std") {
        return Err(Failure::new(format!("the bare-metal program has {}", symbols[at].name)));
    }
    for name in REGIONS {
        match elf.sections.iter().find(|s| s.name == name) {
            Some(section) if section.has_bytes() => {
                return Err(Failure::new(format!("section {name} takes bytes in the file")));
            }
            Some(section) => eprintln!("bare-run: section {name}: {} bytes, none in the file", section.len),
            None => return Err(Failure::new(format!("the program has no section {name}"))),
        }
    }
    eprintln!("bare-run: {} symbols, none of std or alloc", symbols.len());
    Ok(())
}

/// The host's answers: for each KV type the hash of the logits and the tokens.
fn host_answers(host: &Path, model: &Path) -> Outcome<Vec<(&'static str, String, String)>> {
    let run = |kv: &str, command: &str, more: &[&str]| {
        let mut kinglet = Command::new(host);
        kinglet.arg(command).arg("--model").arg(model).args(["--ids", IDS, "--kv-type", kv]);
        kinglet.args(["--ctx", "64", "--force", "--quiet"]).args(more);
        output(&mut kinglet).map(|text| text.trim().to_owned())
    };
    let answer = |kv| Ok((kv, run(kv, "logits", &["--hash"])?, run(kv, "generate", &["-n", STEPS])?));
    KV_TYPES.into_iter().map(answer).collect()
}

/// The lines that the program must say.
fn lines(answers: &[(&str, String, String)], kernels: &str) -> Vec<String> {
    let mut all = Vec::new();
    for (kv, hash, ids) in answers {
        for isa in [kernels, "scalar"] {
            all.push(format!("logits {kv} {isa}: {hash}"));
            all.push(format!("ids {kv} {isa}: {ids}"));
        }
    }
    all
}

/// Checks the CPU's line, the answers, all of them and no others, and that the program came to its end.
fn compare(said: &str, kernels: &str, want: &[String]) -> Result<(), String> {
    let cpu = format!("cpu: {kernels} kernels, MMU and caches on");
    if !said.lines().any(|line| line == cpu) {
        return Err(format!("no line {cpu:?}"));
    }
    let answers: Vec<&str> =
        said.lines().filter(|l| l.starts_with("logits ") || l.starts_with("ids ")).collect();
    if let Some((got, want)) = answers.iter().zip(want).find(|(got, want)| got != want) {
        return Err(format!("{got:?} is not what the host has, {want:?}"));
    }
    if answers.len() != want.len() {
        return Err(format!("{} answers, not {}", answers.len(), want.len()));
    }
    said.lines().last().filter(|line| *line == "done").map(|_| ()).ok_or("no end".to_owned())
}

/// Starts the program; what it wrote to its serial port. It must end with `code`.
fn start(
    program: &Path,
    folder: &Path,
    (machine, cpu): (&str, &str),
    words: &[&str],
    code: i32,
) -> Outcome<String> {
    let mut semihosting = String::from("enable=on,target=native");
    // A comma within a value is doubled.
    words.iter().for_each(|word| semihosting.push_str(&format!(",arg={}", word.replace(',', ",,"))));
    let mut qemu = Command::new(QEMU);
    qemu.current_dir(folder).args(["-machine", machine, "-cpu", cpu, "-m", RAM, "-net", "none"]);
    qemu.args(["-display", "none", "-monitor", "none", "-serial", "stdio"]);
    qemu.args(["-semihosting-config", &semihosting, "-kernel"]).arg(program);
    qemu.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = qemu.spawn().context(format_args!("cannot start {QEMU}"))?;
    let begin = Instant::now();
    // What it says fits into the pipe, so that it can be read at the end.
    while child.try_wait().context(QEMU)?.is_none() {
        if begin.elapsed() > PATIENCE {
            // It may have ended in this moment.
            let _ = child.kill();
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let output = child.wait_with_output().context(QEMU)?;
    let said = String::from_utf8_lossy(&output.stdout).replace("\r\n", "\n");
    if output.status.code() == Some(code) {
        return Ok(said);
    }
    let command = sh::shown(&qemu);
    Err(Failure::new(format!("`{command}` ended with {}, not {code}; it said:\n{said}", output.status)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_hosts_answers_pass() {
        let answers = [("q8", "ab".to_owned(), "1,2".to_owned()), ("f32", "cd".to_owned(), "1,3".to_owned())];
        let want = lines(&answers, "neon");
        assert_eq!(want.len(), 8);
        let cpu = "cpu: neon kernels, MMU and caches on\n";
        let good = format!("{cpu}region kv: 1\n{}\nstack: 1\ndone\n", want.join("\n"));
        assert_eq!(compare(&good, "neon", &want), Ok(()));
        for bad in [
            good.replacen("ab", "ac", 1),
            good.replacen("f32 scalar: 1,3", "f32 scalar: 1,4", 1),
            good.replacen("ids f32 scalar: 1,3\n", "", 1),
            good.replace("stack", "ids f32 neon: 1,3\nstack"),
            good.replace("done", ""),
            good.replace("caches on", "caches off"),
            good.replace("cpu: neon", "cpu: dotprod"),
            String::new(),
        ] {
            assert!(compare(&bad, "neon", &want).is_err(), "{bad}");
        }
    }
}
