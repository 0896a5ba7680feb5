//! Prints the time to make and to read a KV block's file in memory, for the sizes of the 0.5B model:
//! `cargo run --release -p kinglet-tests --example block_speed`.

use core::hint::black_box;
use embedded_io::{ErrorKind, ErrorType, Write};
use kinglet_core::KvType;
use kinglet_core::kv::{Geometry, file, pack};
use kinglet_tests::block::{encode, header, pattern};
use std::time::Instant;

const GEOMETRY: Geometry = Geometry { kv_type: KvType::Q8, n_layers: 24, n_kv_heads: 2, head_dim: 64 };

/// A medium that looks at nothing: what a kernel or a card does with the bytes is not ours.
struct Nowhere;

impl ErrorType for Nowhere {
    type Error = ErrorKind;
}

impl Write for Nowhere {
    fn write(&mut self, buf: &[u8]) -> Result<usize, ErrorKind> {
        Ok(black_box(buf).len())
    }

    fn flush(&mut self) -> Result<(), ErrorKind> {
        Ok(())
    }
}

fn main() {
    let block = pattern(GEOMETRY.block_bytes());
    for count in [32, 28, 13, 1] {
        let mut header = header(GEOMETRY, count);
        let mut payload = vec![0; block.len()];
        let file = encode(&mut header, &block);
        let len = header.payload_bytes() as usize;
        let packing = best(|| {
            pack::pack(&GEOMETRY, count, &block, &mut payload).expect("sizes fit");
        });
        let writing = best(|| {
            file::encode(&mut header, &payload[..len], &mut Nowhere).expect("sizes fit");
        });
        let mut again = vec![0; block.len()];
        let reading = best(|| {
            let mut rest = &file[..];
            let header = file::read_header(&mut rest).expect("a sound file");
            file::decode(&mut rest, &header, &mut again).expect("a sound file");
        });
        let show = |ns: f64| format!("{ns:7.0} ns ({:5.2} GB/s)", len as f64 / ns);
        println!("{count:2} positions, {len:6} bytes: pack {}", show(packing));
        println!("   encode {}, decode {}", show(writing), show(reading));
    }
}

/// Nanoseconds of the fastest of many runs.
fn best(mut f: impl FnMut()) -> f64 {
    let begin = Instant::now();
    let mut best = f64::INFINITY;
    while begin.elapsed().as_secs_f64() < 0.5 {
        let start = Instant::now();
        f();
        best = best.min(start.elapsed().as_nanos() as f64);
        black_box(());
    }
    best
}
