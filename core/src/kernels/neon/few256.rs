//! Rows of blocks of 256 times one token, straight from the blocks. Must not know how a type packs them.

use super::block32::ZERO;
use super::dot::Dot;
use super::often256::{FOUR, Often256, heads};
use super::panel::{ROWS, sum_each};
use super::vec::*;
use crate::ops::BlockQ256;

/// Eight rows times one token.
pub(super) type Few<D> = fn(D, [&[u8]; ROWS], &[BlockQ256]) -> [f32; ROWS];

/// Eight rows of a type with wide sub-blocks times one token.
pub(super) fn few_wide<B: Often256<Raw = [u8; L]>, D: Dot, const L: usize, const FINE: bool>(
    d: D,
    w: [&[u8]; ROWS],
    x: &[BlockQ256],
) -> [f32; ROWS] {
    few::<B>(w, x, |acc, raw, x| {
        let heads = heads(raw);
        let total = sum_each(wide::<B, D, FINE>(d, raw, heads.scales, x));
        let min = minima(d, heads.mins, x);
        let [dw, dmin] = heads.d.map(|scales| vmulq_f32(scales, vdupq_n_f32(x.d)));
        let acc = vfmaq_f32(acc, dw, vcvtq_f32_s32(total));
        vfmsq_f32(acc, dmin, vcvtq_f32_s32(min))
    })
}

/// Eight rows of a type with sub-blocks of 16 and no minima times one token.
pub(super) fn few_narrow<B: Often256, D: Dot, const FINE: bool>(
    d: D,
    w: [&[u8]; ROWS],
    x: &[BlockQ256],
) -> [f32; ROWS] {
    few::<B>(w, x, |acc, raw, x| {
        let total = sum_each(narrow::<B, D, FINE>(d, raw, x));
        let dw = vmulq_f32(widen_f16(raw.map(|raw| B::scale_bits(raw)[0])), vdupq_n_f32(x.d));
        vfmaq_f32(acc, dw, vcvtq_f32_s32(total))
    })
}

/// Four rows after four; `add` adds a block of each.
#[inline(always)]
fn few<B: Often256>(
    w: [&[u8]; ROWS],
    x: &[BlockQ256],
    add: impl Fn(float32x4_t, [&B::Raw; FOUR], &BlockQ256) -> float32x4_t,
) -> [f32; ROWS] {
    let mut out = [0.0; ROWS];
    for (w, out) in w.as_chunks().0.iter().zip(out.as_chunks_mut().0) {
        let w: [&[B::Raw]; FOUR] = w.map(|row| &B::blocks(row)[..x.len()]);
        let mut acc = vdupq_n_f32(0.0);
        for (b, x) in x.iter().enumerate() {
            acc = add(acc, w.map(|row| &row[b]), x);
        }
        store_f32(out, acc);
    }
    out
}

/// 16 activations, in both planes.
type Run = [int8x16_t; 2];

/// Four runs of half `h`: two from each of `from`.
#[inline(always)]
fn load_runs<const FINE: bool>(x: &BlockQ256, h: usize, from: [usize; 2]) -> [Run; 4] {
    // From an address of their own: they lie too far from the block's for one instruction each.
    let [lo, hi] = [&x.lo, &x.hi].map(|plane| &opaque(plane).as_chunks::<16>().0.as_chunks::<8>().0[h]);
    let [a, b] = from;
    [a, a + 1, b, b + 1].map(|i| [load_i8(&lo[i]), if FINE { load_i8(&hi[i]) } else { vdupq_n_s8(0) }])
}

/// Four integers whose sum is `zero` plus that of the products.
#[inline(always)]
fn product<D: Dot, const N: usize, const FINE: bool>(
    d: D,
    zero: int32x4_t,
    q: [int8x16_t; N],
    x: [Run; N],
) -> int32x4_t {
    let mut sum = zero;
    if FINE {
        for (q, x) in q.into_iter().zip(x) {
            sum = d.dot(sum, q, x[1]);
        }
        sum = vshlq_n_s32::<7>(sum);
    }
    for (q, x) in q.into_iter().zip(x) {
        sum = d.dot(sum, q, x[0]);
    }
    sum
}

/// Four integers of each row whose sum is `sum over s of scale_s * (q . x)_s`, s over runs of 32.
#[inline(always)]
fn wide<B: Often256, D: Dot, const FINE: bool>(
    d: D,
    raw: [&B::Raw; FOUR],
    scales: [int8x16_t; 2],
    x: &BlockQ256,
) -> [int32x4_t; FOUR] {
    let mut totals = [vdupq_n_s32(0); FOUR];
    // Loops over halves, quarters and rows would stay loops, and their registers arrays in memory.
    macro_rules! quarter {
        ($h:literal, $i:literal, $scale:ident, $a:literal, $b:literal) => {
            let runs = load_runs::<FINE>(x, $h, [4 * $i, 4 * $i + 2]);
            quarter!($h, $i, $scale, $a, $b, runs, 0 1 2 3);
        };
        ($h:literal, $i:literal, $scale:ident, $a:literal, $b:literal, $x:ident, $($r:literal)*) => {$(
            let [x0, x1, x2, x3] = $x;
            let [q0, q1, q2, q3] = B::quarter(raw[$r], $h, $i);
            let [zero] = load_fresh(&ZERO);
            let first = product::<D, 2, FINE>(d, zero[0], [q0, q1], [x0, x1]);
            let second = product::<D, 2, FINE>(d, zero[1], [q2, q3], [x2, x3]);
            totals[$r] = vmlaq_laneq_s32::<$a>(totals[$r], first, $scale[$r]);
            totals[$r] = before_loads(vmlaq_laneq_s32::<$b>(totals[$r], second, $scale[$r]));
        )*};
    }
    let scale = words(scales[0]);
    quarter!(0, 0, scale, 0, 1);
    quarter!(0, 1, scale, 2, 3);
    let scale = words(scales[1]);
    quarter!(1, 0, scale, 0, 1);
    quarter!(1, 1, scale, 2, 3);
    totals
}

/// The same over runs of 16, the surplus of q taken off.
#[inline(always)]
fn narrow<B: Often256, D: Dot, const FINE: bool>(
    d: D,
    raw: [&B::Raw; FOUR],
    x: &BlockQ256,
) -> [int32x4_t; FOUR] {
    const { assert!(B::OFFSET == 32) }
    let less = x.sums.as_chunks().0;
    let less = [0, 1].map(|h| vsubq_s16(vdupq_n_s16(0), load_i16(&less[h])));
    let scales = raw.map(|raw| {
        let scales = B::scales(raw);
        [vmovl_s8(vget_low_s8(scales)), vmovl_high_s8(scales)]
    });
    let mut totals = scales.map(|[first, second]| {
        let total = vmull_s16(vget_low_s16(first), vget_low_s16(less[0]));
        let total = vmlal_high_s16(total, first, less[0]);
        let total = vmlal_s16(total, vget_low_s16(second), vget_low_s16(less[1]));
        before_loads(vshlq_n_s32::<5>(vmlal_high_s16(total, second, less[1])))
    });
    macro_rules! quarter {
        ($h:literal, $i:literal, $scale:ident, $a:literal, $b:literal) => {
            let runs = load_runs::<FINE>(x, $h, [2 * $i, 2 * $i + 4]);
            quarter!($h, $i, $scale, $a, $b, runs, 0 1 2 3);
        };
        ($h:literal, $i:literal, $scale:ident, $a:literal, $b:literal, $x:ident, $($r:literal)*) => {$(
            let [x0, x1, x2, x3] = $x;
            let [q0, q1, q2, q3] = B::quarter(raw[$r], $h, $i);
            let [zero, more] = load_fresh(&ZERO);
            let p = product::<D, 1, FINE>(d, zero[0], [q0], [x0]);
            totals[$r] = vmlaq_laneq_s32::<$a>(totals[$r], p, $scale[$r][0]);
            let p = product::<D, 1, FINE>(d, zero[1], [q1], [x1]);
            totals[$r] = vmlaq_laneq_s32::<$b>(totals[$r], p, $scale[$r][0]);
            let p = product::<D, 1, FINE>(d, more[0], [q2], [x2]);
            totals[$r] = vmlaq_laneq_s32::<$a>(totals[$r], p, $scale[$r][1]);
            let p = product::<D, 1, FINE>(d, more[1], [q3], [x3]);
            totals[$r] = before_loads(vmlaq_laneq_s32::<$b>(totals[$r], p, $scale[$r][1]));
        )*};
    }
    let scale = scales.map(|scales| widened(scales[0]));
    quarter!(0, 0, scale, 0, 1);
    quarter!(0, 1, scale, 2, 3);
    let scale = scales.map(|scales| widened(scales[1]));
    quarter!(1, 0, scale, 0, 1);
    quarter!(1, 1, scale, 2, 3);
    totals
}

/// Of each row `sum over s of min_s * sum_s`, s over runs of 32.
#[inline(always)]
fn minima<D: Dot>(d: D, mins: [uint8x16_t; 2], x: &BlockQ256) -> int32x4_t {
    // Sums of 32 do not fit 16 bits: those of 16, the even and the odd ones, in bytes.
    let [a, b] = [0, 1].map(|h| vreinterpretq_u8_s16(load_i16(&x.sums.as_chunks().0[h])));
    let (low, high) = (vuzp1q_u8(a, b), vuzp2q_u8(a, b));
    let (mut lows, mut highs) = (d.sums(0), vdupq_n_s32(0));
    for sums in [vuzp1q_u8(low, high), vuzp2q_u8(low, high)] {
        lows = d.unsigned_dot_lane::<0>(lows, mins[0], sums);
        lows = d.unsigned_dot_lane::<1>(lows, mins[1], sums);
        let sums = vreinterpretq_s8_u8(sums);
        highs = d.dot_lane::<2>(highs, vreinterpretq_s8_u8(mins[0]), sums);
        highs = d.dot_lane::<3>(highs, vreinterpretq_s8_u8(mins[1]), sums);
    }
    vaddq_s32(vreinterpretq_s32_u32(d.total(lows)), vshlq_n_s32::<8>(highs))
}

/// Eight integers as i32.
#[inline(always)]
fn widened(v: int16x8_t) -> [int32x4_t; 2] {
    [vmovl_s16(vget_low_s16(v)), vmovl_high_s16(v)].map(opaque_s32)
}

/// The integers of each fourth of the register as i32.
#[inline(always)]
fn words(v: int8x16_t) -> [int32x4_t; 4] {
    let [[a, b], [c, d]] = [vmovl_s8(vget_low_s8(v)), vmovl_high_s8(v)].map(widened);
    [a, b, c, d]
}
