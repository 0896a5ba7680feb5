//! A conversation in a file, a JSON object a line (`{"role": "user", "content": "..."}`), so that it can go
//! on in another process. Must not know how replies are made.

use crate::failure::Failure;
use crate::lines::read_line;
use crate::loader::io_fault;
use crate::tojson::to_json;
use serde_json::{Map, Value};
use std::fs::{File, OpenOptions};
use std::io::{BufReader, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Roles that a chat has, in the spelling of templates.
const ROLES: [&str; 3] = ["system", "user", "assistant"];

/// Role and text.
pub type Turn = (&'static str, String);

/// The file; without one nothing is kept.
#[derive(Debug)]
pub struct History {
    path: Option<PathBuf>,
}

impl History {
    /// The file and the turns in it; none if it is not there yet. A last line without an end that is no turn
    /// but the beginning of one is what a power cut left: it is cut off, and the number says how many bytes
    /// that were. One that is a turn gets its end.
    ///
    /// # Errors
    /// The file cannot be read, or a line is no turn.
    pub fn open(path: Option<PathBuf>) -> Result<(History, Vec<Turn>, usize), Failure> {
        let Some(path) = path else { return Ok((History { path }, Vec::new(), 0)) };
        let fail = |e: std::io::Error| Failure::file(&path, io_fault(&e));
        let file = match File::open(&path) {
            Err(e) if e.kind() == ErrorKind::NotFound => {
                return Ok((History { path: Some(path) }, Vec::new(), 0));
            }
            opened => opened.map_err(fail)?,
        };
        let whole = file.metadata().map_err(fail)?.len();
        let (mut reader, mut line, mut turns, mut read) = (BufReader::new(file), Vec::new(), Vec::new(), 0);
        while read_line(&mut reader, &mut line).map_err(fail)? {
            let end = read + line.len() as u64 + 1;
            if end > whole {
                let mut file = OpenOptions::new().append(true).open(&path).map_err(fail)?;
                if let Some(turn) = parse(&line) {
                    file.write_all(b"\n").map_err(fail)?;
                    turns.push(turn);
                    return Ok((History { path: Some(path) }, turns, 0));
                }
                // Anything else was never ours: nothing of it is touched.
                if is_torn(&line) {
                    file.set_len(read).map_err(fail)?;
                    return Ok((History { path: Some(path) }, turns, line.len()));
                }
            }
            read = end;
            let turn = parse(&line).ok_or_else(|| {
                let number = turns.len() + 1;
                let form = "{\"role\": \"user\", \"content\": \"...\"}";
                Failure::file(&path, format_args!("line {number} is no turn such as {form}; mend or move it"))
            })?;
            turns.push(turn);
        }
        Ok((History { path: Some(path) }, turns, 0))
    }

    /// Adds turns, durably.
    ///
    /// # Errors
    /// Of the file.
    pub fn add(&self, turns: &[Turn]) -> Result<(), Failure> {
        self.write(turns, false)
    }

    /// Puts `turns` in place of all that was there.
    ///
    /// # Errors
    /// Of the file.
    pub fn replace(&self, turns: &[Turn]) -> Result<(), Failure> {
        self.write(turns, true)
    }

    fn write(&self, turns: &[Turn], anew: bool) -> Result<(), Failure> {
        let Some(path) = &self.path else { return Ok(()) };
        let mut text = String::new();
        for (role, content) in turns {
            let mut object = Map::new();
            object.insert(String::from("role"), Value::from(*role));
            object.insert(String::from("content"), Value::from(content.as_str()));
            text.push_str(&to_json(&Value::Object(object)));
            text.push('\n');
        }
        let mut options = OpenOptions::new();
        // A conversation is nobody else's business.
        options.create(true).mode(0o600);
        let options = if anew { options.write(true).truncate(true) } else { options.append(true) };
        let mut file = options.open(path).map_err(|e| failed(path, &e))?;
        file.write_all(text.as_bytes()).and_then(|()| file.sync_data()).map_err(|e| failed(path, &e))
    }
}

fn failed(path: &Path, e: &std::io::Error) -> Failure {
    Failure::file(path, io_fault(e))
}

/// Whether a line that has no end may be the beginning of one of ours, or its place on the disk.
fn is_torn(line: &[u8]) -> bool {
    const START: &[u8] = br#"{"role": ""#;
    line.starts_with(START) || START.starts_with(line) || line.iter().all(|byte| *byte == 0)
}

fn parse(line: &[u8]) -> Option<Turn> {
    let value: Value = serde_json::from_slice(line).ok()?;
    let role = value.get("role")?.as_str()?;
    let role = ROLES.into_iter().find(|known| *known == role)?;
    Some((role, String::from(value.get("content")?.as_str()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_are_read_back_and_a_torn_line_is_cut_off() {
        let path = std::env::temp_dir().join(format!("kinglet-history-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let turns: Vec<Turn> =
            vec![("system", String::from("be \"brief\"")), ("user", String::from("a\nb\u{1F600}"))];
        let (history, none, _) = History::open(Some(path.clone())).unwrap();
        assert!(none.is_empty());
        history.add(&turns).unwrap();
        let mut file = OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(b"{\"role\": \"assis").unwrap();
        let (history, read, cut) = History::open(Some(path.clone())).unwrap();
        assert_eq!((&read, cut), (&turns, 15));
        history.add(&turns[..1]).unwrap();
        assert_eq!(History::open(Some(path.clone())).unwrap().1.len(), 3);
        history.replace(&turns[..1]).unwrap();
        assert_eq!(History::open(Some(path.clone())).unwrap().1, turns[..1]);
        std::fs::write(&path, "{\"role\": \"wizard\", \"content\": \"\"}\n").unwrap();
        assert!(matches!(History::open(Some(path.clone())), Err(Failure::Failed(m)) if m.contains("line 1")));
        // Somebody else's file of one line without an end, and one whose last end an editor left out.
        let other = "[{\"role\": \"user\", \"content\": \"hello\"}]";
        std::fs::write(&path, other).unwrap();
        assert!(matches!(History::open(Some(path.clone())), Err(Failure::Failed(m)) if m.contains("line 1")));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), other);
        let bare = other.trim_matches(['[', ']']);
        std::fs::write(&path, bare).unwrap();
        let (history, read, cut) = History::open(Some(path.clone())).unwrap();
        assert_eq!((read.len(), cut), (1, 0));
        history.add(&read).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), format!("{bare}\n{bare}\n"));
        std::fs::remove_file(&path).unwrap();
    }
}
