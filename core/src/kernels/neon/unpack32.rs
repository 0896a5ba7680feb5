//! Blocks of 32 weights in two registers. Must not know activations.

use super::vec::*;
use crate::quant::block32::{Block32, IQ4_VALUES, Iq4Nl, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, part};

/// A block as the kernels want it.
pub(super) trait Registers32: Block32 {
    /// What [`Registers32::quants`] has too much: taking it off a sum can be cheaper than off each.
    const OFFSET: i8;
    /// Whether models often are of this type: it gets code of its own for single tokens.
    const OFTEN: bool = false;
    /// Whether unpacking takes so few registers that eight rows can be read side by side, not four.
    const LIGHT: bool = true;

    /// The integer weights plus [`Registers32::OFFSET`].
    fn quants(raw: &Self::Raw) -> [int8x16_t; 2];
}

/// The low and the high nibbles of 16 bytes.
#[inline(always)]
pub(super) fn nibbles(bytes: uint8x16_t) -> [uint8x16_t; 2] {
    [vandq_u8(bytes, vdupq_n_u8(15)), vshrq_n_u8::<4>(bytes)]
}

/// 255 where bit i of `bits` is set, else 0.
#[inline(always)]
fn spread(bits: uint8x16_t) -> [uint8x16_t; 2] {
    const EACH: u64 = 0x0101_0101_0101_0101;
    let one_bit = bytes(0x8040_2010_0804_0201, 0x8040_2010_0804_0201);
    let which = [bytes(0, EACH), bytes(2 * EACH, 3 * EACH)];
    which.map(|which| vtstq_u8(vqtbl1q_u8(bits, which), one_bit))
}

/// Nibbles minus 16 where the fifth bit is clear.
#[inline(always)]
fn five_bits(fifth: &[u8; 4], low: &[u8; 16]) -> [int8x16_t; 2] {
    let fifth = vreinterpretq_u8_u32(vdupq_n_u32(u32::from_le_bytes(*fifth)));
    let [clear0, clear1] = spread(vmvnq_u8(fifth));
    let [q0, q1] = nibbles(load_u8(low));
    // Ones above the nibble: 16 less.
    [vsliq_n_u8::<4>(q0, clear0), vsliq_n_u8::<4>(q1, clear1)].map(vreinterpretq_s8_u8)
}

/// The IQ4 values of 16 indices.
#[inline(always)]
pub(super) fn iq4(index: uint8x16_t) -> int8x16_t {
    vqtbl1q_s8(load_i8(&IQ4_VALUES), index)
}

impl Registers32 for Q4_0 {
    const OFFSET: i8 = 8;
    const OFTEN: bool = true;

    #[inline(always)]
    fn quants(raw: &Self::Raw) -> [int8x16_t; 2] {
        nibbles(load_u8(part::<2, 16, 18>(raw))).map(vreinterpretq_s8_u8)
    }
}

impl Registers32 for Q4_1 {
    const OFFSET: i8 = 0;

    #[inline(always)]
    fn quants(raw: &Self::Raw) -> [int8x16_t; 2] {
        nibbles(load_u8(part::<4, 16, 20>(raw))).map(vreinterpretq_s8_u8)
    }
}

impl Registers32 for Q5_0 {
    const OFFSET: i8 = 0;
    const LIGHT: bool = false;
    const OFTEN: bool = true;

    #[inline(always)]
    fn quants(raw: &Self::Raw) -> [int8x16_t; 2] {
        five_bits(part::<2, 4, 22>(raw), part::<6, 16, 22>(raw))
    }
}

impl Registers32 for Q5_1 {
    const OFFSET: i8 = -16;

    #[inline(always)]
    fn quants(raw: &Self::Raw) -> [int8x16_t; 2] {
        five_bits(part::<4, 4, 24>(raw), part::<8, 16, 24>(raw))
    }
}

impl Registers32 for Q8_0 {
    const OFFSET: i8 = 0;
    const OFTEN: bool = true;

    #[inline(always)]
    fn quants(raw: &Self::Raw) -> [int8x16_t; 2] {
        [load_u8(part::<2, 16, 34>(raw)), load_u8(part::<18, 16, 34>(raw))].map(vreinterpretq_s8_u8)
    }
}

impl Registers32 for Iq4Nl {
    const OFFSET: i8 = 0;

    #[inline(always)]
    fn quants(raw: &Self::Raw) -> [int8x16_t; 2] {
        nibbles(load_u8(part::<2, 16, 18>(raw))).map(iq4)
    }
}
