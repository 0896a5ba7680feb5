//! Blocks of 32 weights in two registers. Must not know activations.

use super::vec::*;
use super::walk::{Eights, Four, Heads, Twos};
use crate::quant::block32::{Block32, IQ4_VALUES, Iq4Nl, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, part};

/// A block as the kernels want it.
pub(super) trait Registers32: Block32 {
    /// What [`Registers32::quants`] has too much: taking it off a sum can be cheaper than off each.
    const OFFSET: i8;

    /// The integer weights plus [`Registers32::OFFSET`].
    fn quants(raw: &Self::Raw) -> [int8x16_t; 2];
}

/// A type that models often are of: it gets code of its own for single tokens.
pub(super) trait Often32: Registers32 {
    /// What is loaded of a block first.
    type Heads: Heads;
    /// Whether unpacking takes so many registers that four rows must be done before the next four begin.
    const HEAVY: bool = false;

    /// The integer weights plus [`Registers32::OFFSET`] of row `R`.
    fn row<const R: usize>(blocks: &Four<'_, Self::Raw, Self::Heads>) -> [int8x16_t; 2];

    /// The scales of the rows.
    fn four_scales(heads: Self::Heads) -> float32x4_t;
}

/// The low and the high nibbles of 16 bytes.
#[inline(always)]
pub(super) fn nibbles(bytes: uint8x16_t) -> [uint8x16_t; 2] {
    [vandq_u8(bytes, vdupq_n_u8(15)), vshrq_n_u8::<4>(bytes)]
}

/// Nibbles minus 16 where the fifth bit is clear. In `clear` those bits are set instead; the bytes with the
/// low nibbles' are `at[0]` and the next one, those with the high nibbles' `at[1]` and the next one.
#[inline(always)]
fn five_bits(clear: uint8x16_t, at: [u64; 2], low: uint8x16_t) -> [int8x16_t; 2] {
    const EACH: u64 = 0x0101_0101_0101_0101;
    let one_bit = bytes(0x8040_2010_0804_0201, 0x8040_2010_0804_0201);
    // Eight times each byte.
    let spread = at.map(|at| vqtbl1q_u8(clear, bytes(at * EACH, (at + 1) * EACH)));
    let ones = spread.map(|spread| vtstq_u8(spread, one_bit));
    // Ones above the nibble: 16 less.
    [insert(ones[0], low, vdupq_n_u8(15)), vsriq_n_u8::<4>(ones[1], low)].map(vreinterpretq_s8_u8)
}

/// The same from the fifth bits as they are.
#[inline(always)]
fn with_fifth(fifth: &[u8; 4], low: &[u8; 16]) -> [int8x16_t; 2] {
    let fifth = vreinterpretq_u8_u32(vdupq_n_u32(u32::from_le_bytes(*fifth)));
    five_bits(vmvnq_u8(fifth), [0, 2], load_u8(low))
}

/// The IQ4 values of 16 indices.
#[inline(always)]
pub(super) fn iq4(index: uint8x16_t) -> int8x16_t {
    vqtbl1q_s8(load_i8(&IQ4_VALUES), index)
}

impl Registers32 for Q4_0 {
    const OFFSET: i8 = 8;

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

    #[inline(always)]
    fn quants(raw: &Self::Raw) -> [int8x16_t; 2] {
        with_fifth(part::<2, 4, 22>(raw), part::<6, 16, 22>(raw))
    }
}

impl Registers32 for Q5_1 {
    const OFFSET: i8 = -16;

    #[inline(always)]
    fn quants(raw: &Self::Raw) -> [int8x16_t; 2] {
        with_fifth(part::<4, 4, 24>(raw), part::<8, 16, 24>(raw))
    }
}

impl Registers32 for Q8_0 {
    const OFFSET: i8 = 0;

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

impl Often32 for Q4_0 {
    type Heads = Twos;

    #[inline(always)]
    fn row<const R: usize>(blocks: &Four<'_, Self::Raw, Twos>) -> [int8x16_t; 2] {
        let [q] = blocks.last(R);
        nibbles(q).map(vreinterpretq_s8_u8)
    }

    #[inline(always)]
    fn four_scales(Twos(bits): Twos) -> float32x4_t {
        fcvtl(bits)
    }
}

impl Often32 for Q5_0 {
    type Heads = Eights;
    const HEAVY: bool = true;

    #[inline(always)]
    fn row<const R: usize>(blocks: &Four<'_, Self::Raw, Eights>) -> [int8x16_t; 2] {
        let [low] = blocks.last(R);
        // Of two rows in turns: the scales, the first two bytes of fifth bits, the last two.
        let clear = vmvnq_u8(vreinterpretq_u8_u16(blocks.heads.0[R / 2]));
        let at = if R.is_multiple_of(2) { [4, 8] } else { [6, 10] };
        five_bits(clear, at, low)
    }

    #[inline(always)]
    fn four_scales(Eights(heads): Eights) -> float32x4_t {
        let [low, high] = heads.map(vreinterpretq_u32_u16);
        fcvtl(vget_low_u16(vreinterpretq_u16_u32(vzip1q_u32(low, high))))
    }
}

impl Often32 for Q8_0 {
    type Heads = Twos;

    #[inline(always)]
    fn row<const R: usize>(blocks: &Four<'_, Self::Raw, Twos>) -> [int8x16_t; 2] {
        blocks.last(R).map(vreinterpretq_s8_u8)
    }

    #[inline(always)]
    fn four_scales(Twos(bits): Twos) -> float32x4_t {
        fcvtl(bits)
    }
}
