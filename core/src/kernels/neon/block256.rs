//! Matrix products of weight types with blocks of 256. Must not know how a type packs them.

use super::block32::{FLOAT, lane};
use super::dot::Dot;
use super::panel::{PANELS, ROWS, Tokens, cover, interleave, sum_each, transpose};
use super::unpack256::Registers256;
use super::vec::*;
use crate::ops::{BlockQ256, Input, Precision};
use crate::par::Tile;
use crate::weights::Matrix;
use core::array;

/// Tokens of the inner kernel: with two registers of rows, and one more of each for the scaled sums,
/// they fill 16 of the 32 registers.
const TOKENS: usize = 4;

/// Rows of the form for few tokens.
const FEW_ROWS: usize = 4;

/// `out[token][row] = w[row] . x[token]` for the rectangle of `out`.
pub(super) fn matmul<B: Registers256, D: Dot>(
    d: D,
    w: &Matrix<'_>,
    input: &Input<'_>,
    out: &mut Tile<'_, f32>,
) {
    match input.precision {
        Precision::Coarse => matmul_of::<B, D, false>(d, w, input, out),
        Precision::Fine => matmul_of::<B, D, true>(d, w, input, out),
    }
}

fn matmul_of<B: Registers256, D: Dot, const FINE: bool>(
    d: D,
    w: &Matrix<'_>,
    input: &Input<'_>,
    out: &mut Tile<'_, f32>,
) {
    let blocks = w.cols() / 256;
    let row = |row: usize| &B::blocks(w.rows_data(row..row + 1))[..blocks];
    cover(
        out,
        |rows, token| few::<B, D, FINE>(d, rows.map(row), &input.q256[token * blocks..][..blocks]),
        |panels, tokens, acc| {
            let used = panels.len();
            let panels: [[&[B::Raw]; ROWS]; PANELS] = array::from_fn(|p| panels[p.min(used - 1)].map(row));
            let x = &input.q256[tokens.start * blocks..tokens.end * blocks];
            let mut panel = Panel::ZERO;
            for b in 0..blocks {
                for (w, acc) in panels[..used].iter().zip(acc.iter_mut()) {
                    panel.unpack::<B, FINE>(array::from_fn(|r| &w[r][b]));
                    let add = match (B::WIDE, B::HAS_MIN) {
                        (true, true) => add_block::<D, 8, FINE, true>,
                        (true, false) => add_block::<D, 8, FINE, false>,
                        (false, true) => add_block::<D, 16, FINE, true>,
                        (false, false) => add_block::<D, 16, FINE, false>,
                    };
                    add(d, &panel, &x[b..], blocks, acc);
                }
            }
        },
    );
}

/// Four rows times one token.
#[inline(never)]
fn few<B: Registers256, D: Dot, const FINE: bool>(
    d: D,
    w: [&[B::Raw]; FEW_ROWS],
    x: &[BlockQ256],
) -> [f32; FEW_ROWS] {
    let w = w.map(|row| &row[..x.len()]);
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
    let mut out = [0.0; FEW_ROWS];
    store_f32(&mut out, acc);
    out
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

/// A block of each of eight rows.
#[repr(align(64))]
struct Panel {
    /// Groups of four columns, each of rows 0 to 3 and 4 to 7.
    q: [[[i8; 16]; 2]; 64],
    /// Of each sub-block the rows' sub-scales less those of the next sub-block.
    steps: [[[i32; 4]; 2]; 16],
    /// Groups of the sub-minima of four sub-blocks, each of rows 0 to 3 and 4 to 7.
    mins: [[[i8; 16]; 2]; 4],
    /// Of each sub-block the rows' sub-minima again, where activations are fine.
    wide_mins: [[i16; 8]; 16],
    d: [[f32; 4]; 2],
    dmin: [[f32; 4]; 2],
}

impl Panel {
    const ZERO: Self = Panel {
        q: [[[0; 16]; 2]; 64],
        steps: [[[0; 4]; 2]; 16],
        mins: [[[0; 16]; 2]; 4],
        wide_mins: [[0; 8]; 16],
        d: [[0.0; 4]; 2],
        dmin: [[0.0; 4]; 2],
    };

    #[inline(never)]
    fn unpack<B: Registers256, const FINE: bool>(&mut self, w: [&B::Raw; ROWS]) {
        for part in 0..2 {
            let rows: [&B::Raw; 4] = array::from_fn(|r| w[4 * part + r]);
            for h in 0..2 {
                let q = rows.map(|raw| B::half(raw, h).map(|q| vsubq_s8(q, vdupq_n_s8(B::OFFSET))));
                for i in 0..8 {
                    for (j, group) in interleave(q.map(|q| q[i])).into_iter().enumerate() {
                        store_i8(&mut self.q[4 * (8 * h + i) + j][part], group);
                    }
                }
            }
            let scales = rows.map(B::scale_bits);
            store_f32(&mut self.d[part], widen_f16(scales.map(|s| s[0])));
            if B::HAS_MIN {
                store_f32(&mut self.dmin[part], widen_f16(scales.map(|s| s[1])));
            }
        }
        let zero = vdupq_n_s16(0);
        let wide = |v: [int8x16_t; ROWS]| {
            (v.map(|v| vmovl_s8(vget_low_s8(v))), v.map(|v| if B::WIDE { zero } else { vmovl_high_s8(v) }))
        };
        let (first, second) = wide(w.map(B::scales));
        self.put_steps(0, array::from_fn(|r| vsubq_s16(first[r], vextq_s16::<1>(first[r], second[r]))));
        if !B::WIDE {
            self.put_steps(1, second.map(|s| vsubq_s16(s, vextq_s16::<1>(s, zero))));
        }
        if B::HAS_MIN && FINE {
            let (first, second) = wide(w.map(B::mins));
            self.put_mins(0, first);
            if !B::WIDE {
                self.put_mins(1, second);
            }
        } else if B::HAS_MIN {
            for part in 0..2 {
                let mins = interleave(array::from_fn(|r| B::mins(w[4 * part + r])));
                self.mins.iter_mut().zip(mins).for_each(|(to, mins)| store_i8(&mut to[part], mins));
            }
        }
    }

    #[inline(always)]
    fn put_steps(&mut self, half: usize, rows: [int16x8_t; ROWS]) {
        for (s, steps) in transpose(rows).into_iter().enumerate() {
            let to = &mut self.steps[8 * half + s];
            store_i32(&mut to[0], vmovl_s16(vget_low_s16(steps)));
            store_i32(&mut to[1], vmovl_high_s16(steps));
        }
    }

    #[inline(always)]
    fn put_mins(&mut self, half: usize, rows: [int16x8_t; ROWS]) {
        for (s, mins) in transpose(rows).into_iter().enumerate() {
            store_i16(&mut self.wide_mins[8 * half + s], mins);
        }
    }
}

/// Adds a block of eight rows times that of all tokens: token i's is `x[i * stride]`. The last is
/// repeated until `acc` is full. A block has `SUBS` sub-blocks.
#[inline(never)]
fn add_block<D: Dot, const SUBS: usize, const FINE: bool, const MIN: bool>(
    d: D,
    panel: &Panel,
    x: &[BlockQ256],
    stride: usize,
    acc: &mut [[f32; ROWS]],
) {
    let mut tokens = Tokens::new(x, stride);
    for acc in acc.as_chunks_mut::<TOKENS>().0 {
        let x = tokens.next();
        let mut totals = [[vdupq_n_s32(0); 2]; TOKENS];
        if FINE {
            plane::<D, SUBS>(d, panel, x.map(|x| &x.hi), &mut totals);
            totals = totals.map(|rows| rows.map(vshlq_n_s32::<7>));
        }
        plane::<D, SUBS>(d, panel, x.map(|x| &x.lo), &mut totals);
        let x_sums = x.map(|x| {
            let sums = x.sums.as_chunks().0;
            [load_i16(&sums[0]), load_i16(&sums[1])]
        });
        let mins = match (MIN, FINE) {
            (false, _) => [[vdupq_n_f32(0.0); 2]; TOKENS],
            (_, false) => min_totals::<D, SUBS>(d, panel, x_sums),
            (_, true) => fine_min_totals::<SUBS>(panel, x_sums),
        };
        for t in 0..TOKENS {
            let dx = vdupq_n_f32(x[t].d);
            for (part, acc) in acc[t].as_chunks_mut::<4>().0.iter_mut().enumerate() {
                let scale = vmulq_f32(load_f32(&panel.d[part]), dx);
                let mut sum = vfmaq_f32(load_f32(acc), scale, vcvtq_f32_s32(totals[t][part]));
                if MIN {
                    let scale = vmulq_f32(load_f32(&panel.dmin[part]), dx);
                    sum = vfmsq_f32(sum, scale, mins[t][part]);
                }
                store_f32(acc, sum);
            }
        }
    }
}

/// Adds `sum over s of scale_s * S_s`, S_s the products of sub-block s with one plane.
///
/// The products are summed over all sub-blocks without a fresh start, and P_s, the sum up to s, is
/// multiplied by `scale_s - scale_(s+1)`: the same modulo 2^32, and the total fits.
#[inline(always)]
fn plane<D: Dot, const SUBS: usize>(
    d: D,
    panel: &Panel,
    x: [&[i8; 256]; TOKENS],
    totals: &mut [[int32x4_t; 2]; TOKENS],
) {
    let mut sums = [[vdupq_n_s32(0); 2]; TOKENS];
    for s in 0..SUBS {
        run(d, panel, x, 16 / SUBS * s, &mut sums);
        if SUBS == 8 {
            run(d, panel, x, 2 * s + 1, &mut sums);
        }
        let steps = [load_i32(&panel.steps[s][0]), load_i32(&panel.steps[s][1])];
        for t in 0..TOKENS {
            for part in 0..2 {
                totals[t][part] = vmlaq_s32(totals[t][part], sums[t][part], steps[part]);
            }
        }
    }
}

/// Adds the products of the 16 columns from `16 * i`.
#[inline(always)]
fn run<D: Dot>(d: D, panel: &Panel, x: [&[i8; 256]; TOKENS], i: usize, sums: &mut [[int32x4_t; 2]; TOKENS]) {
    let x = x.map(|x| load_i8(&x.as_chunks().0[i]));
    all_lanes(d, &panel.q.as_chunks().0[i], x, sums);
}

/// Adds the products of four groups with the four lanes of each token's register.
#[inline(always)]
fn all_lanes<D: Dot>(
    d: D,
    groups: &[[[i8; 16]; 2]; 4],
    x: [int8x16_t; TOKENS],
    sums: &mut [[int32x4_t; 2]; TOKENS],
) {
    lane::<D, 0, TOKENS>(d, &groups[0], x, sums);
    lane::<D, 1, TOKENS>(d, &groups[1], x, sums);
    lane::<D, 2, TOKENS>(d, &groups[2], x, sums);
    lane::<D, 3, TOKENS>(d, &groups[3], x, sums);
}

/// `(f32) sum over s of min_s * xsum_s` of each row and token, activations coarse.
///
/// The sums, at most 32 * 127 in magnitude, are taken apart as `128 * hi + lo`. The total is at most
/// 8 * 63 * 32 * 127 in magnitude, below 2^22: it can start as [`FLOAT`] does.
#[inline(always)]
fn min_totals<D: Dot, const SUBS: usize>(
    d: D,
    panel: &Panel,
    sums: [[int16x8_t; 2]; TOKENS],
) -> [[float32x4_t; 2]; TOKENS] {
    let start = vreinterpretq_s32_f32(vdupq_n_f32(FLOAT));
    // Its last seven bits are zero.
    let mut totals = [[vshrq_n_s32::<7>(start); 2]; TOKENS];
    let m = &panel.mins;
    if SUBS == 8 {
        let x = sums.map(|[a, b]| {
            let [hi, lo] = hi_lo(vpaddq_s16(a, b));
            vcombine_s8(vmovn_s16(lo), vmovn_s16(hi))
        });
        lane::<D, 2, TOKENS>(d, &m[0], x, &mut totals);
        lane::<D, 3, TOKENS>(d, &m[1], x, &mut totals);
        totals = totals.map(|rows| rows.map(vshlq_n_s32::<7>));
        lane::<D, 0, TOKENS>(d, &m[0], x, &mut totals);
        lane::<D, 1, TOKENS>(d, &m[1], x, &mut totals);
    } else {
        let x = sums.map(|sums| {
            let [[hi0, lo0], [hi1, lo1]] = sums.map(hi_lo);
            [(hi0, hi1), (lo0, lo1)].map(|(a, b)| vcombine_s8(vmovn_s16(a), vmovn_s16(b)))
        });
        all_lanes(d, m, x.map(|[hi, _]| hi), &mut totals);
        totals = totals.map(|rows| rows.map(vshlq_n_s32::<7>));
        all_lanes(d, m, x.map(|[_, lo]| lo), &mut totals);
    }
    let start = vreinterpretq_f32_s32(start);
    totals.map(|rows| rows.map(|sum| vsubq_f32(vreinterpretq_f32_s32(sum), start)))
}

/// `[hi, lo]` of `128 * hi + lo`.
#[inline(always)]
fn hi_lo(v: int16x8_t) -> [int16x8_t; 2] {
    let hi = vrshrq_n_s16::<7>(v);
    [hi, vsubq_s16(v, vshlq_n_s16::<7>(hi))]
}

/// `(f32) sum over s of min_s * xsum_s` of each row and token, whatever the activations.
#[inline(always)]
fn fine_min_totals<const SUBS: usize>(
    panel: &Panel,
    sums: [[int16x8_t; 2]; TOKENS],
) -> [[float32x4_t; 2]; TOKENS] {
    let mut totals = [[vdupq_n_s32(0); 2]; TOKENS];
    for half in 0..2 {
        let mins = array::from_fn(|s| &panel.wide_mins[(8 * half + s) / (16 / SUBS)]);
        eight(mins, sums.map(|sums| sums[half]), &mut totals);
    }
    totals.map(|rows| rows.map(vcvtq_f32_s32))
}

/// Adds the products of eight minima per row with eight sums per token.
#[inline(always)]
fn eight(mins: [&[i16; 8]; 8], sums: [int16x8_t; TOKENS], totals: &mut [[int32x4_t; 2]; TOKENS]) {
    macro_rules! lanes {
        ($($s:literal)+) => {$(
            let min = load_i16(mins[$s]);
            for (totals, sums) in totals.iter_mut().zip(sums) {
                totals[0] = vmlal_laneq_s16::<$s>(totals[0], vget_low_s16(min), sums);
                totals[1] = vmlal_high_laneq_s16::<$s>(totals[1], min, sums);
            }
        )+};
    }
    lanes!(0 1 2 3 4 5 6 7);
}
