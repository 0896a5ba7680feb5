//! `cargo xtask deploy`: the static binary on a board, with a way back.
//!
//! Everything is copied under temporary names first; then the files are renamed into place in one go
//! and checked, and the service is started. Until that, nothing that runs on the remote is touched; after it,
//! a failure brings back what was there before. The remote needs nothing but sh and the usual commands.

mod ask;
pub mod check;
mod conf;
mod ending;
mod health;
mod layout;
mod options;
mod probe;
mod remote;
mod script;
mod service_check;
mod sshd;
mod stand_ins;
mod systemd;
mod unit;

pub use remote::has_ssh;
pub use sshd::has_sshd;

use crate::cross::{self, Target};
use crate::elf::{self, Elf};
use crate::sh::{Context, Failure, Outcome};
use crate::{model, size};
use layout::{Layout, temporary};
use options::Options;
use probe::{Probe, fits, value};
use remote::{Remote, Upload, sha256_of};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

/// Stands for a hash in a dry run, which builds and reads nothing.
const NO_HASH: &str = "SHA256";
/// Stands for the model that the remote has in a dry run, which does not ask.
const NO_MODEL: &str = "MODEL.gguf";
/// How often the service is asked for its health. It is ready before.
const TRIES: &str = "20";

/// The task.
pub fn main(words: Vec<OsString>) -> Outcome {
    let Some(options) = Options::parse(words)? else {
        print!("{}", options::HELP);
        return Ok(());
    };
    Deploy { remote: Remote::new(&options), options: &options }.run()
}

struct Deploy<'o> {
    options: &'o Options,
    remote: Remote<'o>,
}

/// A file with what must be known to send it.
struct Payload {
    path: PathBuf,
    bytes: u64,
    sha256: String,
}

/// A file under its temporary name, and the name it gets.
type Rename = (String, String);

/// What the new version said.
struct Said {
    checks: Vec<String>,
    /// Where the service answers, and what.
    service: Option<String>,
}

impl Deploy<'_> {
    fn run(&self) -> Outcome {
        let o = self.options;
        let mut layout = Layout::new(&o.dir, &o.unit_dir);
        if let Some(path) = &o.model {
            layout.model = Some(format!("{}/{}", layout.models(), options::model_name(path)?));
        }
        // Before anything is built: whoever cannot log in need not wait for a compiler.
        let probe = self.remote.run(&script::PROBE, &[&o.dir, &layout.unit, &layout.conf])?;
        let probe = probe.map(|said| Probe::of(&said));
        if let Some(probe) = &probe {
            probe.check(o)?;
        }
        let unit = if o.unit { Some(self.unit(&layout, probe.as_ref())?) } else { None };
        let (binary, version) = self.binary()?;
        let model = o.model.as_deref().map(|path| self.payload(path)).transpose()?;
        let hash = match &o.model {
            Some(path) if !o.dry_run => Some(health::hash_here(path)?),
            other => other.as_ref().map(|_| NO_HASH.to_owned()),
        };

        let mut folders = vec![layout.bin(), layout.models()];
        if o.unit {
            folders.push(o.unit_dir.clone());
        }
        self.remote.run(&script::PREPARE, &words(&folders))?;
        let staged = self.stage(&layout, &binary, model.as_ref(), probe.as_ref());
        let written = |mut renames: Vec<Rename>| {
            renames.extend(self.write(&layout, unit.as_deref(), probe.as_ref())?);
            Ok(renames)
        };
        let renames = staged.and_then(written).inspect_err(|_| {
            // A model's part stays: the next deploy goes on with it. Best effort, as we fail anyway.
            let rests = [(&layout.binary, &*binary.sha256), (&layout.unit, "unit"), (&layout.conf, "conf")];
            let rests = rests.map(|(file, hash)| temporary(file, hash));
            let _ = self.remote.run(&script::DISCARD, &words(&rests));
        })?;

        let files: Vec<String> = renames.iter().map(|(_, to)| to.clone()).collect();
        self.remote.run(&script::KEEP, &words(&files))?;
        let checks = health::checks(&layout, &o.runner, &version, hash.as_deref());
        let said = match self.switch(&layout, &renames, &checks) {
            Ok(said) => said,
            Err(failure) => {
                let had_service = probe.is_some_and(|probe| probe.has_conf && probe.model.is_some());
                return Err(self.roll_back(&layout, &files, had_service, &failure));
            }
        };
        if let Some(model) = files.iter().find(|file| Some(*file) == layout.model.as_ref()) {
            // Models are large: one is enough once it works.
            self.remote.run(&script::DISCARD, &[&format!("{model}.previous")])?;
        }
        if o.dry_run {
            println!("# if a check or the start fails:");
            return self.remote.run(&script::ROLL_BACK, &self.roll_back_words(&layout, &files)).map(|_| ());
        }
        self.report(&layout, &binary, &said)
    }

    /// The unit's text. Without `--model` it keeps the model that the remote's unit has.
    fn unit(&self, layout: &Layout, probe: Option<&Probe>) -> Outcome<String> {
        let o = self.options;
        let model = match (&layout.model, probe) {
            (Some(model), _) => model.clone(),
            (None, None) => format!("{}/{NO_MODEL}", layout.models()),
            (None, Some(probe)) => {
                let kept = probe.model.as_deref().and_then(|named| layout.kept_model(named));
                kept.ok_or_else(|| {
                    let host = &o.destination;
                    Failure::new(format!(
                        "{host} has no model yet: --model FILE, or --no-unit for no service"
                    ))
                })?
            }
        };
        Ok(unit::text(layout, &o.runner, &model))
    }

    /// Writes the unit and, the first time, the service's flags, under temporary names.
    fn write(&self, layout: &Layout, unit: Option<&str>, probe: Option<&Probe>) -> Outcome<Vec<Rename>> {
        let Some(unit) = unit else { return Ok(Vec::new()) };
        let mut files = vec![(unit.to_owned(), temporary(&layout.unit, "unit"), layout.unit.clone())];
        if probe.is_some_and(|probe| probe.has_conf) {
            if self.options.serve_port.is_some() {
                eprintln!("deploy: {} is there: it says the port, not --serve-port", layout.conf);
            }
        } else {
            let text = conf::text(self.options.serve_port);
            files.push((text, temporary(&layout.conf, "conf"), layout.conf.clone()));
        }
        for (text, part, _) in &files {
            self.remote.run(&script::WRITE, &[part, text])?;
        }
        Ok(files.into_iter().map(|(_, part, file)| (part, file)).collect())
    }

    /// The program, and what its `--version` must begin with.
    fn binary(&self) -> Outcome<(Payload, String)> {
        let version = format!("kinglet {}", env!("CARGO_PKG_VERSION"));
        if let Some(path) = &self.options.binary {
            // It may be of another version.
            let version = "kinglet ".to_owned();
            if !self.options.dry_run {
                let bytes = fs::read(path).context(path.display())?;
                let elf = Elf::parse(&bytes).and_then(|elf| elf.check_static(elf::AARCH64));
                elf.context(format_args!("--binary {}", path.display()))?;
            }
            return Ok((self.payload(path)?, version));
        }
        if self.options.dry_run {
            println!("# build the binary and check its size\ncargo xtask size");
            let path = Path::new("target").join("dist").join(Target::Aarch64.triple()).join("kinglet");
            return Ok((Payload { path, bytes: 0, sha256: NO_HASH.into() }, version));
        }
        let built = cross::build(Target::Aarch64, None, cross::Log::Frames)?;
        size::check_budget(&built)?;
        Ok((self.payload(&built.binary)?, version))
    }

    fn payload(&self, path: &Path) -> Outcome<Payload> {
        let sha256 = if self.options.dry_run { NO_HASH.into() } else { model::hash(path)? };
        let bytes = fs::metadata(path).context(path.display())?.len();
        Ok(Payload { path: path.to_owned(), bytes, sha256 })
    }

    /// Copies everything under temporary names.
    fn stage(
        &self,
        layout: &Layout,
        binary: &Payload,
        model: Option<&Payload>,
        probe: Option<&Probe>,
    ) -> Outcome<Vec<Rename>> {
        let mut renames = Vec::new();
        if let (Some(model), Some(to)) = (model, &layout.model) {
            renames.extend(self.send_model(model, to, binary.bytes, probe)?);
        } else {
            fits(binary.bytes, probe)?;
        }
        let part = temporary(&layout.binary, &binary.sha256);
        let upload = Upload { path: &binary.path, from: 0, bytes: binary.bytes };
        let said = self.remote.send(&script::RECEIVE, &[&part, "755"], upload)?;
        same(said.as_deref(), &binary.sha256, &layout.binary)?;
        renames.push((part, layout.binary.clone()));
        Ok(renames)
    }

    /// Copies the model, or what is missing of it, unless the same file is there.
    fn send_model(
        &self,
        model: &Payload,
        to: &str,
        binary_bytes: u64,
        probe: Option<&Probe>,
    ) -> Outcome<Option<Rename>> {
        let part = temporary(to, &model.sha256);
        let state = self.remote.run(&script::MODEL_STATE, &[to, &part, &model.bytes.to_string()])?;
        let state = state.unwrap_or_default();
        if value(&state, "sha256").is_some_and(|said| sha256_of(said).is_ok_and(|hash| hash == model.sha256))
        {
            eprintln!("deploy: the same model is there already");
            fits(binary_bytes, probe)?;
            return Ok(None);
        }
        let had = value(&state, "part").and_then(|bytes| bytes.trim().parse().ok()).unwrap_or(0);
        let mut from = if had <= model.bytes { had } else { 0 };
        fits(binary_bytes + model.bytes - from, probe)?;
        loop {
            if from > 0 {
                eprintln!("deploy: going on after {from} of {} bytes", model.bytes);
            } else if had > 0 {
                self.remote.run(&script::DISCARD, &[&part])?;
            }
            let upload = Upload { path: &model.path, from, bytes: model.bytes };
            let said = self.remote.send(&script::APPEND, &[&part], upload)?;
            match same(said.as_deref(), &model.sha256, to) {
                Ok(()) => return Ok(Some((part, to.to_owned()))),
                Err(failure) if from > 0 => {
                    eprintln!("deploy: {failure}; copying all of it anew");
                    from = 0;
                }
                Err(failure) => {
                    self.remote.run(&script::DISCARD, &[&part])?;
                    return Err(failure);
                }
            }
        }
    }

    /// Puts the new version in place, checks it, and makes it the one that runs. The service before goes on
    /// until the new version has shown that it computes rightly.
    fn switch(&self, layout: &Layout, renames: &[Rename], checks: &[health::Check]) -> Outcome<Said> {
        let pairs: Vec<&str> = renames.iter().flat_map(|(from, to)| [from.as_str(), to]).collect();
        self.remote.run(&script::REPLACE, &pairs)?;
        let checks = health::check(&self.remote, checks)?;
        let mut service = None;
        if self.options.unit {
            let started = self.remote.run(&script::START, &[unit::NAME]);
            service = started.and_then(|_| self.ask(layout)).inspect_err(|_| {
                let _ = self.remote.run(&script::LAST_WORDS, &[unit::NAME]);
            })?;
        }
        Ok(Said { checks, service })
    }

    /// Where the service answers, and what.
    fn ask(&self, layout: &Layout) -> Outcome<Option<String>> {
        let said = self.remote.run(&ask::HEALTH, &[&layout.conf, TRIES])?;
        Ok(said.map(|said| said.lines().collect::<Vec<_>>().join(" ")))
    }
}

/// Compares the hash that the remote says with that of the file here; a dry run has none.
fn same(said: Option<&str>, expected: &str, file: &str) -> Outcome {
    let Some(said) = said else { return Ok(()) };
    let hash = sha256_of(said)?;
    if hash == expected {
        return Ok(());
    }
    Err(Failure::new(format!("{file}: SHA-256 {hash} arrived, {expected} was sent; nothing was replaced")))
}

fn words(list: &[String]) -> Vec<&str> {
    list.iter().map(String::as_str).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_that_differs_is_an_error() {
        let (a, b) = ("a".repeat(64), "b".repeat(64));
        assert!(same(Some(&format!("{a}  -")), &a, "f").is_ok() && same(None, &a, "f").is_ok());
        assert!(same(Some(&format!("{b}  -")), &a, "f").unwrap_err().message.contains("arrived"));
        assert!(same(Some(""), &a, "f").is_err());
    }
}
