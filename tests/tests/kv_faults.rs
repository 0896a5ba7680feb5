//! Damaged block files, and sound ones of something else: each is refused, for the right reason
//! (`core/src/kv/FORMAT.md`, S7 and S9).

use embedded_io::{ErrorKind, ErrorType, Read, Write};
use kinglet_core::KvType;
use kinglet_core::kv::header::{FIELDS, HEADER_BYTES};
use kinglet_core::kv::{
    BlockId, ContentId, Fault, Header, Identity, ReadError, Refusal, WriteError, file, pack,
};
use kinglet_tests::block::{
    Memory, contents, decode, encode, field, field_mut, header, identity, pattern, repair, repair_header,
    smallest,
};

/// Small files of each kind: whole blocks, tails with and without places for positions that are not there.
fn files() -> Vec<Vec<u8>> {
    [(KvType::Q8, 32), (KvType::Q8, 8), (KvType::Q8, 13), (KvType::F32, 2)]
        .map(|(kv_type, count)| {
            let geometry = smallest(kv_type);
            encode(&mut header(geometry, count), &pattern(geometry.block_bytes()))
        })
        .to_vec()
}

/// The name of the header's field that a byte belongs to; `None` in the payload.
fn field_at(at: usize) -> Option<&'static str> {
    FIELDS.iter().find(|f| (f.offset..f.offset + f.bytes).contains(&at)).map(|f| f.name)
}

#[test]
fn s7_every_bit_is_covered() {
    for file in files() {
        let mut bad = file.clone();
        for at in 0..file.len() {
            for bit in 0..8 {
                bad[at] ^= 1 << bit;
                let fault = decode(&bad).unwrap_err();
                let expected = match field_at(at) {
                    Some("magic") => Fault::Magic,
                    Some("version") => Fault::Version { found: 1 ^ 1 << (8 * (at - 8) + bit) },
                    Some(_) => Fault::HeaderHash,
                    None => Fault::PayloadHash,
                };
                assert_eq!(fault, expected, "bit {bit} of byte {at}");
                bad[at] ^= 1 << bit;
            }
        }
        assert!(decode(&bad).is_ok());
    }
}

#[test]
fn s7_every_length_is_refused_but_one() {
    for file in files() {
        for len in 0..file.len() {
            let needed = if len < HEADER_BYTES { HEADER_BYTES } else { file.len() };
            let fault = Fault::Truncated { needed: needed as u64, got: len as u64 };
            assert_eq!(decode(&file[..len]), Err(fault));
        }
        for more in [&[0][..], &file] {
            assert_eq!(decode(&[&file, more].concat()), Err(Fault::Trailing));
        }
    }
}

/// A sector of another file, or of nothing, in the place of each.
#[test]
fn s7_torn_files_are_refused() {
    let geometry = smallest(KvType::F32);
    let file = encode(&mut header(geometry, 32), &pattern(geometry.block_bytes()));
    let mut reversed = pattern(geometry.block_bytes());
    reversed.reverse();
    let identity = identity(geometry);
    let parent = BlockId::root(&identity.fingerprint(), b"other");
    let mut other = Header::new(&identity, &identity.fingerprint(), &parent, 0, &contents(32)).unwrap();
    let other = encode(&mut other, &reversed);
    for sector in [512, 4096] {
        for (start, end) in (0..file.len()).step_by(sector).map(|at| (at, at + sector)) {
            for from in [&other, &vec![0; file.len()]] {
                let mut torn = file.clone();
                torn[start..end].copy_from_slice(&from[start..end]);
                // Sectors that are zero in every file may be torn as they like. A header that is
                // another's whole has another's checksum of the payload.
                let harmless = torn == file;
                assert_eq!(decode(&torn).is_ok(), harmless, "{start}..{end}");
                assert!(!harmless || (512..3584).contains(&start), "{start}..{end}");
            }
        }
    }
    assert_eq!(decode(&vec![0; file.len()]), Err(Fault::Magic));
}

/// What changes a field says of it, once both checksums fit.
#[test]
fn every_field_is_checked_by_itself() {
    for good in files() {
        let count = decode(&good).unwrap().0.count();
        for at in 0..HEADER_BYTES {
            for bit in 0..8 {
                let mut bad = good.clone();
                bad[at] ^= 1 << bit;
                let name = field_at(at).unwrap();
                if name != "header_hash" {
                    repair_header(&mut bad);
                }
                let read = decode(&bad);
                let what = format!("{name}, bit {bit} of byte {at}: {read:?}");
                let right = match (name, &read) {
                    ("magic", Err(Fault::Magic)) => true,
                    ("version", Err(Fault::Version { .. })) => true,
                    ("layout", Err(Fault::Layout { .. })) => true,
                    ("kv_type", Err(Fault::KvType { .. })) => true,
                    ("n_layers" | "n_kv_heads" | "head_dim", Err(Fault::Geometry { field, .. })) => {
                        *field == name
                    }
                    ("n_layers" | "n_kv_heads" | "head_dim", Err(Fault::PayloadBytes { .. })) => true,
                    ("position", Err(Fault::Position { .. })) => true,
                    ("count", Err(Fault::Count { .. } | Fault::PayloadBytes { .. } | Fault::Id)) => true,
                    ("count", Err(Fault::ContentsPastCount { .. })) => true,
                    ("zero", Err(Fault::Reserved { offset })) => *offset as usize == at,
                    ("parent" | "id", Err(Fault::Id)) => true,
                    ("payload_bytes", Err(Fault::PayloadBytes { .. })) => true,
                    ("payload_hash", Err(Fault::PayloadHash)) => true,
                    ("contents", Err(Fault::Id)) => at - field(name).offset < 8 * count,
                    ("contents", Err(Fault::ContentsPastCount { index })) => {
                        *index as usize == (at - field(name).offset) / 8
                    }
                    ("header_hash", Err(Fault::HeaderHash)) => true,
                    // Nothing in the file contradicts these; they are compared with what is looked for.
                    ("numerics" | "position" | "fingerprint", Ok((header, _))) => {
                        refusal(header)
                            == Err(match name {
                                "numerics" => Refusal::Numerics,
                                "position" => Refusal::Position,
                                _ => Refusal::Fingerprint,
                            })
                    }
                    _ => false,
                };
                assert!(right, "{what}");
            }
        }
    }
}

/// Compares a header with what [`header`] makes of its geometry and count.
fn refusal(of: &Header) -> Result<(), Refusal> {
    let identity = identity(*of.geometry());
    let wanted = header(*of.geometry(), of.count());
    of.check(&identity, wanted.fingerprint(), wanted.parent(), wanted.position(), wanted.contents())
}

#[test]
fn numbers_far_off() {
    let good = &files()[0];
    for (name, value, fault) in [
        ("kv_type", u32::MAX, Fault::KvType { found: u32::MAX }),
        ("n_layers", 0, Fault::Geometry { field: "n_layers", found: 0 }),
        ("n_layers", u32::MAX, Fault::Geometry { field: "n_layers", found: u32::MAX }),
        ("n_kv_heads", 4097, Fault::Geometry { field: "n_kv_heads", found: 4097 }),
        ("head_dim", 24, Fault::Geometry { field: "head_dim", found: 24 }),
        ("head_dim", 272, Fault::Geometry { field: "head_dim", found: 272 }),
        ("position", 1 << 19, Fault::Position { found: 1 << 19 }),
        ("count", 0, Fault::Count { found: 0 }),
        ("count", 33, Fault::Count { found: 33 }),
        ("count", u32::MAX, Fault::Count { found: u32::MAX }),
        ("kv_type", 2, Fault::PayloadBytes { needed: 4096, found: 1280 }),
    ] {
        let mut bad = good.clone();
        field_mut(&mut bad, name).copy_from_slice(&value.to_le_bytes());
        repair_header(&mut bad);
        assert_eq!(decode(&bad), Err(fault), "{name} = {value}");
    }
}

/// A payload whose checksum fits, with a byte where no position is.
#[test]
fn bytes_of_no_position_are_refused() {
    for count in 1..=32 {
        for kv_type in [KvType::Q8, KvType::F32] {
            let geometry = smallest(kv_type);
            let good = encode(&mut header(geometry, count), &pattern(geometry.block_bytes()));
            let mut refused = 0;
            for at in HEADER_BYTES..good.len() {
                let mut bad = good.clone();
                bad[at] ^= 0x80;
                repair(&mut bad);
                match decode(&bad) {
                    Ok((mut header, block)) => assert!(encode(&mut header, &block) == bad),
                    Err(fault) => {
                        assert_eq!((fault, good[at]), (Fault::Padding, 0));
                        refused += 1;
                    }
                }
            }
            let missing = count.next_multiple_of(4) - count;
            assert_eq!(refused, missing * geometry.block_bytes() / 32, "{count}");
        }
    }
}

#[test]
fn s9_a_block_of_something_else_is_refused_by_name() {
    let geometry = smallest(KvType::Q8);
    let (ours, of) = (identity(geometry), header(geometry, 32));
    let (fingerprint, parent, all) = (ours.fingerprint(), *of.parent(), contents(32));
    assert_eq!(of.check(&ours, &fingerprint, &parent, 1, &all), Ok(()));
    type Change = fn(&mut Identity);
    let changes: [(Change, Refusal, &str); 12] = [
        (|i| i.numerics += 1, Refusal::Numerics, "numerics version"),
        (|i| i.layout += 1, Refusal::Layout, "layout version"),
        (|i| i.geometry.kv_type = KvType::F32, Refusal::KvType, "KV type"),
        (|i| i.geometry.n_layers += 1, Refusal::Geometry, "geometry"),
        (|i| i.geometry.n_kv_heads += 1, Refusal::Geometry, "geometry"),
        (|i| i.geometry.head_dim += 16, Refusal::Geometry, "geometry"),
        (|i| i.dimensions.0[0] ^= 1, Refusal::Fingerprint, "dimensions"),
        (|i| i.rope.0[1] ^= 1, Refusal::Fingerprint, "rope"),
        (|i| i.tokenizer.0[2] ^= 1, Refusal::Fingerprint, "tokenizer"),
        (|i| i.template.0[3] ^= 1, Refusal::Fingerprint, "chat template"),
        (|i| i.types.0[4] ^= 1, Refusal::Fingerprint, "weight types"),
        (|i| i.weights.0[15] ^= 1, Refusal::Fingerprint, "weights"),
    ];
    for (change, refusal, name) in changes {
        let mut other = ours;
        change(&mut other);
        assert_eq!(of.check(&other, &other.fingerprint(), &parent, 1, &all), Err(refusal), "{name}");
        // The folder's file knows the part.
        let described = file::decode_identity(&file::encode_identity(&other)).unwrap();
        let mut parts = Vec::new();
        ours.differences(&described, &mut |part| parts.push(part));
        assert_eq!(parts, [name]);
    }
    let other = BlockId::root(&fingerprint, b"");
    assert_eq!(of.check(&ours, &fingerprint, &other, 1, &all), Err(Refusal::Parent));
    assert_eq!(of.check(&ours, &fingerprint, &parent, 0, &all), Err(Refusal::Position));
    for i in 0..32 {
        let mut other = all.clone();
        other[i] = ContentId::token(7);
        let refusal = Refusal::Contents { common: i };
        assert_eq!(of.check(&ours, &fingerprint, &parent, 1, &other), Err(refusal));
        assert_eq!(of.check(&ours, &fingerprint, &parent, 1, &all[..i]), Err(refusal));
        assert_eq!((of.common(&other), of.common(&all[..i])), (i, i));
    }
    let more = [&all[..], &all[..1]].concat();
    assert_eq!(of.check(&ours, &fingerprint, &parent, 1, &more), Err(Refusal::Contents { common: 32 }));
    assert_eq!(of.check_place(&ours, &fingerprint, &parent, 1), Ok(()));
}

#[test]
fn headers_out_of_range_cannot_be_made() {
    let geometry = smallest(KvType::Q8);
    let (ours, parent) = (identity(geometry), BlockId::default());
    let new = |identity: &Identity, position, n| {
        Header::new(identity, &parent, &parent, position, &vec![ContentId::default(); n]).err()
    };
    assert_eq!(new(&ours, (1 << 19) - 1, 32), None);
    assert_eq!(new(&ours, 1 << 19, 32), Some(Fault::Position { found: 1 << 19 }));
    assert_eq!(new(&ours, 0, 0), Some(Fault::Count { found: 0 }));
    assert_eq!(new(&ours, 0, 33), Some(Fault::Count { found: 33 }));
    assert_eq!(new(&Identity { layout: 9, ..ours }, 0, 1), Some(Fault::Layout { found: 9 }));
    let mut none = ours;
    none.geometry.n_kv_heads = 0;
    assert_eq!(new(&none, 0, 1), Some(Fault::Geometry { field: "n_kv_heads", found: 0 }));
    assert_eq!(
        pack::pack(&none.geometry, 1, &[], &mut []),
        Err(Fault::Geometry { field: "n_kv_heads", found: 0 })
    );
}

#[test]
fn identity_files_are_checked_whole() {
    let good = file::encode_identity(&identity(smallest(KvType::F32)));
    for at in 0..good.len() {
        let mut bad = good;
        bad[at] ^= 1;
        let fault = if at < 8 { Fault::Magic } else { Fault::HeaderHash };
        assert_eq!(file::decode_identity(&bad), Err(fault));
        let fault = Fault::Truncated { needed: good.len() as u64, got: at as u64 };
        assert_eq!(file::decode_identity(&good[..at]), Err(fault));
    }
    assert_eq!(file::decode_identity(&[&good[..], &[0]].concat()), Err(Fault::Trailing));
    let mut unknown = good;
    unknown[16] = 3;
    let hash = xxhash_rust::xxh3::xxh3_64(&unknown[..128]);
    unknown[128..].copy_from_slice(&hash.to_le_bytes());
    assert_eq!(file::decode_identity(&unknown), Err(Fault::KvType { found: 3 }));
}

/// Errors of the medium are told from faults of the file, whenever they come.
#[test]
fn mediums_that_fail_or_give_little() {
    let (geometry, good) = (smallest(KvType::Q8), files()[2].clone());
    let read = |mut medium: Memory| -> Result<Vec<u8>, ReadError<ErrorKind>> {
        let header = file::read_header(&mut medium)?;
        let mut block = vec![0xEE; geometry.block_bytes()];
        file::decode(&mut medium, &header, &mut block)?;
        Ok(block)
    };
    let block = read(Memory::new(&good)).unwrap();
    for step in [1, 7, 4095, 4097] {
        assert_eq!(read(Memory { step, ..Memory::new(&good) }).as_ref(), Ok(&block));
        let (mut header, mut payload) = (header(geometry, 13), vec![0; block.len()]);
        let len = pack::pack(&geometry, 13, &block, &mut payload).unwrap();
        let mut medium = Memory { step, ..Memory::new(&[]) };
        file::encode(&mut header, &payload[..len], &mut medium).unwrap();
        assert!(medium.bytes == good, "{step}");
        for fails_after in 0..medium.calls.min(20) {
            let mut medium = Memory { step, fails_after, ..Memory::new(&[]) };
            let error = file::encode(&mut header, &payload[..len], &mut medium);
            assert_eq!(error, Err(WriteError::Medium(ErrorKind::TimedOut)));
        }
    }
    // Header, payload, and the look behind it.
    for fails_after in 0..3 {
        let failed = read(Memory { fails_after, ..Memory::new(&good) });
        assert_eq!(failed, Err(ReadError::Medium(ErrorKind::TimedOut)));
    }
    assert!(read(Memory { fails_after: 3, ..Memory::new(&good) }).is_ok());
}

/// A medium that breaks its contract.
struct Liar;

impl ErrorType for Liar {
    type Error = ErrorKind;
}

impl Read for Liar {
    fn read(&mut self, _: &mut [u8]) -> Result<usize, ErrorKind> {
        Ok(usize::MAX)
    }
}

impl Write for Liar {
    fn write(&mut self, bytes: &[u8]) -> Result<usize, ErrorKind> {
        // More than there was of the header, nothing of the payload.
        Ok(if bytes.len() == HEADER_BYTES { usize::MAX } else { 0 })
    }

    fn flush(&mut self) -> Result<(), ErrorKind> {
        Ok(())
    }
}

#[test]
fn mediums_that_lie_do_no_harm() {
    assert_eq!(file::read_header(&mut Liar).unwrap_err(), ReadError::Fault(Fault::Magic));
    let geometry = smallest(KvType::Q8);
    let mut block = pattern(geometry.block_bytes());
    let mut header = header(geometry, 32);
    assert_eq!(file::encode(&mut header, &block, &mut Liar), Err(WriteError::Full));
    assert_eq!(file::decode(&mut Liar, &header, &mut block), Err(Fault::Trailing.into()));
}
