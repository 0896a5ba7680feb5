//! Every instruction set against the scalar kernels, bit for bit, in cases so small that an
//! interpreter gets through them: `cargo xtask miri` runs these for CPUs that are not at hand.

use kinglet_core::kv::{BLOCK_TOKENS, KvType, layout};
use kinglet_core::ops::attention::{Group, attend};
use kinglet_core::ops::{self, BlockQ32, BlockQ256, Forms, Input, Isa, Precision, elementwise};
use kinglet_core::par::Tile;
use kinglet_core::quant::WeightType;
use kinglet_core::weights::{Matrix, Vector};
use kinglet_tests::isas::{all_isas, names};
use kinglet_tests::naive;

const PRECISIONS: [Precision; 2] = [Precision::Coarse, Precision::Fine];

/// A small generator (PCG's multiplier, upper bits).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as u32
    }

    fn floats(&mut self, n: usize) -> Vec<f32> {
        (0..n).map(|_| (self.next() % 20_001) as f32 / 1e4 - 1.0).collect()
    }
}

/// The other instruction sets of this CPU, or of the one that is interpreted.
fn others() -> Vec<Isa> {
    let isas = all_isas();
    println!("instruction sets: {}", names(&isas));
    isas.into_iter().filter(|isa| *isa != Isa::Scalar).collect()
}

/// Fails unless the values have the same bits; results that are not a number count as equal.
fn assert_same(ours: &[f32], want: &[f32], what: &dyn Fn() -> String) {
    assert_eq!(ours.len(), want.len());
    for (i, (ours, want)) in ours.iter().zip(want).enumerate() {
        let same = ours.to_bits() == want.to_bits() || ours.is_nan() && want.is_nan();
        assert!(same, "{}, value {i}: {ours:e} and not {want:e}", what());
    }
}

/// The forms of `x` that `ty` asks for.
fn forms(isa: Isa, ty: WeightType, precision: Precision, x: &[f32]) -> (Vec<BlockQ32>, Vec<BlockQ256>) {
    let forms = Forms::of(ty);
    let zero32 = BlockQ32 { d: 9.0, s: 9.0, lo: [9; 32], hi: [9; 32] };
    let zero256 =
        BlockQ256 { d: 9.0, sums: [9; 16], most_of_16: 9, sums_of_32: [9; 16], lo: [9; 256], hi: [9; 256] };
    let mut q32 = vec![zero32; if forms.q32 { x.len() / 32 } else { 0 }];
    let mut q256 = vec![zero256; if forms.q256 { x.len() / 256 } else { 0 }];
    if forms.q32 {
        ops::quantize_q32(isa, precision, x, &mut q32);
    }
    if forms.q256 {
        ops::quantize_q256(isa, precision, x, &mut q256);
    }
    (q32, q256)
}

/// `rows` rows: all weights the largest, or the smallest, or any.
fn weights(ty: WeightType, rows: usize, k: usize, random: &mut Random) -> Vec<u8> {
    let mut data = vec![0; rows * ty.row_bytes(k)];
    for (row, bytes) in data.chunks_mut(ty.row_bytes(k)).enumerate() {
        match row {
            0 => bytes.fill(0xFF),
            1 => bytes.fill(0x80),
            2 => bytes.fill(0x7F),
            3 => bytes.fill(0),
            _ => bytes.iter_mut().for_each(|byte| *byte = random.next() as u8),
        }
        for block in bytes.chunks_mut(ty.block_bytes()) {
            for &at in naive::half_offsets(ty) {
                // 2^-6 and a little, either sign.
                let half = 0x2400 | (random.next() & 0x83FF) as u16;
                block[at..][..2].copy_from_slice(&half.to_le_bytes());
            }
        }
    }
    data
}

#[test]
fn products_of_quantised_weights() {
    let mut random = Random(29);
    let isas = others();
    for ty in (0..=30).filter_map(WeightType::from_ggml).filter(|ty| ty.block_len() > 1) {
        // A panel and one row more; one group of tokens and one token more.
        let (rows, k) = (9, ty.block_len().max(64));
        let data = weights(ty, rows, k, &mut random);
        let w = Matrix::new(ty, rows, k, &data).unwrap();
        for tokens in [1, 5] {
            let mut x = random.floats(tokens * k);
            // The largest sums: of either sign, by the last token and the one before.
            x[(tokens - 1) * k..].fill(-1.0);
            if tokens > 1 {
                x[(tokens - 2) * k..(tokens - 1) * k].fill(1.0);
            }
            for precision in PRECISIONS {
                let product = |isa| {
                    let (q32, q256) = forms(isa, ty, precision, &x);
                    let input = Input { tokens, k, precision, x: &x, q32: &q32, q256: &q256 };
                    let mut out = vec![f32::MAX; tokens * rows];
                    ops::matmul(isa, &w, &input, Tile::whole(&mut out, rows));
                    out
                };
                let want = product(Isa::Scalar);
                assert!(want.iter().all(|y| y.is_finite()) && want.iter().filter(|y| **y != 0.0).count() > 4);
                for &isa in &isas {
                    let what = || format!("{} {} {precision:?} tokens {tokens}", isa.name(), ty.name());
                    assert_same(&product(isa), &want, &what);
                }
            }
        }
    }
}

#[test]
fn attention() {
    let mut random = Random(31);
    let isas = others();
    for d in [16, 48] {
        let visible = BLOCK_TOKENS + 5;
        let slab = 2 * BLOCK_TOKENS * (d + 4);
        let bytes = kinglet_tests::model::region(2 * slab);
        for t in 0..visible {
            let mut ints = |fill: u32| -> Vec<i8> {
                (0..d).map(|_| if fill == 0 { -128 } else { random.next() as i8 }).collect()
            };
            let (k, v) = (ints(t as u32 % 7), ints(t as u32 % 5));
            let at = t / BLOCK_TOKENS * slab;
            layout::write_q8(&mut bytes[at..at + slab], t % BLOCK_TOKENS, (&k, 0.01), (&v, 0.02));
        }
        let (queries, reference) = ([random.floats(d), vec![1.0; d]], random.floats(d));
        let results = |isa| {
            let mut group = Group::new(isa, d, 1.0 / (d as f32).sqrt(), KvType::Q8);
            group.push(&queries[0], visible, &vec![1.0; d]);
            group.push(&queries[1], 7, &vec![0.5; d]);
            let slab = |i: usize| &bytes[i * slab..(i + 1) * slab];
            attend(&mut group, slab, |_, out| out.copy_from_slice(&reference));
            [group.result(0), group.result(1)].concat()
        };
        let want = results(Isa::Scalar);
        assert!(want.iter().all(|y| y.is_finite() && *y != 0.0));
        for &isa in &isas {
            assert_same(&results(isa), &want, &|| format!("{} head {d}", isa.name()));
        }
    }
}

#[test]
fn elementwise_operations() {
    let mut random = Random(37);
    // Not a multiple of any vector.
    let n = 38;
    let (x, y, angles) = (random.floats(n), random.floats(n), random.floats(n / 2));
    let bytes: Vec<u8> = random.floats(n).iter().flat_map(|v| v.to_le_bytes()).collect();
    let w = Vector::new(&bytes);
    let all = |isa| {
        let mut out = vec![x.clone(); 5];
        elementwise::rmsnorm(isa, &x, &w, 1e-6, &mut out[0]);
        elementwise::rope(isa, &mut out[1], &angles, &angles);
        elementwise::swiglu(isa, &mut out[2], &y);
        elementwise::add(isa, &mut out[3], &y);
        elementwise::condition(isa, &mut out[4][..32], &y[..32]);
        out.concat()
    };
    let want = all(Isa::Scalar);
    for isa in others() {
        assert_same(&all(isa), &want, &|| isa.name().to_owned());
    }
}
