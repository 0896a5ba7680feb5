//! Matrix products of weight types with blocks of 256. Must not know how a type packs them.

use super::dot::Dot;
use super::panel::{Column, PANELS, ROWS, cover, sum_each};
use super::panel256::{Panel, Spare, TOKENS, add_block};
use super::unpack256::Registers256;
use super::vec::*;
use crate::ops::{BlockQ256, Input, Precision};
use crate::par::Tile;
use crate::weights::Matrix;
use core::array;

/// Rows that are read side by side for one token.
const FEW_ROWS: usize = 4;

/// See [`add_block`].
type Add<D> = fn(D, &Panel, &[&BlockQ256], &mut [[f32; ROWS]], &mut Spare);

/// A weight type as the driver sees it: functions, so that only they exist once a type.
struct Type<D> {
    /// Eight rows times one token straight from the blocks; else they are unpacked for it.
    few: Option<fn(D, [&[u8]; ROWS], &[BlockQ256]) -> [f32; ROWS]>,
    /// Unpacks block `b` of the rows.
    unpack: fn(&mut Panel, &[&[u8]; ROWS], usize),
    /// For one token and for many.
    add: [Add<D>; 2],
}

/// `out[token][row] = w[row] . x[token]` for the rectangle of `out`.
pub(super) fn matmul<B: Registers256, D: Dot>(
    d: D,
    w: &Matrix<'_>,
    input: &Input<'_>,
    out: &mut Tile<'_, f32>,
) {
    let add: [Add<D>; 2] = match (B::SUBS, B::NARROW) {
        (16, _) => [add_block::<D, 1, 16, true>, add_block::<D, TOKENS, 16, true>],
        (_, true) => [add_block::<D, 1, 8, true>, add_block::<D, TOKENS, 8, true>],
        (_, false) => [add_block::<D, 1, 8, false>, add_block::<D, TOKENS, 8, false>],
    };
    let fine = input.precision == Precision::Fine;
    let few = if fine { few::<B, D, true> as _ } else { few::<B, D, false> as _ };
    let few = (B::OFTEN && D::FAST).then_some(few);
    drive(d, &Type { few, unpack: Panel::unpack::<B>, add }, w, input, out);
}

#[inline(never)]
fn drive<D: Dot>(d: D, ty: &Type<D>, w: &Matrix<'_>, input: &Input<'_>, out: &mut Tile<'_, f32>) {
    let blocks = w.cols() / 256;
    let fine = input.precision == Precision::Fine;
    let row = |row: usize| w.rows_data(row..row + 1);
    cover(
        out,
        |rows, token| {
            let (rows, x) = (rows.map(row), &input.q256[token * blocks..][..blocks]);
            if let Some(few) = ty.few {
                return few(d, rows, x);
            }
            let (mut panel, mut spare, mut acc) = (Panel::new(fine), Spare::ZERO, [[0.0; ROWS]]);
            for (b, x) in x.iter().enumerate() {
                (ty.unpack)(&mut panel, &rows, b);
                (ty.add[0])(d, &panel, &[x], &mut acc, &mut spare);
            }
            acc[0]
        },
        |panels, tokens, acc| {
            let used = panels.len();
            let panels: [[&[u8]; ROWS]; PANELS] = array::from_fn(|p| panels[p.min(used - 1)].map(row));
            let x = &input.q256[tokens.start * blocks..tokens.end * blocks];
            let (mut panel, mut spare) = (Panel::new(fine), Spare::ZERO);
            let mut column = Column::new(x, blocks);
            for b in 0..blocks {
                let x = column.of(&x[b..], blocks);
                for (w, acc) in panels[..used].iter().zip(acc.iter_mut()) {
                    (ty.unpack)(&mut panel, w, b);
                    (ty.add[1])(d, &panel, x, acc, &mut spare);
                }
            }
        },
    );
}

/// Eight rows times one token.
fn few<B: Registers256, D: Dot, const FINE: bool>(d: D, w: [&[u8]; ROWS], x: &[BlockQ256]) -> [f32; ROWS] {
    let mut out = [0.0; ROWS];
    for (w, out) in w.as_chunks().0.iter().zip(out.as_chunks_mut().0) {
        store_f32(out, four::<B, D, FINE>(d, w, x));
    }
    out
}

/// Four rows times one token.
#[inline(always)]
fn four<B: Registers256, D: Dot, const FINE: bool>(
    d: D,
    w: &[&[u8]; FEW_ROWS],
    x: &[BlockQ256],
) -> float32x4_t {
    let w = w.map(|row| &B::blocks(row)[..x.len()]);
    let mut acc = vdupq_n_f32(0.0);
    for (b, x) in x.iter().enumerate() {
        let sums = [load_i16(&x.sums.as_chunks().0[0]), load_i16(&x.sums.as_chunks().0[1])];
        // What a type's surplus adds to the sum of each sub-block of 16.
        let surplus = sums
            .map(|s| [vmull_n_s16(vget_low_s16(s), B::OFFSET.into()), vmull_high_n_s16(s, B::OFFSET.into())]);
        let (mut totals, mut mins) = ([vdupq_n_s32(0); FEW_ROWS], [vdupq_n_s32(0); FEW_ROWS]);
        for r in 0..FEW_ROWS {
            totals[r] = row::<B, D, FINE>(d, &w[r][b], x, surplus);
            if B::HAS_MIN {
                mins[r] = min_sums::<B>(&w[r][b], sums);
            }
        }
        let scales: [[u16; 2]; FEW_ROWS] = array::from_fn(|r| B::scale_bits(&w[r][b]));
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

/// Four integers whose sum is `sum over s of scale_s * (q . x)_s` for a row's block.
#[inline(always)]
fn row<B: Registers256, D: Dot, const FINE: bool>(
    d: D,
    raw: &B::Raw,
    x: &BlockQ256,
    surplus: [[int32x4_t; 2]; 2],
) -> int32x4_t {
    let scales = B::scales(raw);
    let mut total = vdupq_n_s32(0);
    for (h, surplus) in surplus.into_iter().enumerate() {
        let q = B::half(raw, h);
        let mut sums = sub_sums::<B, D>(d, q, &x.lo, h);
        if FINE {
            let high = sub_sums::<B, D>(d, q, &x.hi, h);
            sums = array::from_fn(|i| vaddq_s32(sums[i], vshlq_n_s32::<7>(high[i])));
        }
        if B::OFFSET != 0 {
            sums = array::from_fn(|i| vsubq_s32(sums[i], surplus[i]));
        }
        if B::WIDE {
            let wide = vmovl_s8(vget_low_s8(scales));
            let four = if h == 0 { vmovl_s16(vget_low_s16(wide)) } else { vmovl_high_s16(wide) };
            total = vmlaq_s32(total, sums[0], four);
        } else {
            let wide = if h == 0 { vmovl_s8(vget_low_s8(scales)) } else { vmovl_high_s8(scales) };
            total = vmlaq_s32(total, sums[0], vmovl_s16(vget_low_s16(wide)));
            total = vmlaq_s32(total, sums[1], vmovl_high_s16(wide));
        }
    }
    total
}

/// `q . x` of the sub-blocks of half a block: four (the second register is zero), or eight.
#[inline(always)]
fn sub_sums<B: Registers256, D: Dot>(d: D, q: [int8x16_t; 8], plane: &[i8; 256], h: usize) -> [int32x4_t; 2] {
    let zero = vdupq_n_s32(0);
    let plane = plane.as_chunks::<16>().0;
    let dot = |start, i: usize| d.dot(start, q[i], load_i8(&plane[8 * h + i]));
    if B::WIDE {
        [sum_each(array::from_fn(|run| dot(dot(zero, 2 * run), 2 * run + 1))), zero]
    } else {
        [sum_each(array::from_fn(|i| dot(zero, i))), sum_each(array::from_fn(|i| dot(zero, 4 + i)))]
    }
}

/// Four integers whose sum is `sum over s of min_s * xsum_s`.
#[inline(always)]
fn min_sums<B: Registers256>(raw: &B::Raw, sums: [int16x8_t; 2]) -> int32x4_t {
    let mins = B::mins(raw);
    // A wide sub-block is two of 16 with the same minimum.
    let mins = if B::WIDE { vzip1q_s8(mins, mins) } else { mins };
    let mins = [vmovl_s8(vget_low_s8(mins)), vmovl_high_s8(mins)];
    let mut total = vdupq_n_s32(0);
    for (m, s) in mins.into_iter().zip(sums) {
        total = vmlal_s16(total, vget_low_s16(m), vget_low_s16(s));
        total = vmlal_high_s16(total, m, s);
    }
    total
}
