//! Quantisation, norms, rope, feed-forward activation and conditioning: every instruction set of this
//! machine gives the bits of the scalar kernels, whatever the length and the values.

use kinglet_core::ops::{self, BlockQ32, BlockQ256, Isa, Precision, elementwise};
use kinglet_core::weights::Vector;
use kinglet_tests::isas::{all_isas, names};

/// A small generator (PCG's multiplier, upper bits).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 32) as u32
    }
}

/// Values that have gone wrong somewhere before.
const CORNERS: [f32; 16] = [
    0.0,
    -0.0,
    f32::MIN_POSITIVE,
    -1e-45,
    1e-40,
    f32::MAX,
    f32::MIN,
    f32::INFINITY,
    f32::NEG_INFINITY,
    f32::NAN,
    88.722_83,
    88.722_84,
    -87.336_54,
    -87.336_55,
    0.5,
    1.0,
];

/// What a vector is filled with.
#[derive(Clone, Copy, Debug)]
enum Fill {
    Ordinary,
    Tiny,
    Huge,
    /// Any bits at all.
    Bits,
    Corners,
    /// Corners that are numbers.
    Finite,
}

const FILLS: [Fill; 6] = [Fill::Ordinary, Fill::Tiny, Fill::Huge, Fill::Bits, Fill::Corners, Fill::Finite];

fn vector(n: usize, fill: Fill, random: &mut Random) -> Vec<f32> {
    let mut one = || {
        let ordinary = random.next() as f32 / 2f32.powi(29) - 4.0;
        match fill {
            Fill::Ordinary => ordinary,
            Fill::Tiny => ordinary * 1e-38,
            Fill::Huge => ordinary * 1e36,
            Fill::Bits => f32::from_bits(random.next()),
            Fill::Corners => CORNERS[random.next() as usize % 16],
            Fill::Finite => {
                Some(CORNERS[random.next() as usize % 16]).filter(|x| x.is_finite()).unwrap_or(-0.0)
            }
        }
    };
    (0..n).map(|_| one()).collect()
}

fn same(a: f32, b: f32) -> bool {
    a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan()
}

/// Runs `f` with the scalar kernels and with every other instruction set, and compares.
fn compare(what: &str, f: impl Fn(Isa) -> Vec<f32>) {
    let truth = f(Isa::Scalar);
    for isa in all_isas() {
        let ours = f(isa);
        let at = (0..truth.len()).find(|i| !same(ours[*i], truth[*i]));
        if let Some(at) = at {
            panic!("{what} {}: [{at}] = {:e}, not {:e}", isa.name(), ours[at], truth[at]);
        }
    }
}

fn lengths() -> impl Iterator<Item = usize> {
    (0..70).chain([127, 128, 129, 896, 1024])
}

#[test]
fn every_instruction_set_gives_the_same_bits() {
    println!("instruction sets: {}", names(&all_isas()));
    let mut random = Random(17);
    for (n, fill) in lengths().flat_map(|n| FILLS.map(|fill| (n, fill))) {
        let (x, y) = (vector(n, fill, &mut random), vector(n, fill, &mut random));
        let what = |name: &str| format!("{name} {n} {fill:?}");
        compare(&what("add"), |isa| {
            let mut x = x.clone();
            elementwise::add(isa, &mut x, &y);
            x
        });
        compare(&what("swiglu"), |isa| {
            let mut x = x.clone();
            elementwise::swiglu(isa, &mut x, &y);
            x
        });
        // The file's bytes may start anywhere.
        let bytes: Vec<u8> = [0].into_iter().chain(y.iter().flat_map(|v| v.to_le_bytes())).collect();
        let w = Vector::new(&bytes[1..]);
        for eps in [1e-6, 0.0] {
            compare(&what("rmsnorm"), |isa| {
                let mut out = vec![7.0; n];
                elementwise::rmsnorm(isa, &x, &w, eps, &mut out);
                out
            });
            compare(&what("rmsnorm in place"), |isa| {
                let mut x = x.clone();
                elementwise::rmsnorm_in_place(isa, &mut x, &w, eps);
                x
            });
        }
        if n > 0 {
            compare(&what("condition"), |isa| {
                let mut x = x.clone();
                elementwise::condition(isa, &mut x, &y);
                x
            });
        }
        let half = n / 2;
        compare(&what("rope"), |isa| {
            let mut x = x[..2 * half].to_vec();
            elementwise::rope(isa, &mut x, &y[..half], &y[half..2 * half]);
            x
        });
    }
}

#[test]
fn the_exponential_is_the_same_over_a_dense_sample() {
    // Every 1499th float of all there are: 2.9 million.
    let step = 1499 * 64;
    let mut x = vec![0.0f32; 64];
    for start in (0..=u32::MAX - step).step_by(step as usize) {
        for (x, bits) in x.iter_mut().zip((start..).step_by(1499)) {
            *x = f32::from_bits(bits);
        }
        let mut truth = x.clone();
        elementwise::swiglu(Isa::Scalar, &mut truth, &[1.0; 64]);
        for isa in all_isas() {
            let mut ours = x.clone();
            elementwise::swiglu(isa, &mut ours, &[1.0; 64]);
            let at = (0..64).find(|i| !same(ours[*i], truth[*i]));
            assert_eq!(at, None, "{}: silu of {x:?}", isa.name());
        }
    }
}

#[test]
fn quantised_blocks_are_the_same() {
    let mut random = Random(19);
    let zero32 = BlockQ32 { d: 9.0, s: 9.0, lo: [9; 32], hi: [9; 32] };
    let zero256 =
        BlockQ256 { d: 9.0, sums: [9; 16], most_of_16: 9, sums_of_32: [9; 16], lo: [9; 256], hi: [9; 256] };
    for round in 0..400 {
        let mut x = vector(512, FILLS[round % 6], &mut random);
        if round % 7 == 0 {
            // Ties: the scale is 1 if the largest magnitude is `most`.
            x.iter_mut().for_each(|x| *x = (*x as i32 % 100) as f32 + 0.5);
            x.iter_mut().step_by(32).for_each(|x| *x = if round % 2 == 0 { 127.0 } else { -2047.0 });
        }
        for precision in [Precision::Coarse, Precision::Fine] {
            let blocks = |isa| {
                let (mut q32, mut q256) = ([zero32; 16], [zero256; 2]);
                ops::quantize_q32(isa, precision, &x, &mut q32);
                ops::quantize_q256(isa, precision, &x, &mut q256);
                (q32, q256)
            };
            let truth = blocks(Isa::Scalar);
            for isa in all_isas() {
                let ours = blocks(isa);
                for (a, b) in ours.0.iter().zip(&truth.0) {
                    assert!(same(a.d, b.d) && same(a.s, b.s), "{} {x:?}", isa.name());
                    assert_eq!((a.lo, a.hi), (b.lo, b.hi), "{}", isa.name());
                }
                for (a, b) in ours.1.iter().zip(&truth.1) {
                    assert!(same(a.d, b.d), "{} {x:?}", isa.name());
                    assert_eq!((a.lo, a.hi, a.sums), (b.lo, b.hi, b.sums), "{}", isa.name());
                }
            }
        }
    }
}

#[test]
fn the_comparison_notices_one_bit_and_the_sign_of_zero() {
    let differs = |a: f32, b: f32| {
        let run = || compare("", |isa| vec![if isa == Isa::Scalar { a } else { b }]);
        std::panic::catch_unwind(run).is_err()
    };
    let others = all_isas().len() > 1;
    assert_eq!(differs(1.0, 1f32.next_up()), others);
    assert_eq!(differs(0.0, -0.0), others);
    assert!(!differs(f32::NAN, -f32::NAN));
}
