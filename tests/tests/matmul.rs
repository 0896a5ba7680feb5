//! The matrix product against a second, plain transcription of the contract (bit for bit), and
//! against f64 arithmetic on dequantised weights (closely).

use kinglet_core::ops::{self, BlockQ32, BlockQ256, Forms, Input, Isa, Precision};
use kinglet_core::par::{Single, Tile, for_each_tile};
use kinglet_core::quant::{WeightType, dequantize};
use kinglet_core::weights::Matrix;
use kinglet_tests::isas::{all_isas, names};
use kinglet_tests::naive;

fn all_types() -> impl Iterator<Item = WeightType> {
    (0..=30).filter_map(WeightType::from_ggml)
}

/// A small generator (PCG's multiplier, upper bits).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as u32
    }

    fn below(&mut self, n: u32) -> u32 {
        self.next() % n
    }
}

/// Half bits: ordinary, or one of the corners (zero, subnormal, largest, infinity, NaN).
fn scale_bits(random: &mut Random, hostile: bool) -> u16 {
    const CORNERS: [u16; 8] = [0, 0x8000, 1, 0x83FF, 0x7BFF, 0x7C00, 0xFC00, 0x7E01];
    if hostile && random.below(2) == 0 {
        CORNERS[random.below(8) as usize]
    } else {
        // 2^-10 to 2^-3, either sign.
        (random.below(2) << 15 | (5 + random.below(7)) << 10 | random.below(1024)) as u16
    }
}

/// The bytes of `rows` rows; every fourth row is hostile.
fn weights(ty: WeightType, rows: usize, k: usize, random: &mut Random) -> Vec<u8> {
    let mut data = Vec::new();
    for row in 0..rows {
        let hostile = row % 4 == 3;
        for _ in 0..k / ty.block_len() {
            let start = data.len();
            let fill = random.below(6);
            for _ in 0..ty.block_bytes() {
                // All bits set, all -128, all clear; else random.
                data.push([0xFF, 0x80, 0, 0x7F].get(fill as usize).map_or(random.next() as u8, |b| *b));
                if fill < 4 && !hostile {
                    *data.last_mut().unwrap() = random.next() as u8;
                }
            }
            let half = scale_bits(random, hostile);
            match ty {
                WeightType::F32 => {
                    data[start..].copy_from_slice(&naive::half(&half.to_le_bytes()).to_le_bytes())
                }
                WeightType::F16 => data[start..].copy_from_slice(&half.to_le_bytes()),
                WeightType::Bf16 => {
                    let wide = naive::half(&half.to_le_bytes()).to_bits() >> 16;
                    data[start..].copy_from_slice(&(wide as u16).to_le_bytes());
                }
                _ => {}
            }
            for at in naive::half_offsets(ty) {
                let half = scale_bits(random, hostile);
                data[start + at..][..2].copy_from_slice(&half.to_le_bytes());
            }
        }
    }
    data
}

/// `tokens` vectors; some are flat, tiny, huge, or contain a value that is not finite.
fn vectors(tokens: usize, k: usize, random: &mut Random) -> Vec<f32> {
    let mut x = Vec::new();
    for token in 0..tokens {
        let scale = match token % 8 {
            5 => 1e-38,
            6 => 1e36,
            7 => 0.0,
            _ => 1.0,
        };
        x.extend((0..k).map(|_| (random.below(20_001) as f32 / 1e4 - 1.0) * scale));
        if token % 8 == 4 {
            let at = x.len() - 1 - random.below(k as u32) as usize;
            x[at] = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY][token / 8 % 3];
        }
    }
    x
}

/// The quantised forms of `x` that `ty` asks for.
fn forms(ty: WeightType, precision: Precision, x: &[f32]) -> (Vec<BlockQ32>, Vec<BlockQ256>) {
    let forms = Forms::of(ty);
    let zero32 = BlockQ32 { d: 9.0, s: 9.0, lo: [9; 32], hi: [9; 32] };
    let zero256 =
        BlockQ256 { d: 9.0, sums: [9; 16], most_of_16: 9, sums_of_32: [9; 16], lo: [9; 256], hi: [9; 256] };
    let mut q32 = vec![zero32; if forms.q32 { x.len() / 32 } else { 0 }];
    let mut q256 = vec![zero256; if forms.q256 { x.len() / 256 } else { 0 }];
    if forms.q32 {
        ops::quantize_q32(Isa::Scalar, precision, x, &mut q32);
    }
    if forms.q256 {
        ops::quantize_q256(Isa::Scalar, precision, x, &mut q256);
    }
    (q32, q256)
}

/// The product in tiles of the given size.
fn product(
    isa: Isa,
    w: &Matrix<'_>,
    precision: Precision,
    x: &[f32],
    tile_rows: usize,
    tile_cols: usize,
) -> Vec<f32> {
    let (q32, q256) = forms(w.ty(), precision, x);
    let input = Input { tokens: x.len() / w.cols(), k: w.cols(), precision, x, q32: &q32, q256: &q256 };
    let mut out = vec![f32::MAX; input.tokens * w.rows()];
    for_each_tile(&Single, &mut out, w.rows(), tile_rows, tile_cols, |tile| {
        ops::matmul(isa, w, &input, tile);
    });
    out
}

/// The first output that differs; results that are not a number count as equal.
fn first_difference(ours: &[f32], theirs: &[f32]) -> Option<String> {
    assert_eq!(ours.len(), theirs.len());
    let differs = |(a, b): (&f32, &f32)| a.to_bits() != b.to_bits() && !(a.is_nan() && b.is_nan());
    let at = ours.iter().zip(theirs).position(differs)?;
    Some(format!("output {at}: {:e} and not {:e}", ours[at], theirs[at]))
}

fn by_the_contract(w: &Matrix<'_>, precision: Precision, x: &[f32]) -> Vec<f32> {
    let most = precision.most();
    let rows =
        |x| w.data().chunks(w.row_bytes()).map(move |row| naive::row_times_vector(w.ty(), row, x, most));
    x.chunks(w.cols()).flat_map(rows).collect()
}

#[test]
fn every_type_token_count_and_split_gives_the_bits_of_the_contract() {
    let mut random = Random(7);
    let isas = all_isas();
    println!("instruction sets: {}", names(&isas));
    for ty in all_types() {
        let lengths: &[usize] = match ty.block_len() {
            1 => &[1, 37, 128],
            32 => &[32, 96, 416, 6176],
            _ => &[256, 768],
        };
        for &k in lengths {
            // One more than two panels of eight; not a multiple of four.
            let rows = 27;
            let data = weights(ty, rows, k, &mut random);
            let w = Matrix::new(ty, rows, k, &data).unwrap();
            for tokens in [1, 3, 4, 9, 14, 67] {
                // The largest product only where it can show something: more than one tile of tokens.
                // The longest rows only where they are taken in parts.
                if tokens > 14 && k > 256 || k > 1000 && !(2..=4).contains(&tokens) {
                    continue;
                }
                let x = vectors(tokens, k, &mut random);
                for precision in [Precision::Coarse, Precision::Fine] {
                    let truth = by_the_contract(&w, precision, &x);
                    if tokens > 2 {
                        let finite = truth.iter().filter(|y| y.is_finite() && **y != 0.0).count();
                        assert!(finite * 3 > truth.len(), "{}: the data tests too little", ty.name());
                    }
                    for &isa in &isas {
                        for (tile_rows, tile_cols) in [(tokens, rows), (64, 16), (tokens, 1), (5, 3), (9, 20)]
                        {
                            let ours = product(isa, &w, precision, &x, tile_rows, tile_cols);
                            assert_eq!(
                                first_difference(&ours, &truth),
                                None,
                                "{} {precision:?} {} k {k} tokens {tokens} tiles {tile_rows} x {tile_cols}",
                                isa.name(),
                                ty.name()
                            );
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn the_largest_sums_are_exact() {
    let mut random = Random(13);
    for ty in all_types().filter(|ty| ty.block_len() > 1) {
        let (rows, k) = (9, 2 * ty.block_len());
        for fill in [0xFF, 0x80, 0x7F, 0, 0x0F, 0xF0] {
            let mut data = vec![fill; rows * ty.row_bytes(k)];
            for block in data.chunks_mut(ty.block_bytes()) {
                for &at in naive::half_offsets(ty) {
                    block[at..][..2].copy_from_slice(&scale_bits(&mut random, false).to_le_bytes());
                }
            }
            let w = Matrix::new(ty, rows, k, &data).unwrap();
            // One 2047 in a block makes the step 1. 1984 is 16 * 128 - 64: both planes at their most.
            let edge = |i: usize| if i.is_multiple_of(32) { 2047.0 } else { 1984.0 };
            let flat = |sign: f32| vec![sign; 9 * k];
            let edges = |sign: f32| -> Vec<f32> { (0..9 * k).map(|i| edge(i) * sign).collect() };
            let mixed = (0..9 * k).map(|i| edge(i) * [1.0, -1.0][i.count_ones() as usize % 2]).collect();
            for x in [flat(1.0), flat(-1.0), edges(1.0), edges(-1.0), mixed] {
                for precision in [Precision::Coarse, Precision::Fine] {
                    let truth = by_the_contract(&w, precision, &x);
                    for isa in all_isas() {
                        // The forms for one, a few, four and many rows.
                        for tile_rows in [1, 3, 4, 9] {
                            let ours = product(isa, &w, precision, &x, tile_rows, rows);
                            let difference = first_difference(&ours, &truth);
                            assert_eq!(difference, None, "{} {} {fill:#x}", isa.name(), ty.name());
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn the_checker_notices_one_weight_one_activation_one_bit() {
    let mut random = Random(3);
    for ty in all_types() {
        let k = 2 * ty.block_len().max(16);
        let mut data = weights(ty, 3, k, &mut random);
        let mut x: Vec<f32> = (0..4 * k).map(|i| 1.0 + (i % 7) as f32).collect();
        let coarse = Precision::Coarse;
        let truth = by_the_contract(&Matrix::new(ty, 3, k, &data).unwrap(), coarse, &x);
        for isa in all_isas() {
            let ours =
                |data: &[u8], x: &[f32]| product(isa, &Matrix::new(ty, 3, k, data).unwrap(), coarse, x, 4, 3);
            assert_eq!(first_difference(&ours(&data, &x), &truth), None);
            x[k + 3] += 2.0;
            assert_ne!(first_difference(&ours(&data, &x), &truth), None, "{}: activation", ty.name());
            x[k + 3] -= 2.0;
            // Byte 20 of the second row holds weights in every type.
            let at = data.len() / 3 + 20;
            data[at] ^= 0x11;
            assert_ne!(first_difference(&ours(&data, &x), &truth), None, "{}: weight", ty.name());
            data[at] ^= 0x11;
            let mut one_bit = ours(&data, &x);
            one_bit[5] = f32::from_bits(one_bit[5].to_bits() ^ 1);
            assert_ne!(first_difference(&one_bit, &truth), None);
        }
    }
}

#[test]
fn close_to_the_product_of_dequantised_weights() {
    let mut random = Random(11);
    for (ty, precision) in all_types().flat_map(|ty| [(ty, Precision::Coarse), (ty, Precision::Fine)]) {
        let (rows, k, tokens) = (3, 512, 5);
        let data = weights(ty, rows, k, &mut random);
        let w = Matrix::new(ty, rows, k, &data).unwrap();
        let x: Vec<f32> = (0..tokens * k).map(|_| random.below(20_001) as f32 / 1e4 - 1.0).collect();
        let ours = product(Isa::Scalar, &w, precision, &x, tokens, rows);
        let mut floats = vec![0.0; rows * k];
        dequantize(ty, &data, &mut floats).unwrap();
        for (i, ours) in ours.iter().enumerate() {
            let (w, x) = (&floats[i % rows * k..][..k], &x[i / rows * k..][..k]);
            let truth: f64 = w.iter().zip(x).map(|(w, x)| f64::from(*w) * f64::from(*x)).sum();
            let size: f64 = w.iter().map(|w| f64::from(w.abs())).sum();
            // Activations are at most 1: half a step each, and the rounding of sums.
            let step = if ty.block_len() == 1 { 0.0 } else { 0.5 / f64::from(precision.most()) };
            let error = (f64::from(*ours) - truth).abs();
            assert!(error <= size * (step * 1.0001 + 1e-5), "{}: {ours} and not {truth}", ty.name());
            assert!(step == 0.0 || error > 0.0, "{}: not quantised?", ty.name());
        }
    }
}

/// The values that two planes stand for.
fn joined(lo: &[i8], hi: &[i8]) -> impl Iterator<Item = i64> {
    lo.iter().zip(hi).map(|(lo, hi)| i64::from(*lo) + 128 * i64::from(*hi))
}

#[test]
fn quantised_activations_follow_the_contract() {
    let mut random = Random(5);
    let mut x = vectors(24, 512, &mut random);
    // Exact halves tie to even; amax at either end of the range; d just at its smallest.
    x[..6].copy_from_slice(&[127.0, 0.5, 1.5, 2.5, -0.5, -1.5]);
    x[32..34].copy_from_slice(&[f32::MAX, f32::MIN]);
    x[512..1024].fill(0.0);
    x[512] = 127.0 * f32::MIN_POSITIVE;
    x[768] = (127.0 * f32::MIN_POSITIVE).next_down();
    let (q32, _) = forms(WeightType::Q8_0, Precision::Fine, &x);
    let (_, q256) = forms(WeightType::Q6K, Precision::Coarse, &x);
    let same = |a: f32, b: f32| a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan();
    for (x, block) in x.chunks(32).zip(&q32) {
        let (d, q) = naive::quantize(x, 2047.0);
        assert!(same(block.d, d) && joined(&block.lo, &block.hi).eq(q.iter().copied()));
        assert!(same(block.s, d * q.iter().sum::<i64>() as f32));
    }
    for (x, block) in x.chunks(256).zip(&q256) {
        let (d, q) = naive::quantize(x, 127.0);
        assert!(same(block.d, d) && joined(&block.lo, &block.hi).eq(q.iter().copied()));
        assert!(q.chunks(16).zip(block.sums).all(|(q, sum)| q.iter().sum::<i64>() == i64::from(sum)));
    }
    assert_eq!(q256[2].d, f32::MIN_POSITIVE);
    assert_eq!((q256[2].lo[0], q256[3].d.to_bits(), q256[3].lo[0]), (127, 0, 0));
    // -0.0 and nothing else: the scale is +0.0.
    let mut block = [BlockQ32 { d: 1.0, s: 1.0, lo: [1; 32], hi: [1; 32] }];
    ops::quantize_q32(Isa::Scalar, Precision::Coarse, &[-0.0; 32], &mut block);
    assert_eq!(
        (block[0].d.to_bits(), block[0].s.to_bits(), block[0].lo, block[0].hi),
        (0, 0, [0; 32], [0; 32])
    );
}

#[test]
fn only_the_tile_is_written() {
    let data = weights(WeightType::Q8_0, 6, 32, &mut Random(1));
    let w = Matrix::new(WeightType::Q8_0, 6, 32, &data).unwrap();
    let x = [1.0; 5 * 32];
    let (q32, _) = forms(w.ty(), Precision::Coarse, &x);
    let input = Input { tokens: 5, k: 32, precision: Precision::Coarse, x: &x, q32: &q32, q256: &[] };
    for isa in all_isas() {
        let mut out = [7.5f32; 5 * 6];
        for_each_tile(&Single, &mut out, 6, 2, 2, |tile| {
            if tile.rows().contains(&2) && tile.cols().contains(&2) {
                ops::matmul(isa, &w, &input, tile);
            }
        });
        for (i, y) in out.iter().enumerate() {
            let inside = (2..4).contains(&(i / 6)) && (2..4).contains(&(i % 6));
            assert_eq!(*y != 7.5, inside, "output {i}");
        }
    }
    // No rows, no tokens: nothing to do.
    ops::matmul(
        Isa::Scalar,
        &Matrix::EMPTY,
        &Input { tokens: 0, k: 0, precision: Precision::Coarse, x: &[], q32: &[], q256: &[] },
        Tile::whole(&mut [], 0),
    );
}

#[test]
fn shapes_that_do_not_fit_are_refused() {
    let data = [0; 34 * 2];
    let w = Matrix::new(WeightType::Q8_0, 2, 32, &data).unwrap();
    let q32 = [BlockQ32 { d: 0.0, s: 0.0, lo: [0; 32], hi: [0; 32] }; 2];
    let good = Input { tokens: 2, k: 32, precision: Precision::Coarse, x: &[], q32: &q32, q256: &[] };
    let refused = |input: Input<'_>, width: usize| {
        let mut out = vec![0.0; 2 * width];
        let call = || ops::matmul(Isa::Scalar, &w, &input, Tile::whole(&mut out, width));
        std::panic::catch_unwind(core::panic::AssertUnwindSafe(call)).is_err()
    };
    assert!(!refused(good, 2));
    assert!(refused(good, 3));
    assert!(refused(Input { tokens: 1, ..good }, 2));
    assert!(refused(Input { k: 64, ..good }, 2));
    assert!(refused(Input { q32: &q32[..1], ..good }, 2));
    assert!(refused(Input { q32: &[], x: &[0.0; 64], ..good }, 2));
}
