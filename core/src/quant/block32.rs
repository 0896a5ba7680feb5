//! Blocks of 32 weights with one scale: Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, IQ4_NL.
//!
//! Unpacking gives the integer weights of the numerics contract, offset taken off. The loops
//! have fixed lengths and no shift by a variable, so that they become vector code. Must not
//! know activations.

use super::half::f16_to_f32;
use core::array;

/// The parts of a block of 32.
#[derive(Clone, Copy)]
pub(crate) struct Parts32 {
    /// Integer weights.
    pub q: [i8; 32],
    /// Scale: weight = d * q + m.
    pub d: f32,
    /// Offset; 0 if the type has none.
    pub m: f32,
}

impl Parts32 {
    /// All zero.
    pub const ZERO: Parts32 = Parts32 { q: [0; 32], d: 0.0, m: 0.0 };
}

/// How a type's block is unpacked: what its code for one block comes to, once for all who call it.
pub(crate) type Unpack32 = fn(row: &[u8], b: usize, out: &mut Parts32);

/// Unpacks block `b` of a row.
#[cfg_attr(kinglet_small, optimize(size))]
pub(crate) fn unpack<B: Block32>(row: &[u8], b: usize, out: &mut Parts32) {
    let raw = &B::blocks(row)[b];
    let [d, m] = B::scales(raw);
    *out = Parts32 { q: B::weights(raw), d: f16_to_f32(d), m: f16_to_f32(m) };
}

/// Layout of a weight type with blocks of 32.
pub(crate) trait Block32 {
    /// The bytes of a block.
    type Raw: Copy;
    /// Whether weights are `d * q + m`, not `d * q`.
    const HAS_MIN: bool;

    /// The whole blocks in `bytes`.
    fn blocks(bytes: &[u8]) -> &[Self::Raw];

    /// The integer weights.
    fn weights(raw: &Self::Raw) -> [i8; 32];

    /// The scale `d` and the offset `m` (0 if there is none), as f16 bits: widening the scales
    /// of several blocks at once is cheaper.
    fn scales(raw: &Self::Raw) -> [u16; 2];
}

/// `N` bytes of a block from offset `FROM`.
#[inline(always)]
pub(crate) fn part<const FROM: usize, const N: usize, const L: usize>(raw: &[u8; L]) -> &[u8; N] {
    const { assert!(FROM + N <= L) }
    match raw[FROM..].first_chunk() {
        Some(part) => part,
        None => unreachable!(), // by the line above
    }
}

/// The bits of the f16 at byte offset `FROM` of a block.
#[inline(always)]
pub(crate) fn half<const FROM: usize, const L: usize>(raw: &[u8; L]) -> u16 {
    u16::from_le_bytes(*part::<FROM, 2, L>(raw))
}

/// The low nibbles of 16 bytes, then the high ones, each through `f`.
#[inline(always)]
fn nibbles(bytes: &[u8; 16], f: impl Fn(u8) -> i8) -> [i8; 32] {
    let mut q = [0; 32];
    for i in 0..16 {
        q[i] = f(bytes[i] & 15);
        q[i + 16] = f(bytes[i] >> 4);
    }
    q
}

/// Bit i of `bits` as byte i: `set` or `clear`.
///
/// A byte of eight bits is repeated eight times and each copy keeps one bit; a nonzero copy
/// plus 0x7F has its top bit set.
#[inline(always)]
fn spread(bits: &[u8; 4], set: u8, clear: u8) -> [u8; 32] {
    const EACH: u64 = 0x0101_0101_0101_0101;
    const DIAGONAL: u64 = 0x8040_2010_0804_0201;
    let mut out = [0; 32];
    for (out, &byte) in out.as_chunks_mut::<8>().0.iter_mut().zip(bits) {
        let one_bit = (u64::from(byte) * EACH) & DIAGONAL;
        // 0 or 1 in each byte; times a byte value it cannot carry.
        let flags = ((one_bit + 0x7F * EACH) >> 7) & EACH;
        let bytes = (flags * u64::from(set)) | ((flags ^ EACH) * u64::from(clear));
        *out = bytes.to_le_bytes();
    }
    out
}

/// `d`, 16 bytes of nibbles; weight `d * (q - 8)`.
pub(crate) struct Q4_0;

impl Block32 for Q4_0 {
    type Raw = [u8; 18];
    const HAS_MIN: bool = false;

    #[inline(always)]
    fn blocks(bytes: &[u8]) -> &[Self::Raw] {
        bytes.as_chunks().0
    }

    #[inline(always)]
    fn weights(raw: &Self::Raw) -> [i8; 32] {
        nibbles(part::<2, 16, 18>(raw), |q| q.wrapping_sub(8) as i8)
    }

    #[inline(always)]
    fn scales(raw: &Self::Raw) -> [u16; 2] {
        [half::<0, 18>(raw), 0]
    }
}

/// `d`, `m`, 16 bytes of nibbles; weight `d * q + m`.
pub(crate) struct Q4_1;

impl Block32 for Q4_1 {
    type Raw = [u8; 20];
    const HAS_MIN: bool = true;

    #[inline(always)]
    fn blocks(bytes: &[u8]) -> &[Self::Raw] {
        bytes.as_chunks().0
    }

    #[inline(always)]
    fn weights(raw: &Self::Raw) -> [i8; 32] {
        nibbles(part::<4, 16, 20>(raw), |q| q as i8)
    }

    #[inline(always)]
    fn scales(raw: &Self::Raw) -> [u16; 2] {
        [half::<0, 20>(raw), half::<2, 20>(raw)]
    }
}

/// `d`, 32 fifth bits, 16 bytes of nibbles; weight `d * (q - 16)`.
pub(crate) struct Q5_0;

impl Block32 for Q5_0 {
    type Raw = [u8; 22];
    const HAS_MIN: bool = false;

    #[inline(always)]
    fn blocks(bytes: &[u8]) -> &[Self::Raw] {
        bytes.as_chunks().0
    }

    #[inline(always)]
    fn weights(raw: &Self::Raw) -> [i8; 32] {
        let low = nibbles(part::<6, 16, 22>(raw), |q| q as i8);
        // With the fifth bit q - 16 is the nibble, without it the nibble - 16: bits 0xF0 set.
        let high = spread(part::<2, 4, 22>(raw), 0, 0xF0);
        array::from_fn(|i| low[i] | high[i] as i8)
    }

    #[inline(always)]
    fn scales(raw: &Self::Raw) -> [u16; 2] {
        [half::<0, 22>(raw), 0]
    }
}

/// `d`, `m`, 32 fifth bits, 16 bytes of nibbles; weight `d * q + m`.
pub(crate) struct Q5_1;

impl Block32 for Q5_1 {
    type Raw = [u8; 24];
    const HAS_MIN: bool = true;

    #[inline(always)]
    fn blocks(bytes: &[u8]) -> &[Self::Raw] {
        bytes.as_chunks().0
    }

    #[inline(always)]
    fn weights(raw: &Self::Raw) -> [i8; 32] {
        let low = nibbles(part::<8, 16, 24>(raw), |q| q as i8);
        let high = spread(part::<4, 4, 24>(raw), 0x10, 0);
        array::from_fn(|i| low[i] | high[i] as i8)
    }

    #[inline(always)]
    fn scales(raw: &Self::Raw) -> [u16; 2] {
        [half::<0, 24>(raw), half::<2, 24>(raw)]
    }
}

/// `d`, 32 signed bytes; weight `d * q`.
pub(crate) struct Q8_0;

impl Block32 for Q8_0 {
    type Raw = [u8; 34];
    const HAS_MIN: bool = false;

    #[inline(always)]
    fn blocks(bytes: &[u8]) -> &[Self::Raw] {
        bytes.as_chunks().0
    }

    #[inline(always)]
    fn weights(raw: &Self::Raw) -> [i8; 32] {
        part::<2, 32, 34>(raw).map(|q| q as i8)
    }

    #[inline(always)]
    fn scales(raw: &Self::Raw) -> [u16; 2] {
        [half::<0, 34>(raw), 0]
    }
}

/// The sixteen values of the IQ4 types.
pub(crate) const IQ4_VALUES: [i8; 16] =
    [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

/// `d`, 16 bytes of nibbles; weight `d * IQ4_VALUES[q]`.
pub(crate) struct Iq4Nl;

impl Block32 for Iq4Nl {
    type Raw = [u8; 18];
    const HAS_MIN: bool = false;

    #[inline(always)]
    fn blocks(bytes: &[u8]) -> &[Self::Raw] {
        bytes.as_chunks().0
    }

    #[inline(always)]
    fn weights(raw: &Self::Raw) -> [i8; 32] {
        nibbles(part::<2, 16, 18>(raw), |q| IQ4_VALUES[usize::from(q)])
    }

    #[inline(always)]
    fn scales(raw: &Self::Raw) -> [u16; 2] {
        [half::<0, 18>(raw), 0]
    }
}
