//! Where words go: replies to standard output, everything else to standard error. Must not know
//! what is said.

use crate::failure::Failure;
use core::fmt;
use std::io::{self, IsTerminal, StdoutLock, Write};

/// Locked standard output. Writing allocates nothing after [`Output::new`].
#[derive(Debug)]
pub struct Output {
    out: StdoutLock<'static>,
}

impl Output {
    /// Locks standard output for this thread; its buffer is made here.
    pub fn new() -> Output {
        Output { out: io::stdout().lock() }
    }

    /// Writes `text`; it may stay in the buffer until [`Output::flush`] or the end of the line.
    ///
    /// # Errors
    /// [`Failure::PipeClosed`] if nobody reads any more.
    pub fn text(&mut self, text: &str) -> Result<(), Failure> {
        self.bytes(text.as_bytes())
    }

    /// As [`Output::text`], for bytes.
    ///
    /// # Errors
    /// As there.
    pub fn bytes(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.out.write_all(bytes).map_err(|e| Failure::stdout(&e))
    }

    /// Writes a number.
    ///
    /// # Errors
    /// As there.
    pub fn number(&mut self, n: u32) -> Result<(), Failure> {
        write!(self.out, "{n}").map_err(|e| Failure::stdout(&e))
    }

    /// Hands everything on.
    ///
    /// # Errors
    /// As for [`Output::text`].
    pub fn flush(&mut self) -> Result<(), Failure> {
        self.out.flush().map_err(|e| Failure::stdout(&e))
    }
}

impl Default for Output {
    fn default() -> Self {
        Self::new()
    }
}

/// Writes a whole text to standard output.
///
/// # Errors
/// As for [`Output::text`].
pub fn print(text: &str) -> Result<(), Failure> {
    let mut out = Output::new();
    out.text(text)?;
    out.flush()
}

/// One line to standard error. If nobody is there to read it, so be it.
pub fn note(line: fmt::Arguments<'_>) {
    let _ = writeln!(io::stderr().lock(), "[kinglet] {line}");
}

/// As [`note`], for lines with a mark of their own.
pub fn log_line(line: fmt::Arguments<'_>) {
    let _ = writeln!(io::stderr().lock(), "{line}");
}

/// Says on standard error why the program ends.
pub fn complain(failure: &Failure) {
    let mut err = io::stderr().lock();
    let _ = match failure {
        Failure::Usage(line) | Failure::Failed(line) => writeln!(err, "kinglet: {line}"),
        Failure::Help(_) | Failure::Interrupted | Failure::PipeClosed => Ok(()),
    };
}

/// Whether standard error is a terminal.
pub fn stderr_is_terminal() -> bool {
    io::stderr().is_terminal()
}

/// A line on the terminal that is overwritten in place.
#[derive(Debug)]
pub struct StatusLine {
    shown: bool,
    enabled: bool,
}

impl StatusLine {
    /// A line that appears only if `enabled`.
    pub fn new(enabled: bool) -> Self {
        StatusLine { shown: false, enabled }
    }

    /// Shows `line` in place of the last one.
    pub fn show(&mut self, line: fmt::Arguments<'_>) {
        if self.enabled {
            self.shown = true;
            let _ = write!(io::stderr().lock(), "\r\x1b[K[kinglet] {line}");
        }
    }
}

impl Drop for StatusLine {
    fn drop(&mut self) {
        if self.shown {
            let _ = write!(io::stderr().lock(), "\r\x1b[K");
        }
    }
}
