//! The ways to compile a static Linux binary, and which of them are open on this machine.
//!
//! This looks and says what it found; it never installs anything (`cargo xtask setup` does).

use super::Target;
use crate::bare;
use crate::sh::{self, Context, Failure, Outcome};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A way to compile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// rustup's target and library source: std is built with the program, for size.
    Source,
    /// rustup's target with its ready-made std: plain cargo, but a larger binary.
    Prebuilt,
    /// Debian's compiler, which builds std too; Debian's musl and gcc's linker.
    Debian,
}

/// Debian packages of its route beside the compiler's own.
pub fn debian_packages(target: Target) -> Vec<&'static str> {
    let mut packages = bare::DEBIAN_PACKAGES.to_vec();
    packages.extend(match target {
        Target::Aarch64 => ["musl-dev:arm64", "gcc-aarch64-linux-gnu"],
        Target::X86_64 => ["musl-dev:amd64", "gcc"],
    });
    packages
}

/// The best open route, or the best of the kind the user asked for.
///
/// # Errors
/// There is none; says what each lacks.
pub fn find(target: Target, asked: Option<&str>) -> Outcome<Route> {
    let rustup = || match (rustup_lacks(target), source_lacks()) {
        (None, None) => Ok(Route::Source),
        (None, Some(_)) => Ok(Route::Prebuilt),
        (Some(lack), _) => Err(lack),
    };
    let debian = || debian_lacks(target).map_or(Ok(Route::Debian), Err);
    let chosen = match asked {
        Some("rustup") => rustup().map_err(|lack| format!("route rustup: {lack}")),
        Some("prebuilt") => rustup_lacks(target).map_or(Ok(Route::Prebuilt), Err),
        Some("debian") => debian().map_err(|lack| format!("route debian: {lack}")),
        Some(other) => return Err(Failure::usage(format!("no route '{other}': rustup, prebuilt or debian"))),
        None => pick(rustup(), debian()),
    };
    chosen.map_err(|lack| {
        Failure::new(format!("cannot build for {}: {lack}; `cargo xtask setup` installs it", target.triple()))
    })
}

/// std built from source beats the ready-made one, whoever's source it is.
fn pick(rustup: Result<Route, String>, debian: Result<Route, String>) -> Result<Route, String> {
    match (rustup, debian) {
        (Ok(Route::Prebuilt), Ok(debian)) => Ok(debian),
        (Ok(rustup), _) => Ok(rustup),
        (Err(_), Ok(debian)) => Ok(debian),
        (Err(rustup), Err(debian)) => Err(format!("route rustup: {rustup}; route debian: {debian}")),
    }
}

impl Route {
    /// One line for the user: what it is and why it was taken.
    pub fn why(self) -> String {
        match self {
            Route::Source => "rustup's target, std built from the toolchain's source".into(),
            Route::Prebuilt => format!(
                "rustup's target with its ready-made std, which costs some 200,000 bytes ({})",
                source_lacks().unwrap_or("as asked for".into())
            ),
            Route::Debian => "Debian's compiler and musl, std built from source".into(),
        }
    }

    /// Folder for this route's builds: two compilers must not share one.
    pub fn folder(self) -> &'static str {
        match self {
            Route::Source => "cross",
            Route::Prebuilt => "cross-prebuilt",
            Route::Debian => "cross-debian",
        }
    }

    /// Whether std is compiled with the program.
    pub fn builds_std(self) -> bool {
        self != Route::Prebuilt
    }

    /// Cargo with the environment and the flags of this route, up to `--target`.
    ///
    /// # Errors
    /// The linker cannot be found.
    pub fn cargo(self, subcommand: &str, target: Target, extra: &[&str]) -> Outcome<Command> {
        let mut flags: Vec<OsString> = match self {
            Route::Source | Route::Prebuilt => {
                ["-Clinker=rust-lld", "-Clinker-flavor=ld.lld", "-Clink-self-contained=yes"]
                    .map(OsString::from)
                    .to_vec()
            }
            Route::Debian => debian_flags(target)?,
        };
        flags.extend(extra.iter().map(OsString::from));
        let mut cargo = match self {
            Route::Debian => debian_cargo(),
            Route::Source | Route::Prebuilt => sh::cargo(),
        };
        // Of all ways to pass flags the one that wins and that can carry any path.
        cargo.env_remove("RUSTFLAGS").env("CARGO_ENCODED_RUSTFLAGS", flags.join("\u{1f}".as_ref()));
        cargo.arg(subcommand).args(["--target", target.triple(), "--target-dir"]);
        cargo.arg(sh::target_dir()?.join(self.folder()));
        if self.builds_std() {
            // Unstable, but pinned: the compiler is the one that is installed.
            cargo.env("RUSTC_BOOTSTRAP", "1");
        }
        Ok(cargo)
    }

    /// Cargo that compiles tests and runs them. The harness unwinds, so that where there is a
    /// ready-made std it is used as it is.
    ///
    /// # Errors
    /// As [`Route::cargo`].
    pub fn cargo_for_tests(self, target: Target) -> Outcome<Command> {
        // Fixed addresses, as the program has them: the log needs them.
        let flags = ["-Crelocation-model=static"];
        if self == Route::Debian {
            let mut cargo = self.cargo("test", target, &flags)?;
            cargo.arg("-Zbuild-std=std,test,panic_unwind");
            return Ok(cargo);
        }
        Route::Prebuilt.cargo("test", target, &flags)
    }
}

/// Debian's cargo with Debian's compiler.
fn debian_cargo() -> Command {
    let mut cargo = Command::new(bare::DEBIAN_CARGO);
    cargo.current_dir(sh::root()).env("RUSTC", bare::DEBIAN_RUSTC);
    // Set by `cargo run` for another toolchain; they would mix two compilers.
    for name in ["LD_LIBRARY_PATH", "CARGO", "RUSTDOC", "RUSTUP_TOOLCHAIN"] {
        cargo.env_remove(name);
    }
    cargo
}

/// gcc links, but with musl's start files and library instead of its own, in this order.
fn debian_flags(target: Target) -> Outcome<Vec<OsString>> {
    let musl = debian_musl(target);
    let file = |name: &str| musl.join(name).display().to_string();
    // std asks for LLVM's unwinder by this name; gcc's has the same functions.
    let unwinder = sh::target_dir()?.join(Route::Debian.folder()).join("unwinder");
    std::fs::create_dir_all(&unwinder).context(unwinder.display())?;
    std::fs::write(unwinder.join("libunwind.a"), "INPUT(-lgcc_eh)\n").context(unwinder.display())?;
    Ok([
        format!("-Clinker={}", debian_linker(target)),
        "-Clink-self-contained=no".into(),
        format!("-Lnative={}", musl.display()),
        format!("-Lnative={}", unwinder.display()),
        format!("-Zpre-link-args=-nostdlib -static {} {}", file("crt1.o"), file("crti.o")),
        format!("-Clink-args=-lgcc {} {}", file("libc.a"), file("crtn.o")),
    ]
    .map(OsString::from)
    .to_vec())
}

fn debian_linker(target: Target) -> &'static str {
    match target {
        Target::Aarch64 => "aarch64-linux-gnu-gcc",
        Target::X86_64 => "gcc",
    }
}

fn debian_musl(target: Target) -> PathBuf {
    Path::new("/usr/lib").join(format!("{}-linux-musl", target.name()))
}

/// What the active toolchain lacks to link for `target`.
fn rustup_lacks(target: Target) -> Option<String> {
    let Some(sysroot) = sysroot() else {
        return Some("rustc does not say where its libraries are".into());
    };
    let libraries = sysroot.join("lib/rustlib");
    let own = libraries.join(target.triple()).join("lib/self-contained");
    if !own.join("crt1.o").is_file() || !own.join("libc.a").is_file() {
        return Some(format!("the active toolchain lacks the target {}", target.triple()));
    }
    let lld = |host: std::fs::DirEntry| host.path().join("bin/rust-lld").is_file();
    let found = std::fs::read_dir(&libraries).is_ok_and(|mut all| all.any(|host| host.is_ok_and(lld)));
    (!found).then(|| "the active toolchain lacks rust-lld".into())
}

/// What the active toolchain lacks to build std.
fn source_lacks() -> Option<String> {
    let source = sysroot()?.join("lib/rustlib/src/rust/library/Cargo.lock");
    (!source.is_file()).then(|| "the active toolchain lacks the component rust-src".into())
}

fn sysroot() -> Option<PathBuf> {
    let rustc = std::env::var("RUSTC").unwrap_or("rustc".into());
    sh::output(&rustc, &["--print", "sysroot"]).map(PathBuf::from)
}

/// What Debian's route lacks.
fn debian_lacks(target: Target) -> Option<String> {
    let mut lacks = Vec::new();
    if !bare::debian_works() {
        lacks.push(bare::DEBIAN_PACKAGES.join(" "));
    }
    let packages = debian_packages(target);
    let [musl, gcc] = [packages[packages.len() - 2], packages[packages.len() - 1]];
    if !debian_musl(target).join("crt1.o").is_file() {
        lacks.push(musl.into());
    }
    if sh::output(debian_linker(target), &["--version"]).is_none() {
        lacks.push(gcc.into());
    }
    (!lacks.is_empty()).then(|| format!("not installed: {}", lacks.join(" ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_std_comes_before_a_ready_made_one() {
        let no = || Err("no".to_owned());
        assert_eq!(pick(Ok(Route::Source), Ok(Route::Debian)), Ok(Route::Source));
        assert_eq!(pick(Ok(Route::Prebuilt), Ok(Route::Debian)), Ok(Route::Debian));
        assert_eq!(pick(Ok(Route::Prebuilt), no()), Ok(Route::Prebuilt));
        assert_eq!(pick(no(), Ok(Route::Debian)), Ok(Route::Debian));
        assert!(pick(no(), no()).unwrap_err().contains("route debian: no"));
    }

    #[test]
    fn an_unknown_route_is_a_wrong_command_line() {
        assert_eq!(find(Target::Aarch64, Some("nix")).unwrap_err().code, 2);
    }
}
