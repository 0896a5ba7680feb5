//! `cargo xtask setup`: installs what `cargo xtask test` needs and is not there.
//!
//! The only task that changes the machine. Everything already there is left alone.

use crate::cross::{self, Route, Target};
use crate::mca::MCA;
use crate::sh::{self, Failure, Outcome};
use crate::symbols::LLVM_PACKAGE;
use crate::{aarch64, bare, clients, deploy, page};
use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

/// The task.
pub fn main(words: Vec<OsString>) -> Outcome {
    use lexopt::Arg::Long;
    let mut args = lexopt::Parser::from_args(words);
    let mut setup = Setup { dry_run: false, lists_updated: false };
    while let Some(arg) = args.next()? {
        match arg {
            Long("dry-run") => setup.dry_run = true,
            Long("help") => {
                println!("Usage: cargo xtask setup [--dry-run]\n\nInstalls what `cargo xtask test` needs.");
                return Ok(());
            }
            other => return Err(other.unexpected().into()),
        }
    }
    setup.components()?;
    setup.bare()?;
    setup.cross(Target::Aarch64)?;
    setup.desk();
    setup.tools()?;
    setup.ssh()?;
    setup.pip()?;
    setup.venv()
}

struct Setup {
    dry_run: bool,
    /// Whether `apt-get update` has run.
    lists_updated: bool,
}

impl Setup {
    /// rustfmt and clippy.
    fn components(&mut self) -> Outcome {
        for (component, probe) in [("rustfmt", "fmt"), ("clippy", "clippy")] {
            let there = || sh::cargo().args([probe, "--version"]).output().is_ok_and(|o| o.status.success());
            if there() {
                eprintln!("setup: {component} is there");
                continue;
            }
            if !has_rustup() {
                return Err(Failure::new(format!("{component} is missing and there is no rustup to add it")));
            }
            self.run(Command::new("rustup").args(["component", "add", component]))?;
            if !self.dry_run && !there() {
                return Err(Failure::new(format!("{component} is still missing")));
            }
        }
        Ok(())
    }

    /// A way to compile for a target without std.
    fn bare(&mut self) -> Outcome {
        if let Some(route) = bare::route() {
            eprintln!("setup: bare target is there ({route:?})");
            return Ok(());
        }
        if has_rustup() {
            let added = self.run(Command::new("rustup").args(["target", "add", bare::TARGET]));
            match added {
                Ok(()) if self.dry_run || bare::route().is_some() => return Ok(()),
                Ok(()) => eprintln!("setup: the active toolchain does not see the new target"),
                Err(failure) => eprintln!("setup: {failure}"),
            }
            eprintln!("setup: taking Debian's compiler instead");
        }
        self.apt(&bare::DEBIAN_PACKAGES)?;
        if !self.dry_run && bare::route().is_none() {
            return Err(Failure::new(
                "Debian's compiler is installed but cannot be used: it is too old, or parts are missing",
            ));
        }
        Ok(())
    }

    /// A way to build the static binary with a small std.
    fn cross(&mut self, target: Target) -> Outcome {
        let found = || cross::find(target, None).is_ok_and(|route| route != Route::Prebuilt);
        if found() {
            eprintln!("setup: {} can be built ({:?})", target.triple(), cross::find(target, None)?);
            return Ok(());
        }
        if has_rustup() {
            let added = self
                .run(Command::new("rustup").args(["target", "add", target.triple()]))
                .and_then(|()| self.run(Command::new("rustup").args(["component", "add", "rust-src"])));
            match added {
                Ok(()) if self.dry_run || found() => return Ok(()),
                Ok(()) => eprintln!("setup: the active toolchain does not see what was added"),
                Err(failure) => eprintln!("setup: {failure}"),
            }
            eprintln!("setup: taking Debian's compiler instead");
        }
        if target == Target::Aarch64 {
            self.run(as_root("dpkg")?.args(["--add-architecture", "arm64"]))?;
            self.lists_updated = false;
        }
        self.apt(&cross::debian_packages(target))?;
        if !self.dry_run && !found() {
            return Err(Failure::new(format!(
                "everything is installed, but {} cannot be built",
                target.triple()
            )));
        }
        Ok(())
    }

    /// The desk's static binary: wanted by nobody's test, so that rustup's target is enough or nothing is.
    fn desk(&mut self) {
        let target = Target::X86_64;
        if cross::find(target, None).is_ok() {
            eprintln!("setup: {} can be built", target.triple());
        } else if has_rustup()
            && let Err(failure) = self.run(Command::new("rustup").args(["target", "add", target.triple()]))
        {
            eprintln!("setup: {failure}; `cargo xtask cross --target x86_64` will not work");
        }
    }

    /// The emulators of the boards' CPUs and of a whole machine, the analyser of inner loops, the browser
    /// that tests the page, and the program that the README's examples call.
    fn tools(&mut self) -> Outcome {
        let has_mca = || sh::output(MCA, &["--version"]).is_some();
        let tools = [
            (aarch64::QEMU_PACKAGE, aarch64::has_qemu as fn() -> bool),
            (bare::QEMU_PACKAGE, bare::has_qemu),
            (LLVM_PACKAGE, has_mca),
            (page::BROWSER_PACKAGE, page::has_browser),
            (page::DRIVER_PACKAGE, page::has_driver),
            (clients::CURL_PACKAGE, clients::has_curl),
        ];
        for (package, has) in tools {
            if has() {
                eprintln!("setup: {package} is there");
                continue;
            }
            self.apt(&[package])?;
            if !self.dry_run && !has() {
                return Err(Failure::new(format!("{package} is installed, but its program does not run")));
            }
        }
        Ok(())
    }

    /// An ssh client, and a server for the test of `cargo xtask deploy`, which starts it on the loopback
    /// interface. Where systemd runs, the package must not open this machine to the network: its
    /// service is masked during the installation and disabled after it.
    fn ssh(&mut self) -> Outcome {
        let has = || deploy::has_ssh() && deploy::has_sshd();
        if has() {
            eprintln!("setup: ssh and sshd are there");
            return Ok(());
        }
        let services = ["ssh.service", "ssh.socket"];
        let guarded = !deploy::has_sshd() && Path::new("/run/systemd/system").exists();
        if guarded {
            self.run(as_root("systemctl")?.args(["mask", "--runtime"]).args(services))?;
        }
        let installed = self.apt(&["openssh-client", "openssh-server"]);
        if guarded {
            self.run(as_root("systemctl")?.arg("disable").args(services))?;
            self.run(as_root("systemctl")?.args(["unmask", "--runtime"]).args(services))?;
        }
        installed?;
        if !self.dry_run && !has() {
            return Err(Failure::new("openssh is installed, but ssh or sshd is not where it should be"));
        }
        Ok(())
    }

    /// Python and pip, which fetch the model.
    fn pip(&mut self) -> Outcome {
        let has_pip = || sh::python().is_some_and(|p| sh::output(p, &["-m", "pip", "--version"]).is_some());
        if has_pip() {
            eprintln!("setup: pip is there");
            return Ok(());
        }
        self.apt(&["python3", "python3-pip"])?;
        if !self.dry_run && !has_pip() {
            return Err(Failure::new("python3-pip is installed, but `python3 -m pip` does not run"));
        }
        Ok(())
    }

    /// What makes the environment that the official clients are installed into.
    fn venv(&mut self) -> Outcome {
        if clients::has_venv() {
            eprintln!("setup: {} is there", clients::VENV_PACKAGE);
            return Ok(());
        }
        self.apt(&[clients::VENV_PACKAGE])?;
        if !self.dry_run && !clients::has_venv() {
            return Err(Failure::new("python3-venv is installed, but python3 cannot make environments"));
        }
        Ok(())
    }

    fn apt(&mut self, packages: &[&str]) -> Outcome {
        if sh::output("apt-get", &["--version"]).is_none() {
            return Err(Failure::new(format!("no apt-get here; install by hand: {}", packages.join(" "))));
        }
        if !self.lists_updated {
            self.run(as_root("apt-get")?.arg("update"))?;
            self.lists_updated = true;
        }
        let mut install = as_root("apt-get")?;
        install.args(["install", "--yes", "--no-install-recommends"]).args(packages);
        self.run(&mut install)
    }

    fn run(&self, command: &mut Command) -> Outcome {
        if self.dry_run {
            println!("would run: {}", sh::shown(command));
            return Ok(());
        }
        command.current_dir(sh::root());
        sh::run(command)
    }
}

fn has_rustup() -> bool {
    sh::output("rustup", &["--version"]).is_some()
}

/// A command with root's rights: directly, or through sudo that asks for no password.
fn as_root(program: &str) -> Outcome<Command> {
    let is_root = sh::output("id", &["-u"]).as_deref() == Some("0");
    let mut command = if is_root {
        Command::new(program)
    } else if sh::output("sudo", &["-n", "true"]).is_some() {
        let mut sudo = Command::new("sudo");
        sudo.args(["-n", "DEBIAN_FRONTEND=noninteractive", program]);
        sudo
    } else {
        let found = Path::new("/usr/bin/sudo").exists();
        let why = if found { "sudo asks for a password" } else { "there is no sudo" };
        return Err(Failure::new(format!("{program} needs root: you are not root and {why}")));
    };
    command.env("DEBIAN_FRONTEND", "noninteractive");
    Ok(command)
}
