//! Matrix products of weight types with blocks of 32. Must not know how a type packs them.

use super::dot::{Wide, dots};
use super::fma::fma_each;
use super::panel::{ROWS, cover};
use crate::ops::{BlockQ32, Input};
use crate::par::Tile;
use crate::quant::block32::Block32;
use crate::quant::half::f16_to_f32;
use crate::weights::Matrix;

/// A block unpacked.
#[derive(Clone, Copy)]
struct Unpacked {
    q: Wide<32>,
    d: f32,
    m: f32,
}

impl Unpacked {
    const ZERO: Self = Unpacked { q: Wide::ZERO, d: 0.0, m: 0.0 };
}

/// What differs from type to type: how block `b` of a row is unpacked, and whether it has a minimum.
#[derive(Clone, Copy)]
struct Type {
    unpack: fn(row: &[u8], b: usize, out: &mut Unpacked),
    has_min: bool,
}

fn unpack<B: Block32>(row: &[u8], b: usize, out: &mut Unpacked) {
    let raw = &B::blocks(row)[b];
    let [d, m] = B::scales(raw);
    *out = Unpacked { q: Wide::from_i8(&B::weights(raw)), d: f16_to_f32(d), m: f16_to_f32(m) };
}

/// `out[token][row] = w[row] . x[token]` for the rectangle of `out`.
pub(super) fn matmul<B: Block32>(w: &Matrix<'_>, input: &Input<'_>, out: &mut Tile<'_, f32>) {
    drive(Type { unpack: unpack::<B>, has_min: B::HAS_MIN }, w, input, out);
}

#[inline(never)]
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
fn panel<const T: usize>(ty: Type, w: [&[u8]; ROWS], x: [&[BlockQ32]; T]) -> [[f32; ROWS]; T] {
    let blocks = x[0].len();
    let x = x.map(|token| &token[..blocks]);
    let mut acc = [[0.0; ROWS]; T];
    let mut rows = [Unpacked::ZERO; ROWS];
    for b in 0..blocks {
        w.iter().zip(&mut rows).for_each(|(w, out)| (ty.unpack)(w, b, out));
        let q = rows.each_ref().map(|row| row.q);
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
