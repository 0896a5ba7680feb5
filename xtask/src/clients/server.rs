//! A running `kinglet serve` at a free port of the loopback interface. Must not know what it is asked.

use crate::sh::{self, Context, Failure, Outcome};
use core::time::Duration;
use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Instant;

/// Longest wait for the model to be loaded, and for the end.
const PATIENCE: Duration = Duration::from_secs(60);
/// Lines of its log that are kept.
const LINES: usize = 40;
/// What it says when it can be asked; the address follows.
const LISTENING: &str = "listening at http://";

/// The server; killed when dropped.
pub struct Server {
    child: Child,
    /// Host and port.
    pub address: String,
    /// The latest lines of its log, shown if something fails.
    log: Arc<Mutex<VecDeque<String>>>,
}

impl Server {
    /// Starts it and waits until it listens.
    ///
    /// # Errors
    /// It cannot be started, or ends, or takes too long.
    pub fn start(binary: &Path, model: &Path, flags: &[String]) -> Outcome<Server> {
        let mut command = Command::new(binary);
        command.arg("serve").arg("-m").arg(model).args(["--port", "0"]).args(flags);
        eprintln!("$ {}", sh::shown(&command));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let child = command.spawn().context(format_args!("cannot start {}", binary.display()))?;
        let log = Arc::new(Mutex::new(VecDeque::new()));
        let mut server = Server { child, address: String::new(), log: Arc::clone(&log) };
        let stderr = server.child.stderr.take().ok_or(Failure::new("no standard error"))?;
        let (tell, hear) = mpsc::channel();
        // Read to its end: a full pipe would stop the server.
        std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                if let Some((_, address)) = line.split_once(LISTENING) {
                    let _ = tell.send(String::from(address.trim()));
                }
                let mut log = log.lock().unwrap_or_else(|e| e.into_inner());
                if log.len() == LINES {
                    log.pop_front();
                }
                log.push_back(line);
            }
        });
        match hear.recv_timeout(PATIENCE) {
            Ok(address) => server.address = address,
            Err(_) => return Err(Failure::new(format!("{} did not begin to listen", binary.display()))),
        }
        Ok(server)
    }

    /// Asks it to end, and waits for that.
    ///
    /// # Errors
    /// It does not, or says that something went wrong.
    pub fn stop(mut self, key: Option<&str>) -> Outcome {
        if self.child.try_wait().context("cannot wait for the server")?.is_none() {
            let said = self.ask_to_stop(key).context("cannot ask the server to end")?;
            if !said.starts_with("HTTP/1.1 202 ") && !said.is_empty() {
                return Err(Failure::new(format!("the server does not want to end: {said}")));
            }
        }
        self.wait()
    }

    fn ask_to_stop(&self, key: Option<&str>) -> std::io::Result<String> {
        let mut stream = TcpStream::connect(&self.address)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let key = key.map_or_else(String::new, |key| format!("Authorization: Bearer {key}\r\n"));
        let head = format!("Host: {}\r\n{key}Content-Length: 0\r\nConnection: close\r\n\r\n", self.address);
        stream.write_all(format!("POST /admin/api/shutdown HTTP/1.1\r\n{head}").as_bytes())?;
        let mut said = String::new();
        stream.read_to_string(&mut said)?;
        Ok(said)
    }

    /// Waits for the end of a server that was asked to stop.
    ///
    /// # Errors
    /// It does not end, or not well.
    pub fn wait(mut self) -> Outcome {
        let end = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().context("cannot wait for the server")? {
                sh::check(status, "kinglet serve")?;
                self.log.lock().unwrap_or_else(|e| e.into_inner()).clear();
                return Ok(());
            }
            if Instant::now() >= end {
                return Err(Failure::new("the server does not end though it was asked to"));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Only where something failed is it still there, or its log.
        let _ = self.child.kill();
        let _ = self.child.wait();
        self.log.lock().unwrap_or_else(|e| e.into_inner()).iter().for_each(|line| eprintln!("{line}"));
    }
}
