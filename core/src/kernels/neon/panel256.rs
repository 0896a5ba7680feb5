//! A block of 256 of eight rows, unpacked, and its product with many tokens.
//! Must not know how a type packs its weights.

use super::block32::FLOAT;
use super::dot::Dot;
use super::panel::{ROWS, interleave, transpose};
use super::unpack256::Registers256;
use super::vec::*;
use crate::ops::BlockQ256;
use core::array;

/// Tokens of the kernel for many: with two registers of rows, and one more of each for the scaled sums,
/// they fill 16 of the 32 registers.
pub(super) const TOKENS: usize = 4;

/// Largest sum of magnitudes of 16 activations with which the sum of products of a narrow sub-block
/// fits an i16: weights are at most 32 in magnitude where sub-blocks have 16 (31 where two of 16 share
/// a scale), and 15 where they have 32.
const CALM: u32 = 1023;

/// A block of each of eight rows.
///
/// Weights of a type with an offset are stored with the other sign, and so are their sub-scales: the
/// offset less the stored 0..=63 is at most +32, and 16 times 32 times a plane's -64 fits an i16, where
/// 16 times -32 times -64 would not.
#[repr(align(64))]
pub(super) struct Panel {
    /// Groups of four columns, each of rows 0 to 3 and 4 to 7.
    q: [[[i8; 16]; 2]; 64],
    /// The rows' sub-scales of each sub-block (narrow).
    scales: [[i16; ROWS]; 16],
    /// Of each sub-block the rows' sub-scales less those of the next sub-block (not narrow).
    steps: [[[i32; 4]; 2]; 8],
    /// Groups of the sub-minima of four sub-blocks of 32, each of rows 0 to 3 and 4 to 7.
    mins: [[[i8; 16]; 2]; 2],
    /// The rows' sub-minima of each 16 columns.
    wide_mins: [[i16; ROWS]; 16],
    d: [[f32; 4]; 2],
    dmin: [[f32; 4]; 2],
    /// Where sums start.
    zero: [i32; 8],
    /// Whether there are minima.
    has_min: bool,
    /// Whether activations are fine.
    fine: bool,
}

impl Panel {
    /// Nothing yet, for activations that are fine or not.
    pub(super) const fn new(fine: bool) -> Self {
        Panel {
            q: [[[0; 16]; 2]; 64],
            scales: [[0; ROWS]; 16],
            steps: [[[0; 4]; 2]; 8],
            mins: [[[0; 16]; 2]; 2],
            wide_mins: [[0; ROWS]; 16],
            d: [[0.0; 4]; 2],
            dmin: [[0.0; 4]; 2],
            zero: [0; 8],
            has_min: false,
            fine,
        }
    }

    /// Takes block `b` of every row.
    pub(super) fn unpack<B: Registers256>(&mut self, rows: &[&[u8]; ROWS], b: usize) {
        let w: [&B::Raw; ROWS] = array::from_fn(|r| &B::blocks(rows[r])[b]);
        let offset = vdupq_n_s8(B::OFFSET);
        for part in 0..2 {
            let rows: [&B::Raw; 4] = array::from_fn(|r| w[4 * part + r]);
            for h in 0..2 {
                let q = rows.map(|raw| B::half(raw, h));
                for i in 0..8 {
                    let q = q.map(|q| if B::OFFSET == 0 { q[i] } else { vsubq_s8(offset, q[i]) });
                    for (j, group) in interleave(q).into_iter().enumerate() {
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
        let scales = w.map(B::scales);
        if B::NARROW {
            // Two sub-blocks of 16 with the same scale where the kernel wants them shorter.
            let scales = if B::WIDE && B::SUBS == 16 { scales.map(|s| vzip1q_s8(s, s)) } else { scales };
            let signed = |s| if B::OFFSET == 0 { s } else { vsubq_s16(zero, s) };
            put(&mut self.scales[..8], scales.map(|s| signed(vmovl_s8(vget_low_s8(s)))));
            if B::SUBS == 16 {
                put(&mut self.scales[8..], scales.map(|s| signed(vmovl_high_s8(s))));
            }
        } else {
            let scales = scales.map(|s| vmovl_s8(vget_low_s8(s)));
            let steps = transpose(scales.map(|s| vsubq_s16(s, vextq_s16::<1>(s, zero))));
            for (to, steps) in self.steps.iter_mut().zip(steps) {
                store_i32(&mut to[0], vmovl_s16(vget_low_s16(steps)));
                store_i32(&mut to[1], vmovl_high_s16(steps));
            }
        }
        self.has_min = B::HAS_MIN;
        if B::HAS_MIN {
            let mins = w.map(B::mins);
            if B::SUBS == 8 && !self.fine {
                for part in 0..2 {
                    let [a, b, ..] = interleave(array::from_fn(|r| mins[4 * part + r]));
                    store_i8(&mut self.mins[0][part], a);
                    store_i8(&mut self.mins[1][part], b);
                }
            } else {
                let mins = if B::WIDE { mins.map(|m| vzip1q_s8(m, m)) } else { mins };
                put(&mut self.wide_mins[..8], mins.map(|m| vmovl_s8(vget_low_s8(m))));
                put(&mut self.wide_mins[8..], mins.map(vmovl_high_s8));
            }
        }
    }
}

/// Rows of eight as columns of eight.
#[inline(always)]
fn put(to: &mut [[i16; ROWS]], rows: [int16x8_t; ROWS]) {
    to.iter_mut().zip(transpose(rows)).for_each(|(to, column)| store_i16(to, column));
}

/// Planes of four tokens' blocks whose coarse activations are too large for narrow sums.
pub(super) struct Spare {
    hi: [[i8; 256]; TOKENS],
    lo: [[i8; 256]; TOKENS],
}

impl Spare {
    /// Nothing yet.
    pub(super) const ZERO: Self = Spare { hi: [[0; 256]; TOKENS], lo: [[0; 256]; TOKENS] };

    /// Takes coarse activations apart as fine ones are.
    #[cold]
    #[inline(never)]
    fn split(&mut self, x: &[&BlockQ256]) {
        for (t, x) in x.iter().enumerate() {
            for (i, &q) in x.lo.iter().enumerate() {
                let (lo, hi) = crate::ops::act::planes(q.into(), crate::ops::Precision::Fine);
                (self.lo[t][i], self.hi[t][i]) = (lo, hi);
            }
        }
    }
}

/// Adds a block of eight rows times that of all tokens, `T` at a time. A block has `SUBS` sub-blocks; sums
/// of `NARROW` ones fit an i16.
pub(super) fn add_block<D: Dot, const T: usize, const SUBS: usize, const NARROW: bool>(
    d: D,
    panel: &Panel,
    x: &[&BlockQ256],
    acc: &mut [[f32; ROWS]],
    spare: &mut Spare,
) {
    for (x, acc) in x.as_chunks::<T>().0.iter().zip(acc.as_chunks_mut::<T>().0) {
        let (mut plane, mut left) = (x.map(|x| &x.lo), None);
        if panel.fine {
            (plane, left) = (x.map(|x| &x.hi), Some(plane));
        } else if NARROW && x.iter().any(|x| x.most_of_16 > CALM) {
            spare.split(x);
            (plane, left) = (array::from_fn(|t| &spare.hi[t]), Some(array::from_fn(|t| &spare.lo[t])));
        }
        let mut totals = load_fresh(&panel.zero);
        loop {
            add_plane::<D, T, SUBS, NARROW>(d, panel, plane, &mut totals);
            let Some(low) = left.take() else { break };
            plane = low;
            totals = totals.map(|rows| rows.map(vshlq_n_s32::<7>));
        }
        let dw = [load_f32(&panel.d[0]), load_f32(&panel.d[1])];
        let mut sums: [[float32x4_t; 2]; T] = array::from_fn(|t| {
            let (acc, dx) = (acc[t].as_chunks::<4>().0, vdupq_n_f32(x[t].d));
            array::from_fn(|part| {
                vfmaq_f32(load_f32(&acc[part]), vmulq_f32(dw[part], dx), vcvtq_f32_s32(totals[t][part]))
            })
        });
        if panel.has_min {
            let mins = if SUBS == 8 && !panel.fine {
                min_totals(d, panel, x.map(|x| load_i8(&x.sums_of_32)))
            } else {
                wide_min_totals(panel, x.map(|x| &x.sums))
            };
            let dmin = [load_f32(&panel.dmin[0]), load_f32(&panel.dmin[1])];
            for t in 0..T {
                let dx = vdupq_n_f32(x[t].d);
                for part in 0..2 {
                    sums[t][part] = vfmsq_f32(sums[t][part], vmulq_f32(dmin[part], dx), mins[t][part]);
                }
            }
        }
        // By number: as iterators the sums would take a detour through memory.
        for t in 0..T {
            let acc = acc[t].as_chunks_mut::<4>().0;
            store_f32(&mut acc[0], sums[t][0]);
            store_f32(&mut acc[1], sums[t][1]);
        }
    }
}

/// Adds `sum over s of scale_s * S_s`, S_s the products of sub-block s with one plane.
///
/// A narrow S_s is halved in width and multiplied so: the multiplication of whole registers of i32
/// costs twice as much. Otherwise the products are summed over all sub-blocks without a fresh start,
/// and P_s, the sum up to s, is multiplied by `scale_s - scale_(s+1)`: the same modulo 2^32, and the
/// total fits.
#[inline(always)]
fn add_plane<D: Dot, const T: usize, const SUBS: usize, const NARROW: bool>(
    d: D,
    panel: &Panel,
    x: [&[i8; 256]; T],
    totals: &mut [[int32x4_t; 2]; T],
) {
    let mut sums = [[vdupq_n_s32(0); 2]; T];
    for pair in 0..8 {
        if NARROW {
            sums = load_fresh(&panel.zero);
        }
        run(d, panel, x, 2 * pair, &mut sums);
        if SUBS == 16 {
            add_narrow(&panel.scales[2 * pair], sums, totals);
            sums = load_fresh(&panel.zero);
        }
        run(d, panel, x, 2 * pair + 1, &mut sums);
        if SUBS == 16 {
            add_narrow(&panel.scales[2 * pair + 1], sums, totals);
        } else if NARROW {
            add_narrow(&panel.scales[pair], sums, totals);
        } else {
            let steps = [load_i32(&panel.steps[pair][0]), load_i32(&panel.steps[pair][1])];
            for (totals, sums) in totals.iter_mut().zip(sums) {
                totals[0] = vmlaq_s32(totals[0], sums[0], steps[0]);
                totals[1] = vmlaq_s32(totals[1], sums[1], steps[1]);
            }
        }
    }
}

/// Adds sums that fit an i16 times the rows' scales.
#[inline(always)]
fn add_narrow<const T: usize>(
    scales: &[i16; ROWS],
    sums: [[int32x4_t; 2]; T],
    totals: &mut [[int32x4_t; 2]; T],
) {
    let scales = load_i16(scales);
    for (totals, [a, b]) in totals.iter_mut().zip(sums) {
        let both = vuzp1q_s16(vreinterpretq_s16_s32(a), vreinterpretq_s16_s32(b));
        totals[0] = vmlal_s16(totals[0], vget_low_s16(both), vget_low_s16(scales));
        totals[1] = vmlal_high_s16(totals[1], both, scales);
    }
}

/// Adds the products of the 16 columns from `16 * i`.
#[inline(always)]
fn run<D: Dot, const T: usize>(
    d: D,
    panel: &Panel,
    x: [&[i8; 256]; T],
    i: usize,
    sums: &mut [[int32x4_t; 2]; T],
) {
    let x = x.map(|x| load_i8(&x.as_chunks().0[i]));
    let groups = &panel.q.as_chunks::<4>().0[i];
    d.dot_lanes(groups, x, sums);
}

/// `(f32) sum over s of min_s * xsum_s` of each row and token, activations coarse and sub-blocks wide.
///
/// `sums`: the low planes of the eight sums, then the high ones. The total is at most
/// 8 * 63 * 32 * 127 in magnitude, below 2^22: it can start as [`FLOAT`] does.
#[inline(always)]
fn min_totals<D: Dot, const T: usize>(d: D, panel: &Panel, sums: [int8x16_t; T]) -> [[float32x4_t; 2]; T] {
    let start = vreinterpretq_s32_f32(vdupq_n_f32(FLOAT));
    // Its last seven bits are zero.
    let mut totals = [[vshrq_n_s32::<7>(start); 2]; T];
    let m = &panel.mins;
    let halves = sums.map(|s| [s, vextq_s8::<8>(s, s)]);
    d.dot_lanes(m, halves.map(|[_, high]| high), &mut totals);
    totals = totals.map(|rows| rows.map(vshlq_n_s32::<7>));
    d.dot_lanes(m, halves.map(|[low, _]| low), &mut totals);
    let start = vreinterpretq_f32_s32(start);
    totals.map(|rows| rows.map(|sum| vsubq_f32(vreinterpretq_f32_s32(sum), start)))
}

/// `(f32) sum over s of min_s * xsum_s` of each row and token, whatever the activations.
#[inline(always)]
fn wide_min_totals<const T: usize>(panel: &Panel, sums: [&[i16; 16]; T]) -> [[float32x4_t; 2]; T] {
    let mut totals = [[vdupq_n_s32(0); 2]; T];
    for half in 0..2 {
        let mins = &panel.wide_mins.as_chunks::<8>().0[half];
        eight(mins, sums.map(|sums| load_i16(&sums.as_chunks().0[half])), &mut totals);
    }
    totals.map(|rows| rows.map(vcvtq_f32_s32))
}

/// Adds the products of eight minima per row with eight sums per token.
#[inline(always)]
fn eight<const T: usize>(mins: &[[i16; ROWS]; 8], sums: [int16x8_t; T], totals: &mut [[int32x4_t; 2]; T]) {
    macro_rules! lanes {
        ($($s:literal)+) => {$(
            let min = load_i16(&mins[$s]);
            for (totals, sums) in totals.iter_mut().zip(sums) {
                totals[0] = vmlal_laneq_s16::<$s>(totals[0], vget_low_s16(min), sums);
                totals[1] = vmlal_high_laneq_s16::<$s>(totals[1], min, sums);
            }
        )+};
    }
    lanes!(0 1 2 3 4 5 6 7);
}
