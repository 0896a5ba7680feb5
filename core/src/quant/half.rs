//! 16-bit floats widened to f32, exactly. Must not know blocks.

/// IEEE half to single: every value is representable, subnormals, infinities and NaN included.
#[inline(always)]
pub(crate) fn f16_to_f32(h: u16) -> f32 {
    /// 2^112: the difference of the exponent biases, 127 - 15.
    const REBIAS: f32 = f32::from_bits((112 + 127) << 23);
    let sign = u32::from(h & 0x8000) << 16;
    let magnitude = u32::from(h & 0x7FFF);
    // The fields of a half, moved to the places of a single, are the value times 2^-112, for
    // subnormals too; the product below is exact. Only the all-ones exponent means something else.
    let finite = (f32::from_bits(magnitude << 13) * REBIAS).to_bits();
    let bits = if magnitude < 0x7C00 { finite } else { magnitude << 13 | 0x7F80_0000 };
    f32::from_bits(bits | sign)
}

/// bfloat16 to single: the upper half of its bits.
#[inline(always)]
pub(crate) fn bf16_to_f32(h: u16) -> f32 {
    f32::from_bits(u32::from(h) << 16)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By the definition of the format, in f64.
    fn by_definition(h: u16) -> f32 {
        let (exponent, fraction) = (i32::from(h >> 10 & 31), f64::from(h & 0x3FF));
        let magnitude = match exponent {
            0 => fraction * 2f64.powi(-24),
            31 if h & 0x3FF == 0 => f64::INFINITY,
            31 => f64::NAN,
            _ => (1.0 + fraction / 1024.0) * 2f64.powi(exponent - 15),
        };
        (if h & 0x8000 == 0 { magnitude } else { -magnitude }) as f32
    }

    extern crate std;

    #[test]
    fn every_half_is_exact() {
        for h in 0..=u16::MAX {
            let (ours, truth) = (f16_to_f32(h), by_definition(h));
            assert!(ours.to_bits() == truth.to_bits() || ours.is_nan() && truth.is_nan(), "{h:#06x}");
            assert_eq!(ours.is_sign_negative(), h & 0x8000 != 0);
        }
    }

    #[test]
    fn bfloat_is_the_upper_half() {
        assert_eq!(bf16_to_f32(0x3FC0), 1.5);
        assert_eq!(bf16_to_f32(0x8000).to_bits(), (-0.0f32).to_bits());
        assert!(bf16_to_f32(0x7FC0).is_nan());
        assert_eq!(bf16_to_f32(0x0001).to_bits(), 0x0001_0000);
    }
}
