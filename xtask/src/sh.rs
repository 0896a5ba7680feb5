//! Starting other programs, and failures that carry an exit code.

use core::fmt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

/// Why a task failed, and the exit code to leave with.
#[derive(Debug)]
pub struct Failure {
    /// What went wrong and, where known, what to do about it.
    pub message: String,
    /// Exit code of this process; that of the child which failed, where one did.
    pub code: u8,
}

/// The result of a task.
pub type Outcome<T = ()> = Result<T, Failure>;

impl Failure {
    /// A failure of our own: exit code 1.
    pub fn new(message: impl Into<String>) -> Self {
        Failure { message: message.into(), code: 1 }
    }

    /// A wrong command line: exit code 2.
    pub fn usage(message: impl Into<String>) -> Self {
        Failure { message: message.into(), code: 2 }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl From<lexopt::Error> for Failure {
    fn from(error: lexopt::Error) -> Self {
        Failure::usage(format!("{error}; `cargo xtask help` lists the tasks"))
    }
}

/// Adds what was being done to an error from the system.
pub trait Context<T> {
    /// Turns an error into a [`Failure`] that begins with `what`.
    fn context(self, what: impl fmt::Display) -> Outcome<T>;
}

impl<T, E: fmt::Display> Context<T> for Result<T, E> {
    fn context(self, what: impl fmt::Display) -> Outcome<T> {
        self.map_err(|error| Failure::new(format!("{what}: {error}")))
    }
}

/// The folder of the workspace, whatever the current directory is.
pub fn root() -> PathBuf {
    // Set by `cargo run` to the manifest in use; the built-in one is for the bare binary.
    let manifest = std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or(env!("CARGO_MANIFEST_DIR").into());
    Path::new(&manifest).parent().expect("xtask lies in the workspace").to_owned()
}

/// Cargo of the toolchain that runs us, started in the workspace.
pub fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
    command.current_dir(root());
    command
}

/// The target folder that holds this very program: right for any `CARGO_TARGET_DIR`.
pub fn target_dir() -> Outcome<PathBuf> {
    let exe = std::env::current_exe().context("cannot find my own program")?;
    let dir = exe.parent().and_then(Path::parent).ok_or(Failure::new("no target folder"))?;
    Ok(dir.to_owned())
}

/// The command as a user would type it.
pub fn shown(command: &Command) -> String {
    let mut text = String::new();
    for (name, value) in command.get_envs() {
        // Removed ones say nothing to a reader.
        if let Some(value) = value {
            text.push_str(&format!("{}={} ", name.to_string_lossy(), quoted(&value.to_string_lossy())));
        }
    }
    let program = command.get_program();
    // The toolchain's own cargo has a long path that nobody types.
    let is_our_cargo = std::env::var_os("CARGO").is_some_and(|cargo| cargo == program);
    text.push_str(&if is_our_cargo { "cargo".into() } else { program.to_string_lossy() });
    for arg in command.get_args() {
        text.push(' ');
        text.push_str(&quoted(&arg.to_string_lossy()));
    }
    text
}

fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "-_=./:,+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) { word.to_owned() } else { format!("'{word}'") }
}

/// Announces and runs a command; its output goes to the terminal.
///
/// # Errors
/// It cannot be started, or ends with a code other than 0, which is passed on.
pub fn run(command: &mut Command) -> Outcome {
    eprintln!("$ {}", shown(command));
    // No task asks questions; a child that would must fail, not hang CI.
    let status = command.stdin(Stdio::null()).status();
    let status = status.context(format_args!("cannot start `{}`", shown(command)))?;
    check(status, &shown(command))
}

/// Turns an exit status into an outcome that keeps the code.
///
/// # Errors
/// Any status but success; death by signal N gives 128 + N, as in shells.
pub fn check(status: ExitStatus, what: &str) -> Outcome {
    if status.success() {
        return Ok(());
    }
    let code = status.code().or_else(|| signal(status).map(|s| 128 + s)).unwrap_or(1);
    // A code that does not fit or is 0 after all must still mean failure.
    let code = u8::try_from(code).ok().filter(|&c| c != 0).unwrap_or(1);
    Err(Failure { message: format!("`{what}` failed ({status})"), code })
}

#[cfg(unix)]
fn signal(status: ExitStatus) -> Option<i32> {
    std::os::unix::process::ExitStatusExt::signal(&status)
}

#[cfg(not(unix))]
fn signal(_: ExitStatus) -> Option<i32> {
    None
}

/// Standard output of a command that succeeds; `None` if it fails or does not exist.
pub fn output(program: &str, args: &[&str]) -> Option<String> {
    let output = Command::new(program).args(args).current_dir(root()).stdin(Stdio::null()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// A Python 3 interpreter on the PATH.
pub fn python() -> Option<&'static str> {
    let is_3 = |p: &str| output(p, &["-c", "import sys; print(sys.version_info[0])"]).as_deref() == Some("3");
    ["python3", "python"].into_iter().find(|p| is_3(p))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_and_signals_are_passed_on() {
        let code = |script: &str| run(Command::new("sh").args(["-c", script])).map_err(|f| f.code);
        assert_eq!(code("exit 0"), Ok(()));
        assert_eq!(code("exit 7"), Err(7));
        assert_eq!(code("kill -9 $$"), Err(137));
        let failure = run(&mut Command::new("no-such-program-here")).unwrap_err();
        assert_eq!(failure.code, 1);
    }

    #[test]
    fn commands_are_shown_as_typed() {
        let mut command = Command::new("cargo");
        command.args(["test", "a b"]).env("X", "1").env_remove("Y");
        assert_eq!(shown(&command), "X=1 cargo test 'a b'");
    }
}
