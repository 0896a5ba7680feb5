//! Where the fields of a block file's header are: each begins where the one before it ends.
//!
//! Must not know what they mean.

use super::BLOCK_TOKENS;

/// First bytes of a file. As PNG's: not ASCII, and changed by whatever takes it for text.
pub const MAGIC: [u8; 8] = *b"\x89KKV\r\n\x1a\n";

/// Version of the format.
pub const VERSION: u32 = 1;

/// Bytes of the header: a page, so that the payload begins at one.
pub const HEADER_BYTES: usize = 4096;

/// The offset of a field of `N` bytes.
#[derive(Clone, Copy)]
pub(super) struct At<const N: usize>(pub(super) usize);

impl<const N: usize> At<N> {
    /// The field after this one.
    const fn then<const M: usize>(self) -> At<M> {
        At(self.0 + N)
    }

    pub(super) fn get(self, page: &[u8; HEADER_BYTES]) -> [u8; N] {
        let mut field = [0; N];
        field.copy_from_slice(&page[self.0..][..N]);
        field
    }

    pub(super) fn put(self, page: &mut [u8; HEADER_BYTES], field: [u8; N]) {
        page[self.0..][..N].copy_from_slice(&field);
    }

    pub(super) const fn named(self, name: &'static str) -> Field {
        Field { name, offset: self.0, bytes: N }
    }
}

impl At<4> {
    pub(super) fn number(self, page: &[u8; HEADER_BYTES]) -> u32 {
        u32::from_le_bytes(self.get(page))
    }
}

impl At<8> {
    pub(super) fn number(self, page: &[u8; HEADER_BYTES]) -> u64 {
        u64::from_le_bytes(self.get(page))
    }
}

pub(super) const MAGIC_AT: At<8> = At(0);
pub(super) const VERSION_AT: At<4> = MAGIC_AT.then();
pub(super) const NUMERICS_AT: At<4> = VERSION_AT.then();
pub(super) const LAYOUT_AT: At<4> = NUMERICS_AT.then();
pub(super) const KV_TYPE_AT: At<4> = LAYOUT_AT.then();
pub(super) const N_LAYERS_AT: At<4> = KV_TYPE_AT.then();
pub(super) const N_KV_HEADS_AT: At<4> = N_LAYERS_AT.then();
pub(super) const HEAD_DIM_AT: At<4> = N_KV_HEADS_AT.then();
pub(super) const POSITION_AT: At<4> = HEAD_DIM_AT.then();
pub(super) const COUNT_AT: At<4> = POSITION_AT.then();
/// So that what follows is aligned.
pub(super) const GAP_AT: At<4> = COUNT_AT.then();
pub(super) const FINGERPRINT_AT: At<16> = GAP_AT.then();
pub(super) const PARENT_AT: At<16> = FINGERPRINT_AT.then();
pub(super) const ID_AT: At<16> = PARENT_AT.then();
pub(super) const PAYLOAD_BYTES_AT: At<8> = ID_AT.then();
pub(super) const PAYLOAD_HASH_AT: At<8> = PAYLOAD_BYTES_AT.then();
pub(super) const CONTENTS_AT: At<{ 8 * BLOCK_TOKENS }> = PAYLOAD_HASH_AT.then();
pub(super) const REST_AT: At<{ HEADER_BYTES - 8 - CONTENTS_AT.0 - 8 * BLOCK_TOKENS }> = CONTENTS_AT.then();
/// Last, so that it covers one stretch of bytes: all before it.
pub(super) const HEADER_HASH_AT: At<8> = REST_AT.then();
const _: () = assert!(HEADER_HASH_AT.0 + 8 == HEADER_BYTES);

/// A field of the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// As `FORMAT.md` calls it.
    pub name: &'static str,
    /// Bytes before it.
    pub offset: usize,
    /// Its own.
    pub bytes: usize,
}

/// All fields in order, without a gap. Those called `zero` have no meaning yet.
pub const FIELDS: [Field; 19] = [
    MAGIC_AT.named("magic"),
    VERSION_AT.named("version"),
    NUMERICS_AT.named("numerics"),
    LAYOUT_AT.named("layout"),
    KV_TYPE_AT.named("kv_type"),
    N_LAYERS_AT.named("n_layers"),
    N_KV_HEADS_AT.named("n_kv_heads"),
    HEAD_DIM_AT.named("head_dim"),
    POSITION_AT.named("position"),
    COUNT_AT.named("count"),
    GAP_AT.named("zero"),
    FINGERPRINT_AT.named("fingerprint"),
    PARENT_AT.named("parent"),
    ID_AT.named("id"),
    PAYLOAD_BYTES_AT.named("payload_bytes"),
    PAYLOAD_HASH_AT.named("payload_hash"),
    CONTENTS_AT.named("contents"),
    REST_AT.named("zero"),
    HEADER_HASH_AT.named("header_hash"),
];
