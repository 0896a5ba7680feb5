//! Matrix products of weight types with blocks of 256. Must not know how a type packs them.

use super::dot::Dot;
use super::few256::{Few, few_narrow, few_wide};
use super::often256::Often256;
use super::panel::{Columns, PANELS, ROWS, cover, eight};
use super::panel256::{Panel, Spare, TOKENS, add_block};
use super::unpack256::Registers256;
use crate::ops::{BlockQ256, Input, Precision};
use crate::par::Tile;
use crate::weights::Matrix;
use core::array;

/// See [`add_block`].
type Add<D> = fn(D, &Panel, &[&BlockQ256], &mut [[f32; ROWS]], &mut Spare);

/// A weight type as the driver sees it: functions, so that only they exist once a type.
struct Type<D> {
    /// Eight rows times one token straight from the blocks; else they are unpacked for it.
    few: Option<Few<D>>,
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
    drive(d, &of::<B, D>(None), w, input, out);
}

/// The same where sub-blocks have 32 weights, with code of its own for single tokens.
pub(super) fn matmul_wide<B: Often256<Raw = [u8; L]>, D: Dot, const L: usize>(
    d: D,
    w: &Matrix<'_>,
    input: &Input<'_>,
    out: &mut Tile<'_, f32>,
) {
    let fine = input.precision == Precision::Fine;
    let few: Few<D> = if fine { few_wide::<B, D, L, true> } else { few_wide::<B, D, L, false> };
    drive(d, &of::<B, D>(D::FAST.then_some(few)), w, input, out);
}

/// The same where they have 16.
pub(super) fn matmul_narrow<B: Often256, D: Dot>(
    d: D,
    w: &Matrix<'_>,
    input: &Input<'_>,
    out: &mut Tile<'_, f32>,
) {
    let fine = input.precision == Precision::Fine;
    let few: Few<D> = if fine { few_narrow::<B, D, true> } else { few_narrow::<B, D, false> };
    drive(d, &of::<B, D>(D::FAST.then_some(few)), w, input, out);
}

/// The functions of a type.
fn of<B: Registers256, D: Dot>(few: Option<Few<D>>) -> Type<D> {
    let add: [Add<D>; 2] = match (B::SUBS, B::NARROW) {
        (16, _) => [add_block::<D, 1, 16, true>, add_block::<D, TOKENS, 16, true>],
        (_, true) => [add_block::<D, 1, 8, true>, add_block::<D, TOKENS, 8, true>],
        (_, false) => [add_block::<D, 1, 8, false>, add_block::<D, TOKENS, 8, false>],
    };
    Type { few, unpack: Panel::unpack::<B>, add }
}

#[inline(never)]
fn drive<D: Dot>(d: D, ty: &Type<D>, w: &Matrix<'_>, input: &Input<'_>, out: &mut Tile<'_, f32>) {
    let blocks = w.cols() / 256;
    let fine = input.precision == Precision::Fine;
    let (data, bytes) = (w.rows_data(0..w.rows()), w.row_bytes());
    let row = |row: usize| &data[row * bytes..][..bytes];
    cover(
        out,
        &|rows, token| {
            let (rows, x) = (eight(rows).map(row), &input.q256[token * blocks..][..blocks]);
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
        &|panels, tokens, acc| {
            let used = panels.len();
            let panels: [[&[u8]; ROWS]; PANELS] = array::from_fn(|p| panels[p.min(used - 1)].map(row));
            let x = &input.q256[tokens.start * blocks..tokens.end * blocks];
            let (mut panel, mut spare) = (Panel::new(fine), Spare::ZERO);
            let mut columns = Columns::new(x, blocks);
            for b in 0..blocks {
                let x = columns.get(b);
                for (w, acc) in panels[..used].iter().zip(acc.iter_mut()) {
                    (ty.unpack)(&mut panel, w, b);
                    (ty.add[1])(d, &panel, x, acc, &mut spare);
                }
            }
        },
    );
}
