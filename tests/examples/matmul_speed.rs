//! Prints giga multiply-adds per second of the matrix product, per weight type and number of
//! tokens, on one thread: `cargo run --release -p kinglet-tests --example matmul_speed KERNELS [TYPE]`;
//! a type with `+` behind it has fine activations.

use kinglet_core::ops::{self, BlockQ32, BlockQ256, Forms, Input, Isa, Precision};
use kinglet_core::par::Tile;
use kinglet_core::quant::WeightType;
use kinglet_core::weights::Matrix;
use kinglet_tests::isas::all_isas;
use std::time::Instant;

/// Elements of a row.
const K: usize = 1024;
/// Rows times tokens: few enough for a run of a millisecond or so, which other load on the
/// machine does not always interrupt.
const OUTPUTS: usize = 4096;

fn main() {
    let mut args = std::env::args().skip(1);
    let kernels = args.next().unwrap_or_default();
    let Some(isa) = all_isas().into_iter().find(|isa| isa.name() == kernels) else {
        let names: Vec<&str> = all_isas().iter().map(|isa| isa.name()).collect();
        return eprintln!("kernels of this CPU: {}", names.join(", "));
    };
    let wanted = args.next();
    let precision = match wanted.as_ref().is_some_and(|name| name.ends_with('+')) {
        true => Precision::Fine,
        false => Precision::Coarse,
    };
    let wanted = wanted.as_ref().map(|name| name.trim_end_matches('+')).filter(|name| !name.is_empty());
    for ty in (0..=30).filter_map(WeightType::from_ggml) {
        if wanted.is_none_or(|name| name == ty.name()) {
            let speeds = [1, 2, 4, 8, 32, 64]
                .map(|tokens| format!("{tokens}: {:5.2}", measure(isa, precision, ty, tokens)));
            println!("{:7} {}", ty.name(), speeds.join("  "));
        }
    }
}

/// The best of the runs of a third of a second.
fn measure(isa: Isa, precision: Precision, ty: WeightType, tokens: usize) -> f64 {
    let rows = OUTPUTS / tokens;
    let mut state = 1u32;
    let mut next = move || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state >> 24
    };
    // Floats get an ordinary exponent in their last byte; block scales at least no NaN.
    let (len, bytes) = (rows * ty.row_bytes(K), ty.block_bytes());
    let byte = |i: usize, random: u32| match ty.block_len() {
        1 if i % bytes == bytes - 1 => 0x3D,
        1 => random as u8,
        _ => random as u8 & 0x3B,
    };
    let data: Vec<u8> = (0..len).map(|i| byte(i, next())).collect();
    let w = Matrix::new(ty, rows, K, &data).expect("the length was computed from the shape");
    let x: Vec<f32> = (0..tokens * K).map(|_| (next() as f32 - 127.5) * 0.012_345_678).collect();
    let mut q32 = vec![BlockQ32 { d: 0.0, s: 0.0, lo: [0; 32], hi: [0; 32] }; x.len() / 32];
    let mut q256 = vec![
        BlockQ256 {
            d: 0.0,
            sums: [0; 16],
            most_of_16: 0,
            sums_of_32: [0; 16],
            lo: [0; 256],
            hi: [0; 256]
        };
        x.len() / 256
    ];
    let forms = Forms::of(ty);
    if forms.q32 {
        ops::quantize_q32(isa, precision, &x, &mut q32);
    }
    if forms.q256 {
        ops::quantize_q256(isa, precision, &x, &mut q256);
    }
    let input = Input { tokens, k: K, precision, x: &x, q32: &q32, q256: &q256 };
    let mut out = vec![0.0f32; tokens * rows];
    let mut best = f64::INFINITY;
    let begin = Instant::now();
    while begin.elapsed().as_secs_f64() < 0.3 {
        let start = Instant::now();
        ops::matmul(isa, &w, &input, Tile::whole(&mut out, rows));
        best = best.min(start.elapsed().as_secs_f64());
        core::hint::black_box(&out);
    }
    (tokens * rows * K) as f64 / best / 1e9
}
