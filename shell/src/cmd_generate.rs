//! `generate`: token ids in, greedy token ids out. Must not know text.

use crate::cache_flags;
use crate::failure::Failure;
use crate::generate::{Greedy, Stop, generate};
use crate::ids;
use crate::lines::{Line, Lines};
use crate::loader::Model;
use crate::reply::Report;
use crate::session::Session;
use crate::setup::{self, Setup};
use crate::signal;
use crate::term::Output;
use crate::vocabulary::Vocabulary;
use crate::words::{Help, Word, Words};
use kinglet_core::token::Tokenizer;

/// Help text.
pub const HELP: Help = &[
    "usage: kinglet generate -m FILE --ids LIST -n N [FLAGS]

Continues token ids greedily (the most probable token each time) and writes the new ids in one
line, separated by commas. End tokens are tokens like any other.

      --ids LIST           token ids, separated by commas
      --ids-file FILE      reads them from a file
      --jsonl              reads lines of JSON arrays of ids and answers each with a line; what a line has in
                           common with an earlier one is not computed again
  -n N                     how many ids to make
      --stop-eos           stops after an end token

",
    cache_flags::FLAGS,
    "\n",
    setup::FLAGS,
];

/// Runs the command.
///
/// # Errors
/// Of the command line, the files, the engine.
pub fn command(words: &mut Words) -> Result<(), Failure> {
    let (mut setup, mut prompt, mut most) = (Setup::default(), None, None);
    let (mut stop_eos, mut jsonl) = (false, false);
    while let Some(word) = words.advance()? {
        let Word::Flag(flag) = &word else { return Err(words.unknown(word)) };
        match flag.as_str() {
            "-n" => most = Some(words.number(1..=usize::MAX)?),
            "--stop-eos" => stop_eos = true,
            "--jsonl" => jsonl = true,
            flag if ids::accept(flag, words, &mut prompt)? || setup.accept(flag, words)? => {}
            flag if setup.cache.accept(flag, words)? => {}
            _ => return Err(words.unknown(word)),
        }
    }
    let path = words.need(setup.model.clone(), "-m FILE")?;
    let prompts = match (prompt, jsonl) {
        (Some(_), true) => return Err(words.wrong("--jsonl reads the ids from standard input")),
        (prompt, true) => prompt,
        (prompt, false) => Some(words.need(prompt, "--ids LIST (or --ids-file FILE, or --jsonl)")?),
    };
    let most = words.need(most, "-n N")?;
    setup.cache.check(words)?;
    setup.several = jsonl;

    let model = Model::open_to_compute(&path)?;
    let tokenizer = if stop_eos { Some(Vocabulary::open(&model)?.tokenizer) } else { None };
    let mut session = Session::start(&model, &setup)?;
    signal::install();
    let done = match prompts {
        Some(ids) => reply(&mut session, &setup, &ids, most, tokenizer),
        None => lines(&mut session, &setup, most, tokenizer),
    };
    session.finish(&setup);
    done
}

/// Answers line after line.
fn lines(
    session: &mut Session,
    setup: &Setup,
    most: usize,
    tokenizer: Option<&Tokenizer<'_>>,
) -> Result<(), Failure> {
    let (mut lines, mut number) = (Lines::new(), 0);
    loop {
        number += 1;
        let wrong = |fault: &str| Failure::new(format_args!("standard input, line {number}: {fault}"));
        let read = lines.line(&mut || session.save_more()).map_err(|e| wrong(&e.to_string()))?;
        match read {
            Line::End => return Ok(()),
            Line::Interrupted => return Err(Failure::Interrupted),
            Line::NotUtf8 => return Err(wrong("not UTF-8")),
            Line::Text(line) if line.trim().is_empty() => {}
            Line::Text(line) => {
                let ids = ids::parse(&line).map_err(|e| wrong(&e))?;
                reply(session, setup, &ids, most, tokenizer)?;
            }
        }
    }
}

/// Reads the prompt and writes what follows it.
fn reply(
    session: &mut Session,
    setup: &Setup,
    prompt: &[u32],
    most: usize,
    tokenizer: Option<&Tokenizer<'_>>,
) -> Result<(), Failure> {
    let mut out = Output::new();
    Report::default().read(session, prompt, setup)?;
    let is_end = |token| tokenizer.is_some_and(|t| t.is_end(token));
    let mut border = "";
    let mut write = |token: u32| {
        out.text(border)?;
        border = ",";
        out.number(token)?;
        out.flush()
    };
    let reply = generate(session, most, &mut Greedy, &is_end, &mut write)?;
    if let Stop::End(token) = reply.stop {
        write(token)?;
    }
    // With `--disk-kv-sync` the line ends when the reply is safe.
    session.settle(setup)?;
    out.text("\n")?;
    out.flush()?;
    match reply.stop {
        Stop::Interrupted => Err(Failure::Interrupted),
        Stop::ContextFull if reply.tokens < most => Err(Failure::new(format_args!(
            "the context of {} tokens is full after {} of {most} tokens; use a larger --ctx",
            session.ctx(),
            reply.tokens,
        ))),
        _ => Ok(()),
    }
}
