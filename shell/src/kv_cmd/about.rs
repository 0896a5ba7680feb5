//! The lines for people that stand beside the blocks of a model (`cache.rs` writes them): what `kv ls` takes
//! from them. Must not know files.

<<<<<<< HEAD
use crate::failure::printable;
use std::path::{Path, PathBuf};

const MODEL: &str = "model: ";
const FILE: &str = "file: ";
const KV_TYPE: &str = "kv type: ";

<<<<<<< HEAD
/// What the caches of a folder belong to, in lines: the model's name, its file, how keys and values are
/// stored.
=======
/// What the caches of a folder belong to, in lines: the model's name, its file, the type of its keys and
/// values.
>>>>>>> 1115daa (kinglet kv: files that come and go while it looks; tests of chains)
pub fn lines(name: &str, file: &Path, kv_type: &str) -> String {
    // From wherever the program is started the next time.
    let whole = std::fs::canonicalize(file).unwrap_or_else(|_| file.to_path_buf());
    let parts = [MODEL, name, "\n", FILE, &printable(&whole), "\n", KV_TYPE, kv_type, "\n"];
    parts.concat()
}
=======
use std::path::PathBuf;
>>>>>>> 4d830cf (kinglet kv: a test with what a run has saved; the lines beside blocks are read only)

/// The model's name, if the lines say it.
pub fn name(lines: &str) -> Option<&str> {
    field(lines, "model: ")
}

/// The model's file, if the lines say it.
pub fn file(lines: &str) -> Option<PathBuf> {
    field(lines, "file: ").map(PathBuf::from)
}

fn field<'a>(lines: &'a str, key: &str) -> Option<&'a str> {
    lines.lines().find_map(|line| line.strip_prefix(key)).map(str::trim).filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_say_nothing_are_no_trouble() {
        let lines = "model: Some Model\nfile: models/file.gguf\n";
        assert_eq!(name(lines), Some("Some Model"));
        assert_eq!(file(lines), Some(PathBuf::from("models/file.gguf")));
        assert_eq!(name("other\nmodel:\nmodel: \n"), None);
        assert_eq!(file("a letter"), None);
    }
}
