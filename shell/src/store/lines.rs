//! Lines for people, all with the same mark. Must not know what happened.

use core::fmt;
use std::io::Write;

/// Who hears of what a store does.
#[derive(Default)]
pub enum Lines {
    /// Standard error.
    #[default]
    Stderr,
    /// Nobody.
    Quiet,
    /// A function, which is called with each line, without its end. It is called by several threads.
    To(Box<dyn Fn(fmt::Arguments<'_>) + Send + Sync>),
}

impl Lines {
    /// One line.
    pub fn say(&self, line: fmt::Arguments<'_>) {
        match self {
            // If nobody is there to read it, so be it.
            Lines::Stderr => drop(writeln!(std::io::stderr().lock(), "[KV-DISK] {line}")),
            Lines::Quiet => {}
            Lines::To(function) => function(format_args!("[KV-DISK] {line}")),
        }
    }
}

impl fmt::Debug for Lines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Lines::Stderr => "Stderr",
            Lines::Quiet => "Quiet",
            Lines::To(_) => "To(..)",
        })
    }
}
