//! Runs the README's examples by a shell and the real curl. Must not know what they ask for.

use super::readme::{self, ADDRESS, Example};
use super::server::Server;
use super::shape;
use crate::sh::{self, Context, Failure, Outcome};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

/// The examples' `curl` is this one: quiet, never for ever, and with the status behind the body. It reads no
/// settings of the user.
const CURL: &str = "curl() { command curl -q --silent --show-error --max-time 60 \
                    --write-out '\\n%{http_code}' \"$@\"; }\n";
/// Where an example ends the server.
const SHUTDOWN: &str = "/admin/api/shutdown";

/// Starts a server as the README says, at another port, and runs all of its examples.
///
/// # Errors
/// A reply that is not as the README shows it.
pub fn check(binary: &Path, model: &Path) -> Outcome {
    if !super::has_curl() {
        return Err(Failure::new("curl is missing: `cargo xtask setup` installs it"));
    }
    let path = sh::root().join("README.md");
    let text = fs::read_to_string(&path).context(format_args!("cannot read {}", path.display()))?;
    let (flags, examples) = (readme::start_flags(&text)?, readme::examples(&text)?);
    if examples.is_empty() {
        return Err(Failure::new("README.md has no examples with curl"));
    }
    let server = Server::start(binary, model, &flags)?;
    for example in &examples {
        let wrong = |failure: Failure| {
            Failure::new(format!("README.md:{}: {failure}\n{}", example.line, example.command))
        };
        let first = example.command.lines().next().unwrap_or_default();
        eprintln!("$ {first}");
        run(example, &server.address).map_err(wrong)?;
    }
    // The last example may have ended it.
    if examples.last().is_some_and(|example| example.command.contains(SHUTDOWN)) {
        return server.wait();
    }
    server.stop(None)
}

fn run(example: &Example, address: &str) -> Outcome {
    let script = [CURL, &example.command.replace(ADDRESS, address)].concat();
    let mut command = Command::new("sh");
    // Whoever has a proxy for the network would ask it for this machine, too.
    command.arg("-c").arg(script).env("NO_PROXY", "127.0.0.1").stdin(Stdio::null());
    let output = command.stderr(Stdio::inherit()).output().context("cannot start sh")?;
    sh::check(output.status, "curl")?;
    let said = String::from_utf8_lossy(&output.stdout);
    let (body, status) = said.rsplit_once('\n').ok_or(Failure::new("curl says no status"))?;
    if status != example.status.to_string() {
        return Err(Failure::new(format!("status {status}, not {}: {body}", example.status)));
    }
    shape::check(&example.shown, body).map_err(|failure| Failure::new(format!("{failure}\n{body}")))
}
