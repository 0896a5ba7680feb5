//! Fuzzing of block files: arbitrary bytes, and mutations of sound files, also with checksums that fit again.
//!
//! `cargo test` calls it on seeded inputs, `cargo xtask fuzz block` under libFuzzer.

use crate::block::{self, Memory};
use crate::fuzz_gguf::mutate;
use kinglet_core::KvType;
use kinglet_core::kv::header::HEADER_BYTES;
use kinglet_core::kv::{BLOCK_TOKENS, BlockId, ContentId, Fault, Geometry, Header, ReadError, file};

/// Largest block for which memory is taken; a file can announce one of 256 GiB.
const MOST_BYTES: usize = 1 << 20;
/// Bytes before and after a block's memory that nobody may touch, and what they hold.
const CANARY: [u8; 64] = [0xC5; 64];

/// Reads `data` as a file, then a sound file changed as `data` says.
///
/// # Panics
/// The reader panics or breaks one of its promises.
pub fn fuzz_block(data: &[u8]) {
    check(data);
    check_identity(data);
    let (shape, commands) = data.split_at(data.len().min(4));
    let mut file = sound(shape);
    assert_eq!(check(&file), None);
    mutate(&mut file, commands);
    check(&file);
    block::repair(&mut file);
    check(&file);
    mend(&mut file);
    check(&file);
}

/// A sound file whose kind and sizes are chosen by up to four bytes.
pub fn sound(shape: &[u8]) -> Vec<u8> {
    let of = |i: usize| usize::from(shape.get(i).copied().unwrap_or(0));
    let kv_type = [KvType::Q8, KvType::F32][of(0) % 2];
    let (n_layers, n_kv_heads, head_dim) = (1 + of(1) % 2, 1 + of(2) % 2, 16 + of(3) % 3 * 16);
    let geometry = Geometry { kv_type, n_layers, n_kv_heads, head_dim };
    let mut header = block::header(geometry, 1 + of(0) / 2 % BLOCK_TOKENS);
    block::encode(&mut header, &block::pattern(geometry.block_bytes()))
}

/// Makes lengths, checksums and id of a file agree with the rest of it, as far as it has them.
pub fn mend(file: &mut [u8]) {
    if file.len() < HEADER_BYTES {
        return;
    }
    let number = |file: &mut [u8], name: &str| {
        let mut bytes = [0; 8];
        let field = block::field_mut(file, name);
        bytes[..field.len()].copy_from_slice(field);
        u64::from_le_bytes(bytes)
    };
    let len = (file.len() - HEADER_BYTES) as u64;
    block::field_mut(file, "payload_bytes").copy_from_slice(&len.to_le_bytes());
    let count = number(file, "count").min(BLOCK_TOKENS as u64) as usize;
    let ids = block::field_mut(file, "contents").as_chunks().0;
    let ids: Vec<ContentId> = ids.iter().map(|id| ContentId::from_bits(u64::from_le_bytes(*id))).collect();
    let mut parent = BlockId::default();
    parent.0.copy_from_slice(block::field_mut(file, "parent"));
    block::field_mut(file, "id").copy_from_slice(&parent.child(&ids[..count]).0);
    block::repair(file);
}

/// Reads a file in all ways, into memory between canaries.
///
/// # Errors
/// The file's fault.
///
/// # Panics
/// The reader panics or breaks one of its promises.
pub fn check(file: &[u8]) -> Option<Fault> {
    let mut rest = file;
    let header = match file::read_header(&mut rest) {
        Ok(header) => header,
        Err(error) => return Some(shown(&error)),
    };
    assert_eq!(header.to_bytes()[..], file[..HEADER_BYTES]);
    check_header(&header);
    let bytes = header.geometry().block_bytes();
    if bytes > MOST_BYTES {
        let refused = file::decode(&mut rest, &header, &mut []).unwrap_err();
        return Some(shown(&refused));
    }
    let mut memory = [&CANARY[..], &vec![0xEE; bytes], &CANARY].concat();
    let block = &mut memory[CANARY.len()..][..bytes];
    let read = file::decode(&mut rest, &header, block);
    let (before, after) = (&memory[..CANARY.len()], &memory[CANARY.len() + bytes..]);
    assert!(before == CANARY && after == CANARY);
    let block = &memory[CANARY.len()..][..bytes];

    // A medium that gives little at a time makes no difference.
    let mut medium = Memory { step: 1000, ..Memory::new(&file[HEADER_BYTES..]) };
    let mut again = vec![0x11; bytes];
    let slowly = file::decode(&mut medium, &header, &mut again);
    match read {
        Err(error) => {
            let fault = shown(&error);
            assert_eq!(slowly, Err(ReadError::Fault(fault)));
            Some(fault)
        }
        Ok(()) => {
            assert_eq!(slowly, Ok(()));
            // Nothing of what was in the memory before is left, and one block has one file.
            assert!(again == block);
            assert!(block::encode(&mut header.clone(), block) == file);
            None
        }
    }
}

/// A header that was accepted holds together.
fn check_header(header: &Header) {
    assert!((1..=BLOCK_TOKENS).contains(&header.count()));
    assert_eq!(header.contents().len(), header.count());
    assert_eq!(header.is_whole(), header.count() == BLOCK_TOKENS);
    assert_eq!(header.parent().child(header.contents()), *header.id());
    assert_eq!(header.geometry().check(), None);
    assert_eq!(header.file_bytes(), HEADER_BYTES as u64 + header.payload_bytes());
    let identity = block::identity(*header.geometry());
    let place = (header.fingerprint(), header.parent(), header.position());
    let fits = header.check(&identity, place.0, place.1, place.2, header.contents());
    // The identity is of this build's numerics; all else was taken from the header.
    assert!(matches!(fits, Ok(()) | Err(kinglet_core::kv::Refusal::Numerics)), "{fits:?}");
}

fn check_identity(data: &[u8]) {
    if let Ok(identity) = file::decode_identity(data) {
        assert_eq!(file::encode_identity(&identity)[..], *data);
    }
}

/// Every error can be shown, and a medium in memory never fails by itself.
fn shown<E: core::fmt::Display>(error: &ReadError<E>) -> Fault {
    assert!(!error.to_string().is_empty());
    match error {
        ReadError::Fault(fault) => *fault,
        _ => panic!("{error}"),
    }
}
