//! `cargo xtask clients`: the official Python clients, the page in a browser, and the README's `curl`
//! examples, against the built program with the real model. Must not know what a reply looks like: scripts
//! and README say so.

mod curl;
mod readme;
mod server;
mod shape;

use crate::sh::{self, Context, Failure, Outcome};
use crate::{model, page};
use server::Server;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

/// Debian's package of what makes a Python environment.
pub const VENV_PACKAGE: &str = "python3-venv";
/// Debian's package of the program that the README's examples call.
pub const CURL_PACKAGE: &str = "curl";

/// The scripts, below the workspace.
const SCRIPTS: &str = "tests/clients";
/// The clients' versions, there.
const REQUIREMENTS: &str = "requirements.txt";
/// What they present.
const KEY: &str = "the-key-of-the-test";
/// Context of the scripts' server: short, so that it is soon exceeded, and room for a call that is cut off.
const CONTEXT: &str = "4096";

const HELP: &str = "\
Usage: cargo xtask clients [--only README|page|openai|anthropic]

Installs the official Python clients into the target folder, starts target/release/kinglet with the real
model on a free port of the loopback interface, and runs tests/clients/*.py, README.md's curl examples, and
the server's page in headless Chromium.
";

/// The parts, in order: a name, and the script where there is one.
const PARTS: [(&str, &str); 4] =
    [("README", ""), ("page", ""), ("openai", "openai_api.py"), ("anthropic", "anthropic_api.py")];

/// The task.
pub fn main(words: Vec<OsString>) -> Outcome {
    use lexopt::Arg::Long;
    use lexopt::ValueExt;
    let mut args = lexopt::Parser::from_args(words);
    let mut only: Option<String> = None;
    while let Some(arg) = args.next()? {
        match arg {
            Long("only") => only = Some(args.value()?.string()?),
            Long("help") => {
                print!("{HELP}");
                return Ok(());
            }
            other => return Err(other.unexpected().into()),
        }
    }
    if let Some(name) = only.as_deref().filter(|name| PARTS.iter().all(|part| part.0 != *name)) {
        return Err(Failure::usage(format!("no part '{name}'; {HELP}")));
    }
    sh::run(sh::cargo().args(["build", "--release", "--package", "kinglet"]))?;
    run(only.as_deref())
}

/// The step of `cargo xtask test`, with the program that is built already.
///
/// # Errors
/// A client or an example that does not get what it should.
pub fn check(no_model: bool) -> Outcome {
    if no_model {
        eprintln!("--no-model: the clients are left out");
        return Ok(());
    }
    run(None)
}

fn run(only: Option<&str>) -> Outcome {
    let binary = sh::target_dir()?.join("release").join("kinglet");
    let model = model::ensure()?;
    let wanted = |name: &str| only.is_none_or(|only| only == name);
    if wanted("README") {
        let start = Instant::now();
        curl::check(&binary, &model)?;
        eprintln!("clients: README's examples, {:.1} s", start.elapsed().as_secs_f64());
    }
    if wanted("page") {
        let start = Instant::now();
        let server = Server::start(&binary, &model, &["--ctx", CONTEXT].map(String::from))?;
        page::test(vec!["--server".into(), format!("http://{}", server.address).into()])?;
        server.stop(None)?;
        eprintln!("clients: page, {:.1} s", start.elapsed().as_secs_f64());
    }
    let scripts: Vec<_> = PARTS.iter().filter(|part| !part.1.is_empty() && wanted(part.0)).collect();
    if scripts.is_empty() {
        return Ok(());
    }
    let python = environment()?;
    let flags = ["--ctx", CONTEXT, "--api-key", KEY].map(String::from);
    let server = Server::start(&binary, &model, &flags)?;
    for (name, script) in scripts {
        let start = Instant::now();
        let mut command = Command::new(&python);
        // Whoever has a proxy for the network would ask it for this machine, too.
        command.env("NO_PROXY", "127.0.0.1").env("PYTHONDONTWRITEBYTECODE", "1");
        command.env("KINGLET_URL", format!("http://{}", server.address)).env("KINGLET_KEY", KEY);
        command.arg(sh::root().join(SCRIPTS).join(script));
        sh::run(&mut command)?;
        eprintln!("clients: {name}, {:.1} s", start.elapsed().as_secs_f64());
    }
    server.stop(Some(KEY))
}

/// Whether there is what makes a Python environment.
pub fn has_venv() -> bool {
    sh::python().is_some_and(|python| sh::output(python, &["-c", "import venv, ensurepip"]).is_some())
}

/// Whether there is curl.
pub fn has_curl() -> bool {
    sh::output("curl", &["--version"]).is_some()
}

/// The Python of an environment with the clients in it, made when it is not there or for other versions.
fn environment() -> Outcome<PathBuf> {
    let python = sh::python().ok_or(Failure::new("python3 is needed: `cargo xtask setup` installs it"))?;
    let requirements = sh::root().join(SCRIPTS).join(REQUIREMENTS);
    let wanted = fs::read_to_string(&requirements).context(format_args!("no {}", requirements.display()))?;
    let dir = sh::target_dir()?.join("clients");
    let own = dir.join("bin").join("python");
    let stamp = [sh::output(python, &["--version"]).unwrap_or_default(), wanted].join("\n");
    // Written last, so that what broke off is made anew.
    let stamp_file = dir.join("made-from.txt");
    if fs::read_to_string(&stamp_file).is_ok_and(|made| made == stamp) && is_alive(&own) {
        return Ok(own);
    }
    if !has_venv() {
        return Err(Failure::new(format!(
            "{python} cannot make environments: install {VENV_PACKAGE}, or run `cargo xtask setup`"
        )));
    }
    sh::run(Command::new(python).args(["-m", "venv", "--clear"]).arg(&dir))?;
    let mut pip = Command::new(&own);
    pip.args(["-m", "pip", "install", "--quiet", "--no-input", "--disable-pip-version-check", "-r"]);
    sh::run(pip.arg(&requirements))?;
    fs::write(&stamp_file, stamp).context(format_args!("cannot write {}", stamp_file.display()))?;
    Ok(own)
}

fn is_alive(python: &Path) -> bool {
    let mut command = Command::new(python);
    command.args(["-c", "import anthropic, openai"]).output().is_ok_and(|output| output.status.success())
}
