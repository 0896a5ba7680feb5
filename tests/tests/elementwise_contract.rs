//! Elementwise operations and quantisation of every instruction set here against a plain
//! transcription of the contract, bit for bit.

use kinglet_core::Isa;
use kinglet_core::ops::{self, BlockQ32, BlockQ256, Precision, elementwise};
use kinglet_core::weights::Vector;
use kinglet_tests::isas::all_isas;
use kinglet_tests::naive;

/// Numbers of all sizes, and in every `hostile`th place one that is special.
fn numbers(n: usize, seed: u64, hostile: usize) -> Vec<f32> {
    const SPECIAL: [f32; 12] = [
        0.0,
        -0.0,
        f32::MIN_POSITIVE,
        -1e-40,
        f32::from_bits(1),
        f32::MAX,
        f32::MIN,
        88.722_83,
        -87.336_54,
        f32::INFINITY,
        f32::NEG_INFINITY,
        f32::NAN,
    ];
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 32) as u32
    };
    let number = |i: usize| match hostile {
        0 => (next() as f32 / 2f32.powi(31) - 1.0) * 3.0,
        _ if i % hostile == hostile - 1 => SPECIAL[next() as usize % SPECIAL.len()],
        // Any sign and fraction, exponents around 1 or near the subnormal numbers.
        _ if hostile.is_multiple_of(2) => f32::from_bits(next() & 0x83FF_FFFF | 0x3C00_0000),
        _ => f32::from_bits(next() & 0x80FF_FFFF),
    };
    (0..n).map(number).collect()
}

#[track_caller]
fn assert_same(ours: &[f32], truth: &[f32], case: &dyn core::fmt::Debug) {
    assert_eq!(ours.len(), truth.len());
    for (i, (a, b)) in ours.iter().zip(truth).enumerate() {
        let same = a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan();
        assert!(same, "{case:?}, element {i}: {a:e} and not {b:e}");
    }
}

/// Lengths around every vector width, and longer ones.
fn lengths() -> impl Iterator<Item = usize> {
    (1..=70).chain([96, 127, 128, 130, 256, 896])
}

const HOSTILE: [usize; 5] = [0, 2, 5, 40, 41];

#[test]
fn every_operation_has_the_bits_of_the_contract() {
    for (isa, hostile) in all_isas().into_iter().flat_map(|isa| HOSTILE.map(|h| (isa, h))) {
        for n in lengths() {
            let (x, y) = (numbers(n, n as u64, hostile), numbers(n, 77 + n as u64, hostile));
            let case = (isa.name(), hostile, n);
            let bytes: Vec<u8> = y.iter().flat_map(|y| y.to_le_bytes()).collect();
            let w = Vector::new(&bytes);
            let truth = naive::rmsnorm(&x, &y, 1e-6);
            let mut out = vec![9.0; n];
            elementwise::rmsnorm(isa, &x, &w, 1e-6, &mut out);
            assert_same(&out, &truth, &("rmsnorm", case));
            out.copy_from_slice(&x);
            elementwise::rmsnorm_in_place(isa, &mut out, &w, 1e-6);
            assert_same(&out, &truth, &("rmsnorm in place", case));

            out.copy_from_slice(&x);
            elementwise::add(isa, &mut out, &y);
            let truth: Vec<f32> = x.iter().zip(&y).map(|(x, y)| x + y).collect();
            assert_same(&out, &truth, &("add", case));

            out.copy_from_slice(&x);
            elementwise::swiglu(isa, &mut out, &y);
            let truth: Vec<f32> = x.iter().zip(&y).map(|(x, y)| naive::swiglu(*x, *y)).collect();
            assert_same(&out, &truth, &("swiglu", case));

            out.copy_from_slice(&x);
            elementwise::condition(isa, &mut out, &y);
            assert_same(&out, &naive::condition(&x, &y), &("condition", case));

            let (cos, sin) = (numbers(n, 5, hostile), numbers(n, 6, hostile));
            let mut head = [&x[..], &y].concat();
            let truth = naive::rope(&head, &cos, &sin);
            elementwise::rope(isa, &mut head, &cos, &sin);
            assert_same(&head, &truth, &("rope", case));
        }
    }
}

#[test]
fn exp_has_the_bits_of_the_contract_over_a_dense_sample() {
    // silu(x) * up with every 2,311th float; one lane after the other meets each.
    let all: Vec<f32> = (0..u32::MAX / 2311).map(|i| f32::from_bits(i * 2311)).collect();
    let ups = vec![1.5; all.len()];
    let truth: Vec<f32> = all.iter().map(|x| naive::swiglu(*x, 1.5)).collect();
    for isa in all_isas() {
        let mut ours = all.clone();
        elementwise::swiglu(isa, &mut ours, &ups);
        assert_same(&ours, &truth, &isa.name());
    }
}

/// The values that two planes stand for.
fn joined(lo: &[i8], hi: &[i8]) -> Vec<i64> {
    lo.iter().zip(hi).map(|(lo, hi)| i64::from(*lo) + 128 * i64::from(*hi)).collect()
}

#[test]
fn every_quantisation_has_the_bits_of_the_contract() {
    let mut x: Vec<f32> = HOSTILE.into_iter().flat_map(|hostile| numbers(2048, 3, hostile)).collect();
    // Exact halves tie to even; amax at either end of the range; d just at its smallest.
    x[..6].copy_from_slice(&[127.0, 0.5, 1.5, 2.5, -0.5, -1.5]);
    x[256..262].copy_from_slice(&[-2047.0, 63.5, -64.5, 64.5, 191.5, -192.5]);
    x[512..514].copy_from_slice(&[f32::MAX, f32::MIN]);
    x[768..1792].fill(0.0);
    x[768] = 127.0 * f32::MIN_POSITIVE;
    x[1024] = -(127.0 * f32::MIN_POSITIVE).next_down();
    x[1280..1536].fill(-0.0);
    x[1536..1792].fill(1e-39);
    for (isa, precision) in
        all_isas().into_iter().flat_map(|isa| [(isa, Precision::Coarse), (isa, Precision::Fine)])
    {
        let mut q32 = vec![BlockQ32 { d: 9.0, s: 9.0, lo: [9; 32], hi: [9; 32] }; x.len() / 32];
        let mut q256 = vec![
            BlockQ256 {
                d: 9.0,
                sums: [9; 16],
                most_of_16: 9,
                sums_of_32: [9; 16],
                lo: [9; 256],
                hi: [9; 256]
            };
            x.len() / 256
        ];
        ops::quantize_q32(isa, precision, &x, &mut q32);
        ops::quantize_q256(isa, precision, &x, &mut q256);
        let case = |i| (isa.name(), precision, i);
        for (i, (x, block)) in x.chunks(32).zip(&q32).enumerate() {
            let (d, q) = naive::quantize(x, precision.most());
            assert_same(&[block.d, block.s], &[d, d * q.iter().sum::<i64>() as f32], &case(i));
            assert_eq!(joined(&block.lo, &block.hi), q, "{:?}", case(i));
        }
        for (i, (x, block)) in x.chunks(256).zip(&q256).enumerate() {
            let (d, q) = naive::quantize(x, precision.most());
            assert_same(&[block.d], &[d], &case(i));
            assert_eq!(joined(&block.lo, &block.hi), q, "{:?}", case(i));
            let sums: Vec<i64> = q.chunks(16).map(|q| q.iter().sum()).collect();
            assert_eq!(block.sums.map(i64::from).to_vec(), sums, "{:?}", case(i));
        }
        // The planes themselves are the same everywhere, not only their sum.
        let (mut s32, mut s256) = (q32.clone(), q256.clone());
        ops::quantize_q32(Isa::Scalar, precision, &x, &mut s32);
        ops::quantize_q256(Isa::Scalar, precision, &x, &mut s256);
        assert!(q32.iter().zip(&s32).all(|(a, b)| (a.lo, a.hi) == (b.lo, b.hi)));
        assert!(q256.iter().zip(&s256).all(|(a, b)| (a.lo, a.hi) == (b.lo, b.hi)));
    }
}
