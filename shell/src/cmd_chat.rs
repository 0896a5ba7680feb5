//! `chat`: turn by turn, the KV of earlier turns reused. Must not know how replies are computed.

use crate::cache_flags;
use crate::failure::Failure;
use crate::generate::Stop;
use crate::history::{History, Turn};
use crate::lines::{Line, Lines};
use crate::loader::Model;
use crate::reply::{Report, Writer, was_interrupted};
use crate::sampling::{self, Chooser, Sampling};
use crate::session::Session;
use crate::setup::{self, Setup};
use crate::signal;
use crate::term::note;
use crate::vocabulary::{Template, Vocabulary};
use crate::words::{Help, Word, Words};
use kinglet_core::chat::Message;
use std::io::{IsTerminal, Write};

/// Help text.
pub const HELP: Help = &[
    "usage: kinglet chat -m FILE [FLAGS]

A conversation, one line of standard input for each turn, on a terminal or from a pipe. Replies go
to standard output. Ctrl-C ends a reply, Ctrl-D the program. A line that begins with / is a command:
/help, /clear, /system TEXT, /exit.

      --system TEXT        system message
      --no-think           Qwen3: answers without thinking first
      --history FILE       keeps the conversation in FILE, a JSON object a line, and goes on with what is
                           there; with --disk-kv a chat that was killed goes on at once

",
    sampling::FLAGS,
    "\n",
    cache_flags::FLAGS,
    "\n",
    setup::FLAGS,
];

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
    let (mut system, mut no_think, mut history) = (None, false, None);
    while let Some(word) = words.advance()? {
        let Word::Flag(flag) = &word else { return Err(words.unknown(word)) };
        match flag.as_str() {
            "--system" => system = Some(words.text()?),
            "--no-think" => no_think = true,
            "--history" => history = Some(words.path()?),
            flag if setup.accept(flag, words)? || setup.cache.accept(flag, words)? => {}
            flag if sampling.accept(flag, words)? => {}
            _ => return Err(words.unknown(word)),
        }
    }
    let path = words.need(setup.model.clone(), "-m FILE")?;
    setup.cache.check(words)?;
    setup.several = true;
    let (history, mut turns, cut) = History::open(history)?;
    if cut > 0 {
        note(format_args!("the history's last line was not finished ({cut} bytes); it is left out"));
    }
    if let Some(said) = turns.first().filter(|(role, _)| *role == "system").map(|(_, text)| text.clone()) {
        turns.remove(0);
        system = system.or(Some(said));
    }
    let model = Model::open_to_compute(&path)?;
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
        history,
        turns,
        reply,
    };
    let said = chat.talk();
    // Whatever ended it: what was computed is worth keeping.
    chat.session.finish(&chat.setup);
    said
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
    history: History,
    /// Role and text, without the system's.
    turns: Vec<Turn>,
    /// Tokens of the reply being made; room for the whole context.
    reply: Vec<u32>,
}

impl Chat {
    fn talk(&mut self) -> Result<(), Failure> {
        let terminal = std::io::stdin().is_terminal();
        if !self.turns.is_empty() {
            self.setup.note(format_args!("going on after {} messages", self.turns.len()));
        }
        if terminal {
            self.setup.note(format_args!("/help explains, Ctrl-D ends"));
        }
        let mut lines = Lines::new();
        loop {
            if terminal {
                let mut err = std::io::stderr().lock();
                let _ = err.write_all(b"> ").and_then(|()| err.flush());
            }
            // While the user thinks and types, what is left of the last turn goes to the disk.
            let read = lines
                .line(&mut || self.session.save_more())
                .map_err(|e| Failure::new(format_args!("standard input: {e}")))?;
            let line = match read {
                Line::End => return Ok(()),
                Line::Interrupted if !terminal || signal::terminated() => return Err(Failure::Interrupted),
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
                Some(command) if !self.obey(command)? => return Ok(()),
                Some(_) => {}
                None => self.turn(line)?,
            }
        }
    }

    /// Does what a line after its `/` says; whether to go on.
    fn obey(&mut self, command: &str) -> Result<bool, Failure> {
        let (name, rest) = command.split_once(char::is_whitespace).unwrap_or((command, ""));
        match name {
            "exit" | "quit" | "bye" => return Ok(false),
            "clear" => {
                self.forget()?;
                note(format_args!("the conversation is forgotten"));
            }
            "system" => {
                let text = rest.trim();
                self.system = (!text.is_empty()).then(|| String::from(text));
                self.forget()?;
                note(format_args!("the system message is set, the conversation is forgotten"));
            }
            "help" | "?" => {
                let _ = writeln!(std::io::stderr().lock(), "{COMMANDS}");
            }
            other => note(format_args!("unknown command /{}; /help lists them", other.escape_debug())),
        }
        Ok(true)
    }

    /// Forgets the conversation, here and in its file.
    fn forget(&mut self) -> Result<(), Failure> {
        self.turns.clear();
        let system: Vec<Turn> = self.system.iter().map(|text| ("system", text.clone())).collect();
        self.history.replace(&system)
    }

    /// Adds the turn that just ended to the file; before the first one goes the system's message.
    fn remember(&self) -> Result<(), Failure> {
        let new = &self.turns[self.turns.len() - 2..];
        if self.turns.len() > 2 {
            return self.history.add(new);
        }
        let system = self.system.iter().map(|text| ("system", text.clone()));
        self.history.replace(&system.chain(new.iter().cloned()).collect::<Vec<Turn>>())
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
        let mut report = Report::default();
        let read = report.read(&mut self.session, &ids, &self.setup);
        if was_interrupted(&read) {
            if signal::terminated() {
                return Err(Failure::Interrupted);
            }
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
        self.remember()?;
        // The conversation goes on all the same.
        if let Err(Failure::Failed(line)) = self.session.settle(&self.setup) {
            note(format_args!("{line}"));
        }
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
