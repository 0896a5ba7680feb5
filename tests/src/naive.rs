//! The weight sections of the numerics contract written down a second time, as plainly as
//! possible: one element at a time, integers in i64, the standard library's fma.
//!
//! Must not use anything of the core but the names of the weight types.

use kinglet_core::quant::WeightType;

/// An IEEE half by the definition of the format.
pub fn half(bytes: &[u8]) -> f32 {
    let h = u16::from_le_bytes([bytes[0], bytes[1]]);
    let (exponent, fraction) = (i32::from(h >> 10) & 31, f64::from(h & 1023));
    let magnitude = match (exponent, h & 1023) {
        (0, _) => fraction * 2f64.powi(-24),
        (31, 0) => f64::INFINITY,
        (31, _) => f64::NAN,
        _ => (1.0 + fraction / 1024.0) * 2f64.powi(exponent - 15),
    };
    (if h >> 15 == 0 { magnitude } else { -magnitude }) as f32
}

/// Where the f16 scales of a block are: the scale and, if there is one, that of the minimum.
pub fn half_offsets(ty: WeightType) -> &'static [usize] {
    match ty {
        WeightType::F32 | WeightType::F16 | WeightType::Bf16 => &[],
        WeightType::Q4_1 | WeightType::Q5_1 | WeightType::Q4K | WeightType::Q5K => &[0, 2],
        WeightType::Q2K => &[80, 82],
        WeightType::Q3K => &[108],
        WeightType::Q6K => &[208],
        _ => &[0],
    }
}

const IQ4: [i64; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

/// Bits `at..at + n` of a byte.
fn bits(byte: u8, at: usize, n: usize) -> i64 {
    (i64::from(byte) >> at) & ((1 << n) - 1)
}

/// Integer weight `i` of a block, its sub-scale and its sub-minimum (1 and 0 if there are none).
pub fn weight(ty: WeightType, b: &[u8], i: usize) -> (i64, i64, i64) {
    // Of types of 32: nibble i is low in byte i, high in byte i - 16.
    let nibble = |from: usize| bits(b[from + i % 16], i / 16 * 4, 4);
    let fifth = |from: usize| bits(b[from + i / 8], i % 8, 1);
    // Of types of 256: the runs of 32 and where i is in its run.
    let (run, at) = (i / 32, i % 32);
    let two_bits = |from: usize| bits(b[from + run / 4 * 32 + at], run % 4 * 2, 2);
    let k4_nibble = |from: usize| bits(b[from + run / 2 * 32 + at], run % 2 * 4, 4);
    let k4_scales = |s: &[u8]| match run {
        0..4 => (bits(s[run], 0, 6), bits(s[run + 4], 0, 6)),
        _ => (
            bits(s[run + 4], 0, 4) + 16 * bits(s[run - 4], 6, 2),
            bits(s[run + 4], 4, 4) + 16 * bits(s[run], 6, 2),
        ),
    };
    match ty {
        WeightType::Q4_0 => (nibble(2) - 8, 1, 0),
        WeightType::Q4_1 => (nibble(4), 1, 0),
        WeightType::Q5_0 => (nibble(6) + 16 * fifth(2) - 16, 1, 0),
        WeightType::Q5_1 => (nibble(8) + 16 * fifth(4), 1, 0),
        WeightType::Q8_0 => (i64::from(b[2 + i] as i8), 1, 0),
        WeightType::Iq4Nl => (IQ4[nibble(2) as usize], 1, 0),
        WeightType::Q2K => (two_bits(16), bits(b[i / 16], 0, 4), bits(b[i / 16], 4, 4)),
        WeightType::Q3K => {
            let s = i / 16;
            let scale = bits(b[96 + s % 8], s / 8 * 4, 4) + 16 * bits(b[104 + s % 4], s / 4 * 2, 2);
            (two_bits(32) + 4 * bits(b[at], run, 1) - 4, scale - 32, 0)
        }
        WeightType::Q4K => {
            let (scale, min) = k4_scales(&b[4..16]);
            (k4_nibble(16), scale, min)
        }
        WeightType::Q5K => {
            let (scale, min) = k4_scales(&b[4..16]);
            (k4_nibble(48) + 16 * bits(b[16 + at], run, 1), scale, min)
        }
        WeightType::Q6K => {
            let (half, run) = (run / 4, run % 4);
            let low = bits(b[half * 64 + run % 2 * 32 + at], run / 2 * 4, 4);
            let high = bits(b[128 + half * 32 + at], run * 2, 2);
            (low + 16 * high - 32, i64::from(b[192 + i / 16] as i8), 0)
        }
        WeightType::Iq4Xs => {
            let high = bits(b[2 + run / 4], run % 4 * 2, 2);
            let scale = bits(b[4 + run / 2], run % 2 * 4, 4) + 16 * high - 32;
            (IQ4[bits(b[8 + run * 16 + at % 16], at / 16 * 4, 4) as usize], scale, 0)
        }
        WeightType::F32 | WeightType::F16 | WeightType::Bf16 => unreachable!("no integers"),
    }
}

/// Section 4: the scale and the integers of a run, of magnitude up to `most`.
pub fn quantize(x: &[f32], most: f32) -> (f32, Vec<i64>) {
    let zeros = vec![0; x.len()];
    if x.iter().any(|v| !v.is_finite()) {
        return (f32::NAN, zeros);
    }
    let amax = x.iter().fold(0.0, |m: f32, v| m.max(v.abs()));
    let d = amax / most;
    if d < 2f32.powi(-126) {
        return (0.0, zeros);
    }
    let inv = most / amax;
    (d, x.iter().map(|v| (v * inv).round_ties_even() as i64).collect())
}

/// Section 2: 16 lanes, folded.
fn fold(mut lanes: [f32; 16]) -> f32 {
    for n in [8, 4, 2, 1] {
        for j in 0..n {
            lanes[j] += lanes[j + n];
        }
    }
    lanes[0]
}

/// Section 2: the sum.
pub fn sum16(x: &[f32]) -> f32 {
    let mut lanes = [0.0f32; 16];
    for (i, x) in x.iter().enumerate() {
        lanes[i % 16] += x;
    }
    fold(lanes)
}

/// Section 2: the dot product.
pub fn dot16(w: &[f32], x: &[f32]) -> f32 {
    let mut lanes = [0.0f32; 16];
    for (i, (w, x)) in w.iter().zip(x).enumerate() {
        lanes[i % 16] = w.mul_add(*x, lanes[i % 16]);
    }
    fold(lanes)
}

/// Section 3: one row of weights times one vector, quantised to magnitudes up to `most`.
pub fn row_times_vector(ty: WeightType, row: &[u8], x: &[f32], most: f32) -> f32 {
    match ty {
        WeightType::F32 => {
            let w: Vec<f32> = row.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect();
            return dot16(&w, x);
        }
        WeightType::F16 => return dot16(&row.chunks(2).map(half).collect::<Vec<_>>(), x),
        WeightType::Bf16 => {
            let w: Vec<f32> = row.chunks(2).map(|b| f32::from_le_bytes([0, 0, b[0], b[1]])).collect();
            return dot16(&w, x);
        }
        _ => {}
    }
    let mut acc = 0.0f32;
    for (b, x) in row.chunks(ty.block_bytes()).zip(x.chunks(ty.block_len())) {
        let (dx, q) = quantize(x, most);
        let scales: Vec<f32> = half_offsets(ty).iter().map(|&at| half(&b[at..])).collect();
        let (mut sum, mut min_sum) = (0i64, 0i64);
        for (i, q) in q.iter().enumerate() {
            let (w, scale, min) = weight(ty, b, i);
            sum += scale * w * q;
            min_sum += min * q;
            assert!(i32::try_from(sum).is_ok(), "the contract promises i32");
        }
        acc = (scales[0] * dx).mul_add(sum as f32, acc);
        if let Some(min) = scales.get(1) {
            acc = if ty.block_len() == 32 {
                min.mul_add(dx * q.iter().sum::<i64>() as f32, acc)
            } else {
                (-(min * dx)).mul_add(min_sum as f32, acc)
            };
        }
    }
    acc
}

/// `e^x` by the contract.
pub fn exp(x: f32) -> f32 {
    if x.is_nan() {
        return f32::NAN;
    }
    if x > 88.722_83 {
        return f32::INFINITY;
    }
    if x < -87.336_54 {
        return 0.0;
    }
    let t = x.mul_add(core::f32::consts::LOG2_E, 12_582_912.0);
    let n = t - 12_582_912.0;
    let r = n.mul_add(-0.693_359_4, x);
    let r = n.mul_add(2.121_944_4e-4, r);
    let coefficients = kinglet_core::math::EXP_COEFFICIENTS;
    let p = coefficients.into_iter().reduce(|p, c| p.mul_add(r, c)).unwrap_or(0.0);
    let y = p.mul_add(r * r, r) + 1.0;
    let i = (n as i32).div_euclid(2);
    y * 2f32.powi(i) * 2f32.powi(n as i32 - i)
}

/// `silu(gate) * up` by the contract.
pub fn swiglu(gate: f32, up: f32) -> f32 {
    gate / (1.0 + exp(-gate)) * up
}

/// The root-mean-square norm by the contract.
pub fn rmsnorm(x: &[f32], w: &[f32], eps: f32) -> Vec<f32> {
    let mean = dot16(x, x) / x.len() as f32;
    let r = if mean.is_finite() { 1.0 / (mean + eps).sqrt() } else { f32::NAN };
    x.iter().zip(w).map(|(x, w)| (x * r) * w).collect()
}

/// The rotary embedding by the contract.
pub fn rope(x: &[f32], cos: &[f32], sin: &[f32]) -> Vec<f32> {
    let half = cos.len();
    let low = (0..half).map(|j| x[j].mul_add(cos[j], -(x[j + half] * sin[j])));
    low.chain((0..half).map(|j| x[j + half].mul_add(cos[j], x[j] * sin[j]))).collect()
}

/// Factors, then the Walsh-Hadamard transform, by the contract.
pub fn condition(x: &[f32], factor: &[f32]) -> Vec<f32> {
    let mut x: Vec<f32> = x.iter().zip(factor).map(|(x, f)| x * f).collect();
    let mut run = 1;
    while x.len().is_multiple_of(2 * run) {
        for i in (0..x.len()).filter(|i| i & run == 0) {
            (x[i], x[i + run]) = (x[i] + x[i + run], x[i] - x[i + run]);
        }
        run *= 2;
    }
    x
}
