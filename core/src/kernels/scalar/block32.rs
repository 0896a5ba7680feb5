//! Matrix products of weight types with blocks of 32. Must not know how a type packs them.

use super::dot::{Wide, dots};
use super::fma::fma_each;
use super::panel::cover;
use crate::ops::{BlockQ32, Input};
use crate::par::Tile;
use crate::quant::block32::Block32;
use crate::quant::half::f16_to_f32;
use crate::weights::Matrix;

/// `out[token][row] = w[row] . x[token]` for the rectangle of `out`.
pub(super) fn matmul<B: Block32>(w: &Matrix<'_>, input: &Input<'_>, out: &mut Tile<'_, f32>) {
    let blocks = w.cols() / 32;
    let row = |row: usize| B::blocks(w.rows_data(row..row + 1));
    let token = |token: usize| &input.q32[token * blocks..][..blocks];
    cover(
        out,
        |rows, tokens| panel::<B, _, _>(rows.map(row), tokens.map(token)),
        |rows, tokens| panel::<B, _, _>(rows.map(row), tokens.map(token)),
    );
}

/// The outputs of `R` rows and `T` tokens, all of the same number of blocks.
#[inline(never)]
fn panel<B: Block32, const R: usize, const T: usize>(
    w: [&[B::Raw]; R],
    x: [&[BlockQ32]; T],
) -> [[f32; R]; T] {
    let blocks = w[0].len();
    let (w, x) = (w.map(|row| &row[..blocks]), x.map(|token| &token[..blocks]));
    let mut acc = [[0.0; R]; T];
    for b in 0..blocks {
        let mut q = [Wide::ZERO; R];
        let mut scales = [[0; R]; 2];
        for r in 0..R {
            q[r] = Wide::from_i8(&B::weights(&w[r][b]));
            [scales[0][r], scales[1][r]] = B::scales(&w[r][b]);
        }
        let dw = scales[0].map(f16_to_f32);
        let m = scales[1].map(f16_to_f32);
        for t in 0..T {
            let x = &x[t][b];
            let sums = dots::<32, _, _>(&q, &Wide::from_planes(&x.lo, &x.hi));
            fma_each(&dw.map(|d| d * x.d), &sums.map(|sum| sum as f32), &mut acc[t]);
            if B::HAS_MIN {
                fma_each(&m, &[x.s; R], &mut acc[t]);
            }
        }
    }
    acc
}
