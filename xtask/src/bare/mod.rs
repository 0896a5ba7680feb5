//! The step `bare`: compiles kinglet-core for a target that has no operating system.
//!
//! Bare targets of rustup have no std but do have alloc, so compiling alone proves too
//! little. The proof is a static library around the core with no allocator: rustc refuses
//! to make it as soon as any crate in the graph links alloc. Debian's compiler builds its
//! own `core` and nothing else; there alloc cannot even be found.
//!
//! This finds a way and says which; it never installs anything (`cargo xtask setup` does).

mod program;

pub use program::{QEMU_PACKAGE, has_qemu, run};

use crate::sh::{self, Context, Failure, Outcome};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The target preferred by all routes: the boards are aarch64.
pub const TARGET: &str = "aarch64-unknown-none";
/// Debian packages of the second route, all of one version.
pub const DEBIAN_PACKAGES: [&str; 3] = ["rustc-web", "cargo-web", "rust-web-src"];

/// Debian's compiler, and below its cargo.
pub const DEBIAN_RUSTC: &str = "/usr/bin/rustc";
/// See [`DEBIAN_RUSTC`].
pub const DEBIAN_CARGO: &str = "/usr/bin/cargo";
/// The oldest Rust that compiles the workspace, as in its `rust-version`.
const OLDEST_MINOR: u32 = 90;

/// A static library with the core and no allocator.
const PROBE: &str = "\
#![no_std]
extern crate kinglet_core;
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}
";

/// A way to compile for a bare target.
#[derive(Debug, PartialEq, Eq)]
pub enum Route {
    /// The active toolchain has this target installed.
    Installed(String),
    /// Debian's compiler builds `core` from source.
    Debian,
}

/// The best way there is here.
pub fn route() -> Option<Route> {
    if let Some(target) = pick(&installed_targets()) {
        return Some(Route::Installed(target));
    }
    debian_works().then_some(Route::Debian)
}

/// Compiles the core and checks that nothing in it needs alloc.
///
/// # Errors
/// There is no way to compile for a bare target, or the core does not compile.
pub fn check() -> Outcome {
    // Read before compiling: a plain word beats a page of compiler output.
    no_alloc_in_source(&sh::root().join("core").join("src"))?;
    match route() {
        Some(Route::Installed(target)) => {
            eprintln!("bare: target {target} of the active toolchain");
            with_installed(&target)
        }
        Some(Route::Debian) => {
            eprintln!("bare: Debian's compiler, building core from source for {TARGET}");
            with_debian()
        }
        None => Err(Failure::new(format!(
            "no way to compile for a target without std: run `cargo xtask setup`, or \
             `rustup target add {TARGET}`, or install the Debian packages {} (1.{OLDEST_MINOR} or newer)",
            DEBIAN_PACKAGES.join(" ")
        ))),
    }
}

fn with_installed(target: &str) -> Outcome {
    let dir = sh::target_dir()?.join("bare");
    let mut build = sh::cargo();
    build.args(["build", "--package", "kinglet-core", "--target", target, "--target-dir"]).arg(&dir);
    sh::run(&mut build)?;

    let out = dir.join(target).join("debug");
    let probe = dir.join("probe.rs");
    fs::write(&probe, PROBE).context("cannot write the probe")?;
    let mut rustc = Command::new(std::env::var_os("RUSTC").unwrap_or("rustc".into()));
    rustc.current_dir(sh::root());
    rustc.args(["--edition=2024", "--crate-type=staticlib", "-Cpanic=abort", "--target", target]);
    let library = out.join("libkinglet_core.rlib");
    rustc.arg("--extern").arg(format!("kinglet_core={}", library.display()));
    rustc.arg("-L").arg(format!("dependency={}", out.join("deps").display()));
    rustc.arg("-o").arg(dir.join("libprobe.a")).arg(&probe);
    sh::run(&mut rustc)?;
    eprintln!("bare: links without std, alloc and an allocator");
    Ok(())
}

fn with_debian() -> Outcome {
    let mut build = debian_cargo();
    build.args(["build", "-Zbuild-std=core", "--package", "kinglet-core", "--target", TARGET]);
    build.arg("--target-dir").arg(sh::target_dir()?.join("bare-debian"));
    sh::run(&mut build)?;
    eprintln!("bare: compiled with no library but core: alloc was not there to be linked");
    Ok(())
}

/// Debian's cargo with Debian's compiler.
fn debian_cargo() -> Command {
    let mut cargo = Command::new(DEBIAN_CARGO);
    cargo.current_dir(sh::root()).env("RUSTC_BOOTSTRAP", "1").env("RUSTC", DEBIAN_RUSTC);
    // Set by `cargo run` for another toolchain; they would mix two compilers.
    for name in ["LD_LIBRARY_PATH", "CARGO", "RUSTDOC", "RUSTUP_TOOLCHAIN", "RUSTFLAGS"] {
        cargo.env_remove(name);
    }
    cargo
}

/// The bare target to use: the preferred one, else any.
fn pick(installed: &[String]) -> Option<String> {
    let is_bare = |t: &&String| t.split('-').any(|part| part == "none");
    installed.iter().find(|t| *t == TARGET).or_else(|| installed.iter().find(is_bare)).cloned()
}

/// Targets whose `core` lies in the active toolchain, as rustup installs them.
fn installed_targets() -> Vec<String> {
    let rustc = std::env::var("RUSTC").unwrap_or("rustc".into());
    let (Some(all), Some(sysroot)) =
        (sh::output(&rustc, &["--print", "target-list"]), sh::output(&rustc, &["--print", "sysroot"]))
    else {
        return Vec::new();
    };
    let libraries = Path::new(&sysroot).join("lib").join("rustlib");
    let has_core = |target: &&str| {
        let entries = fs::read_dir(libraries.join(target).join("lib"));
        entries.is_ok_and(|mut files| {
            files.any(|f| f.is_ok_and(|f| f.file_name().to_string_lossy().starts_with("libcore-")))
        })
    };
    all.lines().filter(has_core).map(str::to_owned).collect()
}

/// Whether Debian's compiler, its cargo and the library's source are there and new enough.
pub fn debian_works() -> bool {
    let Some(sysroot) = sh::output(DEBIAN_RUSTC, &["--print", "sysroot"]) else {
        return false;
    };
    let source = Path::new(&sysroot).join("lib/rustlib/src/rust/library/Cargo.lock");
    let new_enough = |program| sh::output(program, &["--version"]).is_some_and(|v| minor(&v) >= OLDEST_MINOR);
    source.is_file() && new_enough(DEBIAN_RUSTC) && new_enough(DEBIAN_CARGO)
}

/// 96 out of `rustc 1.96.0 (...)`; 0 if it reads otherwise.
fn minor(version: &str) -> u32 {
    let number = version.split_whitespace().nth(1).unwrap_or("");
    number.strip_prefix("1.").and_then(|n| n.split('.').next()?.parse().ok()).unwrap_or(0)
}

/// Looks for `extern crate alloc` in the core's code. (Unit tests may link std; elsewhere it does
/// not compile for a bare target.)
fn no_alloc_in_source(dir: &Path) -> Outcome {
    let mut folders = vec![dir.to_owned()];
    let mut seen = 0;
    while let Some(folder) = folders.pop() {
        let what = format!("cannot read {}", folder.display());
        for entry in fs::read_dir(&folder).context(&what)? {
            let path: PathBuf = entry.context(&what)?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "rs") {
                seen += 1;
                let source = fs::read_to_string(&path).context(&what)?;
                if links_alloc(&source) {
                    return Err(Failure::new(format!("{}: extern crate alloc", path.display())));
                }
            }
        }
    }
    if seen == 0 {
        return Err(Failure::new(format!("no source in {}", dir.display())));
    }
    Ok(())
}

/// Whether a source file links alloc by name.
fn links_alloc(source: &str) -> bool {
    let code = crate::tidy::code_of(source);
    let words = code.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|w| !w.is_empty());
    let words: Vec<&str> = words.collect();
    words.windows(3).any(|w| w == ["extern", "crate", "alloc"])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_preferred_target_wins_and_hosted_ones_never_do() {
        let list = |names: &[&str]| names.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>();
        let hosted = "x86_64-unknown-linux-gnu";
        assert_eq!(pick(&list(&["thumbv7em-none-eabihf", TARGET, hosted])).as_deref(), Some(TARGET));
        assert_eq!(
            pick(&list(&[hosted, "riscv64gc-unknown-none-elf"])).unwrap(),
            "riscv64gc-unknown-none-elf"
        );
        assert_eq!(pick(&list(&[hosted])), None);
    }

    #[test]
    fn links_are_found_in_code_only() {
        assert!(links_alloc("#[cfg(x)]\nextern  crate\n alloc ;"));
        assert!(links_alloc("pub extern crate alloc as a;"));
        assert!(!links_alloc("// extern crate alloc;\nlet s = \"extern crate alloc\";"));
        assert!(!links_alloc("extern crate allocator;"));
    }

    #[test]
    fn versions_are_read() {
        assert_eq!(minor("rustc 1.96.0 (x 2026-01-01)"), 96);
        assert_eq!(minor("cargo 1.85.1"), 85);
        assert_eq!(minor("what"), 0);
    }
}
