//! Matrix products of weight types with blocks of 256. Must not know how a type packs them.

use super::dot::{dot, widen};
use super::fma::fma_each;
use super::panel::cover;
use crate::ops::{BlockQ256, Input};
use crate::par::Tile;
use crate::quant::block256::{Block256, Parts256};
use crate::weights::Matrix;

/// `out[token][row] = w[row] . x[token]` for the rectangle of `out`.
pub(super) fn matmul<B: Block256>(w: &Matrix<'_>, input: &Input<'_>, out: &mut Tile<'_, f32>) {
    let blocks = w.cols() / 256;
    let row = |row: usize| B::blocks(w.rows_data(row..row + 1));
    let token = |token: usize| &input.q256[token * blocks..][..blocks];
    cover(
        out,
        |rows, tokens| panel::<B, _, _>(rows.map(row), tokens.map(token)),
        |rows, tokens| panel::<B, _, _>(rows.map(row), tokens.map(token)),
    );
}

/// The weights times their sub-scales, in i16: no type exceeds 4096.
///
/// With them the sum over sub-blocks of the contract is one plain dot product.
#[inline(always)]
fn scaled(parts: &Parts256) -> [i16; 256] {
    let mut out = [0; 256];
    for s in 0..16 {
        let scale = i16::from(parts.scales[s]);
        for i in 16 * s..16 * s + 16 {
            out[i] = i16::from(parts.q[i]).wrapping_mul(scale);
        }
    }
    out
}

/// The outputs of `R` rows and `T` tokens, all of the same number of blocks.
#[inline(never)]
fn panel<B: Block256, const R: usize, const T: usize>(
    w: [&[B::Raw]; R],
    x: [&[BlockQ256]; T],
) -> [[f32; T]; R] {
    let blocks = w[0].len();
    let (w, x) = (w.map(|row| &row[..blocks]), x.map(|token| &token[..blocks]));
    let mut acc = [[0.0; T]; R];
    let mut parts = Parts256::ZERO;
    for b in 0..blocks {
        let mut q = [[0i16; 256]; R];
        let mut mins = [[0i16; 16]; R];
        let (mut dw, mut dmin) = ([0.0; R], [0.0; R]);
        for r in 0..R {
            B::unpack(&w[r][b], &mut parts);
            q[r] = scaled(&parts);
            mins[r] = parts.mins.map(i16::from);
            (dw[r], dmin[r]) = (parts.d, parts.dmin);
        }
        let mut sums = [[0.0; T]; R];
        let mut min_sums = [[0.0; T]; R];
        for t in 0..T {
            let x = &x[t][b];
            let wide = widen(&x.q);
            for r in 0..R {
                sums[r][t] = dot(&q[r], &wide) as f32;
                if B::HAS_MIN {
                    min_sums[r][t] = dot(&mins[r], &x.sums) as f32;
                }
            }
        }
        for r in 0..R {
            let scale = x.map(|x| dw[r] * x[b].d);
            fma_each(&scale, &sums[r], &mut acc[r]);
            if B::HAS_MIN {
                let scale = x.map(|x| -(dmin[r] * x[b].d));
                fma_each(&scale, &min_sums[r], &mut acc[r]);
            }
        }
    }
    acc
}
