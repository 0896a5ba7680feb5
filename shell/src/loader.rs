//! A model file: opened, mapped, parsed; its dimensions and weights on demand. Must not know the engine.
//!
//! A model lives as long as the process, so the map and the tables are leaked on purpose.

use crate::failure::{Failure, printable};
use crate::map;
use core::fmt;
use kinglet_core::config::{Config, ModelError, ModelFault};
use kinglet_core::gguf::{Gguf, GgufFault, Meta, TensorInfo};
use kinglet_core::weights::{Layer, Weights};
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Characters of a model's name that are shown.
const NAME_CHARS: usize = 64;

/// A parsed model file.
#[derive(Debug)]
pub struct Model {
    /// Where it was read from.
    pub path: PathBuf,
    /// Metadata and tensors.
    pub gguf: Gguf<'static, 'static>,
    /// The whole file.
    pub bytes: &'static [u8],
}

impl Model {
    /// Maps and parses `path`.
    ///
    /// # Errors
    /// The file cannot be read or is no GGUF file of ours, in one line.
    pub fn open(path: &Path) -> Result<Model, Failure> {
        Model::parse(path, Model::map(path)?)
    }

    /// As [`Model::open`], and has all of the file read into memory in the background: it will all be needed.
    ///
    /// # Errors
    /// As [`Model::open`].
    pub fn open_to_compute(path: &Path) -> Result<Model, Failure> {
        let bytes = Model::map(path)?;
        map::read_ahead(bytes);
        Model::parse(path, bytes)
    }

    fn map(path: &Path) -> Result<&'static [u8], Failure> {
        // Asked before it is opened: opening a pipe would wait for somebody to write into it.
        let about = std::fs::metadata(path).map_err(|e| Failure::file(path, io_fault(&e)))?;
        if about.is_dir() {
            let found = first_gguf(path).map_or(String::new(), |f| format!(", for example {f}"));
            return Err(Failure::file(path, format!("is a folder; name a .gguf file in it{found}")));
        }
        if !about.is_file() {
            return Err(Failure::file(path, "is no regular file, so it cannot be mapped"));
        }
        if about.len() == 0 {
            return Err(Failure::file(path, "is empty; download or copy it again"));
        }
        let file = File::open(path).map_err(|e| Failure::file(path, io_fault(&e)))?;
        map::file(&file).map_err(|e| Failure::file(path, format!("cannot be mapped: {e}")))
    }

    fn parse(path: &Path, bytes: &'static [u8]) -> Result<Model, Failure> {
        let fail = |e: ModelError| Failure::file(path, Advised(e));
        let counts = Gguf::counts(bytes).map_err(|e| fail(e.into()))?;
        let metas = vec![Meta::EMPTY; counts.metas].leak();
        let tensors = vec![TensorInfo::EMPTY; counts.tensors].leak();
        let gguf = Gguf::parse(bytes, metas, tensors).map_err(|e| fail(e.into()))?;
        Ok(Model { path: path.to_path_buf(), gguf, bytes })
    }

    /// The dimensions.
    ///
    /// # Errors
    /// The file holds no model that this engine runs.
    pub fn config(&self) -> Result<Config, Failure> {
        Config::from_gguf(&self.gguf).map_err(|e| self.fail(Advised(e)))
    }

    /// Views of the weights.
    ///
    /// # Errors
    /// A tensor is missing or has the wrong shape.
    pub fn weights(&self, config: &Config) -> Result<Weights<'static, 'static>, Failure> {
        let layers = vec![Layer::EMPTY; config.n_layers].leak();
        Weights::load(&self.gguf, config, layers).map_err(|e| self.fail(Advised(e)))
    }

    /// A fault of this file as a failure.
    pub fn fail(&self, fault: impl fmt::Display) -> Failure {
        Failure::file(&self.path, fault)
    }

    /// What the model calls itself: `general.name`, or the file's name without its ending. Without
    /// control characters, and cut if it is long: it goes into tables.
    pub fn name(&self) -> String {
        match self.gguf.str("general.name") {
            Ok(name) if !name.trim().is_empty() => {
                let cut: String = name.trim().chars().take(NAME_CHARS).collect();
                cut.escape_debug().to_string()
            }
            _ => self.path.file_stem().map(|s| printable(Path::new(s))).unwrap_or_default(),
        }
    }
}

/// What the operating system says about a file, with advice where there is some.
pub fn io_fault(e: &io::Error) -> String {
    match e.kind() {
        io::ErrorKind::NotFound => String::from("no such file; check the path"),
        io::ErrorKind::PermissionDenied => {
            String::from("permission denied; make it readable for this user (chmod +r)")
        }
        io::ErrorKind::IsADirectory => String::from("is a folder, not a file"),
        _ => e.to_string(),
    }
}

/// Whether two paths lead to one file that exists.
pub fn same_file(a: &Path, b: &Path) -> bool {
    let identity = |path: &Path| std::fs::metadata(path).ok().map(|about| (about.dev(), about.ino()));
    identity(a).is_some_and(|file| Some(file) == identity(b))
}

/// The first `.gguf` file of a folder, as a hint.
fn first_gguf(folder: &Path) -> Option<String> {
    let names =
        std::fs::read_dir(folder).ok()?.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    names.filter(|n| n.ends_with(".gguf")).min().map(|n| printable(Path::new(&n)))
}

/// A fault together with what the user can do, where the fault's own words do not say it.
struct Advised(ModelError);

impl fmt::Display for Advised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)?;
        let advice = match self.0.fault {
            ModelFault::Gguf(fault) => match fault {
                GgufFault::Magic => "name a .gguf model",
                GgufFault::Version { .. } => "convert the model again with a current converter",
                GgufFault::BigEndian | GgufFault::TensorType { .. } => return Ok(()),
                GgufFault::Truncated { .. } | GgufFault::PastEnd { .. } => return Ok(()),
                GgufFault::MissingKey => "this is no complete model file",
                _ => "the file is damaged or was written by a faulty converter; get it again",
            },
            ModelFault::Arch | ModelFault::MissingTensor => return Ok(()),
            ModelFault::Rope => "use the model without context extension (YaRN)",
            _ => "the file is damaged or was written by a faulty converter; get it again",
        };
        write!(f, "; {advice}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(path: &Path) -> String {
        match Model::open(path) {
            Err(Failure::Failed(message)) => message,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn every_bad_file_gets_a_line_that_says_what_to_do() {
        let dir = std::env::temp_dir().join(format!("kinglet-loader-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let file = |name: &str, bytes: &[u8]| {
            let path = dir.join(name);
            std::fs::write(&path, bytes).unwrap();
            path
        };
        assert!(message(&dir.join("none")).ends_with("no such file; check the path"));
        assert!(message(&file("empty", b"")).ends_with("is empty; download or copy it again"));
        assert!(message(&file("text", b"hello, world; this is text")).contains("not a GGUF file"));
        assert!(message(&file("short.gguf", b"GGUF\x03\0\0\0")).contains("is the download complete?"));
        assert!(message(&file("v2", b"GGUF\x02\0\0\0")).contains("only version 3 is read"));
        assert!(message(&dir).contains("is a folder; name a .gguf file in it, for example short.gguf"));
        assert!(message(Path::new("/dev/null")).contains("no regular file"));
        // A pipe that nobody writes into: said at once.
        let pipe = dir.join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        assert!(message(&pipe).contains("no regular file"));
        file("a\u{1b}[31m.gguf", b"");
        assert!(message(&dir).ends_with("for example a\\u{1b}[31m.gguf"));
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
