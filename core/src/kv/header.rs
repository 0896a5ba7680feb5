//! The header of a block's file: what the block is, all of it checked before its payload is read.
//!
//! `FORMAT.md` describes it; a test compares the two. Must not know files or where blocks are.

use super::fields::*;
use super::identity::LAYOUT_VERSION;
use super::{BLOCK_TOKENS, BlockId, ContentId, Fault, Geometry, Identity, KvType, Refusal, pack};
use crate::requirements::MAX_POSITIONS;
use xxhash_rust::xxh3::xxh3_64;

pub use super::fields::{FIELDS, Field, HEADER_BYTES, MAGIC, VERSION};

/// The content ids of a block, 1 to 32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Contents {
    /// Zero past the count.
    ids: [ContentId; BLOCK_TOKENS],
    count: u32,
}

impl Contents {
    /// A copy of 1 to 32 content ids; `None` for fewer or more.
    pub fn new(contents: &[ContentId]) -> Option<Self> {
        let mut ids = [ContentId::default(); BLOCK_TOKENS];
        ids.get_mut(..contents.len())?.copy_from_slice(contents);
        (!contents.is_empty()).then_some(Contents { ids, count: contents.len() as u32 })
    }

    /// The content ids.
    pub fn as_slice(&self) -> &[ContentId] {
        &self.ids[..self.count as usize]
    }

    /// Leading positions in which the two agree.
    pub fn common(&self, other: &[ContentId]) -> usize {
        self.as_slice().iter().zip(other).take_while(|(a, b)| a == b).count()
    }
}

/// What a block's file says of it. Every header has passed the checks of [`Header::from_bytes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    geometry: Geometry,
    numerics: u32,
    layout: u32,
    fingerprint: BlockId,
    parent: BlockId,
    id: BlockId,
    position: u32,
    contents: Contents,
    /// Zero until the payload is known.
    pub(super) payload_hash: u64,
}

impl Header {
    /// The header of the block that holds `contents` after `parent` (or after a root) as block `position`
    /// of its sequence: 32 contents make a whole block, fewer a tail. `fingerprint` is `identity`'s.
    ///
    /// # Errors
    /// Anything out of range, as in a file.
    pub fn new(
        identity: &Identity,
        fingerprint: &BlockId,
        parent: &BlockId,
        position: u32,
        contents: &[ContentId],
    ) -> Result<Self, Fault> {
        let header = Header {
            geometry: identity.geometry,
            numerics: identity.numerics,
            layout: identity.layout,
            fingerprint: *fingerprint,
            parent: *parent,
            id: parent.child(contents),
            position,
            contents: Contents::new(contents).ok_or(Fault::Count { found: contents.len() as u32 })?,
            payload_hash: 0,
        };
        header.check_ranges()?;
        Ok(header)
    }

    /// Sizes of the block.
    pub const fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// Fingerprint of the identity of the caches it belongs to.
    pub const fn fingerprint(&self) -> &BlockId {
        &self.fingerprint
    }

    /// Id of the block before it, or a root.
    pub const fn parent(&self) -> &BlockId {
        &self.parent
    }

    /// Its own id.
    pub const fn id(&self) -> &BlockId {
        &self.id
    }

    /// Index of the block in its sequence.
    pub const fn position(&self) -> u32 {
        self.position
    }

    /// What its positions hold.
    pub fn contents(&self) -> &[ContentId] {
        self.contents.as_slice()
    }

    /// Number of positions, 1 to 32.
    pub const fn count(&self) -> usize {
        self.contents.count as usize
    }

    /// Whether all 32 positions are there.
    pub const fn is_whole(&self) -> bool {
        self.count() == BLOCK_TOKENS
    }

    /// Bytes of the payload.
    pub const fn payload_bytes(&self) -> u64 {
        pack::payload_bytes(&self.geometry, self.count())
    }

    /// Bytes of the file.
    pub const fn file_bytes(&self) -> u64 {
        HEADER_BYTES as u64 + self.payload_bytes()
    }

    fn check_ranges(&self) -> Result<(), Fault> {
        if self.layout != LAYOUT_VERSION {
            return Err(Fault::Layout { found: self.layout });
        }
        if let Some((field, found)) = self.geometry.check() {
            return Err(Fault::Geometry { field, found: found as u32 });
        }
        if self.position as usize >= MAX_POSITIONS / BLOCK_TOKENS {
            return Err(Fault::Position { found: self.position });
        }
        Ok(())
    }

    /// Whether the block belongs to the caches of `identity` (whose fingerprint is `fingerprint`) and
    /// follows `parent` as block `position`.
    ///
    /// # Errors
    /// The first field that differs.
    #[cfg_attr(kinglet_small, optimize(size))]
    pub fn check_place(
        &self,
        identity: &Identity,
        fingerprint: &BlockId,
        parent: &BlockId,
        position: u32,
    ) -> Result<(), Refusal> {
        let (a, b) = (&self.geometry, &identity.geometry);
        let fields = [
            (self.numerics == identity.numerics, Refusal::Numerics),
            (self.layout == identity.layout, Refusal::Layout),
            (a.kv_type == b.kv_type, Refusal::KvType),
            (a == b, Refusal::Geometry),
            (self.fingerprint == *fingerprint, Refusal::Fingerprint),
            (self.parent == *parent, Refusal::Parent),
            (self.position == position, Refusal::Position),
        ];
        fields.iter().find(|(same, _)| !same).map_or(Ok(()), |(_, refusal)| Err(*refusal))
    }

    /// As [`Header::check_place`], and whether the block holds `contents`, no more and no less.
    ///
    /// # Errors
    /// The first field that differs.
    pub fn check(
        &self,
        identity: &Identity,
        fingerprint: &BlockId,
        parent: &BlockId,
        position: u32,
        contents: &[ContentId],
    ) -> Result<(), Refusal> {
        self.check_place(identity, fingerprint, parent, position)?;
        match self.common(contents) {
            common if common == self.count() && common == contents.len() => Ok(()),
            common => Err(Refusal::Contents { common }),
        }
    }

    /// Leading positions that hold `contents`: what of a tail can be used.
    pub fn common(&self, contents: &[ContentId]) -> usize {
        self.contents.common(contents)
    }

    /// As it stands in a file.
    pub fn to_bytes(&self) -> [u8; HEADER_BYTES] {
        let (mut page, g) = ([0; HEADER_BYTES], &self.geometry);
        MAGIC_AT.put(&mut page, MAGIC);
        for (at, number) in [
            (VERSION_AT, VERSION),
            (NUMERICS_AT, self.numerics),
            (LAYOUT_AT, self.layout),
            (KV_TYPE_AT, g.kv_type.number()),
            (N_LAYERS_AT, g.n_layers as u32),
            (N_KV_HEADS_AT, g.n_kv_heads as u32),
            (HEAD_DIM_AT, g.head_dim as u32),
            (POSITION_AT, self.position),
            (COUNT_AT, self.contents.count),
        ] {
            at.put(&mut page, number.to_le_bytes());
        }
        FINGERPRINT_AT.put(&mut page, self.fingerprint.0);
        PARENT_AT.put(&mut page, self.parent.0);
        ID_AT.put(&mut page, self.id.0);
        PAYLOAD_BYTES_AT.put(&mut page, self.payload_bytes().to_le_bytes());
        PAYLOAD_HASH_AT.put(&mut page, self.payload_hash.to_le_bytes());
        for (to, content) in page[CONTENTS_AT.0..].chunks_exact_mut(8).zip(&self.contents.ids) {
            to.copy_from_slice(&content.bits().to_le_bytes());
        }
        seal(&mut page);
        page
    }

    /// From a file.
    ///
    /// # Errors
    /// The first field in which the file is wrong. Nothing of it can be used then.
    pub fn from_bytes(page: &[u8; HEADER_BYTES]) -> Result<Self, Fault> {
        if MAGIC_AT.get(page) != MAGIC {
            return Err(Fault::Magic);
        }
        // Before the checksum, whose place may change with the version.
        let found = VERSION_AT.number(page);
        if found != VERSION {
            return Err(Fault::Version { found });
        }
        if HEADER_HASH_AT.number(page) != hash_of(page) {
            return Err(Fault::HeaderHash);
        }
        for zero in [GAP_AT.named(""), REST_AT.named("")] {
            let bytes = &page[zero.offset..][..zero.bytes];
            if let Some(i) = bytes.iter().position(|byte| *byte != 0) {
                return Err(Fault::Reserved { offset: (zero.offset + i) as u32 });
            }
        }
        let kv_type = KV_TYPE_AT.number(page);
        let header = Header {
            geometry: Geometry {
                kv_type: KvType::from_number(kv_type).ok_or(Fault::KvType { found: kv_type })?,
                n_layers: N_LAYERS_AT.number(page) as usize,
                n_kv_heads: N_KV_HEADS_AT.number(page) as usize,
                head_dim: HEAD_DIM_AT.number(page) as usize,
            },
            numerics: NUMERICS_AT.number(page),
            layout: LAYOUT_AT.number(page),
            fingerprint: BlockId(FINGERPRINT_AT.get(page)),
            parent: BlockId(PARENT_AT.get(page)),
            id: BlockId(ID_AT.get(page)),
            position: POSITION_AT.number(page),
            contents: contents_of(page)?,
            payload_hash: PAYLOAD_HASH_AT.number(page),
        };
        header.check_ranges()?;
        let (needed, found) = (header.payload_bytes(), PAYLOAD_BYTES_AT.number(page));
        if found != needed {
            return Err(Fault::PayloadBytes { needed, found });
        }
        if header.parent.child(header.contents()) != header.id {
            return Err(Fault::Id);
        }
        Ok(header)
    }
}

fn contents_of(page: &[u8; HEADER_BYTES]) -> Result<Contents, Fault> {
    let count = COUNT_AT.number(page);
    if count == 0 || count as usize > BLOCK_TOKENS {
        return Err(Fault::Count { found: count });
    }
    let mut contents = Contents { ids: [ContentId::default(); BLOCK_TOKENS], count };
    let fields = CONTENTS_AT.get(page);
    for (id, field) in contents.ids.iter_mut().zip(fields.as_chunks().0) {
        *id = ContentId::from_bits(u64::from_le_bytes(*field));
    }
    let past = contents.ids.iter().skip(count as usize).position(|id| *id != ContentId::default());
    match past {
        None => Ok(contents),
        Some(i) => Err(Fault::ContentsPastCount { index: count + i as u32 }),
    }
}

fn hash_of(page: &[u8; HEADER_BYTES]) -> u64 {
    xxh3_64(&page[..HEADER_HASH_AT.0])
}

/// Puts the checksum of all bytes before it into a header.
fn seal(page: &mut [u8; HEADER_BYTES]) {
    let hash = hash_of(page);
    HEADER_HASH_AT.put(page, hash.to_le_bytes());
}
