//! Matrix products of weight types with blocks of 256. Must not know how a type packs them.

use super::dot::{Wide, dots};
use super::fma::fma_each;
use super::panel::{ROWS, cover};
use crate::ops::{BlockQ256, Input};
use crate::par::Tile;
use crate::quant::block256::{Block256, Parts256, Unpack256, unpack};
use crate::weights::Matrix;

/// What differs from type to type: how block `b` of a row is unpacked, and whether it has minima.
#[derive(Clone, Copy)]
struct Type {
    unpack: Unpack256,
    has_min: bool,
}

/// `out[token][row] = w[row] . x[token]` for the rectangle of `out`.
pub(super) fn matmul<B: Block256>(w: &Matrix<'_>, input: &Input<'_>, out: &mut Tile<'_, f32>) {
    drive(Type { unpack: unpack::<B>, has_min: B::HAS_MIN }, w, input, out);
}

#[inline(never)]
#[cfg_attr(kinglet_small, optimize(size))]
fn drive(ty: Type, w: &Matrix<'_>, input: &Input<'_>, out: &mut Tile<'_, f32>) {
    let blocks = w.cols() / 256;
    let row = |row: usize| w.rows_data(row..row + 1);
    let token = |token: usize| &input.q256[token * blocks..][..blocks];
    cover(
        out,
        |rows, tokens| panel(ty, rows.map(row), tokens.map(token)),
        |rows, tokens| panel(ty, rows.map(row), tokens.map(token)),
    );
}

/// The weights times their sub-scales, in i16: no type exceeds 4096.
///
/// With them the sum over sub-blocks of the contract is one plain dot product.
#[inline(always)]
fn scaled(parts: &Parts256) -> Wide<256> {
    let mut out = Wide::ZERO;
    for s in 0..16 {
        let scale = i16::from(parts.scales[s]);
        for i in 16 * s..16 * s + 16 {
            out.0[i] = i16::from(parts.q[i]).wrapping_mul(scale);
        }
    }
    out
}

/// The outputs of some rows and `T` tokens, all of the same number of blocks.
#[inline(never)]
#[cfg_attr(kinglet_small, optimize(size))]
fn panel<const T: usize>(ty: Type, w: [&[u8]; ROWS], x: [&[BlockQ256]; T]) -> [[f32; ROWS]; T] {
    let blocks = x[0].len();
    let x = x.map(|token| &token[..blocks]);
    let mut acc = [[0.0; ROWS]; T];
    let mut parts = Parts256::ZERO;
    let mut q = [Wide::ZERO; ROWS];
    let mut mins = [Wide::ZERO; ROWS];
    let (mut dw, mut dmin) = ([0.0; ROWS], [0.0; ROWS]);
    for b in 0..blocks {
        for r in 0..ROWS {
            (ty.unpack)(w[r], b, &mut parts);
            q[r] = scaled(&parts);
            mins[r] = Wide(parts.mins.map(i16::from));
            (dw[r], dmin[r]) = (parts.d, parts.dmin);
        }
        for t in 0..T {
            let x = &x[t][b];
            let sums = dots::<32, _, _>(&q, &Wide::from_planes(&x.lo, &x.hi));
            fma_each(&dw.map(|d| d * x.d), &sums.map(|sum| sum as f32), &mut acc[t]);
            if ty.has_min {
                let min_sums = dots::<16, _, _>(&mins, &Wide(x.sums));
                fma_each(&dmin.map(|d| -(d * x.d)), &min_sums.map(|sum| sum as f32), &mut acc[t]);
            }
        }
    }
    acc
}
