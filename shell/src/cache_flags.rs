//! The flags about the life of the KV cache. Must not know who keeps it.

use crate::failure::Failure;
use crate::words::Words;
use std::path::PathBuf;

/// Help lines for the flags that [`CacheFlags::accept`] takes.
pub const FLAGS: &str = "KV cache:
      --disk-kv DIR        keeps the cache in DIR too: after a restart, an update or a power cut a
                           conversation goes on where it was
      --disk-kv-max-bytes N
                           most bytes in DIR (default 4G; K, M, G, T); what was used longest ago goes first
      --disk-kv-max-files N
                           most files in DIR (default: no limit)
      --disk-kv-daily-write-bytes N
                           most bytes written in a day, to spare a card (default: no limit)
      --disk-kv-sync       a reply has ended only when it is safe on the disk
      --kv-tokens N        tokens that the cache in memory holds (default: the context)
      --no-prefix-kv       computes every prompt from its first token on
";

/// What the flags say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheFlags {
    /// The folder of the cache on disk; None: there is none.
    pub disk: Option<PathBuf>,
    /// Most bytes in it.
    pub max_bytes: u64,
    /// Most files in it.
    pub max_files: u64,
    /// Most bytes written to it in a day.
    pub daily_write_bytes: Option<u64>,
    /// Whether a reply waits for the disk.
    pub sync: bool,
    /// Tokens that the cache in memory holds; None: as many as the context.
    pub tokens: Option<usize>,
    /// Whether a prompt's beginning is looked for in the cache.
    pub reuse: bool,
}

impl Default for CacheFlags {
    fn default() -> Self {
        CacheFlags {
            disk: None,
            max_bytes: 4 << 30,
            max_files: u64::MAX,
            daily_write_bytes: None,
            sync: false,
            tokens: None,
            reuse: true,
        }
    }
}

impl CacheFlags {
    /// Takes `flag`, and its value from `words`, if it is about the cache.
    ///
    /// # Errors
    /// A value that makes no sense.
    pub fn accept(&mut self, flag: &str, words: &mut Words) -> Result<bool, Failure> {
        match flag {
            "--disk-kv" => self.disk = Some(words.path()?),
            "--disk-kv-max-bytes" => self.max_bytes = bytes(words)?,
            "--disk-kv-max-files" => self.max_files = words.number(1..=u64::MAX)?,
            "--disk-kv-daily-write-bytes" => self.daily_write_bytes = Some(bytes(words)?),
            "--disk-kv-sync" => self.sync = true,
            "--kv-tokens" => self.tokens = Some(words.number(1..=1 << 30)?),
            "--no-prefix-kv" => self.reuse = false,
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// What only makes sense together.
    ///
    /// # Errors
    /// A flag about the folder without a folder.
    pub fn check(&self, words: &Words) -> Result<(), Failure> {
        let plain = CacheFlags { tokens: self.tokens, reuse: self.reuse, ..CacheFlags::default() };
        if self.disk.is_none() && *self != plain {
            return Err(words.wrong("the flags --disk-kv-... need --disk-kv DIR"));
        }
        Ok(())
    }
}

/// A number of bytes, with K, M, G or T (of 1024) behind it or not.
fn bytes(words: &mut Words) -> Result<u64, Failure> {
    let text = words.text()?;
    parse_bytes(&text).ok_or_else(|| {
        words.bad(&format!("'{}' is no number of bytes; 500M, 4G, 1T are", text.escape_debug()))
    })
}

fn parse_bytes(text: &str) -> Option<u64> {
    let text = text.strip_suffix("iB").or(text.strip_suffix('B')).unwrap_or(text);
    let (digits, shift) = match text.char_indices().next_back()? {
        (at, 'K' | 'k') => (&text[..at], 10),
        (at, 'M' | 'm') => (&text[..at], 20),
        (at, 'G' | 'g') => (&text[..at], 30),
        (at, 'T' | 't') => (&text[..at], 40),
        _ => (text, 0),
    };
    let n = digits.parse::<u64>().ok().filter(|n| *n > 0)?;
    n.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_bytes_have_units() {
        assert_eq!(parse_bytes("123"), Some(123));
        assert_eq!(parse_bytes("4G"), Some(4 << 30));
        assert_eq!(parse_bytes("500MiB"), Some(500 << 20));
        assert_eq!(parse_bytes("2KB"), Some(2048));
        for bad in ["", "0", "G", "-1", "1.5G", "4X", "99999999T", "4 G"] {
            assert_eq!(parse_bytes(bad), None, "{bad}");
        }
    }
}
