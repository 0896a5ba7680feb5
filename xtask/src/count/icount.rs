//! Runs the board's binary under QEMU with a plugin that counts instructions, and reads the counts.

use crate::sh::{self, Context, Failure, Outcome};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const QEMU: &str = "qemu-aarch64";

/// How often each instruction ran.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// All instructions.
    pub total: i64,
    /// Per address; can be negative in a difference.
    pub at: BTreeMap<u64, i64>,
}

impl Counts {
    /// Reads what the plugin wrote.
    ///
    /// # Errors
    /// A line that is none of its, or parts that do not add up to the total.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut counts = Counts::default();
        let mut total = None;
        for line in text.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let wrong = || format!("no line of the plugin's: '{line}'");
            match words[..] {
                ["total", n] => total = Some(n.parse().map_err(|_| wrong())?),
                ["pc", address, n] => {
                    let address = u64::from_str_radix(address, 16).map_err(|_| wrong())?;
                    // An instruction may stand in several translated blocks.
                    *counts.at.entry(address).or_default() += n.parse::<i64>().map_err(|_| wrong())?;
                }
                _ => return Err(wrong()),
            }
        }
        counts.total = total.ok_or("no total")?;
        let sum: i64 = counts.at.values().sum();
        if sum != counts.total {
            return Err(format!("the instructions add up to {sum}, not to {}", counts.total));
        }
        Ok(counts)
    }

    /// What `self` ran more often than `other`.
    pub fn minus(mut self, other: &Counts) -> Counts {
        self.total -= other.total;
        for (address, n) in &other.at {
            *self.at.entry(*address).or_default() -= n;
        }
        self
    }
}

/// The emulator with its plugin, compiled.
#[derive(Debug)]
pub struct Emulator {
    plugin: PathBuf,
    folder: PathBuf,
}

impl Emulator {
    /// Compiles the plugin into the target folder.
    ///
    /// # Errors
    /// No emulator, no C compiler.
    pub fn new() -> Outcome<Self> {
        if sh::output(QEMU, &["--version"]).is_none() {
            return Err(Failure::new(format!(
                "no {QEMU}: run `cargo xtask setup`, or install the package {}",
                crate::aarch64::QEMU_PACKAGE
            )));
        }
        let folder = sh::target_dir()?.join("icount");
        fs::create_dir_all(&folder).context(format_args!("cannot make {}", folder.display()))?;
        let plugin = folder.join("libicount.so");
        let mut cc = Command::new(std::env::var_os("CC").unwrap_or("cc".into()));
        cc.args(["-O2", "-Wall", "-fPIC", "-shared", "-o"]).arg(&plugin);
        sh::run(cc.arg(sh::root().join("xtask/icount/icount.c")))?;
        Ok(Emulator { plugin, folder })
    }

    /// Counts a run of `program` on `cpu`, which must have one thread.
    ///
    /// `name` is that of a file for the counts; runs at the same time need different ones.
    ///
    /// # Errors
    /// The run fails, or the plugin does not work in this QEMU.
    pub fn count(&self, cpu: &str, program: &Path, args: &[String], name: &str) -> Outcome<Counts> {
        let file = self.folder.join(format!("{name}.txt"));
        let _ = fs::remove_file(&file);
        let mut command = Command::new(QEMU);
        command.args(["-cpu", cpu, "-plugin"]);
        command.arg(format!("{},out={},pcs=on", self.plugin.display(), file.display()));
        command.arg(program).args(args).stdin(Stdio::null());
        let output = command.output().context(format_args!("cannot start {QEMU}"))?;
        if !output.status.success() {
            eprint!("{}", String::from_utf8_lossy(&output.stderr));
        }
        sh::check(output.status, &sh::shown(&command))?;
        let text = fs::read_to_string(&file).context(format_args!(
            "{QEMU} has not run the plugin (it is for the plugin interface of QEMU 7.2 to 8): {}",
            file.display()
        ))?;
        Counts::parse(&text).context(file.display())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read_and_add_up() {
        let counts = Counts::parse("total 12\npc 1000 3\npc 1004 3\npc 1004 6\n").unwrap();
        assert_eq!(counts.total, 12);
        assert_eq!(counts.at, BTreeMap::from([(0x1000, 3), (0x1004, 9)]));
        assert!(Counts::parse("pc 1000 3\n").unwrap_err().contains("no total"));
        assert!(Counts::parse("total 4\npc 1000 3\n").unwrap_err().contains("add up to 3, not to 4"));
        for bad in ["total x", "pc zz 1", "pc 10", "mark 1 2", ""] {
            assert!(Counts::parse(&format!("total 0\n{bad}\n\n")).is_err(), "{bad}");
        }
    }

    #[test]
    fn differences_leave_out_what_both_do() {
        let long = Counts::parse("total 30\npc 10 20\npc 14 10\n").unwrap();
        let short = Counts::parse("total 16\npc 10 5\npc 18 11\n").unwrap();
        let more = long.minus(&short);
        assert_eq!(more.total, 14);
        assert_eq!(more.at, BTreeMap::from([(0x10, 15), (0x14, 10), (0x18, -11)]));
    }
}
