//! `chat`: turn by turn, the KV of earlier turns reused. Must not know how replies are computed.

use crate::failure::Failure;
use crate::generate::Stop;
use crate::lines::{Line, Lines};
use crate::loader::Model;
use crate::reply::{Report, Writer, was_interrupted};
use crate::sampling::{Chooser, Sampling};
use crate::session::Session;
use crate::setup::Setup;
use crate::signal;
use crate::term::note;
use crate::vocabulary::{Template, Vocabulary};
use crate::words::{Word, Words};
use crate::{engine_flags, sampling_flags};
use kinglet_core::chat::Message;
use std::io::{IsTerminal, Write};

/// Help text.
pub const HELP: &str = concat!(
    "usage: kinglet chat -m FILE [FLAGS]

A conversation, one line of standard input for each turn, on a terminal or from a pipe. Replies go
to standard output. Ctrl-C ends a reply, Ctrl-D the program. A line that begins with / is a command:
/help, /clear, /system TEXT, /exit.

      --system TEXT        system message
      --no-think           Qwen3: answers without thinking first

",
    sampling_flags!(),
    "\n",
    engine_flags!()
);

const COMMANDS: &str = "/clear         forgets the conversation (the system message stays)
/system TEXT   sets the system message and forgets the conversation; without TEXT, none
/exit          ends the program, as Ctrl-D does
Ctrl-C         ends a reply";

/// Runs the command.
///
/// # Errors
/// Of the command line, the files, the engine.
pub fn command(words: &mut Words) -> Result<(), Failure> {
    let (mut setup, mut sampling) = (Setup::default(), Sampling::default());
    let (mut system, mut no_think) = (None, false);
    while let Some(word) = words.advance()? {
        let Word::Flag(flag) = &word else { return Err(words.unknown(word)) };
        match flag.as_str() {
            "--system" => system = Some(words.text()?),
            "--no-think" => no_think = true,
            flag if setup.accept(flag, words)? || sampling.accept(flag, words)? => {}
            _ => return Err(words.unknown(word)),
        }
    }
    let path = words.need(setup.model.clone(), "-m FILE")?;
    let model = Model::open(&path)?;
    let config = model.config()?;
    let vocabulary = Vocabulary::open(&model)?;
    let template = Template::of(&model)?;
    if let Some(guess) = template.guessed {
        setup.note(format_args!("{guess}; using that of {:?}", template.family));
    }
    let mut session = Session::start(&model, &setup)?;
    session.be_responsive();
    let chooser = sampling.start(config.vocab, &setup)?;
    let writer = Writer::new(vocabulary.tokenizer);
    let reply = Vec::with_capacity(session.ctx());
    signal::install();
    let mut chat = Chat {
        session,
        vocabulary,
        template,
        no_think,
        sampling,
        chooser,
        writer,
        setup,
        system,
        turns: Vec::new(),
        reply,
    };
    chat.talk()
}

/// A conversation.
struct Chat {
    session: Session,
    vocabulary: Vocabulary,
    template: Template,
    no_think: bool,
    sampling: Sampling,
    chooser: Chooser,
    writer: Writer,
    setup: Setup,
    system: Option<String>,
    /// Role and text.
    turns: Vec<(&'static str, String)>,
    /// Tokens of the reply being made; room for the whole context.
    reply: Vec<u32>,
}

impl Chat {
    fn talk(&mut self) -> Result<(), Failure> {
        let terminal = std::io::stdin().is_terminal();
        if terminal {
            self.setup.note(format_args!("/help explains, Ctrl-D ends"));
        }
        let mut lines = Lines::new();
        loop {
            if terminal {
                let mut err = std::io::stderr().lock();
                let _ = err.write_all(b"> ").and_then(|()| err.flush());
            }
            let read = lines.line().map_err(|e| Failure::new(format_args!("standard input: {e}")))?;
            let line = match read {
                Line::End => return Ok(()),
                Line::Interrupted if !terminal => return Err(Failure::Interrupted),
                Line::Interrupted => {
                    let _ = std::io::stderr().lock().write_all(b"\n");
                    continue;
                }
                Line::NotUtf8 if !terminal => return Err(Failure::new("standard input is not UTF-8")),
                Line::NotUtf8 => {
                    note(format_args!("that was not UTF-8; it is passed over"));
                    continue;
                }
                Line::Text(line) => line,
            };
            match line.strip_prefix('/') {
                _ if line.trim().is_empty() => {}
                Some(command) if !self.obey(command) => return Ok(()),
                Some(_) => {}
                None => self.turn(line)?,
            }
        }
    }

    /// Does what a line after its `/` says; whether to go on.
    fn obey(&mut self, command: &str) -> bool {
        let (name, rest) = command.split_once(char::is_whitespace).unwrap_or((command, ""));
        match name {
            "exit" | "quit" | "bye" => return false,
            "clear" => {
                self.turns.clear();
                note(format_args!("the conversation is forgotten"));
            }
            "system" => {
                let text = rest.trim();
                self.system = (!text.is_empty()).then(|| String::from(text));
                self.turns.clear();
                note(format_args!("the system message is set, the conversation is forgotten"));
            }
            "help" | "?" => {
                let _ = writeln!(std::io::stderr().lock(), "{COMMANDS}");
            }
            other => note(format_args!("unknown command /{}; /help lists them", other.escape_debug())),
        }
        true
    }

    /// One turn of the user and the reply to it. Where that does not work the turn is taken back.
    fn turn(&mut self, text: String) -> Result<(), Failure> {
        self.turns.push(("user", text));
        let system = self.system.as_deref().map(|text| Message::new("system", text));
        let turns = self.turns.iter().map(|(role, text)| Message::new(role, text));
        let messages: Vec<Message<'_>> = system.into_iter().chain(turns).collect();
        let prompt = self.template.render(&messages, self.no_think)?;
        let ids = self.vocabulary.encode_prompt(&prompt)?;
        if ids.len() > self.session.ctx() {
            self.turns.pop();
            note(format_args!(
                "context full: with this message the conversation has {} tokens, the context holds {}; \
                 say less, /clear it, or start again with a larger --ctx",
                ids.len(),
                self.session.ctx(),
            ));
            return Ok(());
        }
        // The last token is computed again even if all are there: its logits are needed.
        let reused = self.session.common_prefix(&ids).min(ids.len() - 1);
        self.session.keep(reused)?;
        if reused > 0 && !self.setup.quiet {
            let _ = writeln!(std::io::stderr().lock(), "[KV-PREFIX] reused {reused} tokens");
        }

        let mut report = Report::default();
        let read = report.prefill(&mut self.session, &ids[reused..], &self.setup);
        if was_interrupted(&read) {
            self.turns.pop();
            note(format_args!("interrupted; your message is taken back"));
            return Ok(());
        }
        read?;
        self.reply.clear();
        let tokenizer = self.vocabulary.tokenizer;
        let ignore_eos = self.sampling.ignore_eos;
        let (reply, writer) = (&mut self.reply, &mut self.writer);
        let done = report.generate(
            &mut self.session,
            self.sampling.most.unwrap_or(usize::MAX),
            &mut self.chooser,
            &|token| !ignore_eos && tokenizer.is_end(token),
            &mut |token| {
                reply.push(token);
                writer.push(token)
            },
        );
        self.writer.end_line()?;
        if !was_interrupted(&done) {
            done?;
        }
        let text = self.vocabulary.decode(&self.reply);
        self.turns.push(("assistant", text));
        if report.stop() == Some(Stop::ContextFull) {
            note(format_args!(
                "context full: the reply is cut after {} tokens in all; /clear the conversation, or start \
                 again with a larger --ctx",
                self.session.ctx(),
            ));
        }
        report.print(&self.setup);
        Ok(())
    }
}
