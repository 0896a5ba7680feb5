//! Weights to blocks: Q8_0 and Q4_0 as ggml's reference quantiser defines them, bit for bit.
//! Must not know files.

use core::fmt;
use kinglet_core::quant::WeightType;

/// A type that can be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// 32 signed bytes and a scale.
    Q8_0,
    /// 32 nibbles and a scale.
    Q4_0,
}

/// Weights of a block of either type.
pub const BLOCK_LEN: usize = 32;

impl Target {
    /// Names on the command line, in the order of [`Target::ALL`].
    pub const NAMES: [&'static str; 2] = ["q8_0", "q4_0"];
    /// All there are.
    pub const ALL: [Target; 2] = [Target::Q8_0, Target::Q4_0];

    /// The type of the tensors.
    pub fn weight_type(self) -> WeightType {
        match self {
            Target::Q8_0 => WeightType::Q8_0,
            Target::Q4_0 => WeightType::Q4_0,
        }
    }

    /// ggml's number of the type (`enum ggml_type`).
    pub fn ggml_type(self) -> u32 {
        match self {
            Target::Q8_0 => 8,
            Target::Q4_0 => 2,
        }
    }

    /// llama.cpp's number for a file that is mostly of the type (`enum llama_ftype`).
    pub fn file_type(self) -> u32 {
        match self {
            Target::Q8_0 => 7,
            Target::Q4_0 => 2,
        }
    }
}

/// Weights that no block can hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuantizeError {
    /// NaN or infinity.
    NonFinite,
    /// The scale exceeds the largest f16.
    TooLarge,
}

impl fmt::Display for QuantizeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            QuantizeError::NonFinite => "holds NaN or infinity; get the file again or make it anew",
            QuantizeError::TooLarge => "holds weights too large for the scale of a block; keep its type",
        })
    }
}

impl core::error::Error for QuantizeError {}

/// Appends the blocks of `x` to `out`; `x` is whole blocks.
///
/// # Errors
/// Weights that the type cannot hold; `out` then has some of the blocks.
///
/// # Panics
/// If `x` is not whole blocks.
pub fn quantize(target: Target, x: &[f32], out: &mut Vec<u8>) -> Result<(), QuantizeError> {
    let (blocks, rest) = x.as_chunks::<BLOCK_LEN>();
    assert!(rest.is_empty(), "rows of whole blocks");
    for block in blocks {
        if !block.iter().all(|x| x.is_finite()) {
            return Err(QuantizeError::NonFinite);
        }
        match target {
            Target::Q8_0 => q8_0(block, out)?,
            Target::Q4_0 => q4_0(block, out)?,
        }
    }
    Ok(())
}

/// `d = amax / 127`, `q = round(x * (1 / d))`, halves away from zero.
fn q8_0(x: &[f32; BLOCK_LEN], out: &mut Vec<u8>) -> Result<(), QuantizeError> {
    let amax = x.iter().fold(0.0f32, |most, x| most.max(x.abs()));
    let inv = put_scale(amax / 127.0, out)?;
    out.extend(x.map(|x| (x * inv).round() as i8 as u8));
    Ok(())
}

/// `d` = the weight of largest magnitude (the first of equals) / -8, so that it becomes -8 exactly;
/// `q = min(15, floor(x * (1 / d) + 8.5))`. The first half of the block is in the low nibbles.
fn q4_0(x: &[f32; BLOCK_LEN], out: &mut Vec<u8>) -> Result<(), QuantizeError> {
    let most = x.iter().fold(0.0f32, |most, &x| if x.abs() > most.abs() { x } else { most });
    let inv = put_scale(most / -8.0, out)?;
    // At least 0.5: the cast rounds down.
    let q = x.map(|x| ((x * inv + 8.5) as u8).min(15));
    out.extend((0..BLOCK_LEN / 2).map(|i| q[i] | q[i + BLOCK_LEN / 2] << 4));
    Ok(())
}

/// Appends `d` as f16. Returns its inverse before rounding, as ggml uses it; 0 for 0.
fn put_scale(d: f32, out: &mut Vec<u8>) -> Result<f32, QuantizeError> {
    let bits = f16_bits(d);
    if bits & 0x7C00 == 0x7C00 {
        return Err(QuantizeError::TooLarge);
    }
    out.extend(bits.to_le_bytes());
    Ok(if d == 0.0 { 0.0 } else { 1.0 / d })
}

/// The nearest IEEE half, ties to even; beyond the largest, infinity.
fn f16_bits(x: f32) -> u16 {
    /// Smallest normal half, 2^-14, and the first power of two past the largest, 2^16.
    const NORMAL: u32 = (127 - 14) << 23;
    const BEYOND: u32 = (127 + 16) << 23;
    let sign = (x.to_bits() >> 16 & 0x8000) as u16;
    let magnitude = x.to_bits() & 0x7FFF_FFFF;
    let half = if magnitude > 0x7F80_0000 {
        0x7E00
    } else if magnitude >= BEYOND {
        0x7C00
    } else if magnitude < NORMAL {
        // Floats from 0.5 on are multiples of 2^-24, as subnormal halves are: the sum rounds for us.
        (f32::from_bits(magnitude) + 0.5).to_bits() - 0.5f32.to_bits()
    } else {
        let odd = magnitude >> 13 & 1;
        (magnitude - (112 << 23) + 0xFFF + odd) >> 13
    };
    sign | half as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use kinglet_core::quant::dequantize;

    fn widened(h: u16) -> f32 {
        let mut out = [0.0];
        dequantize(WeightType::F16, &h.to_le_bytes(), &mut out).unwrap();
        out[0]
    }

    #[test]
    fn halves_round_to_the_nearest_ties_to_even() {
        for h in 0..0x7C00u16 {
            let (x, next) = (widened(h), if h == 0x7BFF { 65536.0 } else { widened(h + 1) });
            assert_eq!((f16_bits(x), f16_bits(-x)), (h, h | 0x8000));
            // f32 holds the middle of two halves exactly, and the floats beside it.
            let middle = (x + next) / 2.0;
            let even = h + (h & 1);
            assert_eq!(f16_bits(middle), even, "{middle}");
            assert_eq!(f16_bits(middle.next_down()), h, "{middle}");
            assert_eq!(f16_bits(middle.next_up()), h + 1, "{middle}");
        }
        assert_eq!(f16_bits(f32::INFINITY), 0x7C00);
        assert_eq!(f16_bits(f32::NAN) & 0x7FFF, 0x7E00);
    }

    /// Values of some spread from a small generator.
    fn some(seed: u64) -> [f32; BLOCK_LEN] {
        let mut state = seed;
        core::array::from_fn(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            ((state >> 40) as f32 / 16_777_216.0 - 0.5) * 0.3
        })
    }

    /// By the words of the definition, in f64 where it asks for no f32.
    fn by_definition(target: Target, x: &[f32; BLOCK_LEN]) -> (f32, [i32; BLOCK_LEN]) {
        let mut most = 0.0f32;
        for &v in x {
            if v.abs() > most.abs() {
                most = v;
            }
        }
        let d = if target == Target::Q8_0 { most.abs() / 127.0 } else { most / -8.0 };
        let inv = if d == 0.0 { 0.0 } else { 1.0 / d };
        let q = x.map(|v| {
            let steps = f64::from(v * inv);
            match target {
                Target::Q8_0 => (steps.abs() + 0.5).floor().copysign(steps) as i32,
                Target::Q4_0 => (f64::from((steps + 8.5) as f32).floor() as i32).min(15) - 8,
            }
        });
        (d, q)
    }

    #[test]
    fn blocks_are_those_of_the_definition() {
        for target in Target::ALL {
            let mut cases: Vec<[f32; BLOCK_LEN]> = (0..500).map(some).collect();
            // Zero, one spike of either sign, ties between two signs, steps exactly half-way.
            cases.push([0.0; BLOCK_LEN]);
            cases.push(core::array::from_fn(|i| if i == 9 { -3.0 } else { 0.0 }));
            cases.push(core::array::from_fn(|i| if i % 2 == 0 { 1.0 } else { -1.0 }));
            cases.push(core::array::from_fn(|i| if i == 0 { 127.0 } else { i as f32 - 15.5 }));
            cases.push(core::array::from_fn(|i| if i == 0 { -8.0 } else { i as f32 / 2.0 - 7.5 }));
            for x in cases {
                let mut blocks = Vec::new();
                quantize(target, &x, &mut blocks).unwrap();
                let (d, q) = by_definition(target, &x);
                assert_eq!(blocks.len(), target.weight_type().block_bytes());
                let half = u16::from_le_bytes([blocks[0], blocks[1]]);
                assert_eq!(half, f16_bits(d), "{x:?}");
                let want = q.map(|q| widened(half) * q as f32);
                let mut got = [0.0; BLOCK_LEN];
                dequantize(target.weight_type(), &blocks, &mut got).unwrap();
                assert_eq!(got, want, "{target:?} {x:?}");
            }
        }
    }

    #[test]
    fn what_no_block_holds_is_an_error() {
        let mut x = [1.0; BLOCK_LEN];
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            x[31] = bad;
            for target in Target::ALL {
                assert_eq!(quantize(target, &x, &mut Vec::new()), Err(QuantizeError::NonFinite));
            }
        }
        x[31] = 65504.0 * 128.0;
        assert_eq!(quantize(Target::Q8_0, &x, &mut Vec::new()), Err(QuantizeError::TooLarge));
        assert_eq!(quantize(Target::Q4_0, &x, &mut Vec::new()), Err(QuantizeError::TooLarge));
        x[31] = 65504.0 * 8.0;
        assert_eq!(quantize(Target::Q4_0, &x, &mut Vec::new()), Ok(()));
    }
}
