//! `run`: one prompt, one reply. Must not know how either is computed.

use crate::cache_flags;
use crate::failure::Failure;
use crate::generate::Stop;
use crate::ids::{read_all, read_text};
use crate::loader::Model;
use crate::parts;
use crate::reply::{Report, Writer};
use crate::sampling::{self, Sampling};
use crate::session::{self, Session};
use crate::setup::{self, Setup};
use crate::signal;
use crate::vocabulary::{Template, Vocabulary};
use crate::words::{Help, Word, Words};
use kinglet_core::chat::Message;
use std::path::PathBuf;

/// Help text.
pub const HELP: Help = &[
    "usage: kinglet run -m FILE -p TEXT [FLAGS]

Answers one prompt. The reply goes to standard output as it is made; Ctrl-C ends it.

Prompt:
  -p, --prompt TEXT        the prompt; '-' reads it from standard input
      --file FILE          reads the prompt from a file
      --system TEXT        system message
      --raw                continues the text as it is, without a chat template
      --no-think           Qwen3: answers without thinking first

",
    sampling::FLAGS,
    "\n",
    cache_flags::FLAGS,
    "\n",
    setup::FLAGS,
];

/// Where the prompt comes from.
enum Source {
    Text(String),
    Stdin,
    File(PathBuf),
}

/// Runs the command.
///
/// # Errors
/// Of the command line, the files, the engine.
pub fn command(words: &mut Words) -> Result<(), Failure> {
    let (mut setup, mut sampling) = (Setup::default(), Sampling::default());
    let (mut source, mut system, mut raw, mut no_think) = (None, None, false, false);
    while let Some(word) = words.advance()? {
        let Word::Flag(flag) = &word else { return Err(words.unknown(word)) };
        match flag.as_str() {
            "-p" | "--prompt" => {
                let text = words.text()?;
                source = Some(if text == "-" { Source::Stdin } else { Source::Text(text) });
            }
            "--file" => source = Some(Source::File(words.path()?)),
            "--system" => system = Some(words.text()?),
            "--raw" => raw = true,
            "--no-think" => no_think = true,
            flag if setup.accept(flag, words)? || setup.cache.accept(flag, words)? => {}
            flag if sampling.accept(flag, words)? => {}
            _ => return Err(words.unknown(word)),
        }
    }
    let path = words.need(setup.model.clone(), "-m FILE")?;
    let source = words.need(source, "-p TEXT (or --file FILE)")?;
    setup.cache.check(words)?;
    if raw && (system.is_some() || no_think) {
        return Err(words.wrong("--raw has no template that --system or --no-think could change"));
    }

    let model = Model::open_to_compute(&path)?;
    let config = model.config()?;
    let mut vocabulary = Vocabulary::open(&model)?;
    let text = read(source)?;
    let prompt = if raw {
        text
    } else {
        let template = Template::of(&model)?;
        if let Some(guess) = template.guessed {
            setup.note(format_args!("{guess}; using that of {:?}", template.family));
        }
        let system = system.as_deref().map(|text| Message::new("system", text));
        let messages: Vec<Message<'_>> = system.into_iter().chain([Message::new("user", &text)]).collect();
        template.render(&messages, no_think)?
    };
    let ids = vocabulary.encode_prompt(&prompt)?;
    if ids.is_empty() {
        return Err(Failure::new("the prompt is empty"));
    }
    // Before any memory is taken: this is the commonest mistake with a long file.
    session::prompt_fits(ids.len(), parts::limits(&setup, &config).max_seq)?;

    let mut session = Session::start(&model, &setup)?;
    session.be_responsive();
    let mut chooser = sampling.start(config.vocab, &setup)?;
    let tokenizer = vocabulary.tokenizer;
    let mut writer = Writer::new(tokenizer);
    let is_end = |token| !sampling.ignore_eos && tokenizer.is_end(token);
    let most = sampling.most.unwrap_or(usize::MAX);
    signal::install();
    let mut report = Report::default();
    let done = report.read(&mut session, &ids, &setup).and_then(|()| {
        report.generate(&mut session, most, &mut chooser, &is_end, &mut |token| writer.push(token))
    });
    let ended = writer.end_line();
    if report.stop() == Some(Stop::ContextFull) {
        let ctx = session.ctx();
        setup.note(format_args!("the reply is cut: the context of {ctx} tokens is full; use a larger --ctx"));
    }
    // An interrupted reply has its numbers too; a failed one has its message.
    if matches!(done, Ok(()) | Err(Failure::Interrupted)) {
        report.print(&setup);
    }
    // Also where nobody reads any more. With `--disk-kv-sync` a reply that is not safe is a failure.
    let safe = if done.is_ok() { session.settle(&setup) } else { Ok(()) };
    session.finish(&setup);
    done.and(ended).and(safe)
}

fn read(source: Source) -> Result<String, Failure> {
    match source {
        Source::Text(text) => Ok(text),
        Source::File(path) => read_text(&path),
        Source::Stdin => {
            let bytes = read_all(std::io::stdin().lock())
                .map_err(|e| Failure::new(format_args!("standard input: {e}")))?;
            String::from_utf8(bytes).map_err(|_| Failure::new("standard input is not UTF-8"))
        }
    }
}
