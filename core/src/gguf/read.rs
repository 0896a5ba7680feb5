//! A cursor over the file's bytes; every read is checked.

use super::{GgufError, GgufFault};

/// A position in the file.
#[derive(Clone)]
pub(super) struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Reader { bytes, at: 0 }
    }

    /// Bytes read so far.
    pub(super) fn position(&self) -> usize {
        self.at
    }

    /// Bytes left.
    pub(super) fn left(&self) -> u64 {
        (self.bytes.len() - self.at) as u64
    }

    /// The next `len` bytes.
    #[inline(never)]
    pub(super) fn take(&mut self, len: u64) -> Result<&'a [u8], GgufError> {
        if len > self.left() {
            return Err(GgufError::file(GgufFault::Truncated { offset: self.at as u64 }));
        }
        let end = self.at + len as usize;
        let taken = &self.bytes[self.at..end];
        self.at = end;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], GgufError> {
        let mut out = [0; N];
        out.copy_from_slice(self.take(N as u64)?);
        Ok(out)
    }

    #[inline(never)]
    pub(super) fn u32(&mut self) -> Result<u32, GgufError> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    #[inline(never)]
    pub(super) fn u64(&mut self) -> Result<u64, GgufError> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// A string: u64 length, then UTF-8 bytes.
    #[inline(never)]
    pub(super) fn str(&mut self) -> Result<&'a str, GgufError> {
        let len = self.u64()?;
        let bytes = self.take(len)?;
        core::str::from_utf8(bytes).map_err(|_| GgufError::file(GgufFault::Utf8))
    }
}
