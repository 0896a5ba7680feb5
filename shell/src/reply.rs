//! A reply as the user sees it: text as it comes, progress while it does not, numbers at the end.
//! Must not know commands.

use crate::decimal::fixed;
use crate::failure::Failure;
use crate::generate::{self, Choose, Reply, Stop, rate};
use crate::memory;
use crate::session::{Reused, Session};
use crate::setup::Setup;
use crate::signal;
use crate::term::{Output, StatusLine, stderr_is_terminal};
use core::time::Duration;
use kinglet_core::token::{StreamDecoder, Tokenizer};
use std::time::Instant;

/// A prompt that takes longer than this gets a progress line.
const PATIENCE: Duration = Duration::from_secs(1);

/// Turns tokens into text on standard output. Allocates nothing after [`Writer::new`].
pub struct Writer {
    out: Output,
    decoder: StreamDecoder<'static>,
    /// Whether anything came since the last line end of ours.
    open: bool,
}

impl Writer {
    /// A writer for the tokens of `tokenizer`; special tokens show nothing.
    pub fn new(tokenizer: &'static Tokenizer<'static>) -> Writer {
        Writer { out: Output::new(), decoder: StreamDecoder::new(tokenizer, true), open: false }
    }

    /// Shows what `token` completes.
    ///
    /// # Errors
    /// Of standard output; a token outside the vocabulary.
    pub fn push(&mut self, token: u32) -> Result<(), Failure> {
        self.open = true;
        let mut written = Ok(());
        let out = &mut self.out;
        let mut show = |part: &str| {
            if written.is_ok() {
                written = out.text(part);
            }
        };
        self.decoder.push(token, &mut show).map_err(Failure::new)?;
        written?;
        self.out.flush()
    }

    /// Ends a reply with a line end, if there was one.
    ///
    /// # Errors
    /// Of standard output.
    pub fn end_line(&mut self) -> Result<(), Failure> {
        if !core::mem::take(&mut self.open) {
            return Ok(());
        }
        let mut written = Ok(());
        let out = &mut self.out;
        self.decoder.finish(&mut |part| {
            if written.is_ok() {
                written = out.text(part);
            }
        });
        written?;
        self.out.text("\n")?;
        self.out.flush()
    }
}

/// The numbers of one prompt and its reply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    prompt_tokens: usize,
    prompt_time: Duration,
    reused: Reused,
    reply: Option<Reply>,
}

impl Report {
    /// Reads a prompt: takes over what the cache has of it and computes the rest, with a progress line if
    /// it takes long and somebody watches.
    ///
    /// # Errors
    /// As [`Session::begin`] and [`Session::prefill`].
    pub fn read(&mut self, session: &mut Session, ids: &[u32], setup: &Setup) -> Result<(), Failure> {
        self.reused = session.begin(ids)?;
        session.tell_reused(setup, &self.reused);
        let start = Instant::now();
        let mut line = StatusLine::new(!setup.quiet && stderr_is_terminal());
        let mut progress = |done: usize| {
            if start.elapsed() > PATIENCE {
                let all = ids.len() - self.reused.tokens;
                line.show(format_args!("reading the prompt: {done} of {all} tokens"));
            }
            self.prompt_tokens = done;
            self.prompt_time = start.elapsed();
        };
        session.prefill(&ids[self.reused.tokens..], &mut progress)?;
        drop(line);
        tell_prefill(setup, self.prompt_tokens, self.prompt_time);
        Ok(())
    }

    /// Makes a reply of at most `most` tokens and shows it.
    ///
    /// # Errors
    /// Ctrl-C (the report is complete all the same), the engine, standard output.
    pub fn generate(
        &mut self,
        session: &mut Session,
        most: usize,
        chooser: &mut dyn Choose,
        is_end: &dyn Fn(u32) -> bool,
        emit: &mut dyn FnMut(u32) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let reply = generate::generate(session, most, chooser, is_end, emit)?;
        self.reply = Some(reply);
        if reply.stop == Stop::Interrupted { Err(Failure::Interrupted) } else { Ok(()) }
    }

    /// Why the reply ended, once there is one.
    pub fn stop(&self) -> Option<Stop> {
        self.reply.map(|reply| reply.stop)
    }

    /// The line with all numbers.
    pub fn print(&self, setup: &Setup) {
        let (tokens, steps, time) =
            self.reply.map_or((0, 0, Duration::ZERO), |r| (r.tokens, r.steps, r.time));
        setup.note(format_args!(
            "prompt {} tokens {} tok/s, first token after {} ms, reply {tokens} tokens {} tok/s, \
             peak memory {} MB",
            self.prompt_tokens,
            fixed(rate(self.prompt_tokens, self.prompt_time), 1),
            fixed((self.reused.time + self.prompt_time).as_secs_f64() * 1e3, 0),
            fixed(rate(steps, time), 1),
            fixed(memory::peak_resident().unwrap_or(0) as f64 / 1e6, 0),
        ));
    }
}

/// The line about a prompt of which `tokens` had to be computed.
pub fn tell_prefill(setup: &Setup, tokens: usize, time: Duration) {
    let ms = fixed(time.as_secs_f64() * 1e3, 1);
    setup.tell(format_args!("[PREFILL-TIMING] n={tokens} total={ms} ms"));
}

/// Whether a failure is Ctrl-C; if so it counts as answered.
pub fn was_interrupted(done: &Result<(), Failure>) -> bool {
    let interrupted = matches!(done, Err(Failure::Interrupted));
    if interrupted {
        signal::clear();
    }
    interrupted
}
