//! The step `deploy`: `cargo xtask deploy` against a real ssh server on this machine.
//!
//! The remote is this machine under another PATH: the binary runs under `qemu-aarch64`, and stand-ins
//! take the place of `systemctl` (behind which [`Systemd`] runs the service), `cat` and `df`, the last two
//! only while a file says so. What becomes of the service is in [`super::service_check`].

use super::sshd::{self, Sshd};
use super::stand_ins::{CAT, DEAF, DF, DIES, MISCOUNTS, SYSTEMCTL, ends_with_1};
use super::systemd::Systemd;
use crate::aarch64::{self, CPUS, FIXTURES, QEMU};
use crate::cross::Target;
use crate::model;
use crate::sh::{self, Context, Failure, Outcome};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Runs everything.
///
/// # Errors
/// sshd or the emulator is missing, or deploy does not do what it must.
pub fn check() -> Outcome {
    if !super::has_sshd() || !super::has_ssh() || !aarch64::has_qemu() {
        return Err(Failure::new("no sshd, ssh or qemu-aarch64: run `cargo xtask setup`"));
    }
    let folder = std::env::temp_dir().join(format!("kinglet-deploy-{}", std::process::id()));
    fs::create_dir_all(&folder).context(folder.display())?;
    // Whoever waits for another user's files must not be able to put some there.
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).context(folder.display())?;
    let outcome = Rehearsal::new(&folder).and_then(|mut rehearsal| rehearsal.run());
    if outcome.is_ok() {
        fs::remove_dir_all(&folder).context(folder.display())?;
    } else {
        eprintln!("deploy: what it left is in {}", folder.display());
    }
    outcome
}

/// A remote, and what is deployed there.
pub(super) struct Rehearsal {
    sshd: Sshd,
    pub systemd: Systemd,
    /// Stands for the remote's file system.
    pub remote: PathBuf,
    /// Stands for the service's folder.
    pub state: PathBuf,
    /// Where stand-ins look for files that change what they do, and log.
    pub flags: PathBuf,
    pub model: PathBuf,
    /// The program for the boards: built by the first deploy without `--binary`, then only sent.
    pub built: PathBuf,
    /// A program that ends with 1.
    pub broken: PathBuf,
    /// Of the service.
    pub port: u16,
}

/// How a deploy ended.
pub(super) struct Ended {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Rehearsal {
    fn new(folder: &Path) -> Outcome<Rehearsal> {
        let made = |name: &str| -> Outcome<PathBuf> {
            let path = folder.join(name);
            fs::create_dir_all(&path).context(path.display())?;
            Ok(path)
        };
        let (server, commands, flags, remote) =
            (made("sshd")?, made("commands")?, made("flags")?, made("remote")?);
        let script = |name: &str, text: &str| -> Outcome {
            let path = commands.join(name);
            let text = text.replace("@FLAGS@", &flags.display().to_string());
            let text = text.replace("@REMOTE@", &remote.display().to_string());
            fs::write(&path, text).context(path.display())?;
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).context(path.display())
        };
        script("systemctl", SYSTEMCTL)?;
        script("cat", CAT)?;
        script("df", DF)?;
        script("miscounts", MISCOUNTS)?;
        script("dies", DIES)?;
        script("deaf", DEAF)?;
        let broken = folder.join("broken");
        fs::write(&broken, ends_with_1()).context(broken.display())?;
        let model = aarch64::unpacked(FIXTURES[0], folder)?;
        let built = sh::target_dir()?.join("dist").join(Target::Aarch64.triple()).join("kinglet");
        let (state, units) = (folder.join("state"), remote.join("units"));
        let path = format!("{}:{}", commands.display(), std::env::var("PATH").unwrap_or_default());
        let systemd = Systemd::start(&flags, &units, &state, path)?;
        let (sshd, port) = (Sshd::start(&server, &commands)?, sshd::free_port()?);
        Ok(Rehearsal { sshd, systemd, remote, state, flags, model, built, broken, port })
    }

    fn run(&mut self) -> Outcome {
        self.a_dry_run_does_nothing()?;
        self.a_first_deploy_that_fails_leaves_nothing()?;
        self.the_first_deploy_works()?;
        self.the_model_is_sent_once()?;
        self.flags_are_the_users()?;
        self.a_broken_binary_is_rolled_back()?;
        self.a_service_that_does_not_answer_is_rolled_back()?;
        self.a_replaced_model_comes_back()?;
        self.other_logits_are_rolled_back()?;
        self.a_damaged_transfer_is_noticed()?;
        self.a_transfer_is_resumed()?;
        self.refusals_say_why()
    }

    /// Runs the task as a user would, with `more` words.
    pub(super) fn deploy(&self, more: &[&str]) -> Outcome<Ended> {
        let mut command = Command::new(std::env::current_exe().context("cannot find my own program")?);
        command.arg("deploy").arg(&self.sshd.destination);
        command.arg("--ssh-config").arg(self.sshd.file("ssh_config"));
        command.args(["--port", &self.sshd.port.to_string()]);
        command.arg("--dir").arg(self.remote.join("opt")).arg("--unit-dir").arg(self.remote.join("units"));
        command.args(more).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        eprintln!("$ xtask deploy ... {}", more.join(" "));
        let output = command.output().context("cannot start deploy")?;
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        let (code, stdout, stderr) = (output.status.code(), text(output.stdout), text(output.stderr));
        Ok(Ended { code, stdout, stderr })
    }

    /// The same with the key that the server knows and an emulator, of the name `qemu` on the remote.
    pub(super) fn deploy_under(&self, qemu: &str, more: &[&str]) -> Outcome<Ended> {
        let key = self.sshd.file("user_key").display().to_string();
        self.deploy(&[&["--identity", &key, "--remote-runner", qemu], more].concat())
    }

    /// The same with a CPU of the boards.
    pub(super) fn deploy_with(&self, more: &[&str]) -> Outcome<Ended> {
        self.deploy_under(&format!("{QEMU} -cpu {}", CPUS[0]), more)
    }

    /// The same, with the binary of the first deploy.
    pub(super) fn deploy_again(&self, more: &[&str]) -> Outcome<Ended> {
        self.deploy_with(&[&["--binary", &self.built.display().to_string()], more].concat())
    }

    /// All files of the remote with their contents' hashes, sorted.
    pub(super) fn files(&self) -> Outcome<Vec<(String, String)>> {
        let mut files = Vec::new();
        let mut folders = vec![self.remote.clone()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(&folder).context(folder.display())?.flatten() {
                let path = entry.path();
                if path.is_dir() {
                    folders.push(path);
                } else {
                    let name = path.strip_prefix(&self.remote).unwrap_or(&path).display().to_string();
                    files.push((name, model::hash(&path)?));
                }
            }
        }
        files.sort();
        Ok(files)
    }

    fn flag(&self, name: &str, on: bool) -> Outcome {
        let path = self.flags.join(name);
        if on { fs::write(&path, "") } else { fs::remove_file(&path) }.context(path.display())
    }

    /// What systemctl was called with since the last question.
    pub(super) fn systemctl_calls(&self) -> Vec<String> {
        let path = self.flags.join("systemctl.log");
        let calls = fs::read_to_string(&path).unwrap_or_default().lines().map(str::to_owned).collect();
        let _ = fs::remove_file(&path);
        calls
    }

    /// The deployed program must say its version, as the remote would run it.
    pub(super) fn runs(&self) -> Outcome {
        let binary = self.remote.join("opt/bin/kinglet");
        let output = Command::new(QEMU).arg(binary).arg("--version").output().context(QEMU)?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        expect(said.starts_with("kinglet "), "the deployed binary must run", &said)
    }

    fn a_dry_run_does_nothing(&mut self) -> Outcome {
        let model = self.model.display().to_string();
        let ended = self.deploy_with(&["--model", &model, "--dry-run"])?;
        ended.must_succeed()?;
        let words = "uname cat mv systemctl ExecStart= .previous logits disk-kv /health";
        for word in words.split(' ') {
            expect(ended.stdout.contains(word), &format!("the dry run must show '{word}'"), &ended.stdout)?;
        }
        expect(self.sshd.logins() == 0, "a dry run must not connect", &self.sshd.log())?;
        expect(self.files()?.is_empty(), "a dry run must change nothing", "")
    }

    fn the_model_is_sent_once(&mut self) -> Outcome {
        let (model, before) = (self.model.display().to_string(), self.files()?);
        let ended = self.deploy_again(&["--model", &model])?;
        ended.must_succeed()?;
        expect(ended.stderr.contains("the same model is there"), "the model must be kept", &ended.stderr)?;
        let mut after = self.files()?;
        after.retain(|(name, _)| !name.ends_with(".previous"));
        expect(before == after, "the same deploy must give the same files", &format!("{after:?}"))
    }

    /// What is in use: not the versions before, not parts.
    pub(super) fn in_place(&self) -> Outcome<Vec<(String, String)>> {
        let mut files = self.files()?;
        files.retain(|(name, _)| !name.ends_with(".previous"));
        Ok(files)
    }

    /// Another model under the same name, and a unit that does not start.
    fn a_replaced_model_comes_back(&mut self) -> Outcome {
        let before = self.in_place()?;
        let mut changed = fs::read(&self.model).context(self.model.display())?;
        // In a weight: a file that kinglet refuses would fail on this machine already.
        let at = changed.len() - 100;
        changed[at] ^= 0x40;
        let folder = self.flags.join("other");
        fs::create_dir_all(&folder).context(folder.display())?;
        let other = folder.join(FIXTURES[0]);
        fs::write(&other, changed).context(other.display())?;
        self.flag("fail-restart", true)?;
        let ended = self.deploy_again(&["--model", &other.display().to_string()])?;
        ended.must_fail("rolled back: kinglet ")?;
        expect(self.in_place()? == before, "the model before must be back", &format!("{:?}", self.files()?))
    }

    /// A remote that computes something else.
    fn other_logits_are_rolled_back(&mut self) -> Outcome {
        let before = self.in_place()?;
        let [model, built] = [&self.model, &self.built].map(|path| path.display().to_string());
        self.systemctl_calls();
        let ended = self.deploy_under("miscounts", &["--model", &model, "--binary", &built])?;
        ended.must_fail("instead of '")?;
        ended.must_fail("rolled back: kinglet ")?;
        // The service was not even started on it.
        let starts = self.systemctl_calls().iter().filter(|call| call.starts_with("restart")).count();
        expect(starts == 1, "how often the unit was started", &starts.to_string())?;
        expect(self.in_place()? == before, "the files before must be back", &format!("{:?}", self.files()?))
    }

    fn a_damaged_transfer_is_noticed(&mut self) -> Outcome {
        let before = self.files()?;
        self.flag("short-cat", true)?;
        let ended = self.deploy_again(&[])?;
        self.flag("short-cat", false)?;
        ended.must_fail("nothing was replaced")?;
        expect(self.files()? == before, "nothing may change", &format!("{:?}", self.files()?))
    }

    fn a_transfer_is_resumed(&mut self) -> Outcome {
        let bytes = fs::read(&self.model).context(self.model.display())?;
        let there = self.remote.join("opt/models").join(FIXTURES[0]);
        let hash = model::hash(&self.model)?;
        let part = PathBuf::from(super::temporary(&there.display().to_string(), &hash));
        let half = bytes.len() / 2;
        let mut damaged = bytes[..half].to_vec();
        damaged[7] ^= 1;
        for (left, word) in [(&bytes[..half], "going on after"), (&damaged, "copying all of it anew")] {
            fs::remove_file(&there).context(there.display())?;
            fs::write(&part, left).context(part.display())?;
            let ended = self.deploy_again(&["--model", &self.model.display().to_string()])?;
            ended.must_succeed()?;
            expect(ended.stderr.contains(word), &format!("it must say '{word}'"), &ended.stderr)?;
            expect(model::hash(&there)? == hash && !part.exists(), "the model must be whole", "")?;
        }
        Ok(())
    }

    fn refusals_say_why(&mut self) -> Outcome {
        let before = self.files()?;
        let [key, stranger] = ["user_key", "stranger_key"].map(|k| self.sshd.file(k).display().to_string());
        self.deploy(&["--identity", &stranger])?.must_fail("ssh-copy-id")?;
        if std::env::consts::ARCH != "aarch64" {
            self.deploy(&["--identity", &key])?.must_fail("not aarch64")?;
        }
        self.flag("full-disk", true)?;
        let ended = self.deploy_with(&["--binary", &self.broken.display().to_string()])?;
        self.flag("full-disk", false)?;
        ended.must_fail("disk is full")?;
        expect(self.files()? == before, "refusals must change nothing", &format!("{:?}", self.files()?))
    }
}

impl Ended {
    pub(super) fn must_succeed(&self) -> Outcome {
        expect(self.code == Some(0), "deploy must succeed", &self.stderr)
    }

    pub(super) fn must_fail(&self, word: &str) -> Outcome {
        let fits = self.code == Some(1) && self.stderr.contains(word);
        expect(fits, &format!("deploy must fail with code 1 and '{word}', not {:?}", self.code), &self.stderr)
    }
}

/// A failure with `said` unless `holds`.
pub(super) fn expect(holds: bool, what: &str, said: &str) -> Outcome {
    if holds {
        return Ok(());
    }
    Err(Failure::new(format!("{what}:\n{said}")))
}
