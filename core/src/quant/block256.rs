//! Blocks of 256 weights with sub-scales: Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ4_XS.
//!
//! Unpacking gives the integers of the numerics contract, offsets taken off. Sub-scales are
//! given per 16 weights; types with one per 32 give it twice, which changes no sum. Must not
//! know activations.

use super::block32::{IQ4_VALUES, half, part};
use super::half::f16_to_f32;

/// The parts of a block of 256.
#[derive(Clone, Copy)]
pub(crate) struct Parts256 {
    /// Integer weights.
    pub q: [i8; 256],
    /// Sub-scale of each 16 weights; |scale * q| <= 4096.
    pub scales: [i8; 16],
    /// Sub-minimum of each 16 weights, at most 63; zeros if the type has none.
    pub mins: [u8; 16],
    /// Scale: weight = (d * scale) * q - (dmin * min).
    pub d: f32,
    /// Scale of the minima.
    pub dmin: f32,
}

impl Parts256 {
    /// All zero.
    pub const ZERO: Parts256 = Parts256 { q: [0; 256], scales: [0; 16], mins: [0; 16], d: 0.0, dmin: 0.0 };
}

/// How a type's block is unpacked: what its code for one block comes to, once for all who call it.
pub(crate) type Unpack256 = fn(row: &[u8], b: usize, out: &mut Parts256);

/// Unpacks block `b` of a row.
#[cfg_attr(kinglet_small, optimize(size))]
pub(crate) fn unpack<B: Block256>(row: &[u8], b: usize, out: &mut Parts256) {
    B::unpack(&B::blocks(row)[b], out);
}

/// Layout of a weight type with blocks of 256.
pub(crate) trait Block256 {
    /// The bytes of a block.
    type Raw: Copy;
    /// Whether a minimum is subtracted.
    const HAS_MIN: bool;

    /// The whole blocks in `bytes`.
    fn blocks(bytes: &[u8]) -> &[Self::Raw];

    /// Writes all parts, `mins` and `dmin` only if there are any.
    fn unpack(raw: &Self::Raw, parts: &mut Parts256);
}

/// Runs of 32 weights.
#[inline(always)]
fn runs(q: &mut [i8; 256]) -> &mut [[i8; 32]; 8] {
    match q.as_chunks_mut().0.try_into() {
        Ok(runs) => runs,
        Err(_) => unreachable!(), // 8 * 32 = 256
    }
}

/// Eight values, each for two runs of 16.
#[inline(always)]
fn twice<T: Copy>(of: [T; 8]) -> [T; 16] {
    core::array::from_fn(|i| of[i / 2])
}

/// 4-bit scales and minima of 16, 2-bit weights, `d`, `dmin`.
pub(crate) struct Q2K;

impl Block256 for Q2K {
    type Raw = [u8; 84];
    const HAS_MIN: bool = true;

    #[inline(always)]
    fn blocks(bytes: &[u8]) -> &[Self::Raw] {
        bytes.as_chunks().0
    }

    #[inline(always)]
    fn unpack(raw: &Self::Raw, parts: &mut Parts256) {
        let scales = part::<0, 16, 84>(raw);
        parts.scales = scales.map(|s| (s & 15) as i8);
        parts.mins = scales.map(|s| s >> 4);
        parts.d = f16_to_f32(half::<80, 84>(raw));
        parts.dmin = f16_to_f32(half::<82, 84>(raw));
        let bytes = [part::<16, 32, 84>(raw), part::<48, 32, 84>(raw)];
        for (run, q) in runs(&mut parts.q).iter_mut().enumerate() {
            let (bytes, shift) = (bytes[run / 4], run % 4 * 2);
            *q = core::array::from_fn(|i| (bytes[i] >> shift & 3) as i8);
        }
    }
}

/// Third bits, 2-bit weights, 6-bit scales of 16 (offset 32), `d`; weights have offset 4.
pub(crate) struct Q3K;

impl Block256 for Q3K {
    type Raw = [u8; 110];
    const HAS_MIN: bool = false;

    #[inline(always)]
    fn blocks(bytes: &[u8]) -> &[Self::Raw] {
        bytes.as_chunks().0
    }

    #[inline(always)]
    fn unpack(raw: &Self::Raw, parts: &mut Parts256) {
        let third = part::<0, 32, 110>(raw);
        let scales = part::<96, 12, 110>(raw);
        for i in 0..16 {
            // Low four bits: nibbles of bytes 0-7; high two: bytes 8-11, two bits at a time.
            let low = if i < 8 { scales[i] & 15 } else { scales[i - 8] >> 4 };
            let high = scales[8 + i % 4] >> (i / 4 * 2) & 3;
            parts.scales[i] = (low | high << 4) as i8 - 32;
        }
        parts.d = f16_to_f32(half::<108, 110>(raw));
        let bytes = [part::<32, 32, 110>(raw), part::<64, 32, 110>(raw)];
        for (run, q) in runs(&mut parts.q).iter_mut().enumerate() {
            let (bytes, shift) = (bytes[run / 4], run % 4 * 2);
            *q = core::array::from_fn(|i| {
                let offset = if third[i] & 1 << run == 0 { 4 } else { 0 };
                (bytes[i] >> shift & 3).wrapping_sub(offset) as i8
            });
        }
    }
}

/// The eight 6-bit scales and minima that Q4_K and Q5_K keep in 12 bytes.
#[inline(always)]
fn scales_and_mins(bytes: &[u8; 12], parts: &mut Parts256) {
    let (mut scales, mut mins) = ([0; 8], [0; 8]);
    for i in 0..4 {
        // Numbers 0-3: low six bits of bytes 0-3 and 4-7. Numbers 4-7: nibbles of bytes 8-11
        // with the top bits of bytes 0-3 and 4-7 above.
        let (a, b, c) = (bytes[i], bytes[i + 4], bytes[i + 8]);
        scales[i] = (a & 63) as i8;
        mins[i] = b & 63;
        scales[i + 4] = (c & 15 | a >> 6 << 4) as i8;
        mins[i + 4] = c >> 4 | b >> 6 << 4;
    }
    parts.scales = twice(scales);
    parts.mins = twice(mins);
}

/// `d`, `dmin`, 6-bit scales and minima of 32, 4-bit weights.
pub(crate) struct Q4K;

impl Block256 for Q4K {
    type Raw = [u8; 144];
    const HAS_MIN: bool = true;

    #[inline(always)]
    fn blocks(bytes: &[u8]) -> &[Self::Raw] {
        bytes.as_chunks().0
    }

    #[inline(always)]
    fn unpack(raw: &Self::Raw, parts: &mut Parts256) {
        parts.d = f16_to_f32(half::<0, 144>(raw));
        parts.dmin = f16_to_f32(half::<2, 144>(raw));
        scales_and_mins(part::<4, 12, 144>(raw), parts);
        let (bytes, _) = part::<16, 128, 144>(raw).as_chunks::<32>();
        for (bytes, q) in bytes.iter().zip(runs(&mut parts.q).as_chunks_mut::<2>().0) {
            q[0] = bytes.map(|b| (b & 15) as i8);
            q[1] = bytes.map(|b| (b >> 4) as i8);
        }
    }
}

/// As Q4_K, with fifth bits: bit r of byte i belongs to weight i of run r.
pub(crate) struct Q5K;

impl Block256 for Q5K {
    type Raw = [u8; 176];
    const HAS_MIN: bool = true;

    #[inline(always)]
    fn blocks(bytes: &[u8]) -> &[Self::Raw] {
        bytes.as_chunks().0
    }

    #[inline(always)]
    fn unpack(raw: &Self::Raw, parts: &mut Parts256) {
        parts.d = f16_to_f32(half::<0, 176>(raw));
        parts.dmin = f16_to_f32(half::<2, 176>(raw));
        scales_and_mins(part::<4, 12, 176>(raw), parts);
        let fifth = part::<16, 32, 176>(raw);
        let (bytes, _) = part::<48, 128, 176>(raw).as_chunks::<32>();
        let pairs = runs(&mut parts.q).as_chunks_mut::<2>().0;
        for (pair, (bytes, q)) in bytes.iter().zip(pairs).enumerate() {
            for i in 0..32 {
                let high = fifth[i] >> (2 * pair);
                q[0][i] = (bytes[i] & 15 | (high & 1) << 4) as i8;
                q[1][i] = (bytes[i] >> 4 | (high & 2) << 3) as i8;
            }
        }
    }
}

/// 4 low bits, 2 high bits, 8-bit scales of 16, `d`; weights have offset 32.
pub(crate) struct Q6K;

impl Block256 for Q6K {
    type Raw = [u8; 210];
    const HAS_MIN: bool = false;

    #[inline(always)]
    fn blocks(bytes: &[u8]) -> &[Self::Raw] {
        bytes.as_chunks().0
    }

    #[inline(always)]
    fn unpack(raw: &Self::Raw, parts: &mut Parts256) {
        parts.scales = part::<192, 16, 210>(raw).map(|s| s as i8);
        parts.d = f16_to_f32(half::<208, 210>(raw));
        let (low, _) = part::<0, 128, 210>(raw).as_chunks::<64>();
        let (high, _) = part::<128, 64, 210>(raw).as_chunks::<32>();
        let halves = runs(&mut parts.q).as_chunks_mut::<4>().0;
        for (q, (low, high)) in halves.iter_mut().zip(low.iter().zip(high)) {
            for i in 0..32 {
                let (a, b, h) = (low[i], low[i + 32], high[i]);
                q[0][i] = (a & 15 | (h & 3) << 4).wrapping_sub(32) as i8;
                q[1][i] = (b & 15 | (h & 12) << 2).wrapping_sub(32) as i8;
                q[2][i] = (a >> 4 | h & 48).wrapping_sub(32) as i8;
                q[3][i] = (b >> 4 | (h & 192) >> 2).wrapping_sub(32) as i8;
            }
        }
    }
}

/// `d`, 6-bit scales of 32 (offset 32), 4-bit indices into the IQ4 values.
pub(crate) struct Iq4Xs;

impl Block256 for Iq4Xs {
    type Raw = [u8; 136];
    const HAS_MIN: bool = false;

    #[inline(always)]
    fn blocks(bytes: &[u8]) -> &[Self::Raw] {
        bytes.as_chunks().0
    }

    #[inline(always)]
    fn unpack(raw: &Self::Raw, parts: &mut Parts256) {
        parts.d = f16_to_f32(half::<0, 136>(raw));
        let high = u16::from_le_bytes(*part::<2, 2, 136>(raw));
        let low = part::<4, 4, 136>(raw);
        parts.scales = twice(core::array::from_fn(|run| {
            let low = low[run / 2] >> (run % 2 * 4) & 15;
            let high = (high >> (2 * run) & 3) as u8;
            (low | high << 4) as i8 - 32
        }));
        let (bytes, _) = part::<8, 128, 136>(raw).as_chunks::<16>();
        for (bytes, q) in bytes.iter().zip(runs(&mut parts.q)) {
            for i in 0..16 {
                q[i] = IQ4_VALUES[usize::from(bytes[i] & 15)];
                q[i + 16] = IQ4_VALUES[usize::from(bytes[i] >> 4)];
            }
        }
    }
}
