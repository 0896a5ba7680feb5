//! Block files for tests: made, changed in single fields, read back.

use embedded_io::{ErrorKind, ErrorType, Read, Write};
use kinglet_core::kv::header::{FIELDS, Field, HEADER_BYTES};
use kinglet_core::kv::identity::LAYOUT_VERSION;
use kinglet_core::kv::{
    BLOCK_TOKENS, BlockId, ContentId, Fault, Geometry, Header, Identity, ReadError, file, layout, pack,
};
use kinglet_core::{KvType, NUMERICS_VERSION};
use xxhash_rust::xxh3::xxh3_64;

/// A medium in memory that takes and gives at most `step` bytes a call.
#[derive(Clone, Debug)]
pub struct Memory {
    /// What was written, or is left to read.
    pub bytes: Vec<u8>,
    /// Most bytes of a call.
    pub step: usize,
    /// Calls so far.
    pub calls: usize,
    /// Calls after which all fail.
    pub fails_after: usize,
}

impl Memory {
    /// A medium that holds `bytes`, takes everything at once and never fails.
    pub fn new(bytes: &[u8]) -> Self {
        Memory { bytes: bytes.to_vec(), step: usize::MAX, calls: 0, fails_after: usize::MAX }
    }

    fn call(&mut self, len: usize) -> Result<usize, ErrorKind> {
        if self.calls == self.fails_after {
            return Err(ErrorKind::TimedOut);
        }
        self.calls += 1;
        Ok(len.min(self.step))
    }
}

impl ErrorType for Memory {
    type Error = ErrorKind;
}

impl Write for Memory {
    fn write(&mut self, buf: &[u8]) -> Result<usize, ErrorKind> {
        let n = self.call(buf.len())?;
        self.bytes.extend_from_slice(&buf[..n]);
        Ok(n)
    }

    fn flush(&mut self) -> Result<(), ErrorKind> {
        Ok(())
    }
}

impl Read for Memory {
    fn read(&mut self, buf: &mut [u8]) -> Result<usize, ErrorKind> {
        let n = self.call(buf.len().min(self.bytes.len()))?;
        buf[..n].copy_from_slice(&self.bytes[..n]);
        self.bytes.drain(..n);
        Ok(n)
    }
}

/// An identity of caches of this geometry; its hashes are made up.
pub fn identity(geometry: Geometry) -> Identity {
    let hash = |n: u8| BlockId(core::array::from_fn(|i| n.wrapping_mul(37).wrapping_add(i as u8)));
    Identity {
        geometry,
        numerics: NUMERICS_VERSION,
        layout: LAYOUT_VERSION,
        dimensions: hash(1),
        rope: hash(2),
        tokenizer: hash(3),
        template: hash(4),
        types: hash(5),
        weights: hash(6),
    }
}

/// The smallest geometry there is, of a type.
pub const fn smallest(kv_type: KvType) -> Geometry {
    Geometry { kv_type, n_layers: 1, n_kv_heads: 1, head_dim: 16 }
}

/// `count` content ids, some of them of an image.
pub fn contents(count: usize) -> Vec<ContentId> {
    let id = |i: usize| match i % 5 {
        4 => ContentId::image(&[7; 32], i as u32),
        _ => ContentId::token(1000 + i as u32),
    };
    (0..count).map(id).collect()
}

/// The header of a block of `count` positions, second of its sequence.
///
/// # Panics
/// If the geometry or the count is out of range.
pub fn header(geometry: Geometry, count: usize) -> Header {
    let identity = identity(geometry);
    let fingerprint = identity.fingerprint();
    let parent = BlockId::root(&fingerprint, b"test").child(&contents(32));
    Header::new(&identity, &fingerprint, &parent, 1, &contents(count)).unwrap()
}

/// Bytes that look like those of a block: none of them zero, no two runs alike.
pub fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i as u32).wrapping_mul(0x9E37_79B1).to_be_bytes()[0] | 1).collect()
}

/// Puts position `t` of one block into another, by the layout's own functions, which know nothing of files.
///
/// # Panics
/// If a block is shorter than one of this geometry.
pub fn copy_position(geometry: &Geometry, from: &[u8], to: &mut [u8], t: usize) {
    let (d, slab) = (geometry.head_dim, geometry.slab_bytes());
    for (from, to) in from.chunks_exact(slab).zip(to.chunks_exact_mut(slab)) {
        let mut copy = |at: usize, bytes: usize| to[at..at + bytes].copy_from_slice(&from[at..at + bytes]);
        if geometry.kv_type == KvType::F32 {
            copy(4 * d * t, 4 * d);
            copy(4 * d * (BLOCK_TOKENS + t), 4 * d);
            continue;
        }
        for i in 0..d {
            copy(layout::k_offset(d, t, i), 1);
            copy(BLOCK_TOKENS * d + layout::v_offset(t, i), 1);
        }
        let scales = 2 * BLOCK_TOKENS * d;
        copy(scales + 4 * t, 4);
        copy(scales + 4 * (BLOCK_TOKENS + t), 4);
    }
}

/// The file of a block.
///
/// # Panics
/// If the block is none of the header's geometry.
pub fn encode(header: &mut Header, block: &[u8]) -> Vec<u8> {
    let mut payload = vec![0xEE; block.len()];
    let len = pack::pack(header.geometry(), header.count(), block, &mut payload).unwrap();
    let mut medium = Memory::new(&[]);
    file::encode(header, &payload[..len], &mut medium).unwrap();
    assert_eq!(medium.bytes.len() as u64, header.file_bytes());
    assert_eq!(medium.calls, 2);
    medium.bytes
}

/// Reads a file into memory that held something else.
///
/// # Errors
/// The file's fault.
pub fn decode(mut bytes: &[u8]) -> Result<(Header, Vec<u8>), Fault> {
    let fault = |error: ReadError<_>| match error {
        ReadError::Fault(fault) => fault,
        _ => unreachable!("a slice never fails"),
    };
    let header = file::read_header(&mut bytes).map_err(fault)?;
    let mut block = vec![0xEE; header.geometry().block_bytes()];
    file::decode(&mut bytes, &header, &mut block).map_err(fault)?;
    Ok((header, block))
}

/// A field of the header by its name.
///
/// # Panics
/// If there is none.
pub fn field(name: &str) -> Field {
    *FIELDS.iter().find(|f| f.name == name).unwrap_or_else(|| panic!("no field {name}"))
}

/// The bytes of a field of a file.
pub fn field_mut<'f>(file: &'f mut [u8], name: &str) -> &'f mut [u8] {
    let field = field(name);
    &mut file[field.offset..][..field.bytes]
}

/// Makes both checksums of a file fit its bytes, if it has a header at all.
pub fn repair(file: &mut [u8]) {
    if file.len() < HEADER_BYTES {
        return;
    }
    let hash = xxh3_64(&file[HEADER_BYTES..]);
    field_mut(file, "payload_hash").copy_from_slice(&hash.to_le_bytes());
    repair_header(file);
}

/// Makes the header's checksum fit its bytes.
///
/// # Panics
/// If the file is shorter than a header.
pub fn repair_header(file: &mut [u8]) {
    let hash = xxh3_64(&file[..field("header_hash").offset]);
    field_mut(file, "header_hash").copy_from_slice(&hash.to_le_bytes());
}
