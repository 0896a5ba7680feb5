//! KV files that were written by a program of its own from `FORMAT.md` (`fixtures/kv/generate.py`): they are
//! read for ever, and written again byte for byte.

use kinglet_core::KvType;
use kinglet_core::kv::identity::LAYOUT_VERSION;
use kinglet_core::kv::{Geometry, file, header, layout};
use kinglet_tests::block::{decode, encode, header as header_of, identity};
use kinglet_tests::fixture;

const FILES: [(&str, Geometry, usize); 3] = [
    ("v1-whole-q8.kv", Geometry { kv_type: KvType::Q8, n_layers: 2, n_kv_heads: 1, head_dim: 16 }, 32),
    ("v1-13-q8.tail", Geometry { kv_type: KvType::Q8, n_layers: 1, n_kv_heads: 2, head_dim: 32 }, 13),
    ("v1-6-f32.tail", Geometry { kv_type: KvType::F32, n_layers: 1, n_kv_heads: 1, head_dim: 16 }, 6),
];

fn key(layer: usize, head: usize, t: usize, d: usize) -> i8 {
    (((layer * 31 + head * 17 + t * 5 + d * 3) % 256) as i32 - 128) as i8
}

fn value(layer: usize, head: usize, t: usize, d: usize) -> i8 {
    (((layer * 7 + head * 13 + t * 3 + d * 11) % 256) as i32 - 128) as i8
}

/// The block that the generator made up, put into memory as the engine does it.
fn block_of(g: &Geometry, count: usize) -> Vec<u8> {
    let memory = kinglet_tests::model::region(g.block_bytes());
    memory.fill(0);
    for (i, slab) in memory.chunks_exact_mut(g.slab_bytes()).enumerate() {
        let (layer, head) = (i / g.n_kv_heads, i % g.n_kv_heads);
        for t in 0..count {
            let k: Vec<i8> = (0..g.head_dim).map(|d| key(layer, head, t, d)).collect();
            let v: Vec<i8> = (0..g.head_dim).map(|d| value(layer, head, t, d)).collect();
            let scale = (t + 1 + 64 * layer) as f32 / 64.0;
            let floats = |q: &[i8]| -> Vec<f32> { q.iter().map(|q| f32::from(*q) / 8.0).collect() };
            match g.kv_type {
                KvType::F32 => layout::write_f32(slab, t, &floats(&k), &floats(&v)),
                _ => layout::write_q8(slab, t, (&k, scale), (&v, -scale)),
            }
        }
    }
    memory.to_vec()
}

#[test]
fn files_are_read_and_written_again() {
    assert_eq!((header::VERSION, LAYOUT_VERSION), (1, 1), "a new version gets files of its own");
    for (name, geometry, count) in FILES {
        let file = fixture(&format!("kv/{name}"));
        let (mut read, block) = decode(&file).unwrap_or_else(|fault| panic!("{name}: {fault}"));
        assert!(block == block_of(&geometry, count), "{name}");
        assert!(encode(&mut read, &block) == file, "{name}");
        // All fields: the same file from the made-up contents alone.
        let mut made = header_of(geometry, count);
        assert!(encode(&mut made, &block_of(&geometry, count)) == file, "{name}");
        assert_eq!(made, read, "{name}");
    }
}

#[test]
fn the_identity_is_read_and_written_again() {
    let bytes = fixture("kv/v1-identity");
    let made = identity(FILES[0].1);
    assert_eq!(file::decode_identity(&bytes), Ok(made));
    assert_eq!(file::encode_identity(&made)[..], bytes);
    // The fingerprint is what stands in the block's file.
    let (header, _) = decode(&fixture("kv/v1-whole-q8.kv")).unwrap();
    assert_eq!(*header.fingerprint(), made.fingerprint());
}
