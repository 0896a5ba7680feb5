//! Names in a store's directory: made without allocation, recognised strictly. Must not know what is in a
//! file.
//!
//! | path | what |
//! |---|---|
//! | `FP/identity`, `FP/about` | what the caches of fingerprint FP depend on, for programs and for people |
//! | `FP/AA/ID.kv` | the whole block ID; AA is its first byte |
//! | `FP/AA/PARENT.tail` | the unfinished block that follows PARENT |
//! | `FP/AA/*.bad` | one of the two that was found damaged |
//! | `FP/AA/ID.N.tmp` | a file that is being written |
//! | `written` | bytes written today, if there is a daily budget |
//!
//! Whatever has another name belongs to somebody else.

use core::fmt::{self, Write};
use kinglet_core::kv::BlockId;

/// Longest path below the directory, in bytes.
pub const PATH_BYTES: usize = 96;

/// A path below the store's directory.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Name {
    bytes: [u8; PATH_BYTES],
    len: usize,
}

/// What a file among the blocks is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A whole block, named by its id.
    Block,
    /// A tail, named by the block before it.
    Tail,
    /// A whole block set aside.
    BadBlock,
    /// A tail set aside.
    BadTail,
    /// Being written, or left by a writer that died.
    Temporary,
}

impl Name {
    /// From its parts. What is too long is cut; none of the functions here makes such a name.
    pub fn new(parts: fmt::Arguments<'_>) -> Name {
        let mut name = Name { bytes: [0; PATH_BYTES], len: 0 };
        let _ = name.write_fmt(parts);
        name
    }

    /// The path, with `/` between its parts.
    pub fn as_str(&self) -> &str {
        core::str::from_utf8(&self.bytes[..self.len]).unwrap_or("")
    }

    /// The same file, set aside.
    pub fn bad(&self) -> Name {
        Name::new(format_args!("{self}.bad"))
    }
}

impl Write for Name {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let to = self.bytes.get_mut(self.len..self.len + text.len()).ok_or(fmt::Error)?;
        to.copy_from_slice(text.as_bytes());
        self.len += text.len();
        Ok(())
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

/// What a folder's caches depend on, for programs.
pub const IDENTITY: &str = "identity";
/// The same for people.
pub const ABOUT: &str = "about";
/// The count of a daily budget.
pub const WRITTEN: &str = "written";

/// The folder of a fingerprint.
pub fn folder(fingerprint: &BlockId) -> Name {
    Name::new(format_args!("{fingerprint}"))
}

/// A file of a fingerprint that is no block.
pub fn beside(fingerprint: &BlockId, name: &str) -> Name {
    Name::new(format_args!("{fingerprint}/{name}"))
}

/// The folder of the blocks whose ids begin with `first`.
pub fn shard(fingerprint: &BlockId, first: u8) -> Name {
    Name::new(format_args!("{fingerprint}/{first:02x}"))
}

/// The file of `kind` that is named after `id`; for [`Kind::Temporary`] see [`temporary`].
pub fn stored(fingerprint: &BlockId, kind: Kind, id: &BlockId) -> Name {
    let end = match kind {
        Kind::Block => "kv",
        Kind::Tail => "tail",
        Kind::BadBlock => "kv.bad",
        Kind::BadTail => "tail.bad",
        Kind::Temporary => "tmp",
    };
    Name::new(format_args!("{fingerprint}/{:02x}/{id}.{end}", id.0[0]))
}

/// A file that becomes the one of `id` when it is complete. `n` differs from call to call and from process
/// to process.
pub fn temporary(fingerprint: &BlockId, id: &BlockId, n: u64) -> Name {
    Name::new(format_args!("{fingerprint}/{:02x}/{id}.{n:016x}.tmp", id.0[0]))
}

/// Any file among the blocks, by its folder and its own name.
pub fn file(fingerprint: &BlockId, first: u8, name: &str) -> Name {
    Name::new(format_args!("{fingerprint}/{first:02x}/{name}"))
}

/// A file that becomes `path`, one that is no block, when it is complete.
pub fn temporary_beside(path: &Name, n: u64) -> Name {
    Name::new(format_args!("{path}.{n:016x}.tmp"))
}

/// Whether the file `name`, which is not among the blocks, is one of [`temporary_beside`].
pub fn is_temporary_beside(name: &str) -> bool {
    let names = [IDENTITY, ABOUT, WRITTEN];
    names
        .iter()
        .any(|path| name.strip_prefix(path).is_some_and(|end| end.strip_prefix('.').is_some_and(is_end)))
}

/// Whether this is the end of a temporary file's name.
fn is_end(end: &str) -> bool {
    let n = end.strip_suffix(".tmp").unwrap_or("");
    n.len() == 16 && n.bytes().all(|c| matches!(c, b'0'..=b'9' | b'a'..=b'f'))
}

/// The fingerprint whose folder is called `name`, if it is one.
pub fn parse_folder(name: &str) -> Option<BlockId> {
    BlockId::from_hex(name)
}

/// What the file `name` in the folder of ids that begin with `first` is, and the id in its name; `None` if
/// it is not ours.
pub fn parse(first: u8, name: &str) -> Option<(Kind, BlockId)> {
    let (id, end) = name.split_at_checked(32)?;
    let id = BlockId::from_hex(id).filter(|id| id.0[0] == first)?;
    let kind = match end {
        ".kv" => Kind::Block,
        ".tail" => Kind::Tail,
        ".kv.bad" => Kind::BadBlock,
        ".tail.bad" => Kind::BadTail,
        _ if end.strip_prefix('.').is_some_and(is_end) => Kind::Temporary,
        _ => return None,
    };
    Some((kind, id))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn last<'a>(name: &'a Name, folder: &Name) -> &'a str {
        name.as_str().strip_prefix(folder.as_str()).unwrap().strip_prefix('/').unwrap()
    }

    #[test]
    fn names_are_recognised() {
        let fp = BlockId([0xab; 16]);
        let id = BlockId(core::array::from_fn(|i| i as u8 + 7));
        let folder = shard(&fp, 7);
        let cases = [
            (stored(&fp, Kind::Block, &id), Kind::Block),
            (stored(&fp, Kind::Tail, &id), Kind::Tail),
            (stored(&fp, Kind::Block, &id).bad(), Kind::BadBlock),
            (stored(&fp, Kind::BadTail, &id), Kind::BadTail),
            (temporary(&fp, &id, u64::MAX), Kind::Temporary),
        ];
        for (name, kind) in cases {
            assert!(name.len < PATH_BYTES, "{name}");
            assert_eq!(parse(7, last(&name, &folder)), Some((kind, id)));
            assert_eq!(parse(8, last(&name, &folder)), None, "in another folder");
            assert_eq!(file(&fp, 7, last(&name, &folder)), name);
        }
        assert_eq!(parse_folder(super::folder(&fp).as_str()), Some(fp));
        assert!(is_temporary_beside(temporary_beside(&Name::new(format_args!("{WRITTEN}")), 7).as_str()));
        assert!(!is_temporary_beside("written") && !is_temporary_beside("mine.0000000000000007.tmp"));
    }

    #[test]
    fn nothing_else_is() {
        let id = "07".repeat(16);
        let foreign = ["", "x", "identity", &id, "é7070707070707070707070707070707.kv"].map(String::from);
        let ends = [
            ".kvx",
            ".KV",
            ".kv.bad.bad",
            ".tmp",
            ".1.tmp",
            ".bad",
            "..tmp",
            ".000000000000000g.tmp",
            ".kv ",
        ];
        for name in foreign.into_iter().chain(ends.iter().map(|end| format!("{id}{end}"))) {
            assert_eq!(parse(7, &name), None, "{name}");
        }
        assert_eq!(parse(7, &format!("{}.kv", "07".repeat(15) + "0G")), None);
    }

    #[test]
    fn what_is_too_long_is_cut_between_parts() {
        let name = Name::new(format_args!("{}{}", "a".repeat(90), "b".repeat(10)));
        assert_eq!(name.as_str(), "a".repeat(90));
    }
}
