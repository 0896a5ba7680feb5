//! `generate`: token ids in, greedy token ids out. Must not know text.

use crate::engine_flags;
use crate::failure::Failure;
use crate::generate::{Greedy, Stop, generate};
use crate::ids;
use crate::loader::Model;
use crate::session::Session;
use crate::setup::Setup;
use crate::signal;
use crate::term::Output;
use crate::vocabulary::Vocabulary;
use crate::words::{Word, Words};

/// Help text.
pub const HELP: &str = concat!(
    "usage: kinglet generate -m FILE --ids LIST -n N [FLAGS]

Continues token ids greedily (the most probable token each time) and writes the new ids in one
line, separated by commas. End tokens are tokens like any other.

      --ids LIST           token ids, separated by commas
      --ids-file FILE      reads them from a file
  -n N                     how many ids to make
      --stop-eos           stops after an end token

",
    engine_flags!()
);

/// Runs the command.
///
/// # Errors
/// Of the command line, the files, the engine.
pub fn command(words: &mut Words) -> Result<(), Failure> {
    let (mut setup, mut prompt, mut most, mut stop_eos) = (Setup::default(), None, None, false);
    while let Some(word) = words.advance()? {
        let Word::Flag(flag) = &word else { return Err(words.unknown(word)) };
        match flag.as_str() {
            "-n" => most = Some(words.number(1..=usize::MAX)?),
            "--stop-eos" => stop_eos = true,
            flag if ids::accept(flag, words, &mut prompt)? || setup.accept(flag, words)? => {}
            _ => return Err(words.unknown(word)),
        }
    }
    let path = words.need(setup.model.clone(), "-m FILE")?;
    let prompt = words.need(prompt, "--ids LIST (or --ids-file FILE)")?;
    let most = words.need(most, "-n N")?;

    let model = Model::open(&path)?;
    let tokenizer = if stop_eos { Some(Vocabulary::open(&model)?.tokenizer) } else { None };
    let mut session = Session::start(&model, &setup)?;
    let mut out = Output::new();
    signal::install();
    session.prefill(&prompt, &mut |_| {})?;
    let is_end = |token| tokenizer.is_some_and(|t| t.is_end(token));
    let mut border = "";
    let mut write = |token: u32| {
        out.text(border)?;
        border = ",";
        out.number(token)?;
        out.flush()
    };
    let reply = generate(&mut session, most, &mut Greedy, &is_end, &mut write)?;
    if let Stop::End(token) = reply.stop {
        write(token)?;
    }
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
