//! Runs the board's binary under QEMU with a plugin that counts and traces instructions.

use crate::sh::{self, Context, Failure, Outcome};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const QEMU: &str = "qemu-aarch64";

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

    /// Runs `program` on `cpu`, which must have one thread, and returns what the plugin wrote.
    ///
    /// `name` is that of a file for it; runs at the same time need different ones. `wanted` are words
    /// of the plugin: `pcs=on`, `trace=START-END`.
    ///
    /// # Errors
    /// The run fails, or the plugin does not work in this QEMU.
    pub fn run(
        &self,
        cpu: &str,
        program: &Path,
        args: &[String],
        name: &str,
        wanted: &[String],
    ) -> Outcome<String> {
        let file = self.folder.join(format!("{name}.txt"));
        let _ = fs::remove_file(&file);
        let mut command = Command::new(QEMU);
        command.args(["-cpu", cpu, "-plugin"]);
        let mut plugin = format!("{},out={}", self.plugin.display(), file.display());
        wanted.iter().for_each(|word| plugin.push_str(&format!(",{word}")));
        command.arg(plugin);
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
        let _ = fs::remove_file(&file);
        Ok(text)
    }
}
