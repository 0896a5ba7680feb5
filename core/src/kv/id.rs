//! Names of content: what a position holds, and what a block holds together with all before it.
//!
//! A block's id says everything its keys and values depend on: the cache's identity, the salt, and every
//! content id from the first position on. Two blocks with one id hold the same bytes, whoever computed them
//! (`core/NUMERICS.md`). Must not know where blocks are.

use super::BLOCK_TOKENS;
use blake3::Hasher;
use core::fmt;

/// Bytes of an id.
pub const ID_BYTES: usize = 16;

/// Set in the content id of an image position, so that none equals a token's.
const IMAGE: u64 = 1 << 63;

/// What one position of a sequence holds: a token, or a patch of an image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[repr(transparent)]
pub struct ContentId(u64);

impl ContentId {
    /// The content id of a token.
    pub const fn token(token: u32) -> Self {
        ContentId(token as u64)
    }

    /// The content id of position `index` of the image whose bytes (and whose way of being cut into patches)
    /// hash to `hash`: 63 bits of BLAKE3, so that image prefixes are found again as those of text are.
    pub fn image(hash: &[u8; 32], index: u32) -> Self {
        let mut hasher = Hasher::new();
        hasher.update(b"kinglet image position 1").update(hash).update(&index.to_le_bytes());
        let mut first = [0; 8];
        first.copy_from_slice(&hasher.finalize().as_bytes()[..8]);
        ContentId(u64::from_le_bytes(first) | IMAGE)
    }

    /// The token, unless it is a position of an image.
    pub const fn as_token(self) -> Option<u32> {
        if self.0 <= u32::MAX as u64 { Some(self.0 as u32) } else { None }
    }

    /// As it stands in files.
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// From a file.
    pub const fn from_bits(bits: u64) -> Self {
        ContentId(bits)
    }
}

/// The name of a block: 128 bits of BLAKE3 over its parent's name and its content ids.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(transparent)]
pub struct BlockId(pub [u8; ID_BYTES]);

impl BlockId {
    /// What the first block of a sequence follows: the cache's fingerprint ([`super::Identity`]) and a salt.
    /// Sequences with different salts find nothing of each other.
    pub fn root(fingerprint: &BlockId, salt: &[u8]) -> Self {
        let mut hasher = Hasher::new();
        hasher.update(b"kinglet kv root 1").update(&fingerprint.0).update(salt);
        Self::from_hash(&hasher)
    }

    /// The id of the block that follows this one and holds `contents`, 1 to 32 of them. An unfinished
    /// block has an id too; it is none of a whole one.
    ///
    /// # Panics
    /// Never; more than 32 contents give an id that no block has.
    pub fn child(&self, contents: &[ContentId]) -> Self {
        let mut hasher = Hasher::new();
        hasher.update(b"kinglet kv block 1").update(&self.0);
        let whole = contents.len() == BLOCK_TOKENS;
        hasher.update(&(contents.len() as u64).to_le_bytes()).update(&[u8::from(whole)]);
        for content in contents {
            hasher.update(&content.0.to_le_bytes());
        }
        Self::from_hash(&hasher)
    }

    /// The first 128 bits of what was hashed.
    pub(crate) fn from_hash(hasher: &Hasher) -> Self {
        let mut id = [0; ID_BYTES];
        id.copy_from_slice(&hasher.finalize().as_bytes()[..ID_BYTES]);
        BlockId(id)
    }

    /// From 32 hexadecimal digits in lower case, as file names have them; `None` for anything else.
    pub fn from_hex(text: &str) -> Option<Self> {
        let digit = |c: u8| match c {
            b'0'..=b'9' => Some(c - b'0'),
            b'a'..=b'f' => Some(c - b'a' + 10),
            _ => None,
        };
        let text = text.as_bytes();
        if text.len() != 2 * ID_BYTES {
            return None;
        }
        let mut id = [0; ID_BYTES];
        for (byte, pair) in id.iter_mut().zip(text.chunks_exact(2)) {
            *byte = digit(pair[0])? << 4 | digit(pair[1])?;
        }
        Some(BlockId(id))
    }
}

impl fmt::Display for BlockId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for BlockId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(feature = "defmt")]
impl defmt::Format for BlockId {
    fn format(&self, f: defmt::Formatter<'_>) {
        defmt::write!(f, "{=[u8; 16]:02x}", self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    extern crate std;
    use std::string::ToString;

    #[test]
    fn ids_depend_on_everything_before() {
        let a = BlockId::root(&BlockId::default(), b"");
        let contents: [ContentId; 32] = core::array::from_fn(|i| ContentId::token(i as u32));
        let child = a.child(&contents);
        assert_ne!(child, BlockId::root(&BlockId::default(), b"salt").child(&contents));
        assert_ne!(child, a.child(&contents[..31]));
        assert_ne!(child.child(&contents), child);
        for i in 0..32 {
            let mut other = contents;
            other[i] = ContentId::image(&[7; 32], i as u32);
            assert_ne!(child, a.child(&other));
        }
    }

    #[test]
    fn names_are_read_back_and_nothing_else_is() {
        let id = BlockId::root(&BlockId::default(), b"x");
        assert_eq!(BlockId::from_hex(&id.to_string()), Some(id));
        assert_eq!(BlockId::from_hex(&id.to_string().to_uppercase()), None);
        assert_eq!(BlockId::from_hex(&id.to_string()[1..]), None);
        assert_eq!(BlockId::from_hex("zz000000000000000000000000000000"), None);
    }

    #[test]
    fn tokens_and_images_are_told_apart() {
        assert_eq!(ContentId::token(u32::MAX).as_token(), Some(u32::MAX));
        let image = ContentId::image(&[0; 32], 0);
        assert_eq!(image.as_token(), None);
        assert_ne!(image, ContentId::image(&[0; 32], 1));
        assert_eq!(ContentId::from_bits(image.bits()), image);
    }
}
