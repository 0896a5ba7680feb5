//! A stand-in for systemd in the step `deploy`: it starts what a unit says, under the variables that systemd
//! sets, waits until that says it is ready, and ends it as the unit says. Must not know what is deployed.
//!
//! A script named `systemctl` asks it through two pipes in its folder: a line of words goes into `ask`, the
//! exit code and a text come out of `answer`.

use super::unit::STATE;
use crate::sh::{self, Context, Failure, Outcome};
use core::time::Duration;
use std::fs::{self, File};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// How long a service may take to be ready, however long the unit gives it: the models are tiny.
const START_PATIENCE: Duration = Duration::from_secs(120);
/// What the service is told of the watchdog, in place of the unit's time, which no test waits for.
const WATCHDOG: Duration = Duration::from_secs(2);
const TICK: Duration = Duration::from_millis(20);

/// systemd; what it started is ended when it is dropped.
#[derive(Debug)]
pub struct Systemd {
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    /// Pipes, log and socket.
    folder: PathBuf,
    /// Where units are.
    units: PathBuf,
    /// Stands for [`STATE`].
    state: PathBuf,
    /// `PATH` of services.
    path: String,
    service: Option<Service>,
    /// How services ended that were told to.
    ends: Vec<String>,
}

#[derive(Debug)]
struct Service {
    child: Child,
    socket: UnixDatagram,
    stop_time: Duration,
    clean_code: Option<i32>,
}

impl Systemd {
    /// Begins to listen in `folder`.
    ///
    /// # Errors
    /// The folder cannot be used.
    pub fn start(folder: &Path, units: &Path, state: &Path, path: String) -> Outcome<Systemd> {
        for name in ["ask", "answer"] {
            sh::run(Command::new("mkfifo").arg(folder.join(name)))?;
        }
        let (folder, units, state) = (folder.to_owned(), units.to_owned(), state.to_owned());
        let (ask, answer) = (folder.join("ask"), folder.join("answer"));
        let state = State { folder, units, state, path, service: None, ends: Vec::new() };
        let state = Arc::new(Mutex::new(state));
        let theirs = Arc::clone(&state);
        // It waits for the next question until the process ends.
        std::thread::spawn(move || {
            while let Ok(words) = fs::read_to_string(&ask) {
                let said = hold(&theirs).answer(&words);
                let (code, text) = said.map_or_else(|failure| (1, failure.message), |text| (0, text));
                if fs::write(&answer, format!("{code}\n{text}\n")).is_err() {
                    break;
                }
            }
        });
        Ok(Systemd { state })
    }

    /// Whether the service runs.
    pub fn runs(&self) -> bool {
        hold(&self.state).runs()
    }

    /// How services ended since the last question, that were told to: `clean`, or how else.
    pub fn ends(&self) -> Vec<String> {
        core::mem::take(&mut hold(&self.state).ends)
    }

    /// Waits until the service says again that it is alive.
    ///
    /// # Errors
    /// It does not.
    pub fn hears_watchdog(&self) -> Outcome {
        let state = hold(&self.state);
        let service = state.service.as_ref().ok_or_else(|| Failure::new("no service runs"))?;
        // What it said before does not count.
        while hear(&service.socket, Duration::ZERO)?.is_some() {}
        let start = Instant::now();
        while start.elapsed() < 20 * WATCHDOG {
            if hear(&service.socket, WATCHDOG)?.is_some_and(|said| said == "WATCHDOG=1") {
                return Ok(());
            }
        }
        Err(Failure::new("the service does not say that it is alive"))
    }
}

impl Drop for Systemd {
    fn drop(&mut self) {
        let _ = hold(&self.state).stop();
    }
}

impl State {
    fn runs(&mut self) -> bool {
        self.service.as_mut().is_some_and(|service| service.child.try_wait().is_ok_and(|end| end.is_none()))
    }

    /// Does what a command line of systemctl asks for; its output.
    fn answer(&mut self, words: &str) -> Outcome<String> {
        let words: Vec<&str> = words.split_whitespace().collect();
        match words[..] {
            ["restart", unit] => {
                self.stop()?;
                self.launch(unit)?;
            }
            ["disable", "--now", ..] => self.stop()?,
            ["show", ..] => {
                let (active, sub) = if self.runs() { ("active", "running") } else { ("failed", "failed") };
                return Ok(format!("ActiveState={active}\nSubState={sub}\nResult=success"));
            }
            ["status", ..] => return fs::read_to_string(self.log()).context("the service's log"),
            ["daemon-reload"] | ["enable" | "reset-failed", ..] => {}
            _ => return Err(Failure::new(format!("systemctl {words:?}: not known here"))),
        }
        Ok(String::new())
    }

    fn log(&self) -> PathBuf {
        self.folder.join("service.log")
    }

    /// Starts a unit, and returns when it is ready.
    fn launch(&mut self, unit: &str) -> Outcome {
        let text = fs::read_to_string(self.units.join(unit)).context(unit)?;
        let value = |key: &str| {
            let found = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
            found.ok_or_else(|| Failure::new(format!("{unit} has no {key}")))
        };
        let seconds = |key: &str| Ok::<_, Failure>(Duration::from_secs(value(key)?.parse().context(key)?));
        let fits = value("Type")? == "notify" && value("KillSignal")? == "SIGTERM";
        if !fits || value("WorkingDirectory")? != STATE || seconds("WatchdogSec")?.is_zero() {
            return Err(Failure::new(format!("this systemd does not know such a unit:\n{text}")));
        }
        let name = self.folder.join("notify");
        let _ = fs::remove_file(&name);
        let socket = UnixDatagram::bind(&name).context(name.display())?;
        fs::create_dir_all(&self.state).context(self.state.display())?;
        let mut words = value("ExecStart")?.split_whitespace();
        let log = File::create(self.log()).context("the service's log")?;
        let mut command = Command::new(words.next().unwrap_or_default());
        command.args(words).current_dir(&self.state).env_clear().env("PATH", &self.path);
        command.env("NOTIFY_SOCKET", &name).env("WATCHDOG_USEC", WATCHDOG.as_micros().to_string());
        command.stdin(Stdio::null()).stderr(log.try_clone().context("the log")?).stdout(log);
        let child = command.spawn().context(unit)?;
        let clean_code = value("SuccessExitStatus")?.parse().ok();
        let service = Service { child, socket, stop_time: seconds("TimeoutStopSec")?, clean_code };
        let most = seconds("TimeoutStartSec")?.min(START_PATIENCE);
        let ready = self.service.insert(service).wait_ready(most);
        ready.inspect_err(|_| {
            let _ = self.stop();
        })
    }

    /// Ends the service, if one runs.
    fn stop(&mut self) -> Outcome {
        let Some(mut service) = self.service.take() else { return Ok(()) };
        if let Some(end) = service.child.try_wait().context("the service")? {
            self.ends.push(format!("by itself: {end}"));
            return Ok(());
        }
        sh::run(Command::new("kill").args(["-TERM", &service.child.id().to_string()]))?;
        let start = Instant::now();
        while start.elapsed() < service.stop_time {
            if let Some(end) = service.child.try_wait().context("the service")? {
                self.ends.push(service.how(end));
                return Ok(());
            }
            std::thread::sleep(TICK);
        }
        service.child.kill().context("the service")?;
        service.child.wait().context("the service")?;
        self.ends.push("killed: it took too long".to_owned());
        Ok(())
    }
}

impl Service {
    fn wait_ready(&mut self, most: Duration) -> Outcome {
        let start = Instant::now();
        while start.elapsed() < most {
            if hear(&self.socket, TICK)?.is_some_and(|said| said == "READY=1") {
                return Ok(());
            }
            if let Some(end) = self.child.try_wait().context("the service")? {
                return Err(Failure::new(format!("the service ended before it was ready: {end}")));
            }
        }
        Err(Failure::new("the service is not ready in time"))
    }

    fn how(&self, end: ExitStatus) -> String {
        let is_clean = end.success() || (end.code().is_some() && end.code() == self.clean_code);
        if is_clean { "clean".to_owned() } else { end.to_string() }
    }
}

/// The next message, if one comes in time.
fn hear(socket: &UnixDatagram, most: Duration) -> Outcome<Option<String>> {
    // No time at all would be taken for all the time there is.
    let most = most.max(Duration::from_micros(1));
    socket.set_read_timeout(Some(most)).context("the socket of systemd")?;
    let mut buffer = [0; 256];
    match socket.recv(&mut buffer) {
        Ok(len) => Ok(Some(String::from_utf8_lossy(&buffer[..len]).into_owned())),
        Err(_) => Ok(None),
    }
}

fn hold<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
