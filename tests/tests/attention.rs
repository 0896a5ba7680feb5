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

/// 64-byte aligned blocks of one KV head; stale tokens hold rubbish, NaN scales among it.
struct Blocks {
    bytes: &'static mut [u8],
    slab: usize,
    /// Dequantised K and V, `[tokens, head_dim]` each.
    k: Vec<f32>,
    v: Vec<f32>,
}

impl Blocks {
    fn new(d: usize, tokens: usize, hostile: bool, random: &mut Random) -> Blocks {
        let slab = 2 * BLOCK_TOKENS * (d + 4);
        let bytes = kinglet_tests::model::region(tokens.div_ceil(BLOCK_TOKENS) * slab);
        let (mut k, mut v) = (Vec::new(), Vec::new());
        for t in 0..tokens {
            let mut int8 = |fill: u32| -> Vec<i8> {
                (0..d).map(|_| if fill == 0 { -128 } else { random.next() as i8 }).collect()
            };
            let (kq, vq) = (int8(t as u32 % 7), int8(t as u32 % 5));
            let mut scale = |t: usize| match (hostile, t % 11) {
                (true, 3) => 0.0,
                (true, 5) => 1e-42,
                (true, 7) => 3e37,
                (true, 9) => f32::NAN,
                _ => 0.002 + random.float().abs() * 0.01,
            };
            let (dk, dv) = (scale(t), scale(t + 5));
            let at = t / BLOCK_TOKENS * slab;
            layout::write_q8(&mut bytes[at..at + slab], t % BLOCK_TOKENS, (&kq, dk), (&vq, dv));
            k.extend(kq.iter().map(|q| f32::from(*q) * dk));
            v.extend(vq.iter().map(|q| f32::from(*q) * dv));
        }
        Blocks { bytes, slab, k, v }
    }

    fn attend(&self, isa: Isa, d: usize, queries: &[(Vec<f32>, usize)], reference: &[f32]) -> Vec<Vec<f32>> {
        let mut group = Group::new(d, 1.0 / (d as f32).sqrt(), KvType::Q8);
        for (q, visible) in queries {
            group.push(isa, q, *visible, &vec![1.0; d]);
        }
        let slab = |i: usize| &self.bytes[i * self.slab..(i + 1) * self.slab];
        attend(isa, &mut group, slab, |_, out| out.copy_from_slice(reference));
        (0..queries.len()).map(|i| group.result(i).to_vec()).collect()
    }
}

fn queries(d: usize, visible: &[usize], random: &mut Random) -> Vec<(Vec<f32>, usize)> {
    visible.iter().map(|v| ((0..d).map(|_| random.float()).collect(), *v)).collect()
}

#[test]
fn every_instruction_set_gives_the_bits_of_the_scalar_kernel() {
    let mut random = Random(17);
    for isa in all_isas() {
        println!("kernels: {}", isa.name());
        for d in [16, 48, 64, 128, 256] {
            for hostile in [false, true] {
                let blocks = Blocks::new(d, 100, hostile, &mut random);
                for visible in
                    [&[1][..], &[32], &[33, 34, 35], &[2, 31, 64, 65, 100, 7, 8, 9], &[100; QUERIES]]
                {
                    let queries = queries(d, visible, &mut random);
                    let reference: Vec<f32> = (0..d).map(|_| random.float()).collect();
                    let ours = blocks.attend(isa, d, &queries, &reference);
                    let want = blocks.attend(Isa::Scalar, d, &queries, &reference);
                    for (ours, want) in ours.iter().flatten().zip(want.iter().flatten()) {
                        let same = ours.to_bits() == want.to_bits() || (ours.is_nan() && want.is_nan());
                        assert!(same, "{} head {d} visible {visible:?}: {ours:e} not {want:e}", isa.name());
                    }
                    assert!(hostile || want.iter().flatten().all(|v| v.is_finite()));
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
            let blocks = Blocks::new(d, 70, false, &mut random);
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
