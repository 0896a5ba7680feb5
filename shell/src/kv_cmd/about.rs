//! The lines for people that stand beside the blocks of a model, which `kv ls` reads again. Must not know
//! files.

use crate::failure::printable;
use std::path::{Path, PathBuf};

const MODEL: &str = "model: ";
const FILE: &str = "file: ";
const KV_TYPE: &str = "kv type: ";

/// What the caches of a folder belong to, in lines: the model's name, its file, how keys and values are stored.
pub fn lines(name: &str, file: &Path, kv_type: &str) -> String {
    // From wherever the program is started the next time.
    let whole = std::fs::canonicalize(file).unwrap_or_else(|_| file.to_path_buf());
    let parts = [MODEL, name, "\n", FILE, &printable(&whole), "\n", KV_TYPE, kv_type, "\n"];
    parts.concat()
}

/// The model's name, if the lines say it.
pub fn name(lines: &str) -> Option<&str> {
    field(lines, MODEL)
}

/// The model's file, if the lines say it.
pub fn file(lines: &str) -> Option<PathBuf> {
    field(lines, FILE).map(PathBuf::from)
}

fn field<'a>(lines: &'a str, key: &str) -> Option<&'a str> {
    lines.lines().find_map(|line| line.strip_prefix(key)).map(str::trim).filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        let lines = lines("Some Model", Path::new("no/such/file.gguf"), "q8");
        assert_eq!(lines, "model: Some Model\nfile: no/such/file.gguf\nkv type: q8\n");
        assert_eq!(name(&lines), Some("Some Model"));
        assert_eq!(file(&lines), Some(PathBuf::from("no/such/file.gguf")));
        assert_eq!(name("other\nmodel:\nmodel: \n"), None);
        assert_eq!(file("a letter"), None);
    }
}
