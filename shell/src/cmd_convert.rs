//! `convert`: a model file with weights of another type. Must not know how blocks are made.

use crate::convert::{self, quantize::Target};
use crate::failure::Failure;
use crate::loader::Model;
use crate::memory::megabytes;
use crate::signal;
use crate::term::{StatusLine, note, stderr_is_terminal};
use crate::words::{Help, Word, Words};
use core::time::Duration;
use std::time::Instant;

/// Help text.
pub const HELP: Help = &["usage: kinglet convert -m IN.gguf --type TYPE -o OUT.gguf [FLAGS]

Writes a model file again with all its matrices in one weight type, the blocks as llama.cpp's
quantiser makes them; norms, biases and metadata stay as they are. Weights that were rounded before
are rounded once more: start from a file with 16 or 32 bits where there is one.

  -m, --model FILE         the model file
      --type TYPE          q8_0 (8.5 bits a weight) or q4_0 (4.5 bits)
  -o, --output FILE        the file to write; it appears when it is complete
      --force              replace that file if it exists
      --quiet              no notes on standard error
"];

/// Runs that are shorter show no progress.
const PATIENCE: Duration = Duration::from_secs(1);

/// Runs the command.
///
/// # Errors
/// Of the command line, the model, the file to be written.
pub fn command(words: &mut Words) -> Result<(), Failure> {
    let (mut model, mut target, mut out, mut force, mut quiet) = (None, None, None, false, false);
    while let Some(word) = words.advance()? {
        let Word::Flag(flag) = &word else { return Err(words.unknown(word)) };
        match flag.as_str() {
            "-m" | "--model" => model = Some(words.path()?),
            "--type" => target = Some(Target::ALL[words.choice(&Target::NAMES)?]),
            "-o" | "--output" => out = Some(words.path()?),
            "--force" => force = true,
            "--quiet" => quiet = true,
            _ => return Err(words.unknown(word)),
        }
    }
    let path = words.need(model, "-m FILE")?;
    let target = words.need(target, "--type TYPE")?;
    let out = words.need(out, "-o FILE")?;
    let model = Model::open(&path)?;
    signal::install();
    let written = {
        let mut line = StatusLine::new(!quiet && stderr_is_terminal());
        let start = Instant::now();
        convert::rewrite(&model, target, &out, force, &mut |written, all| {
            if start.elapsed() > PATIENCE {
                let size = |bytes: u64| megabytes(usize::try_from(bytes).unwrap_or(usize::MAX));
                line.show(format_args!("written: {} of {}", size(written), size(all)));
            }
        })?
    };
    if !quiet {
        note(format_args!("{}", convert::said(written, target, &out)));
    }
    Ok(())
}
