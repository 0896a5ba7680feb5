//! `kinglet-logs ELF FILE`: prints the log frames in FILE, one line each: time in seconds, level, text.
//!
//! ELF is the unstripped program that wrote them. A last frame without an end is what a program leaves
//! that was killed while it wrote; it is named, and the rest counts. A frame that cannot be read is an
//! error.

use defmt_decoder::{DecodeError, Encoding, Table};
use std::io::{self, BufWriter, Write};
use std::process::ExitCode;

/// What was in a file.
#[derive(Debug, Default, PartialEq, Eq)]
struct Summary {
    frames: usize,
    /// Where the frames begin that cannot be read.
    bad: Vec<usize>,
    /// Bytes of a last frame that has no end.
    cut: usize,
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [elf, file] = words.as_slice() else {
        eprintln!("usage: kinglet-logs ELF FILE");
        return ExitCode::from(2);
    };
    match run(elf, file) {
        Ok(summary) => report(file, &summary),
        Err(fault) => {
            eprintln!("logs: {fault}");
            ExitCode::FAILURE
        }
    }
}

fn report(file: &str, summary: &Summary) -> ExitCode {
    let Summary { frames, bad, cut } = summary;
    eprintln!("logs: {frames} frames in {file}");
    if *cut > 0 {
        eprintln!(
            "logs: the last frame is cut off after {cut} bytes: the program was killed or the disk was full"
        );
    }
    let Some(first) = bad.first() else { return ExitCode::SUCCESS };
    let count = bad.len();
    eprintln!(
        "logs: {count} frames cannot be read, the first at byte {first}: is the file damaged, or was \
         it written by another build? --elf names the unstripped program of the same one"
    );
    ExitCode::FAILURE
}

fn run(elf: &str, file: &str) -> Result<Summary, String> {
    let read = |path: &str| std::fs::read(path).map_err(|e| format!("cannot read {path}: {e}"));
    let table = Table::parse(&read(elf)?).map_err(|e| format!("{elf}: {e}"))?;
    let table =
        table.ok_or_else(|| format!("{elf} has no log texts: name the unstripped program (--elf)"))?;
    if table.encoding() != Encoding::Rzcobs {
        return Err(format!("{elf} writes frames without borders between them"));
    }
    let mut out = BufWriter::new(io::stdout().lock());
    let summary = print(&table, &read(file)?, &mut out).and_then(|summary| out.flush().map(|()| summary));
    summary.map_err(|e| format!("cannot write: {e}"))
}

/// Prints all frames of `bytes`. Every frame ends with a zero, and a zero is nothing else.
fn print(table: &Table, bytes: &[u8], out: &mut dyn Write) -> io::Result<Summary> {
    let mut summary = Summary::default();
    let mut at = 0;
    for part in bytes.split_inclusive(|&b| b == 0) {
        let begin = at;
        at += part.len();
        match part {
            // Frames begin with a zero as well.
            [0] => {}
            [.., 0] => match line(table, part) {
                Ok(line) => {
                    summary.frames += 1;
                    writeln!(out, "{line}")?;
                }
                Err(_) => summary.bad.push(begin),
            },
            cut => summary.cut = cut.len(),
        }
    }
    Ok(summary)
}

fn line(table: &Table, part: &[u8]) -> Result<String, DecodeError> {
    let mut decoder = table.new_stream_decoder();
    decoder.received(part);
    let frame = decoder.decode()?;
    let time = frame.display_timestamp().map_or(String::new(), |t| t.to_string());
    let level = frame.level().map_or("", |level| level.as_str());
    Ok(format!("{time} {level:<5} {}", frame.display_message()))
}
