//! Matrix products of weight types with blocks of 32. Must not know how a type packs them.

use super::dot::{dot, widen};
use super::fma::fma_each;
use super::panel::cover;
use crate::ops::{BlockQ32, Input};
use crate::par::Tile;
use crate::quant::block32::Block32;
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
) -> [[f32; T]; R] {
    let blocks = w[0].len();
    let (w, x) = (w.map(|row| &row[..blocks]), x.map(|token| &token[..blocks]));
    let mut acc = [[0.0; T]; R];
    for b in 0..blocks {
        let mut q = [[0i16; 32]; R];
        let (mut dw, mut m) = ([0.0; R], [0.0; R]);
        for r in 0..R {
            let (unpacked, d, min) = B::unpack(&w[r][b]);
            q[r] = widen(&unpacked);
            (dw[r], m[r]) = (d, min);
        }
        let mut sums = [[0.0; T]; R];
        for t in 0..T {
            let x = widen(&x[t][b].q);
            for r in 0..R {
                sums[r][t] = dot(&q[r], &x) as f32;
            }
        }
        for r in 0..R {
            let scale = x.map(|x| dw[r] * x[b].d);
            fma_each(&scale, &sums[r], &mut acc[r]);
            if B::HAS_MIN {
                fma_each(&[m[r]; T], &x.map(|x| x[b].s), &mut acc[r]);
            }
        }
    }
    acc
}
