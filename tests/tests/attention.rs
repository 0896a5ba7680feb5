//! Attention of every instruction set against the scalar kernel (bit for bit) and against plain
//! float arithmetic (closely).

use kinglet_core::Isa;
use kinglet_core::kv::{BLOCK_TOKENS, KvType, layout};
use kinglet_core::ops::attention::{Group, QUERIES, attend};
use kinglet_core::ops::elementwise::hadamard_run;
use kinglet_tests::isas::all_isas;

/// A small generator (PCG's multiplier, upper bits).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as u32
    }

    fn float(&mut self) -> f32 {
        (self.next() % 20_001) as f32 / 1e4 - 1.0
    }
}

/// What the numbers of a block are like.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Content {
    /// Any integers, scales of the usual size.
    Plain,
    /// The smallest integer everywhere: the largest sums.
    Smallest,
    /// Integers and scales of all tokens are the same, and so are the scores.
    Equal,
    /// Scales of either sign, which no quantiser makes.
    Signed,
    /// Scales among which there are zero, subnormal, huge and infinite ones, and NaN.
    Hostile,
    /// All zero, as where nothing was written yet.
    Zero,
}

const CONTENTS: [Content; 6] =
    [Content::Plain, Content::Smallest, Content::Equal, Content::Signed, Content::Hostile, Content::Zero];

/// 64-byte aligned blocks of one KV head; tokens past the last hold rubbish: every float is a NaN.
struct Blocks {
    bytes: &'static mut [u8],
    slab: usize,
    kv_type: KvType,
    /// Dequantised K and V, `[tokens, head_dim]` each.
    k: Vec<f32>,
    v: Vec<f32>,
}

impl Blocks {
    fn new(d: usize, tokens: usize, kv_type: KvType, content: Content, random: &mut Random) -> Blocks {
        let slab = match kv_type {
            KvType::Q8 => 2 * BLOCK_TOKENS * (d + 4),
            _ => 2 * BLOCK_TOKENS * d * 4,
        };
        let bytes = kinglet_tests::model::region(tokens.div_ceil(BLOCK_TOKENS) * slab);
        let (mut k, mut v) = (Vec::new(), Vec::new());
        for t in 0..tokens {
            let mut int8 = |fill: u32| -> Vec<i8> {
                let of = |i: usize, random: u32| match content {
                    Content::Zero => 0,
                    Content::Smallest => -128,
                    Content::Equal => (i * 37 % 251) as i8,
                    _ if fill == 0 => -128,
                    _ => random as i8,
                };
                (0..d).map(|i| of(i, random.next())).collect()
            };
            let (kq, vq) = (int8(t as u32 % 7), int8(t as u32 % 5));
            let mut scale = |t: usize| match (content, t % 13) {
                (Content::Zero, _) | (Content::Hostile, 3) => 0.0,
                (Content::Hostile, 5) => 1e-42,
                (Content::Hostile, 7) => 3e37,
                (Content::Signed, n) => [0.004, -0.004][n % 2],
                (Content::Hostile, 9) if t.is_multiple_of(2) => f32::INFINITY,
                (Content::Hostile, 9) => f32::NAN,
                (Content::Plain | Content::Hostile, _) => 0.002 + random.float().abs() * 0.01,
                (Content::Smallest | Content::Equal, _) => 0.01,
            };
            let (dk, dv) = (scale(t), scale(t + 5));
            let k_row: Vec<f32> = kq.iter().map(|q| f32::from(*q) * dk).collect();
            let v_row: Vec<f32> = vq.iter().map(|q| f32::from(*q) * dv).collect();
            let at = t / BLOCK_TOKENS * slab;
            let (bytes, t) = (&mut bytes[at..at + slab], t % BLOCK_TOKENS);
            match kv_type {
                KvType::Q8 => layout::write_q8(bytes, t, (&kq, dk), (&vq, dv)),
                _ => layout::write_f32(bytes, t, &k_row, &v_row),
            }
            k.extend(k_row);
            v.extend(v_row);
        }
        Blocks { bytes, slab, kv_type, k, v }
    }

    fn attend(&self, isa: Isa, d: usize, queries: &[(Vec<f32>, usize)], reference: &[f32]) -> Vec<Vec<f32>> {
        let mut group = Group::new(isa, d, 1.0 / (d as f32).sqrt(), self.kv_type);
        for (q, visible) in queries {
            group.push(q, *visible, &vec![1.0; d]);
        }
        let slab = |i: usize| &self.bytes[i * self.slab..(i + 1) * self.slab];
        attend(&mut group, slab, |_, out| out.copy_from_slice(reference));
        (0..queries.len()).map(|i| group.result(i).to_vec()).collect()
    }
}

fn queries(d: usize, visible: &[usize], random: &mut Random) -> Vec<(Vec<f32>, usize)> {
    visible.iter().map(|v| ((0..d).map(|_| random.float()).collect(), *v)).collect()
}

/// What a query is like: any, the largest sums, one that cannot be quantised, nothing.
fn extreme_queries(d: usize, visible: usize) -> Vec<(Vec<f32>, usize)> {
    let mut not_finite = vec![1.0; d];
    not_finite[d / 2] = f32::INFINITY;
    // The transform of equal elements is one large element; of a lone one, equal elements.
    let mut lone = vec![0.0; d];
    lone[0] = 3.0;
    let all = [vec![1.0; d], vec![-1.0; d], lone, vec![1e-42; d], vec![0.0; d], not_finite, vec![3e37; d]];
    all.map(|q| (q, visible)).to_vec()
}

/// Fails unless the results for `queries` are those of the scalar kernel.
fn check(
    isa: Isa,
    d: usize,
    blocks: &Blocks,
    queries: &[(Vec<f32>, usize)],
    random: &mut Random,
) -> Vec<f32> {
    let reference: Vec<f32> = (0..d).map(|_| random.float()).collect();
    let ours = blocks.attend(isa, d, queries, &reference);
    let want = blocks.attend(Isa::Scalar, d, queries, &reference);
    for (i, (ours, want)) in ours.iter().zip(&want).enumerate() {
        for (ours, want) in ours.iter().zip(want) {
            let same = ours.to_bits() == want.to_bits() || (ours.is_nan() && want.is_nan());
            let visible = queries.iter().map(|(_, visible)| visible).collect::<Vec<_>>();
            assert!(same, "{} head {d} query {i} visible {visible:?}: {ours:e} not {want:e}", isa.name());
        }
    }
    want.concat()
}

#[test]
fn every_instruction_set_gives_the_bits_of_the_scalar_kernel() {
    let mut random = Random(17);
    let visible: [&[usize]; 10] = [
        &[1],
        &[32],
        &[100],
        &[5, 70],
        &[33, 34, 35],
        &[64, 1, 65, 2],
        &[96, 97, 98, 99, 100],
        &[31, 32, 33, 64, 65, 66],
        &[100; 7],
        &[2, 31, 64, 65, 100, 7, 8, 9],
    ];
    for isa in all_isas() {
        println!("kernels: {}", isa.name());
        for d in [16, 48, 64, 80, 128, 256] {
            for content in CONTENTS {
                for kv_type in [KvType::Q8, KvType::F32] {
                    let blocks = Blocks::new(d, 100, kv_type, content, &mut random);
                    for visible in visible {
                        let queries = queries(d, visible, &mut random);
                        let bits = check(isa, d, &blocks, &queries, &mut random);
                        assert!(content == Content::Hostile || bits.iter().all(|v| v.is_finite()));
                        assert!(content != Content::Plain || bits.iter().all(|v| *v != 0.0));
                    }
                    check(isa, d, &blocks, &extreme_queries(d, 45), &mut random);
                }
            }
        }
    }
}

#[test]
fn a_query_gets_the_same_alone_and_in_any_group() {
    let mut random = Random(23);
    for isa in all_isas() {
        for kv_type in [KvType::Q8, KvType::F32] {
            let d = 64;
            let blocks = Blocks::new(d, 100, kv_type, Content::Plain, &mut random);
            let queries = queries(d, &[100, 3, 64, 65, 33, 99, 1, 50], &mut random);
            let reference = vec![0.25; d];
            let alone: Vec<Vec<f32>> =
                (0..QUERIES).flat_map(|i| blocks.attend(isa, d, &queries[i..i + 1], &reference)).collect();
            for n in 1..=QUERIES {
                for first in 0..=QUERIES - n {
                    let together = blocks.attend(isa, d, &queries[first..first + n], &reference);
                    assert_eq!(together, alone[first..first + n], "{} {n} from {first}", isa.name());
                }
            }
        }
    }
}

/// The Hadamard transform, as plainly as possible, divided by the run's length: its own inverse.
fn hadamard(x: &[f64]) -> Vec<f64> {
    let run = hadamard_run(x.len());
    let sign = |i: usize, j: usize| if (i & j).count_ones().is_multiple_of(2) { 1.0 } else { -1.0 };
    let one =
        |run_at: usize, i: usize| (0..run).map(|j| sign(i, j) * x[run_at + j]).sum::<f64>() / run as f64;
    (0..x.len()).map(|i| one(i / run * run, i % run)).collect()
}

#[test]
fn close_to_attention_in_f64() {
    let mut random = Random(5);
    for isa in all_isas() {
        for d in [16, 48, 128] {
            let blocks = Blocks::new(d, 70, KvType::Q8, Content::Plain, &mut random);
            let queries = queries(d, &[1, 40, 70], &mut random);
            let reference: Vec<f32> = (0..d).map(|_| random.float()).collect();
            let ours = blocks.attend(isa, d, &queries, &reference);
            let root = 1.0 / (d as f64).sqrt();
            for ((q, visible), ours) in queries.iter().zip(&ours) {
                let dot = |k: &[f64]| q.iter().zip(k).map(|(q, k)| f64::from(*q) * k).sum::<f64>();
                // What is stored is K in the transform's domain, less the reference.
                let score = |t: usize| {
                    let k: Vec<f64> = blocks.k[t * d..][..d].iter().map(|k| f64::from(*k)).collect();
                    let reference: Vec<f64> = reference.iter().map(|r| f64::from(*r)).collect();
                    (dot(&hadamard(&k)) + dot(&reference)) * root
                };
                let scores: Vec<f64> = (0..*visible).map(score).collect();
                let m = scores.iter().copied().fold(f64::MIN, f64::max);
                let p: Vec<f64> = scores.iter().map(|s| (s - m).exp()).collect();
                let l: f64 = p.iter().sum();
                for (j, ours) in ours.iter().enumerate() {
                    let v = |t: usize| f64::from(blocks.v[t * d + j]);
                    let want = p.iter().enumerate().map(|(t, p)| p * v(t)).sum::<f64>() / l;
                    assert!(
                        (f64::from(*ours) - want).abs() < 0.01,
                        "{} head {d}: {ours}, {want}",
                        isa.name()
                    );
                }
            }
        }
    }
}
