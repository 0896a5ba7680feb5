//! Block files: what is written comes back, and nothing else is taken for a block.

use kinglet_core::KvType;
use kinglet_core::kv::{Fault, Geometry, file, layout, pack};
use kinglet_tests::block::{self, decode, encode, header, pattern, smallest};

const GEOMETRIES: [Geometry; 6] = [
    smallest(KvType::Q8),
    smallest(KvType::F32),
    Geometry { kv_type: KvType::Q8, n_layers: 3, n_kv_heads: 2, head_dim: 48 },
    Geometry { kv_type: KvType::F32, n_layers: 2, n_kv_heads: 3, head_dim: 32 },
    Geometry { kv_type: KvType::Q8, n_layers: 2, n_kv_heads: 8, head_dim: 128 },
    Geometry { kv_type: KvType::Q8, n_layers: 1, n_kv_heads: 5, head_dim: 256 },
];

/// A block with positions 0..count as in `full`, and nothing else; through the layout's own functions, which
/// know nothing of runs.
fn only_first(geometry: &Geometry, full: &[u8], count: usize) -> Vec<u8> {
    let (d, mut out) = (geometry.head_dim, vec![0; full.len()]);
    let slab = geometry.slab_bytes();
    for (from, to) in full.chunks_exact(slab).zip(out.chunks_exact_mut(slab)) {
        for t in 0..count {
            if geometry.kv_type == KvType::F32 {
                for at in [4 * d * t, 4 * d * (32 + t)] {
                    to[at..at + 4 * d].copy_from_slice(&from[at..at + 4 * d]);
                }
                continue;
            }
            for i in 0..d {
                let (k, v) = (layout::k_offset(d, t, i), 32 * d + layout::v_offset(t, i));
                (to[k], to[v]) = (from[k], from[v]);
            }
            for at in [64 * d + 4 * t, 64 * d + 128 + 4 * t] {
                to[at..at + 4].copy_from_slice(&from[at..at + 4]);
            }
        }
    }
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
