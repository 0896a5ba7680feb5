//! `logits`: what the engine computes, as bytes or as one hash. Must not know text.

use crate::failure::Failure;
use crate::ids;
use crate::loader::{Model, io_fault, same_file};
use crate::session::Session;
use crate::setup::{self, Setup};
use crate::signal;
use crate::term::{Output, print};
use crate::words::{Help, Word, Words};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

/// Rows of logits computed at a time: enough to read the output matrix once for many.
pub const LOGIT_ROWS: usize = 16;

/// Help text.
pub const HELP: Help = &[
    "usage: kinglet logits -m FILE --ids LIST (-o OUT | --hash) [FLAGS]

Computes the logits of token ids. For one model file, KV type and list they are the same bits on
every machine, whatever the threads, the batch and the kernels.

      --ids LIST           token ids, separated by commas
      --ids-file FILE      reads them from a file
  -o, --output OUT         writes logits as little-endian f32; '-' is standard output
      --all                of all positions, in order; else of the last one
      --hash               prints a BLAKE3 hash over the logits of all positions

",
    setup::FLAGS,
];

/// Where raw logits go.
enum Target {
    File(PathBuf, BufWriter<File>),
    Stdout(Output),
}

impl Target {
    /// Creates the file `path`, which must not be the `model`: emptying a file that is mapped would
    /// kill this program and cost the user the model.
    fn open(path: &Path, model: &Path) -> Result<Target, Failure> {
        if path == Path::new("-") {
            return Ok(Target::Stdout(Output::new()));
        }
        if same_file(path, model) {
            return Err(Failure::file(path, "is the model itself; name another file to write to"));
        }
        let file = File::create(path).map_err(|e| Failure::file(path, io_fault(&e)))?;
        Ok(Target::File(path.to_path_buf(), BufWriter::new(file)))
    }

    fn bytes(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        match self {
            Target::Stdout(out) => out.bytes(bytes),
            Target::File(path, file) => file.write_all(bytes).map_err(|e| Failure::file(path, e)),
        }
    }

    fn finish(&mut self) -> Result<(), Failure> {
        match self {
            Target::Stdout(out) => out.flush(),
            Target::File(path, file) => file.flush().map_err(|e| Failure::file(path, e)),
        }
    }
}

/// Runs the command.
///
/// # Errors
/// Of the command line, the files, the engine.
pub fn command(words: &mut Words) -> Result<(), Failure> {
    let mut setup = Setup { logit_rows: LOGIT_ROWS, ..Setup::default() };
    let (mut list, mut output, mut all, mut hash) = (None, None::<PathBuf>, false, false);
    while let Some(word) = words.advance()? {
        let Word::Flag(flag) = &word else { return Err(words.unknown(word)) };
        match flag.as_str() {
            "-o" | "--output" => output = Some(words.path()?),
            "--all" => all = true,
            "--hash" => hash = true,
            flag if ids::accept(flag, words, &mut list)? || setup.accept(flag, words)? => {}
            _ => return Err(words.unknown(word)),
        }
    }
    let path = words.need(setup.model.clone(), "-m FILE")?;
    let list = words.need(list, "--ids LIST (or --ids-file FILE)")?;
    if output.is_none() && !hash {
        return Err(words.wrong("-o OUT or --hash is missing"));
    }
    if hash && output.as_deref() == Some(Path::new("-")) {
        return Err(words.wrong("--hash and -o - would both write to standard output"));
    }

    let model = Model::open_to_compute(&path)?;
    let mut session = Session::start(&model, &setup)?;
    session.fits(list.len())?;
    // Opened before the work: a folder that is not there is found at once.
    let mut target = output.as_deref().map(|to| Target::open(to, &path)).transpose()?;
    signal::install();
    let mut hasher = blake3::Hasher::new();
    let mut row = Vec::with_capacity(4 * session.config().vocab);
    let mut take = |logits: &[f32], wanted: bool| -> Result<(), Failure> {
        row.clear();
        row.extend(logits.iter().flat_map(|x| x.to_le_bytes()));
        if hash {
            hasher.update(&row);
        }
        match &mut target {
            Some(target) if wanted => target.bytes(&row),
            _ => Ok(()),
        }
    };
    if hash || all {
        let last = list.len() - 1;
        let mut written = Ok(());
        session.score(&list, &mut |at, logits| {
            if written.is_ok() {
                written = take(logits, all || at.position == last);
            }
        })?;
        written?;
    } else {
        session.prefill(&list, &mut |_| {})?;
        take(session.logits(), true)?;
    }
    if let Some(target) = &mut target {
        target.finish()?;
    }
    if hash { print(&format!("{}\n", hasher.finalize().to_hex())) } else { Ok(()) }
}
