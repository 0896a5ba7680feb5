//! The other machine: runs scripts there over ssh, sends files, and says what a failure means.
//!
//! Each script is a connection of its own that asks no questions: ssh fails where it would ask.

use super::options::Options;
use super::script::{self, Script};
use crate::sh::{self, Context, Failure, Outcome};
use core::time::Duration;
use std::fs::File;
use std::io::{self, IsTerminal, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;
use std::time::Instant;

/// Exit code of ssh when the connection, not the command, failed.
const SSH_FAILED: i32 = 255;
/// Bytes handed to ssh at a time.
const CHUNK_BYTES: usize = 256 << 10;

/// A file to send, or the end of one.
#[derive(Clone, Copy, Debug)]
pub struct Upload<'a> {
    /// The file here.
    pub path: &'a Path,
    /// Bytes that are there already.
    pub from: u64,
    /// Bytes of the whole file.
    pub bytes: u64,
}

/// Where the options say.
pub struct Remote<'o> {
    options: &'o Options,
}

impl<'o> Remote<'o> {
    /// Connects to nothing yet.
    pub fn new(options: &'o Options) -> Self {
        Remote { options }
    }

    /// Runs a script; its standard output. `None` in a dry run, which prints the command.
    ///
    /// # Errors
    /// ssh, the connection, the script, or its time is over.
    pub fn run(&self, script: &Script, args: &[&str]) -> Outcome<Option<String>> {
        self.start(script, args, None)
    }

    /// Runs a script with a file as its standard input.
    ///
    /// # Errors
    /// As [`run`](Self::run); the file cannot be read.
    pub fn send(&self, script: &Script, args: &[&str], upload: Upload<'_>) -> Outcome<Option<String>> {
        self.start(script, args, Some(upload))
    }

    fn start(&self, script: &Script, args: &[&str], upload: Option<Upload<'_>>) -> Outcome<Option<String>> {
        let mut command = self.command(script, args);
        if self.options.dry_run {
            println!("# {}", script.what);
            let from = upload.map_or(String::new(), |u| format!(" < {}", u.path.display()));
            println!("{}{from}", shown(&command));
            return Ok(None);
        }
        eprintln!("deploy: {}: {}", script.what, args.join(" "));
        command.stdin(if upload.is_some() { Stdio::piped() } else { Stdio::null() });
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut child = child.map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => {
                Failure::new("there is no ssh here: install openssh-client, or run `cargo xtask setup`")
            }
            _ => Failure::new(format!("cannot start ssh: {error}")),
        })?;
        // Both pipes are drained at once: a full one would stop ssh.
        let stdout = reader(child.stdout.take());
        let stderr = reader(child.stderr.take());
        let sent = upload.map_or(Ok(()), |upload| feed(&mut child, upload));
        let ended = wait(&mut child, script.seconds.map(Duration::from_secs));
        let (stdout, stderr) = (text(stdout)?, text(stderr)?);
        for line in stderr.lines() {
            eprintln!("  {line}");
        }
        let status = ended.context("cannot wait for ssh")?.ok_or_else(|| {
            let seconds = script.seconds.unwrap_or(0);
            Failure::new(format!("'{}' took more than {seconds} s on the remote", script.what))
        })?;
        if !status.success() {
            return Err(explain(status.code(), &stderr, script.what, &self.options.destination));
        }
        sent?;
        Ok(Some(stdout))
    }

    fn command(&self, script: &Script, args: &[&str]) -> Command {
        let o = self.options;
        let mut command = Command::new("ssh");
        if let Some(path) = &o.ssh_config {
            command.arg("-F").arg(path);
        }
        command.args(["-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10"]);
        // A connection that died is noticed after a minute, also in the middle of a model.
        command.args(["-o", "ServerAliveInterval=15", "-o", "ServerAliveCountMax=4"]);
        if let Some(port) = o.port {
            command.args(["-p", &port.to_string()]);
        }
        if let Some(path) = &o.identity {
            command.args(["-o", "IdentitiesOnly=yes", "-i"]).arg(path);
        }
        command.args(["--", &o.destination]).arg(script::line(script, args, o.sudo));
        command
    }
}

/// The command such that it can be pasted into a shell.
fn shown(command: &Command) -> String {
    let plain = |word: &str| word.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_=./:@%".contains(&b));
    let mut text = command.get_program().to_string_lossy().into_owned();
    for word in command.get_args().map(|word| word.to_string_lossy()) {
        text.push(' ');
        text.push_str(&if plain(&word) { word.into_owned() } else { script::quoted(&word) });
    }
    text
}

type Reader = Option<JoinHandle<io::Result<Vec<u8>>>>;

fn reader(pipe: Option<impl Read + Send + 'static>) -> Reader {
    pipe.map(|mut pipe| {
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            pipe.read_to_end(&mut bytes).map(|_| bytes)
        })
    })
}

fn text(reader: Reader) -> Outcome<String> {
    let Some(reader) = reader else { return Ok(String::new()) };
    let bytes = reader.join().map_err(|_| Failure::new("the reader of ssh's output died"))?;
    Ok(String::from_utf8_lossy(&bytes.context("cannot read ssh's output")?).into_owned())
}

/// Writes the file to ssh and closes its standard input. A pipe that breaks is no failure of its own:
/// what ssh says explains it.
fn feed(child: &mut Child, upload: Upload<'_>) -> Outcome {
    let Some(mut pipe) = child.stdin.take() else { return Ok(()) };
    let what = format!("cannot read {}", upload.path.display());
    let mut file = File::open(upload.path).context(&what)?;
    file.seek(SeekFrom::Start(upload.from)).context(&what)?;
    // What is added to the file meanwhile is not ours.
    let mut file = file.take(upload.bytes - upload.from);
    let (mut buffer, mut sent) = (vec![0; CHUNK_BYTES], upload.from);
    let mut progress = Progress::new(upload);
    loop {
        let n = file.read(&mut buffer).context(&what)?;
        if n == 0 || pipe.write_all(&buffer[..n]).is_err() {
            progress.end();
            return Ok(());
        }
        sent += n as u64;
        progress.at(sent);
    }
}

/// Says on standard error how far a transfer is: in place on a terminal, else in steps.
struct Progress<'a> {
    upload: Upload<'a>,
    start: Instant,
    said: Instant,
    every: Duration,
    terminal: bool,
}

impl<'a> Progress<'a> {
    fn new(upload: Upload<'a>) -> Self {
        let terminal = io::stderr().is_terminal();
        let every = if terminal { Duration::from_millis(250) } else { Duration::from_secs(5) };
        Progress { upload, start: Instant::now(), said: Instant::now(), every, terminal }
    }

    fn at(&mut self, sent: u64) {
        // Small files are there before anyone could read it.
        if self.said.elapsed() < self.every {
            return;
        }
        self.said = Instant::now();
        let line = progress_line(self.upload, sent, self.start.elapsed());
        if self.terminal {
            eprint!("\r{line}  ");
        } else {
            eprintln!("{line}");
        }
    }

    fn end(&self) {
        if self.terminal && self.said > self.start {
            eprintln!();
        }
    }
}

fn progress_line(upload: Upload<'_>, sent: u64, time: Duration) -> String {
    let percent = sent * 100 / upload.bytes.max(1);
    let speed = (sent - upload.from) as f64 / 1e6 / time.as_secs_f64().max(1e-3);
    let (sent, all) = (sent / 1_000_000, upload.bytes / 1_000_000);
    format!("deploy: {percent:>3} %, {sent} of {all} MB, {speed:.1} MB/s")
}

/// Waits for the child; when its time is over ends it and gives `None`.
fn wait(child: &mut Child, most: Option<Duration>) -> io::Result<Option<std::process::ExitStatus>> {
    let Some(most) = most else { return child.wait().map(Some) };
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if start.elapsed() >= most {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// What a failed command means and what to do about it.
fn explain(code: Option<i32>, stderr: &str, what: &str, destination: &str) -> Failure {
    let last = stderr.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("nothing was said").trim();
    let says = |text: &str| stderr.contains(text);
    Failure::new(if code == Some(SSH_FAILED) {
        if says("Permission denied") || says("Too many authentication failures") {
            format!(
                "{destination} refuses the login ({last}): add your key there (ssh-copy-id), or --identity"
            )
        } else if says("Host key verification failed") {
            format!("the host key of {destination} is not known: connect once with `ssh {destination}`")
        } else if says("Could not resolve") {
            format!("no such host ({last})")
        } else {
            format!("no connection to {destination} ({last}): is it on, and --port right?")
        }
    } else if says("No space left on device") {
        format!("the disk of {destination} is full ({last}): make room there, or choose another --dir")
    } else if says("Read-only file system") {
        format!("{destination} cannot be written to ({last}): choose another --dir")
    } else if says("a password is required") || says("a terminal is required") {
        format!("sudo on {destination} asks for a password: allow it without, or log in as root")
    } else if says("Permission denied") || says("Operation not permitted") {
        format!("the user may not do this on {destination} ({last}): --sudo, another user, or another --dir")
    } else {
        let code = code.map_or("a signal".to_owned(), |code| format!("code {code}"));
        format!("'{what}' failed on {destination} with {code} ({last})")
    })
}

/// The hash that sha256sum says of standard input.
///
/// # Errors
/// It is none.
pub fn sha256_of(said: &str) -> Outcome<&str> {
    let hash = said.split_whitespace().next().unwrap_or("");
    let is_hash = hash.len() == 64 && hash.bytes().all(|b| b.is_ascii_hexdigit());
    is_hash
        .then_some(hash)
        .ok_or_else(|| Failure::new(format!("sha256sum on the remote says '{}'", said.trim())))
}

/// Whether ssh can be started.
pub fn has_ssh() -> bool {
    sh::output("ssh", &["-V"]).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_say_what_to_do() {
        for (code, stderr, word) in [
            (255, "root@b: Permission denied (publickey).\r\n", "ssh-copy-id"),
            (255, "Host key verification failed.\r\n", "`ssh root@b`"),
            (255, "ssh: Could not resolve hostname b: Name or service not known", "no such host"),
            (255, "ssh: connect to host b port 22: Connection refused", "--port"),
            (255, "client_loop: send disconnect: Broken pipe", "no connection"),
            (1, "cat: write error: No space left on device\n", "full"),
            (1, "mkdir: cannot create directory '/opt/k': Permission denied", "--sudo"),
            (1, "mkdir: cannot create directory '/opt/k': Read-only file system", "--dir"),
            (1, "sudo: a password is required", "without"),
            (7, "x\n\n", "code 7"),
        ] {
            let failure = explain(Some(code), stderr, "step", "root@b");
            assert!(failure.message.contains(word), "{failure}");
            assert_eq!(failure.code, 1);
        }
        assert!(explain(None, "", "step", "b").message.contains("a signal"));
    }

    #[test]
    fn commands_ask_no_questions_and_end_their_options() {
        let words = ["a@b", "--port", "22", "--dry-run"].map(Into::into).to_vec();
        let options = Options::parse(words).unwrap().unwrap();
        let text = shown(&Remote::new(&options).command(&script::DISCARD, &["it's"]));
        assert!(text.starts_with("ssh -T -o BatchMode=yes -o ConnectTimeout=10 "), "{text}");
        assert!(text.contains(" -p 22 -- a@b 'sh -c "), "{text}");
        // A shell here, then one there, take the quotes off again.
        let words = Command::new("sh").arg("-c").arg(text.replacen("ssh", "printf '%s\\n'", 1)).output();
        let words = String::from_utf8(words.unwrap().stdout).unwrap();
        let script = script::line(&script::DISCARD, &["it's"], false);
        assert!(words.ends_with(&format!("\na@b\n{script}\n")), "{words}");
    }

    #[test]
    fn hashes_and_progress_are_read() {
        let hash = "0f".repeat(32);
        assert_eq!(sha256_of(&format!("{hash}  -\n")).unwrap(), hash);
        assert!(sha256_of("").is_err() && sha256_of("0f  -").is_err());
        let upload = Upload { path: Path::new("m"), from: 100_000_000, bytes: 400_000_000 };
        let line = progress_line(upload, 200_000_000, Duration::from_secs(10));
        assert_eq!(line, "deploy:  50 %, 200 of 400 MB, 10.0 MB/s");
    }

    #[test]
    fn a_child_that_takes_too_long_is_ended() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        assert_eq!(wait(&mut child, Some(Duration::from_millis(50))).unwrap(), None);
        let mut child = Command::new("true").spawn().unwrap();
        assert!(wait(&mut child, Some(Duration::from_secs(60))).unwrap().unwrap().success());
    }
}
