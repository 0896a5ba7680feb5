//! The lines for people that stand beside the blocks of a model (`cache.rs` writes them): what `kv ls` takes
//! from them. Must not know files.

use std::path::PathBuf;

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
