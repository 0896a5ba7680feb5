//! The part of the step `deploy` that is about the service: it starts, answers, keeps its flags and its
//! cache, and comes back when its next version does not work. Must not know ssh.

use super::check::{Rehearsal, expect};
use super::sshd::free_port;
use crate::aarch64::FIXTURES;
use crate::sh::{self, Context, Failure, Outcome};
use core::net::Ipv4Addr;
use core::time::Duration;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;

/// Longer than an emulated reply of a tiny model takes.
const PATIENCE: Duration = Duration::from_secs(120);

impl Rehearsal {
    pub(super) fn a_first_deploy_that_fails_leaves_nothing(&mut self) -> Outcome {
        let (broken, model) = (self.broken.display().to_string(), self.model.display().to_string());
        let ended = self.deploy_with(&["--binary", &broken])?;
        ended.must_fail("no model yet")?;
        for more in [&["--binary", &broken, "--model", &model][..], &["--binary", &broken, "--no-unit"]] {
            let ended = self.deploy_with(more)?;
            ended.must_fail("there was no version before")?;
            expect(self.files()?.is_empty(), "nothing may be left", &format!("{:?}", self.files()?))?;
        }
        let calls = self.systemctl_calls();
        expect(calls.iter().any(|c| c.starts_with("disable")), "the unit must be off", &calls.join("\n"))
    }

    pub(super) fn the_first_deploy_works(&mut self) -> Outcome {
        let (model, port) = (self.model.display().to_string(), self.port.to_string());
        let ended = self.deploy_with(&["--model", &model, "--serve-port", &port])?;
        ended.must_succeed()?;
        eprint!("{}", ended.stdout);
        let version = concat!("kinglet ", env!("CARGO_PKG_VERSION"));
        let health = format!("http://127.0.0.1:{port}/health {{\"status\":\"ok\"}}");
        for word in [version, "the same as here", &health, "ActiveState=active"] {
            expect(ended.stdout.contains(word), &format!("the status must say '{word}'"), &ended.stdout)?;
        }
        let names: Vec<String> = self.files()?.into_iter().map(|(name, _)| name).collect();
        let model = format!("opt/models/{}", FIXTURES[0]);
        let expected = ["opt/bin/kinglet", "opt/kinglet.conf", &model, "units/kinglet.service"];
        expect(names == expected, "files", &names.join("\n"))?;
        let calls = self.systemctl_calls();
        let expected = ["daemon-reload", "enable --quiet", "reset-failed", "restart", "show"];
        let fits = calls.iter().zip(expected).all(|(call, word)| call.starts_with(word));
        expect(fits && calls.len() == expected.len(), "systemctl's calls", &calls.join("\n"))?;
        self.unit_is_valid()?;
        self.runs()?;
        self.systemd.hears_watchdog()?;
        // A conversation of more than a block, for the cache.
        let reply =
            self.ask("/v1/completions", r#"{"prompt": "Hello", "max_tokens": 40, "ignore_eos": true}"#)?;
        expect(reply.contains(r#""completion_tokens":40"#), "the service must reply", &reply)
    }

    /// Where systemd is installed, it reads the unit too.
    fn unit_is_valid(&self) -> Outcome {
        if sh::output("systemd-analyze", &["--version"]).is_none() {
            eprintln!("deploy: no systemd-analyze here: the unit is not checked by systemd");
            return Ok(());
        }
        let unit = self.remote.join("units/kinglet.service");
        let mut verify = Command::new("systemd-analyze");
        let verify = verify.args(["verify", "--man=no", "--recursive-errors=no"]).arg(&unit);
        let output = verify.output().context("systemd-analyze")?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let wrong = !output.status.success() || said.contains(&*unit.to_string_lossy());
        expect(!wrong, "systemd-analyze must find nothing wrong with the unit", &said)?;
        let mut security = Command::new("systemd-analyze");
        let security =
            security.args(["security", "--offline=yes", "--threshold=15", "--no-pager"]).arg(&unit);
        let output = security.output().context("systemd-analyze")?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        expect(output.status.success(), "the unit must be exposed to 1.5 of 10 at most", &said)?;
        eprintln!("deploy: systemd-analyze: {}", said.lines().last().unwrap_or("").trim());
        Ok(())
    }

    /// What the user wrote stays, and so does the model that is not named again. The service before ended
    /// well: its cache is on disk, where the next one finds it.
    pub(super) fn flags_are_the_users(&mut self) -> Outcome {
        let conf = self.remote.join("opt/kinglet.conf");
        let text = fs::read_to_string(&conf).context(conf.display())?;
        let port = free_port()?;
        let text = text.replace(&format!("\nport = {}\n", self.port), &format!("\nport = {port}\n"));
        fs::write(&conf, format!("{text}alias = mine\n")).context(conf.display())?;
        self.port = port;
        let before = self.in_place()?;
        self.systemd.ends();
        let ended = self.deploy_again(&["--serve-port", "1"])?;
        ended.must_succeed()?;
        expect(ended.stderr.contains("not --serve-port"), "it must say who says the port", &ended.stderr)?;
        let health = format!("http://127.0.0.1:{port}/health");
        expect(ended.stdout.contains(&health), "the status must say where it answers", &ended.stdout)?;
        expect(self.in_place()? == before, "nothing may change", &format!("{:?}", self.files()?))?;
        let ends = self.systemd.ends();
        expect(ends == ["clean"], "the service before must end well", &ends.join(", "))?;
        let models = self.ask("/v1/models", "")?;
        expect(models.contains(r#""mine""#), "the user's flags must count", &models)?;
        let saved = fs::read_dir(self.state.join("kv")).context("the cache's folder")?.count();
        expect(saved > 0, "the cache must be in the service's folder", "")?;
        let again = r#"{"prompt": "Hello", "max_tokens": 40, "ignore_eos": true}"#;
        let reply = self.ask("/v1/completions", again)?;
        expect(reply.contains(r#""completion_tokens":40"#), "the service must reply", &reply)
    }

    pub(super) fn a_broken_binary_is_rolled_back(&mut self) -> Outcome {
        let (broken, model) = (self.broken.display().to_string(), self.model.display().to_string());
        for more in [
            &["--binary", &broken, "--model", &model][..],
            &["--binary", &broken],
            &["--binary", &broken, "--no-unit"],
        ] {
            let before = self.in_place()?;
            self.systemctl_calls();
            let ended = self.deploy_with(more)?;
            ended.must_fail("rolled back: kinglet ")?;
            self.is_as_before(&before)?;
            self.runs()?;
            // It was seen before the unit was started; the start is that of the version before.
            let starts = self.systemctl_calls().iter().filter(|call| call.starts_with("restart")).count();
            let expected = usize::from(!more.contains(&"--no-unit"));
            expect(starts == expected, "how often the unit was started", &starts.to_string())?;
        }
        Ok(())
    }

    /// A service that ends before it is ready, and one that is ready but not to be reached.
    pub(super) fn a_service_that_does_not_answer_is_rolled_back(&mut self) -> Outcome {
        let built = self.built.display().to_string();
        for (qemu, word) in [("dies", "this service dies"), ("deaf", "no health at http://127.0.0.1:")] {
            let before = self.in_place()?;
            self.systemctl_calls();
            let ended = self.deploy_under(qemu, &["--binary", &built])?;
            ended.must_fail("rolled back: kinglet ")?;
            ended.must_fail(word)?;
            ended.must_fail(&format!(", and answers at http://127.0.0.1:{}/health", self.port))?;
            self.is_as_before(&before)?;
            let starts = self.systemctl_calls().iter().filter(|call| call.starts_with("restart")).count();
            expect(starts == 2, "how often the unit was started", &starts.to_string())?;
        }
        Ok(())
    }

    /// The files of before are in place, and the service answers.
    fn is_as_before(&self, before: &[(String, String)]) -> Outcome {
        let after = self.in_place()?;
        expect(after == before, "the files before must be back", &format!("{after:?}"))?;
        expect(self.systemd.runs(), "the service must run", "")?;
        let health = self.ask("/health", "")?;
        expect(health.contains(r#""status":"ok""#), "the service must answer", &health)
    }

    /// Asks the service from here: with a body it is a POST. Everything that it says.
    fn ask(&self, path: &str, body: &str) -> Outcome<String> {
        let method = if body.is_empty() { "GET" } else { "POST" };
        let fault = |e: std::io::Error| Failure::new(format!("{method} {path} at port {}: {e}", self.port));
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).map_err(fault)?;
        stream.set_read_timeout(Some(PATIENCE)).map_err(fault)?;
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(request.as_bytes()).map_err(fault)?;
        let mut said = String::new();
        stream.read_to_string(&mut said).map_err(fault)?;
        Ok(said)
    }
}
