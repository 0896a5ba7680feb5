//! Prints giga multiply-adds per second of the matrix product, per weight type and number of
//! tokens, on one thread: `cargo run --release -p kinglet-tests --example matmul_speed [TYPE]`.

use kinglet_core::ops::{self, BlockQ32, BlockQ256, Forms, Input, Isa};
use kinglet_core::par::Tile;
use kinglet_core::quant::WeightType;
use kinglet_core::weights::Matrix;
use std::time::Instant;

/// The shape of a feed-forward matrix of a 0.5B model, its rows rounded to whole blocks.
const ROWS: usize = 4864;
const K: usize = 1024;

fn main() {
    let wanted = std::env::args().nth(1);
    for ty in (0..=30).filter_map(WeightType::from_ggml) {
        if wanted.as_ref().is_none_or(|name| name == ty.name()) {
            let speeds = [1, 2, 4, 8, 32, 128].map(|tokens| format!("{tokens}: {:5.2}", measure(ty, tokens)));
            println!("{:7} {}", ty.name(), speeds.join("  "));
        }
    }
}

/// The best of several runs.
fn measure(ty: WeightType, tokens: usize) -> f64 {
    let mut state = 1u32;
    let mut next = move || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state >> 24
    };
    // 0x2E in every byte of a float makes small ordinary numbers of every width.
    let data: Vec<u8> = (0..ROWS * ty.row_bytes(K))
        .map(|_| if ty.block_len() == 1 { 0x2E } else { next() as u8 & 0x3B })
        .collect();
    let w = Matrix::new(ty, ROWS, K, &data).expect("the length was computed from the shape");
    let x: Vec<f32> = (0..tokens * K).map(|_| next() as f32 - 127.5).collect();
    let mut q32 = vec![BlockQ32 { d: 0.0, s: 0.0, q: [0; 32] }; x.len() / 32];
    let mut q256 = vec![BlockQ256 { d: 0.0, sums: [0; 16], q: [0; 256] }; x.len() / 256];
    let forms = Forms::of(ty);
    if forms.q32 {
        ops::quantize_q32(Isa::Scalar, &x, &mut q32);
    }
    if forms.q256 {
        ops::quantize_q256(Isa::Scalar, &x, &mut q256);
    }
    let input = Input { tokens, k: K, x: &x, q32: &q32, q256: &q256 };
    let mut out = vec![0.0f32; tokens * ROWS];
    let mut best = f64::INFINITY;
    for _ in 0..5 {
        let start = Instant::now();
        ops::matmul(Isa::Scalar, &w, &input, Tile::whole(&mut out, ROWS));
        best = best.min(start.elapsed().as_secs_f64());
        std::hint::black_box(&out);
    }
    (tokens * ROWS * K) as f64 / best / 1e9
}
