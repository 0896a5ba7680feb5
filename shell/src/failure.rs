//! How a command ends when it does not succeed: one line for the user, one exit code.

use crate::words::Help;
use core::fmt;
use std::io;

/// Exit code of a failure.
pub const EXIT_FAILURE: u8 = 1;
/// Exit code of a command line that makes no sense.
pub const EXIT_USAGE: u8 = 2;

/// Why a command ended early.
#[derive(Debug, PartialEq, Eq)]
pub enum Failure {
    /// The command line is wrong.
    Usage(String),
    /// Something did not work; the line says what and what to do.
    Failed(String),
    /// Not a failure: the user asked for this help text.
    Help(Help),
    /// Ctrl-C.
    Interrupted,
    /// Whoever read our output has gone: nothing is left to do, and nobody to tell.
    PipeClosed,
}

impl Failure {
    /// A failure of the command itself.
    pub fn new(message: impl fmt::Display) -> Failure {
        Failure::said(&message)
    }

    /// Once for all types of messages.
    #[inline(never)]
    fn said(message: &dyn fmt::Display) -> Failure {
        Failure::Failed(message.to_string())
    }

    /// What there is to say of it, in one line.
    pub fn line(self) -> String {
        match self {
            Failure::Failed(line) | Failure::Usage(line) => line,
            Failure::Help(_) | Failure::Interrupted | Failure::PipeClosed => String::from("interrupted"),
        }
    }

    /// A fault in a file: `FILE: fault`.
    pub fn file(path: &std::path::Path, fault: impl fmt::Display) -> Failure {
        Failure::said(&format_args!("{}: {fault}", printable(path)))
    }

    /// A write to standard output that failed.
    pub fn stdout(e: &io::Error) -> Failure {
        match e.kind() {
            io::ErrorKind::BrokenPipe => Failure::PipeClosed,
            _ => Failure::Failed(format!("standard output: {e}")),
        }
    }
}

impl From<lexopt::Error> for Failure {
    fn from(e: lexopt::Error) -> Self {
        Failure::Usage(e.to_string())
    }
}

/// A path for a message: control characters are escaped, since messages go to terminals.
pub fn printable(path: &std::path::Path) -> String {
    let mut out = String::new();
    for c in path.to_string_lossy().chars() {
        if c.is_control() { out.extend(c.escape_debug()) } else { out.push(c) }
    }
    out
}
