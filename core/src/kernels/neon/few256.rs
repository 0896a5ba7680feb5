//! Rows of blocks of 256 times one token, straight from the blocks. Must not know how a type packs them.

use super::dot::Dot;
use super::panel::{ROWS, sum_each};
use super::unpack256::Registers256;
use super::vec::*;
use crate::ops::BlockQ256;
use core::array;

/// Rows that are read side by side.
const FOUR: usize = 4;

/// Rows that share each load of activations: for more there are not registers enough.
const PAIR: usize = 2;

/// Eight rows times one token.
pub(super) fn few<B: Registers256, D: Dot, const FINE: bool>(
    d: D,
    w: [&[u8]; ROWS],
    x: &[BlockQ256],
) -> [f32; ROWS] {
    let mut out = [0.0; ROWS];
    for (w, out) in w.as_chunks().0.iter().zip(out.as_chunks_mut().0) {
        store_f32(out, four::<B, D, FINE>(d, w, x));
    }
    out
}

#[inline(always)]
fn four<B: Registers256, D: Dot, const FINE: bool>(d: D, w: &[&[u8]; FOUR], x: &[BlockQ256]) -> float32x4_t {
    let w = w.map(|row| &B::blocks(row)[..x.len()]);
    let mut acc = vdupq_n_f32(0.0);
    for (b, x) in x.iter().enumerate() {
        let sums = [load_i16(&x.sums.as_chunks().0[0]), load_i16(&x.sums.as_chunks().0[1])];
        let (mut totals, mut mins) = ([vdupq_n_s32(0); FOUR], [vdupq_n_s32(0); FOUR]);
        for pair in 0..FOUR / PAIR {
            let raw = array::from_fn(|r| &w[PAIR * pair + r][b]);
            let both = rows::<B, D, FINE>(d, raw, x);
            (totals[PAIR * pair], totals[PAIR * pair + 1]) = (both[0], both[1]);
        }
        for r in 0..FOUR {
            if B::OFFSET != 0 {
                let surplus = weighted(B::scales(&w[r][b]), sums);
                totals[r] = vmlsq_s32(totals[r], surplus, vdupq_n_s32(B::OFFSET.into()));
            }
            if B::HAS_MIN {
                let m = B::mins(&w[r][b]);
                // A wide sub-block is two of 16 with the same minimum.
                mins[r] = weighted(if B::WIDE { vzip1q_s8(m, m) } else { m }, sums);
            }
        }
        let scales: [[u16; 2]; FOUR] = array::from_fn(|r| B::scale_bits(&w[r][b]));
        let dx = vdupq_n_f32(x.d);
        let dw = vmulq_f32(widen_f16(scales.map(|s| s[0])), dx);
        acc = vfmaq_f32(acc, dw, vcvtq_f32_s32(sum_each(totals)));
        if B::HAS_MIN {
            let dmin = vmulq_f32(widen_f16(scales.map(|s| s[1])), dx);
            acc = vfmsq_f32(acc, dmin, vcvtq_f32_s32(sum_each(mins)));
        }
    }
    acc
}

/// Four integers whose sum is `sum over s of scale_s * (q . x)_s`, the surplus of q included, of each row.
///
/// As in `panel256` products are summed over all sub-blocks without a fresh start, and the sum up to s is
/// multiplied by `scale_s - scale_(s+1)`.
#[inline(always)]
fn rows<B: Registers256, D: Dot, const FINE: bool>(
    d: D,
    raw: [&B::Raw; PAIR],
    x: &BlockQ256,
) -> [int32x4_t; PAIR] {
    let steps = raw.map(|raw| steps::<B>(raw));
    let planes = [x.lo.as_chunks::<16>().0.as_chunks::<8>().0, x.hi.as_chunks::<16>().0.as_chunks::<8>().0];
    let zero = [[vdupq_n_s32(0); 2]; PAIR];
    let (mut sums, mut totals) = (zero, zero);
    for h in 0..2 {
        let q = raw.map(|raw| B::half(raw, h));
        // Half of the steps: four, or eight.
        let steps: [[int32x4_t; 2]; PAIR] = steps.each_ref().map(|all| match B::WIDE {
            true => [load_i32(&all[h]); 2],
            false => [load_i32(&all[2 * h]), load_i32(&all[2 * h + 1])],
        });
        macro_rules! columns {
            ($($i:literal, $scaled:expr, $register:literal, $lane:literal;)+) => {$(
                let lo = load_i8(&planes[0][h][$i]);
                for r in 0..PAIR {
                    sums[r][0] = d.dot(sums[r][0], q[r][$i], lo);
                }
                if FINE {
                    let hi = load_i8(&planes[1][h][$i]);
                    for r in 0..PAIR {
                        sums[r][1] = d.dot(sums[r][1], q[r][$i], hi);
                    }
                }
                if $scaled {
                    for r in 0..PAIR {
                        for p in 0..if FINE { 2 } else { 1 } {
                            totals[r][p] =
                                vmlaq_laneq_s32::<$lane>(totals[r][p], sums[r][p], steps[r][$register]);
                        }
                    }
                }
            )+};
        }
        if B::WIDE {
            columns! {
                0, false, 0, 0; 1, true, 0, 0; 2, false, 0, 1; 3, true, 0, 1;
                4, false, 0, 2; 5, true, 0, 2; 6, false, 0, 3; 7, true, 0, 3;
            }
        } else {
            columns! {
                0, true, 0, 0; 1, true, 0, 1; 2, true, 0, 2; 3, true, 0, 3;
                4, true, 1, 0; 5, true, 1, 1; 6, true, 1, 2; 7, true, 1, 3;
            }
        }
    }
    totals.map(|[lo, hi]| if FINE { vaddq_s32(lo, vshlq_n_s32::<7>(hi)) } else { lo })
}

/// The sub-scales less each the next one: eight, or sixteen.
#[inline(always)]
fn steps<B: Registers256>(raw: &B::Raw) -> [[i32; 4]; 4] {
    let scales = B::scales(raw);
    let zero = vdupq_n_s16(0);
    let first = vmovl_s8(vget_low_s8(scales));
    let second = if B::WIDE { zero } else { vmovl_high_s8(scales) };
    let mut out = [[0; 4]; 4];
    let halves = [vextq_s16::<1>(first, second), vextq_s16::<1>(second, zero)];
    for (i, (scales, next)) in
        [first, second].into_iter().zip(halves).take(if B::WIDE { 1 } else { 2 }).enumerate()
    {
        let steps = vsubq_s16(scales, next);
        store_i32(&mut out[2 * i], vmovl_s16(vget_low_s16(steps)));
        store_i32(&mut out[2 * i + 1], vmovl_high_s16(steps));
    }
    out
}

/// Four integers whose sum is `sum over s of weight_s * sum_s`, s over runs of 16.
#[inline(always)]
fn weighted(weights: int8x16_t, sums: [int16x8_t; 2]) -> int32x4_t {
    let weights = [vmovl_s8(vget_low_s8(weights)), vmovl_high_s8(weights)];
    let mut total = vdupq_n_s32(0);
    for (w, s) in weights.into_iter().zip(sums) {
        total = vmlal_s16(total, vget_low_s16(w), vget_low_s16(s));
        total = vmlal_high_s16(total, w, s);
    }
    total
}
