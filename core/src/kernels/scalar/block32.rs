//! Matrix products of weight types with blocks of 32. Must not know how a type packs them.

use super::dot::{Wide, dots};
use super::fma::fma_each;
use super::panel::{ROWS, cover};
use crate::ops::{BlockQ32, Input};
use crate::par::Tile;
use crate::quant::block32::{Block32, Parts32, Unpack32, unpack};
use crate::weights::Matrix;

/// What differs from type to type: how block `b` of a row is unpacked, and whether it has a minimum.
#[derive(Clone, Copy)]
struct Type {
    unpack: Unpack32,
    has_min: bool,
}

/// `out[token][row] = w[row] . x[token]` for the rectangle of `out`.
pub(super) fn matmul<B: Block32>(w: &Matrix<'_>, input: &Input<'_>, out: &mut Tile<'_, f32>) {
    drive(Type { unpack: unpack::<B>, has_min: B::HAS_MIN }, w, input, out);
}

#[inline(never)]
#[cfg_attr(kinglet_small, optimize(size))]
fn drive(ty: Type, w: &Matrix<'_>, input: &Input<'_>, out: &mut Tile<'_, f32>) {
    let blocks = w.cols() / 32;
    let row = |row: usize| w.rows_data(row..row + 1);
    let token = |token: usize| &input.q32[token * blocks..][..blocks];
    cover(
        out,
        |rows, tokens| panel(ty, rows.map(row), tokens.map(token)),
        |rows, tokens| panel(ty, rows.map(row), tokens.map(token)),
    );
}

/// The outputs of some rows and `T` tokens, all of the same number of blocks.
#[inline(never)]
#[cfg_attr(kinglet_small, optimize(size))]
fn panel<const T: usize>(ty: Type, w: [&[u8]; ROWS], x: [&[BlockQ32]; T]) -> [[f32; ROWS]; T] {
    let blocks = x[0].len();
    let x = x.map(|token| &token[..blocks]);
    let mut acc = [[0.0; ROWS]; T];
    let mut rows = [Parts32::ZERO; ROWS];
    for b in 0..blocks {
        w.iter().zip(&mut rows).for_each(|(w, out)| (ty.unpack)(w, b, out));
        let q = rows.each_ref().map(|row| Wide::from_i8(&row.q));
        for t in 0..T {
            let x = &x[t][b];
            let sums = dots::<32, _, _>(&q, &Wide::from_planes(&x.lo, &x.hi));
            fma_each(&rows.each_ref().map(|w| w.d * x.d), &sums.map(|sum| sum as f32), &mut acc[t]);
            if ty.has_min {
                fma_each(&rows.each_ref().map(|w| w.m), &[x.s; ROWS], &mut acc[t]);
            }
        }
    }
    acc
}
