//! What code for single tokens wants of the types that models often are of: few weights at a time, and what
//! is beside them of four rows at once. Must not know activations.

use super::panel::interleave;
use super::unpack32::nibbles;
use super::unpack256::{Registers256, at};
use super::vec::*;
use crate::quant::block256::{Q4K, Q5K, Q6K};

/// Rows that are read side by side.
pub(super) const FOUR: usize = 4;

/// A block a quarter of a half at a time: of so many rows at once registers hold no more.
pub(super) trait Often256: Registers256 {
    /// Of half `h`, as [`Registers256::half`] has them, runs that share bytes: where sub-blocks are wide `4i`
    /// to `4i + 3`, else `2i`, `2i + 1` and those four further on.
    fn quarter(raw: &Self::Raw, h: usize, i: usize) -> [int8x16_t; 4];
}

/// Where sub-blocks are wide: what is beside the weights, of four rows.
pub(super) struct Heads {
    /// The sub-scales 0 to 3 of each row, then 4 to 7.
    pub scales: [int8x16_t; 2],
    /// The sub-minima likewise.
    pub mins: [uint8x16_t; 2],
    /// The scales, and those of the minima.
    pub d: [float32x4_t; 2],
}

/// Of blocks that begin with two f16 and three words of 6-bit fields.
#[inline(always)]
pub(super) fn heads<const L: usize>(rows: [&[u8; L]; FOUR]) -> Heads {
    let [d, a, b, c] = interleave(rows.map(|raw| vreinterpretq_s8_u8(at(raw, 0)))).map(vreinterpretq_u8_s8);
    let mask = vdupq_n_u8(0x3F);
    // Of fields 4 to 7 the low four bits are nibbles of the last word, and the others on top of 0 to 3.
    let scales = [vandq_u8(a, mask), vsliq_n_u8::<4>(c, vshrq_n_u8::<6>(a))];
    let mins = [vandq_u8(b, mask), vsriq_n_u8::<4>(vshrq_n_u8::<2>(b), c)];
    Heads { scales: scales.map(vreinterpretq_s8_u8), mins, d: widen_f16_pairs(d) }
}

impl Often256 for Q4K {
    #[inline(always)]
    fn quarter(raw: &Self::Raw, h: usize, i: usize) -> [int8x16_t; 4] {
        let from = 16 + 64 * h + 32 * i;
        let ([a, c], [b, d]) = (nibbles(at(raw, from)), nibbles(at(raw, from + 16)));
        [a, b, c, d].map(vreinterpretq_s8_u8)
    }
}

impl Often256 for Q5K {
    #[inline(always)]
    fn quarter(raw: &Self::Raw, h: usize, i: usize) -> [int8x16_t; 4] {
        let mut out = [vdupq_n_s8(0); 4];
        let (nibble, all) = (vdupq_n_u8(0x0F), vdupq_n_u8(0x1F));
        for j in 0..2 {
            let low = at(raw, 48 + 64 * h + 32 * i + 16 * j);
            // Bit `4h + 2i` of the bytes is the fifth bit of the low nibbles, the next that of the high ones.
            let fifth = at(raw, 16 + 16 * j);
            let [first, second] = match (h, i) {
                (0, 0) => [vshlq_n_u8::<4>(fifth), vshlq_n_u8::<3>(fifth)],
                (0, _) => [vshlq_n_u8::<2>(fifth), vshlq_n_u8::<1>(fifth)],
                (_, 0) => [fifth, vshrq_n_u8::<1>(fifth)],
                _ => [vshrq_n_u8::<2>(fifth), vshrq_n_u8::<3>(fifth)],
            };
            out[j] = vreinterpretq_s8_u8(vandq_u8(vbslq_u8(nibble, low, first), all));
            out[2 + j] = vreinterpretq_s8_u8(vandq_u8(vsriq_n_u8::<4>(second, low), all));
        }
        out
    }
}

impl Often256 for Q6K {
    #[inline(always)]
    fn quarter(raw: &Self::Raw, h: usize, i: usize) -> [int8x16_t; 4] {
        let mut out = [vdupq_n_s8(0); 4];
        let mask = vdupq_n_u8(0x33);
        for j in 0..2 {
            let (low, high) = (at(raw, 64 * h + 32 * i + 16 * j), at(raw, 128 + 32 * h + 16 * j));
            // Two bits for the low nibbles in the low nibbles, two for the high ones in the high nibbles.
            let high = vandq_u8(if i == 0 { high } else { vshrq_n_u8::<2>(high) }, mask);
            out[j] = vreinterpretq_s8_u8(vsliq_n_u8::<4>(low, high));
            out[2 + j] = vreinterpretq_s8_u8(vsriq_n_u8::<4>(high, low));
        }
        out
    }
}
