//! Block files: what is written comes back, and nothing else is taken for a block.

use kinglet_core::KvType;
use kinglet_core::kv::{Fault, Geometry, file, pack};
use kinglet_tests::block::{self, copy_position, decode, encode, header, pattern, smallest};

const GEOMETRIES: [Geometry; 6] = [
    smallest(KvType::Q8),
    smallest(KvType::F32),
    Geometry { kv_type: KvType::Q8, n_layers: 3, n_kv_heads: 2, head_dim: 48 },
    Geometry { kv_type: KvType::F32, n_layers: 2, n_kv_heads: 3, head_dim: 32 },
    Geometry { kv_type: KvType::Q8, n_layers: 2, n_kv_heads: 8, head_dim: 128 },
    Geometry { kv_type: KvType::Q8, n_layers: 1, n_kv_heads: 5, head_dim: 256 },
];

/// A block with positions 0..count as in `full`, and nothing else.
fn only_first(geometry: &Geometry, full: &[u8], count: usize) -> Vec<u8> {
    let mut out = vec![0; full.len()];
    (0..count).for_each(|t| copy_position(geometry, full, &mut out, t));
    out
}

#[test]
fn every_count_comes_back() {
    for geometry in GEOMETRIES {
        let full = pattern(geometry.block_bytes());
        for count in 1..=32 {
            let mut header = header(geometry, count);
            let file = encode(&mut header, &full);
            assert_eq!(file.len() - 4096, full.len() * count.div_ceil(4) / 8);
            let (again, block) = decode(&file).unwrap();
            assert_eq!(again, header);
            assert!(block == only_first(&geometry, &full, count), "{geometry:?}, {count}");
            // What was not there, is not in the file either; and the file can be made again.
            assert!(encode(&mut header, &block) == file, "{geometry:?}, {count}");
        }
    }
}

#[test]
fn a_whole_block_is_a_straight_copy() {
    let geometry = smallest(KvType::Q8);
    let full = pattern(geometry.block_bytes());
    assert_eq!(encode(&mut header(geometry, 32), &full)[4096..], full);
}

#[test]
fn sizes_are_checked_before_anything_is_done() {
    let geometry = smallest(KvType::Q8);
    let (full, needed) = (pattern(geometry.block_bytes()), geometry.block_bytes() as u64);
    let mut out = full.clone();
    for len in [0, full.len() - 1] {
        let fault = Fault::BlockBytes { needed, got: len as u64 };
        assert_eq!(pack::pack(&geometry, 5, &full[..len], &mut out), Err(fault));
        assert_eq!(pack::unpack(&geometry, 5, &mut out[..len]), Err(fault));
        let file = encode(&mut header(geometry, 32), &full);
        let mut rest = &file[..];
        let read = file::read_header(&mut rest).unwrap();
        assert_eq!(file::decode(&mut rest, &read, &mut out[..len]), Err(fault.into()));
        assert_eq!(rest.len(), full.len());
    }
    let payload = pack::payload_bytes(&geometry, 5);
    let fault = Fault::PayloadBytes { needed: payload, found: payload - 1 };
    assert_eq!(pack::pack(&geometry, 5, &full, &mut out[..payload as usize - 1]), Err(fault));
    for count in [0, 33] {
        let fault = Fault::Count { found: count as u32 };
        assert_eq!(pack::pack(&geometry, count, &full, &mut out), Err(fault));
        assert_eq!(pack::unpack(&geometry, count, &mut out), Err(fault));
    }
    assert_eq!(out, full);
    let mut medium = block::Memory::new(&[]);
    let refused = file::encode(&mut header(geometry, 5), &full[..payload as usize - 1], &mut medium);
    assert_eq!(refused, Err(fault.into()));
    // A block that was not packed has other bytes where no position is.
    let refused = file::encode(&mut header(geometry, 5), &full[..payload as usize], &mut medium);
    assert_eq!(refused, Err(Fault::Padding.into()));
    assert_eq!(medium.calls, 0);
}
