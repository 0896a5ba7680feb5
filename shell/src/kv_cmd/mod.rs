//! `kv`: a look at the files of KV caches, and care for them. Must not know engines.

mod about;
mod age;
mod catalogue;
mod chains;
mod check;
mod conversations;
mod export;
mod fsck;
mod label;
mod ls;
mod rm;
#[cfg(test)]
mod tests;

use crate::failure::Failure;
use crate::loader::same_file;
use crate::memory::megabytes;
use crate::signal;
use crate::store::{Disk, Medium};
use crate::term::{StatusLine, print, stderr_is_terminal};
use crate::words::{Help, Word, Words, nearest};
use catalogue::{Catalogue, Scan};
use core::time::Duration;
use fsck::{Found, Fsck};
use rm::{Removal, Which};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Help text.
pub const HELP: Help = &["usage: kinglet kv ls|fsck|rm|export --disk-kv DIR [FLAGS]

Looks after a directory of KV caches (--disk-kv of the other commands), which may go on using it.
A conversation is a chain of blocks of 32 tokens, each with a file of its own; conversations that
begin alike share blocks. Its id is that of its last block; any beginning that no other id has will do.

  kv ls                    one line for each conversation: id, tokens, size, how much of that others
                           share, time since it was last read or written, how often it was read (both
                           of the blocks that it does not share), the user's first words
  kv fsck                  reads every file whole, and says what is wrong
  kv rm ID...              removes conversations: the blocks that no other one needs
  kv export ID... -o DIR2  copies conversations, to be used as --disk-kv there or on another board

      --disk-kv DIR        the directory
ls:
  -m, --model FILE         shows words by this model's tokenizer, where it fits; without it by the file
                           that filled the directory, if it is still there, else token ids
      --json               JSON in place of text
fsck:
      --fix                damaged files get another name (.bad), blocks that cannot be reached since one
                           before them is missing and unfinished files older than an hour are removed
rm, in place of ID:
      --all                all conversations, and all files that are damaged or set aside
      --older-than AGE     conversations that were of no use for AGE: 90s, 30min, 12h, 7d, 4w
      --bad                files that were set aside
      --model FINGERPRINT  only what belongs to this model (digits in brackets in 'kv ls', or more);
                           alone: all of that
      --dry-run            only says how much that would be
export:
  -o, --output DIR2        the other directory; it is made if it is not there

Exit code 1 if fsck finds something wrong (with --fix: and could not put it right).
"];

/// Work that takes less shows no progress.
const PATIENCE: Duration = Duration::from_secs(1);
/// The least time between two looks of the progress.
const PAUSE: Duration = Duration::from_millis(100);

/// What there is to do, and the flags that go with each.
const ACTIONS: [(&str, &[&str]); 4] = [
    ("ls", &["--model", "--json"]),
    ("fsck", &["--fix"]),
    ("rm", &["--all", "--older-than", "--bad", "--model", "--dry-run"]),
    ("export", &["--output"]),
];

/// The command line.
#[derive(Default)]
struct Given {
    action: Option<usize>,
    ids: Vec<String>,
    dir: Option<PathBuf>,
    model: Option<OsString>,
    out: Option<PathBuf>,
    older_than: Option<u64>,
    /// Flags that do not go with all actions.
    flags: Vec<&'static str>,
}

impl Given {
    fn has(&self, flag: &str) -> bool {
        self.flags.contains(&flag)
    }
}

/// Runs the command.
///
/// # Errors
/// Of the command line and of the directory; something is wrong in it; Ctrl-C.
pub fn command(words: &mut Words) -> Result<(), Failure> {
    let given = read(words)?;
    let Some(action) = given.action else {
        return Err(words.wrong("say what to do: ls, fsck, rm or export"));
    };
    let (name, allowed) = ACTIONS[action];
    if let Some(flag) = given.flags.iter().find(|flag| !allowed.contains(flag)) {
        return Err(words.wrong(&format!("{flag} does not go with '{name}'; see 'kinglet help kv'")));
    }
    let dir = words.need(given.dir.clone(), "--disk-kv DIR")?;
    match name {
        "ls" => {
            let model = given.model.as_ref().map(Path::new);
            let (disk, all) = open(&dir, false)?;
            ls::ls(&dir, &all, disk.now().seconds, model, given.has("--json"))
        }
        "fsck" => {
            let (disk, all) = open(&dir, true)?;
            let (now, fix, out) = (disk.now().seconds, given.has("--fix"), &mut print);
            Fsck { medium: &disk, now, fix, out, found: Found::default() }.run(&dir, &all)
        }
        "rm" => {
            let which = which(words, &given)?;
            let model = given.model.as_ref().map(|model| model.to_string_lossy());
            let (disk, all) = open(&dir, false)?;
            let now = disk.now().seconds;
            let dry_run = given.has("--dry-run");
            let line = {
                let mut progress = Progress::new("removed");
                let (model, progress) = (model.as_deref(), &mut |files, bytes| progress.show(files, bytes));
                Removal { medium: &disk, all: &all, now, model, dry_run, progress }.run(&which)?
            };
            print(&line)
        }
        _ => {
            let out = words.need(given.out.clone(), "-o DIR2")?;
            if given.ids.is_empty() {
                return Err(words.wrong("ID is missing; 'kinglet kv ls' shows them"));
            }
            if same_file(&dir, &out) {
                return Err(Failure::file(&out, "is the directory itself; name another one"));
            }
            let (disk, all) = open(&dir, false)?;
            let line = {
                let mut progress = Progress::new("copied");
                let progress = &mut |files, bytes| progress.show(files, bytes);
                export::export(&disk, &all, &given.ids, &out, progress)?
            };
            print(&line)
        }
    }
}

#[inline(never)]
fn read(words: &mut Words) -> Result<Given, Failure> {
    let mut given = Given::default();
    while let Some(word) = words.advance()? {
        let flag = match word {
            Word::Flag(flag) => flag,
            Word::Value(value) => {
                let value = value.to_string_lossy().into_owned();
                match given.action {
                    None => given.action = Some(action(words, &value)?),
                    Some(2 | 3) => given.ids.push(value),
                    Some(_) => return Err(words.unknown(Word::Value(value.into()))),
                }
                continue;
            }
        };
        match flag.as_str() {
            "--disk-kv" => {
                given.dir = Some(words.path()?);
                continue;
            }
            "-m" | "--model" => given.model = Some(words.os()?),
            "-o" | "--output" => given.out = Some(words.path()?),
            "--older-than" => {
                let text = words.text()?;
                let age = age::parse(&text);
                let wrong =
                    || format!("'{}' is no age; write 90s, 30min, 12h, 7d or 4w", text.escape_debug());
                given.older_than = Some(age.ok_or_else(|| words.bad(&wrong()))?);
            }
            _ => {}
        }
        let long = match flag.as_str() {
            "-m" => "--model",
            "-o" => "--output",
            other => other,
        };
        let known = ACTIONS.iter().flat_map(|(_, flags)| *flags).find(|known| **known == long);
        given.flags.push(known.ok_or_else(|| words.unknown(Word::Flag(flag)))?);
    }
    Ok(given)
}

#[inline(never)]
fn action(words: &Words, name: &str) -> Result<usize, Failure> {
    ACTIONS.iter().position(|(action, _)| *action == name).ok_or_else(|| {
        let hint = nearest(name, ACTIONS.iter().map(|(action, _)| *action));
        let hint =
            hint.map_or(String::from("use ls, fsck, rm or export"), |near| format!("did you mean {near}?"));
        words.wrong(&format!("unknown '{}'; {hint}", name.escape_debug()))
    })
}

/// What `rm` is to remove.
#[inline(never)]
fn which(words: &Words, given: &Given) -> Result<Which, Failure> {
    let mut chosen = Vec::new();
    if !given.ids.is_empty() {
        chosen.push(Which::Ids(given.ids.clone()));
    }
    if given.has("--all") {
        chosen.push(Which::All);
    }
    if given.has("--bad") {
        chosen.push(Which::Bad);
    }
    if let Some(seconds) = given.older_than {
        chosen.push(Which::OlderThan(seconds));
    }
    match (chosen.pop(), chosen.pop()) {
        (Some(which), None) => Ok(which),
        (None, _) if given.model.is_some() => Ok(Which::All),
        (None, _) => {
            Err(words.wrong("say what to remove: ID, --all, --older-than AGE, --bad or --model FINGERPRINT"))
        }
        _ => Err(words.wrong("only one of ID, --all, --older-than and --bad at a time")),
    }
}

/// A line on the terminal about work that takes long.
struct Progress {
    what: &'static str,
    line: StatusLine,
    start: Instant,
    next: Duration,
}

impl Progress {
    fn new(what: &'static str) -> Progress {
        Progress { what, line: StatusLine::new(stderr_is_terminal()), start: Instant::now(), next: PATIENCE }
    }

    fn show(&mut self, files: u64, bytes: u64) {
        let now = self.start.elapsed();
        if now >= self.next {
            self.next = now + PAUSE;
            self.line.show(format_args!("{}: {files} files, {}", self.what, megabytes(bytes as usize)));
        }
    }
}

/// Opens a directory and reads what is in it; with `whole`, all of every file.
fn open(dir: &Path, whole: bool) -> Result<(Disk, Catalogue), Failure> {
    // A directory that is not there would be made.
    match std::fs::metadata(dir) {
        Err(e) => return Err(Failure::file(dir, format_args!("{e}; name the directory given to --disk-kv"))),
        Ok(about) if !about.is_dir() => {
            return Err(Failure::file(dir, "is no directory; name the one given to --disk-kv"));
        }
        Ok(_) => {}
    }
    let disk = Disk::open(dir)?;
    signal::install();
    let all = {
        let mut progress = Progress::new("read");
        let progress = &mut |files, bytes| progress.show(files, bytes);
        let scan = Scan { medium: &disk, block: whole.then(Vec::new), progress };
        scan.run().map_err(|e| match e {
            Failure::Failed(why) => Failure::file(dir, why),
            other => other,
        })?
    };
    if all.folders.is_empty() {
        let why = match (all.foreign, all.temporary.len()) {
            (0, 0) => "is empty; a run with --disk-kv fills it",
            _ => "holds no KV cache; name the directory given to --disk-kv",
        };
        return Err(Failure::file(dir, why));
    }
    Ok((disk, all))
}
