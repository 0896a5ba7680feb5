//! Matrix products of weight types with blocks of 32. Must not know how a type packs them.

use super::dot::Dot;
use super::few32::Few;
use super::panel::{Columns, PANELS, ROWS, STEP, cover, eight, interleave};
use super::unpack32::Registers32;
use super::vec::*;
use crate::ops::{BlockQ32, Input, Precision};
use crate::par::Tile;
use crate::weights::Matrix;
use core::array;

/// Tokens of the inner kernel: with two registers of rows they fill 16 of the 32 registers.
const TOKENS: usize = STEP;

/// See [`add_block`].
type Add<D> = fn(D, &Panel, &[&BlockQ32], &mut [[f32; ROWS]]);

/// A weight type as the driver sees it: functions, so that only they exist once a type.
struct Type<D> {
    /// For one token and all rows of a panel straight from the blocks; else they are unpacked for it.
    few: Option<Few<D>>,
    /// Unpacks block `b` of the rows.
    unpack: fn(&mut Panel, &[&[u8]; ROWS], usize),
    /// For one token and for many.
    add: [Add<D>; 2],
}

/// `out[token][row] = w[row] . x[token]` for the rectangle of `out`.
pub(super) fn matmul<B: Registers32, D: Dot>(
    d: D,
    few: Option<[Few<D>; 2]>,
    w: &Matrix<'_>,
    input: &Input<'_>,
    out: &mut Tile<'_, f32>,
) {
    let fine = input.precision == Precision::Fine;
    let few = few.map(|few| few[usize::from(fine)]);
    let add: [Add<D>; 2] = match fine {
        true => [add_block::<D, 1, true>, add_block::<D, TOKENS, true>],
        false => [add_block::<D, 1, false>, add_block::<D, TOKENS, false>],
    };
    drive(d, &Type { few, unpack: Panel::unpack::<B>, add }, w, input, out);
}

#[inline(never)]
fn drive<D: Dot>(d: D, ty: &Type<D>, w: &Matrix<'_>, input: &Input<'_>, out: &mut Tile<'_, f32>) {
    let blocks = w.cols() / 32;
    let (data, bytes) = (w.rows_data(0..w.rows()), w.row_bytes());
    let row = |row: usize| &data[row * bytes..][..bytes];
    cover(
        out,
        &|rows, token| {
            let x = &input.q32[token * blocks..][..blocks];
            if let (Some(few), ROWS) = (ty.few, rows.len()) {
                return few(d, &data[rows.start * bytes..], bytes, x);
            }
            let rows = eight(rows).map(row);
            let (mut panel, mut acc) = (Panel::new(), [[0.0; ROWS]]);
            for (b, x) in x.iter().enumerate() {
                (ty.unpack)(&mut panel, &rows, b);
                (ty.add[0])(d, &panel, &[x], &mut acc);
            }
            acc[0]
        },
        &|panels, tokens, acc| {
            let used = panels.len();
            let panels: [[&[u8]; ROWS]; PANELS] = array::from_fn(|p| panels[p.min(used - 1)].map(row));
            let x = &input.q32[tokens.start * blocks..tokens.end * blocks];
            let mut panel = Panel::new();
            let mut columns = Columns::new(x, blocks);
            for b in 0..blocks {
                let x = columns.get(b);
                for (w, acc) in panels[..used].iter().zip(acc.iter_mut()) {
                    (ty.unpack)(&mut panel, w, b);
                    (ty.add[1])(d, &panel, x, acc);
                }
            }
        },
    );
}

/// A block of each of eight rows.
#[repr(align(64))]
struct Panel {
    /// Groups of four columns, each of rows 0 to 3 and 4 to 7.
    q: [[[i8; 16]; 2]; 8],
    d: [[f32; 4]; 2],
    m: [[f32; 4]; 2],
    /// Whether there are minima.
    has_min: bool,
}

impl Panel {
    /// Nothing yet.
    fn new() -> Self {
        Panel { q: [[[0; 16]; 2]; 8], d: [[0.0; 4]; 2], m: [[0.0; 4]; 2], has_min: false }
    }

    /// Takes block `b` of every row.
    fn unpack<B: Registers32>(&mut self, rows: &[&[u8]; ROWS], b: usize) {
        self.has_min = B::HAS_MIN;
        for part in 0..2 {
            let rows: [&B::Raw; 4] = array::from_fn(|r| &B::blocks(rows[4 * part + r])[b]);
            let q = rows.map(|raw| B::quants(raw).map(|q| vsubq_s8(q, vdupq_n_s8(B::OFFSET))));
            for half in 0..2 {
                for (j, group) in interleave(q.map(|q| q[half])).into_iter().enumerate() {
                    store_i8(&mut self.q[4 * half + j][part], group);
                }
            }
            let scales = rows.map(B::scales);
            store_f32(&mut self.d[part], widen_f16(scales.map(|s| s[0])));
            if B::HAS_MIN {
                store_f32(&mut self.m[part], widen_f16(scales.map(|s| s[1])));
            }
        }
    }
}

/// 1.5 * 2^23 as an integer's bits: added to an integer below 2^22 in magnitude they are those of the
/// f32 that is as much larger than this. The subtraction then is exact, and cheaper than a conversion.
pub(super) const FLOAT: f32 = 12_582_912.0;

/// Where sums start.
pub(super) static ZERO: [i32; 8] = [0; 8];
static FLOATS: [i32; 8] = [FLOAT.to_bits() as i32; 8];

/// Adds a block of eight rows times that of all tokens, `T` at a time.
#[inline(never)]
fn add_block<D: Dot, const T: usize, const FINE: bool>(
    d: D,
    panel: &Panel,
    x: &[&BlockQ32],
    acc: &mut [[f32; ROWS]],
) {
    let float = vdupq_n_f32(FLOAT);
    for (x, acc) in x.as_chunks::<T>().0.iter().zip(acc.as_chunks_mut::<T>().0) {
        // Loads of the panel belong into the loop: there are not enough registers for it.
        let panel = opaque(panel);
        // The sums are at most 32 * 128 * 128 in magnitude where activations are coarse.
        let mut sums = load_fresh(if FINE { &ZERO } else { &FLOATS });
        if FINE {
            plane(d, panel, x.map(|x| &x.hi), &mut sums);
            sums = sums.map(|rows| rows.map(vshlq_n_s32::<7>));
        }
        plane(d, panel, x.map(|x| &x.lo), &mut sums);
        let dw = [load_f32(&panel.d[0]), load_f32(&panel.d[1])];
        for t in 0..T {
            let acc = acc[t].as_chunks_mut::<4>().0;
            for part in 0..2 {
                let sum = match FINE {
                    true => vcvtq_f32_s32(sums[t][part]),
                    false => vsubq_f32(vreinterpretq_f32_s32(sums[t][part]), float),
                };
                let scale = vmulq_f32(dw[part], vdupq_n_f32(x[t].d));
                let sum = vfmaq_f32(load_f32(&acc[part]), scale, sum);
                store_f32(&mut acc[part], sum);
            }
        }
        if panel.has_min {
            let m = [load_f32(&panel.m[0]), load_f32(&panel.m[1])];
            for t in 0..T {
                let acc = acc[t].as_chunks_mut::<4>().0;
                for part in 0..2 {
                    let sum = vfmaq_f32(load_f32(&acc[part]), m[part], vdupq_n_f32(x[t].s));
                    store_f32(&mut acc[part], sum);
                }
            }
        }
    }
}

/// Adds the products with one plane.
#[inline(always)]
fn plane<D: Dot, const T: usize>(d: D, panel: &Panel, x: [&[i8; 32]; T], sums: &mut [[int32x4_t; 2]; T]) {
    // A loop of two: in one piece the compiler loads what is needed last so early that it must spill it.
    for (half, groups) in panel.q.as_chunks::<4>().0.iter().enumerate() {
        d.dot_lanes(groups, x.map(|x| load_i8(&x.as_chunks().0[half])), sums);
    }
}
