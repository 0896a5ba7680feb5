//! `cargo xtask cross`: the static binary of package `kinglet` that is copied to a board.
//!
//! The last line of standard output is `<path of the binary> <bytes>`; what is said on the
//! way goes to standard error. Beside the binary lies `kinglet.symbols`, the same program
//! before it was stripped: sizes are counted and logs decoded with it.

mod route;

pub use route::{Route, debian_packages, find};

use crate::elf::{self, Elf};
use crate::sh::{self, Context, Failure, Outcome};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

const HELP: &str = "\
Usage: cargo xtask cross [--target aarch64|x86_64] [--route rustup|prebuilt|debian]
                         [--no-log]

Builds the static, stripped Linux binary and prints `<path> <bytes>`.

  --target NAME  aarch64 (the boards; the default) or x86_64
  --route NAME   rustup: the active toolchain's target; prebuilt: the same, with its ready-made std;
                 debian: Debian's packages. Without it the best one that is installed
  --no-log       without the log, which `--trace FILE` writes and `cargo xtask logs FILE` reads
";

/// What is compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// The boards.
    Aarch64,
    /// The desk.
    X86_64,
}

impl Target {
    /// By its name on the command line.
    ///
    /// # Errors
    /// There is no such target.
    pub fn named(name: &str) -> Outcome<Target> {
        let all = [Target::Aarch64, Target::X86_64];
        let found = all.into_iter().find(|t| t.name() == name || t.triple() == name);
        found.ok_or_else(|| Failure::usage(format!("no target '{name}': aarch64 or x86_64")))
    }

    /// The short name.
    pub fn name(self) -> &'static str {
        match self {
            Target::Aarch64 => "aarch64",
            Target::X86_64 => "x86_64",
        }
    }

    /// Rust's name.
    pub fn triple(self) -> &'static str {
        match self {
            Target::Aarch64 => "aarch64-unknown-linux-musl",
            Target::X86_64 => "x86_64-unknown-linux-musl",
        }
    }

    fn machine(self) -> u16 {
        match self {
            Target::Aarch64 => elf::AARCH64,
            Target::X86_64 => elf::X86_64,
        }
    }
}

/// What defmt compiles in. All levels: a text costs nothing in the program, and a trace is written on
/// demand only.
pub const LOG_LEVEL: &str = "trace";

/// Whether the program has its log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Log {
    /// Frames by `--trace`, feature `defmt`: the program that is shipped. It costs 3,500 bytes.
    Frames,
    /// No.
    Off,
}

impl Log {
    /// Folder below `dist` for what is built for `target`.
    fn folder(self, target: Target) -> String {
        match self {
            Log::Frames => target.triple().into(),
            Log::Off => format!("{}-no-log", target.triple()),
        }
    }
}

/// Where [`build`] puts the program with its symbols.
///
/// # Errors
/// There is no target folder.
pub fn symbols(target: Target, log: Log) -> Outcome<PathBuf> {
    Ok(sh::target_dir()?.join("dist").join(log.folder(target)).join("kinglet.symbols"))
}

/// What came out.
#[derive(Debug)]
pub struct Built {
    /// The file that is shipped.
    pub binary: PathBuf,
    /// Its size.
    pub bytes: u64,
    /// The same program with its symbols.
    pub symbols: PathBuf,
    /// How it was built: sizes are comparable within a route.
    pub route: Route,
}

/// The task.
pub fn main(words: Vec<OsString>) -> Outcome {
    use lexopt::Arg::Long;
    use lexopt::ValueExt;
    let mut args = lexopt::Parser::from_args(words);
    let (mut target, mut route, mut log) = (Target::Aarch64, None, Log::Frames);
    while let Some(arg) = args.next()? {
        match arg {
            Long("target") => target = Target::named(&args.value()?.string()?)?,
            Long("route") => route = Some(args.value()?.string()?),
            Long("no-log") => log = Log::Off,
            Long("help") => {
                print!("{HELP}");
                return Ok(());
            }
            other => return Err(other.unexpected().into()),
        }
    }
    let built = build(target, route.as_deref(), log)?;
    println!("{} {}", built.binary.display(), built.bytes);
    Ok(())
}

/// Flags beside those of the profile. Bytes saved were measured on aarch64; the profile has more.
fn flags(route: Route, target: Target) -> Vec<&'static str> {
    // Readable names of crates in `kinglet.symbols`; they are not in the binary.
    let mut flags = vec!["-Csymbol-mangling-version=v0"];
    // x86-64 would make a position-independent program, which relocates itself by a dynamic section.
    flags.push("-Crelocation-model=static");
    // Nobody unwinds and the binary has no symbols: tables for backtraces are dead weight (96,000).
    flags.push("-Cforce-unwind-tables=no");
    if route != Route::Debian {
        // One copy of equal functions; GNU's linker cannot do it.
        flags.extend(["-Clink-arg=--icf=all", "-Clink-arg=-O2"]);
    }
    if target == Target::Aarch64 {
        // Registers are saved and restored by shared code where size is what counts (8,000), and what
        // repeats is looked for twice more (300).
        flags.push("-Cllvm-args=-homogeneous-prolog-epilog -machine-outliner-reruns=2");
        // Functions that differ in constants only are one, with the constants as arguments (1,500).
        flags.push("-Cllvm-args=-enable-global-merge-func=true");
        // Atomic instructions in place rather than by a function that knows two ways (2,000). What threads
        // share is a counter that is touched a few hundred times for each matrix.
        flags.push("-Ctarget-feature=-outline-atomics");
    }
    if route.builds_std() && target == Target::Aarch64 {
        // Addresses in one instruction, not two: the whole program lies within 1 MiB (21,000). With the
        // ready-made std it does not, and should it ever grow that far the linker says so.
        flags.push("-Ccode-model=tiny");
        // The log's texts count from address 1 on: the program begins close behind, at the lowest
        // address that Linux gives to anyone.
        flags.push(match route {
            Route::Debian => "-Clink-arg=-Wl,-Ttext-segment=0x10000",
            _ => "-Clink-arg=--image-base=0x10000",
        });
    }
    if route.builds_std() {
        // What the core does once is compiled for size, by an attribute that is not stable (9,500).
        flags.push("--cfg=kinglet_small");
        // A panic is a trap: no texts, no hook, no places in the source (105,000). The core does not
        // panic by contract; if it does, the shell's last words give the address.
        flags.extend(["-Zunstable-options", "-Cpanic=immediate-abort"]);
        // Without std's feature `backtrace` nothing calls it, but the linker cannot know and would bring
        // an unwinder along (44,000).
        flags.push(match route {
            Route::Debian => "-Clink-arg=-Wl,--defsym=_Unwind_Backtrace=abort",
            _ => "-Clink-arg=--defsym=_Unwind_Backtrace=abort",
        });
    }
    flags
}

/// Builds, checks and strips the binary.
///
/// # Errors
/// No route is open, the build fails, or the result needs other files to run.
pub fn build(target: Target, asked: Option<&str>, log: Log) -> Outcome<Built> {
    let route = find(target, asked)?;
    eprintln!("cross: {} by {}", target.triple(), route.why());
    let flags = flags(route, target);
    let mut cargo = route.cargo("build", target, &flags)?;
    cargo.args(["--profile", "dist", "--package", "kinglet", "--bin", "kinglet"]);
    if log == Log::Frames {
        cargo.args(["--features", "kinglet/defmt"]).env("DEFMT_LOG", LOG_LEVEL);
    }
    if route.builds_std() {
        cargo.args(["-Zbuild-std=std,panic_abort", "-Zbuild-std-features=optimize_for_size"]);
    }
    sh::run(&mut cargo)?;

    let folder = sh::target_dir()?.join(route.folder());
    let linked = folder.join(target.triple()).join("dist").join("kinglet");
    let bytes = fs::read(&linked).context(format_args!("cannot read {}", linked.display()))?;
    let stripped = elf::strip(&bytes).context(linked.display())?;
    Elf::parse(&stripped).and_then(|elf| elf.check_static(target.machine())).context(linked.display())?;

    let symbols = symbols(target, log)?;
    let binary = symbols.with_file_name("kinglet");
    let out = symbols.parent().ok_or(Failure::new("no folder for the binary"))?;
    fs::create_dir_all(out).context(format_args!("cannot make {}", out.display()))?;
    put(&linked, &bytes, &symbols)?;
    put(&linked, &stripped, &binary)?;
    eprintln!("cross: static, no interpreter, no dynamic section");
    Ok(Built { binary, bytes: stripped.len() as u64, symbols, route })
}

/// Puts a program of these bytes in the place of `to`, with the mode of `like`. It is never there in part,
/// and whoever runs the old one keeps it.
fn put(like: &Path, bytes: &[u8], to: &Path) -> Outcome {
    let new = to.with_extension(format!("{}.new", std::process::id()));
    let write = || {
        // Copied for its mode, then filled.
        fs::copy(like, &new)?;
        fs::write(&new, bytes)?;
        fs::rename(&new, to)
    };
    write().context(format_args!("cannot write {}", to.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_have_two_names() {
        assert_eq!(Target::named("aarch64").unwrap(), Target::Aarch64);
        assert_eq!(Target::named("x86_64-unknown-linux-musl").unwrap(), Target::X86_64);
        assert_eq!(Target::named("arm").unwrap_err().code, 2);
    }
}
