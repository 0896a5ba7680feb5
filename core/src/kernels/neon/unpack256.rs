//! Blocks of 256 weights in registers. Must not know activations.

use super::unpack32::{iq4, nibbles};
use super::vec::*;
use crate::quant::block32::{half, part};
use crate::quant::block256::{Block256, Iq4Xs, Q2K, Q3K, Q4K, Q5K, Q6K};

/// A block as the kernels want it.
pub(super) trait Registers256: Block256 {
    /// Whether sub-blocks have 32 weights, not 16.
    const WIDE: bool;
    /// Sub-blocks as the kernel for many tokens takes them: 8 of 32 or 16 of 16.
    const SUBS: usize;
    /// Whether their sums fit an i16, see `panel256`.
    const NARROW: bool;
    /// What [`Registers256::half`] has too much: taking it off a sum can be cheaper than off each.
    const OFFSET: i8;

    /// The integer weights of half `h` (0 or 1) plus [`Registers256::OFFSET`].
    fn half(raw: &Self::Raw, h: usize) -> [int8x16_t; 8];

    /// The sub-scales; eight and anything where sub-blocks are wide.
    fn scales(raw: &Self::Raw) -> int8x16_t;

    /// The sub-minima, as many as sub-scales.
    fn mins(_: &Self::Raw) -> int8x16_t {
        vdupq_n_s8(0)
    }

    /// f16 bits of the scale and of the scale of the minima.
    fn scale_bits(raw: &Self::Raw) -> [u16; 2];
}

/// 16 bytes of a block.
#[inline(always)]
pub(super) fn at<const L: usize>(raw: &[u8; L], from: usize) -> uint8x16_t {
    match raw[from..].first_chunk() {
        Some(bytes) => load_u8(bytes),
        None => unreachable!(), // every caller's offsets lie in the block
    }
}

/// The same bits of all eight bytes.
const fn each(bits: u8) -> u64 {
    u64::from_le_bytes([bits; 8])
}

/// Of two registers of 2-bit fields the runs: field 0 of both, field 1, 2, 3.
#[inline(always)]
fn two_bits(v: [uint8x16_t; 2]) -> [uint8x16_t; 8] {
    let mask = vdupq_n_u8(3);
    let [a, b] = v;
    [
        vandq_u8(a, mask),
        vandq_u8(b, mask),
        vandq_u8(vshrq_n_u8::<2>(a), mask),
        vandq_u8(vshrq_n_u8::<2>(b), mask),
        vandq_u8(vshrq_n_u8::<4>(a), mask),
        vandq_u8(vshrq_n_u8::<4>(b), mask),
        vshrq_n_u8::<6>(a),
        vshrq_n_u8::<6>(b),
    ]
}

/// Of two registers of nibbles the runs: low nibbles of both, high nibbles of both.
#[inline(always)]
fn runs(a: uint8x16_t, b: uint8x16_t) -> [uint8x16_t; 4] {
    let ([a0, a1], [b0, b1]) = (nibbles(a), nibbles(b));
    [a0, b0, a1, b1]
}

impl Registers256 for Q2K {
    const WIDE: bool = false;
    const SUBS: usize = 16;
    const NARROW: bool = true;
    const OFFSET: i8 = 0;

    #[inline(always)]
    fn half(raw: &Self::Raw, h: usize) -> [int8x16_t; 8] {
        two_bits([at(raw, 16 + 32 * h), at(raw, 32 + 32 * h)]).map(vreinterpretq_s8_u8)
    }

    #[inline(always)]
    fn scales(raw: &Self::Raw) -> int8x16_t {
        vreinterpretq_s8_u8(nibbles(at(raw, 0))[0])
    }

    #[inline(always)]
    fn mins(raw: &Self::Raw) -> int8x16_t {
        vreinterpretq_s8_u8(nibbles(at(raw, 0))[1])
    }

    #[inline(always)]
    fn scale_bits(raw: &Self::Raw) -> [u16; 2] {
        [half::<80, 84>(raw), half::<82, 84>(raw)]
    }
}

impl Registers256 for Q3K {
    const WIDE: bool = false;
    const SUBS: usize = 16;
    const NARROW: bool = true;
    const OFFSET: i8 = 4;

    #[inline(always)]
    fn half(raw: &Self::Raw, h: usize) -> [int8x16_t; 8] {
        let low = two_bits([at(raw, 32 + 32 * h), at(raw, 48 + 32 * h)]);
        // Bit `run` of the bytes is the third bit of run `run`.
        let third = [at(raw, 0), at(raw, 16)];
        let [a, b] = if h == 0 { third } else { third.map(vshrq_n_u8::<4>) };
        let third = [
            vshlq_n_u8::<2>(a),
            vshlq_n_u8::<2>(b),
            vshlq_n_u8::<1>(a),
            vshlq_n_u8::<1>(b),
            a,
            b,
            vshrq_n_u8::<1>(a),
            vshrq_n_u8::<1>(b),
        ];
        let four = vdupq_n_u8(4);
        core::array::from_fn(|i| vreinterpretq_s8_u8(vorrq_u8(low[i], vandq_u8(third[i], four))))
    }

    #[inline(always)]
    fn scales(raw: &Self::Raw) -> int8x16_t {
        let low = u64::from_le_bytes(*part::<96, 8, 110>(raw));
        let high = u32::from_le_bytes(*part::<104, 4, 110>(raw));
        let field = |shift: u32| u64::from(high >> shift & 0x0303_0303) << 4;
        let first = low & each(15) | field(0) | field(2) << 32;
        let second = low >> 4 & each(15) | field(4) | field(6) << 32;
        vsubq_s8(vreinterpretq_s8_u8(bytes(first, second)), vdupq_n_s8(32))
    }

    #[inline(always)]
    fn scale_bits(raw: &Self::Raw) -> [u16; 2] {
        [half::<108, 110>(raw), 0]
    }
}

/// The eight 6-bit scales (or, from the fields one further on, minima) of Q4_K and Q5_K.
#[inline(always)]
fn six_bits(first: u32, last: u32) -> int8x16_t {
    let low = first & 0x3F3F_3F3F;
    let high = last & 0x0F0F_0F0F | first >> 2 & 0x3030_3030;
    vreinterpretq_s8_u8(bytes(u64::from(low) | u64::from(high) << 32, 0))
}

/// The three words that hold them.
#[inline(always)]
fn words(bytes: &[u8; 12]) -> [u32; 3] {
    let words = bytes.as_chunks().0;
    core::array::from_fn(|i| u32::from_le_bytes(words[i]))
}

impl Registers256 for Q4K {
    const WIDE: bool = true;
    const SUBS: usize = 8;
    const NARROW: bool = true;
    const OFFSET: i8 = 0;

    #[inline(always)]
    fn half(raw: &Self::Raw, h: usize) -> [int8x16_t; 8] {
        let from = 16 + 64 * h;
        let [a, b, c, d] = runs(at(raw, from), at(raw, from + 16));
        let [e, f, g, h] = runs(at(raw, from + 32), at(raw, from + 48));
        [a, b, c, d, e, f, g, h].map(vreinterpretq_s8_u8)
    }

    #[inline(always)]
    fn scales(raw: &Self::Raw) -> int8x16_t {
        let [a, _, c] = words(part::<4, 12, 144>(raw));
        six_bits(a, c)
    }

    #[inline(always)]
    fn mins(raw: &Self::Raw) -> int8x16_t {
        let [_, b, c] = words(part::<4, 12, 144>(raw));
        six_bits(b, c >> 4)
    }

    #[inline(always)]
    fn scale_bits(raw: &Self::Raw) -> [u16; 2] {
        [half::<0, 144>(raw), half::<2, 144>(raw)]
    }
}

impl Registers256 for Q5K {
    const WIDE: bool = true;
    const SUBS: usize = 16;
    const NARROW: bool = true;
    const OFFSET: i8 = 0;

    #[inline(always)]
    fn half(raw: &Self::Raw, h: usize) -> [int8x16_t; 8] {
        let from = 48 + 64 * h;
        let ([a, b, c, d], [e, f, g, i]) =
            (runs(at(raw, from), at(raw, from + 16)), runs(at(raw, from + 32), at(raw, from + 48)));
        let low = [a, b, c, d, e, f, g, i];
        // Bit `run` of the bytes is the fifth bit of run `run`.
        let fifth = [at(raw, 16), at(raw, 32)];
        let [a, b] = if h == 0 { fifth } else { fifth.map(vshrq_n_u8::<4>) };
        let fifth = [
            vshlq_n_u8::<4>(a),
            vshlq_n_u8::<4>(b),
            vshlq_n_u8::<3>(a),
            vshlq_n_u8::<3>(b),
            vshlq_n_u8::<2>(a),
            vshlq_n_u8::<2>(b),
            vshlq_n_u8::<1>(a),
            vshlq_n_u8::<1>(b),
        ];
        let sixteen = vdupq_n_u8(16);
        core::array::from_fn(|i| vreinterpretq_s8_u8(vorrq_u8(low[i], vandq_u8(fifth[i], sixteen))))
    }

    #[inline(always)]
    fn scales(raw: &Self::Raw) -> int8x16_t {
        let [a, _, c] = words(part::<4, 12, 176>(raw));
        six_bits(a, c)
    }

    #[inline(always)]
    fn mins(raw: &Self::Raw) -> int8x16_t {
        let [_, b, c] = words(part::<4, 12, 176>(raw));
        six_bits(b, c >> 4)
    }

    #[inline(always)]
    fn scale_bits(raw: &Self::Raw) -> [u16; 2] {
        [half::<0, 176>(raw), half::<2, 176>(raw)]
    }
}

impl Registers256 for Q6K {
    const WIDE: bool = false;
    const SUBS: usize = 16;
    const NARROW: bool = true;
    const OFFSET: i8 = 32;

    #[inline(always)]
    fn half(raw: &Self::Raw, h: usize) -> [int8x16_t; 8] {
        let mut out = [vdupq_n_s8(0); 8];
        let mask = vdupq_n_u8(0x30);
        for i in 0..2 {
            let from = 64 * h + 16 * i;
            let ([a, c], [b, d]) = (nibbles(at(raw, from)), nibbles(at(raw, from + 32)));
            let high = at(raw, 128 + 32 * h + 16 * i);
            let with = |low, high| vreinterpretq_s8_u8(vorrq_u8(low, vandq_u8(high, mask)));
            out[i] = with(a, vshlq_n_u8::<4>(high));
            out[2 + i] = with(b, vshlq_n_u8::<2>(high));
            out[4 + i] = with(c, high);
            out[6 + i] = with(d, vshrq_n_u8::<2>(high));
        }
        out
    }

    #[inline(always)]
    fn scales(raw: &Self::Raw) -> int8x16_t {
        vreinterpretq_s8_u8(at(raw, 192))
    }

    #[inline(always)]
    fn scale_bits(raw: &Self::Raw) -> [u16; 2] {
        [half::<208, 210>(raw), 0]
    }
}

/// `bits` bits each of eight fields as bytes.
#[inline(always)]
fn fields(packed: u64, bits: u32) -> u64 {
    let mask = (1 << bits) - 1;
    let x = (packed | packed << (32 - 4 * bits)) & (((1 << (4 * bits)) - 1) * 0x0000_0001_0000_0001);
    let x = (x | x << (16 - 2 * bits)) & (((1 << (2 * bits)) - 1) * 0x0001_0001_0001_0001);
    (x | x << (8 - bits)) & (mask * each(1))
}

impl Registers256 for Iq4Xs {
    const WIDE: bool = true;
    const SUBS: usize = 8;
    const NARROW: bool = false;
    const OFFSET: i8 = 0;

    #[inline(always)]
    fn half(raw: &Self::Raw, h: usize) -> [int8x16_t; 8] {
        let mut out = [vdupq_n_s8(0); 8];
        for run in 0..4 {
            let q = nibbles(at(raw, 8 + 64 * h + 16 * run)).map(iq4);
            (out[2 * run], out[2 * run + 1]) = (q[0], q[1]);
        }
        out
    }

    #[inline(always)]
    fn scales(raw: &Self::Raw) -> int8x16_t {
        let high = u64::from(u16::from_le_bytes(*part::<2, 2, 136>(raw)));
        let low = u64::from(u32::from_le_bytes(*part::<4, 4, 136>(raw)));
        let scales = fields(low, 4) | fields(high, 2) << 4;
        vsubq_s8(vreinterpretq_s8_u8(bytes(scales, 0)), vdupq_n_s8(32))
    }

    #[inline(always)]
    fn scale_bits(raw: &Self::Raw) -> [u16; 2] {
        [half::<0, 136>(raw), 0]
    }
}
