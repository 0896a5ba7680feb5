//! What the other machine is, and whether kinglet can be put there.

use super::options::Options;
use crate::sh::{Failure, Outcome};

/// Left free on the remote's disk.
const SPARE_KIB: u64 = 4 << 10;

/// What the remote is.
#[derive(Debug, PartialEq, Eq)]
pub struct Probe {
    /// As `uname -m` says it.
    pub machine: String,
    /// Whether a file's hash can be asked for.
    pub has_sha256sum: bool,
    /// Whether systemd can be told.
    pub has_systemctl: bool,
    /// Whether it has a program that asks a server.
    pub has_client: bool,
    /// KiB free where kinglet goes.
    pub free_kib: u64,
    /// The model that its unit names.
    pub model: Option<String>,
    /// Whether the service's flags are there already.
    pub has_conf: bool,
}

impl Probe {
    /// From what the script says.
    pub fn of(said: &str) -> Probe {
        let has = |tool: &str| value(said, tool) == Some("yes");
        Probe {
            machine: value(said, "machine").unwrap_or("unknown").to_owned(),
            has_sha256sum: has("sha256sum"),
            has_systemctl: has("systemctl"),
            has_client: ["curl", "wget", "bash"].iter().any(|tool| has(tool)),
            // What df does not say must not stop anybody.
            free_kib: value(said, "free_kib").and_then(|kib| kib.parse().ok()).unwrap_or(u64::MAX),
            model: value(said, "model").map(str::to_owned),
            has_conf: has("conf"),
        }
    }

    /// Whether it is a machine for what `options` ask.
    ///
    /// # Errors
    /// Another CPU, or a tool that is missing.
    pub fn check(&self, options: &Options) -> Outcome {
        let host = &options.destination;
        if self.machine != "aarch64" && options.runner.is_empty() {
            let machine = &self.machine;
            return Err(Failure::new(format!(
                "{host} is {machine}, not aarch64: the binary cannot run there without an emulator \
                 (--remote-runner)"
            )));
        }
        if !self.has_sha256sum {
            return Err(Failure::new(format!("{host} has no sha256sum: install it (coreutils or busybox)")));
        }
        if options.unit && !self.has_systemctl {
            return Err(Failure::new(format!("{host} has no systemctl: --no-unit deploys without systemd")));
        }
        if options.unit && !self.has_client {
            return Err(Failure::new(format!(
                "{host} has neither curl nor wget nor bash, so that nobody there can ask whether the service \
                 answers: install one of them"
            )));
        }
        Ok(())
    }
}

/// Refuses what the remote's disk has no room for; a dry run has not looked.
///
/// # Errors
/// `bytes` more do not fit.
pub fn fits(bytes: u64, probe: Option<&Probe>) -> Outcome {
    let needed = bytes.div_ceil(1024) + SPARE_KIB;
    match probe {
        Some(probe) if probe.free_kib < needed => Err(Failure::new(format!(
            "the remote's disk is full: {needed} KiB are needed, {} are free; make room, or choose \
             another --dir",
            probe.free_kib
        ))),
        _ => Ok(()),
    }
}

/// The rest of the line that begins with `name=`.
pub fn value<'a>(said: &'a str, name: &str) -> Option<&'a str> {
    said.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsString;

    fn options(words: &[&str]) -> Options {
        Options::parse(words.iter().map(OsString::from).collect()).unwrap().unwrap()
    }

    #[test]
    fn the_remote_must_fit() {
        let said = "machine=aarch64\nsha256sum=yes\nsystemctl=yes\nwget=yes\nfree_kib=5000\n";
        let board = Probe::of(said);
        assert!(board.check(&options(&["b"])).is_ok());
        let message =
            |said: &str, words: &[&str]| Probe::of(said).check(&options(words)).unwrap_err().message;
        assert!(message(&said.replace("aarch64", "armv7l"), &["b"]).contains("not aarch64"));
        assert!(
            Probe::of(&said.replace("aarch64", "x86_64"))
                .check(&options(&["b", "--remote-runner", "q"]))
                .is_ok()
        );
        assert!(message("machine=aarch64\nsystemctl=yes\n", &["b"]).contains("sha256sum"));
        assert!(message(&said.replace("wget=yes\n", ""), &["b"]).contains("curl"));
        assert!(message("machine=aarch64\nsha256sum=yes\n", &["b"]).contains("--no-unit"));
        assert!(Probe::of("machine=aarch64\nsha256sum=yes\n").check(&options(&["b", "--no-unit"])).is_ok());
        assert!(fits((5000 - SPARE_KIB) << 10, Some(&board)).is_ok());
        assert!(fits(((5000 - SPARE_KIB) << 10) + 1, Some(&board)).unwrap_err().message.contains("full"));
        assert!(fits(u64::MAX >> 1, Some(&Probe::of(""))).is_ok(), "an unknown size stops nobody");
    }
}
