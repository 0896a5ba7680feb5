//! Matrix products of weights that are floats: `sum16` dot products with f32 activations.
//! Must not know blocks.

use super::vec::*;
use crate::kernels::scalar::float::{Bf16, F16, F32, Float};
use crate::math;
use crate::ops::Input;
use crate::par::Tile;
use crate::weights::Matrix;
use core::array;

/// Sixteen lanes of a reduction.
pub(super) type Lanes = [float32x4_t; 4];

/// Lanes that met no element.
#[inline(always)]
pub(super) fn no_lanes() -> Lanes {
    [vdupq_n_f32(0.0); 4]
}

/// `math::fold16`.
#[inline(always)]
pub(super) fn fold16(lanes: Lanes) -> f32 {
    let four = vaddq_f32(vaddq_f32(lanes[0], lanes[2]), vaddq_f32(lanes[1], lanes[3]));
    let two = vaddq_f32(four, vextq_f32::<2>(four, four));
    vgetq_lane_f32::<0>(two) + vgetq_lane_f32::<1>(two)
}

/// The lanes after a tail of fewer than 16 elements: `fma(a_i, b_i, lane_i)` in the first of them.
#[inline(always)]
pub(super) fn tail(lanes: Lanes, pairs: impl Iterator<Item = (f32, f32)>) -> Lanes {
    let mut each = [[0.0; 4]; 4];
    each.iter_mut().zip(lanes).for_each(|(to, lanes)| store_f32(to, lanes));
    for (lane, (a, b)) in each.as_flattened_mut().iter_mut().zip(pairs) {
        *lane = math::fma(a, b, *lane);
    }
    array::from_fn(|i| load_f32(&each[i]))
}

/// A float type in registers.
pub(super) trait Registers: Float {
    /// Sixteen elements as f32.
    fn sixteen(raw: &[Self::Raw; 16]) -> Lanes;
}

impl Registers for F32 {
    #[inline(always)]
    fn sixteen(raw: &[Self::Raw; 16]) -> Lanes {
        let fours = raw.as_flattened().as_chunks().0;
        array::from_fn(|i| load_f32_bytes(&fours[i]))
    }
}

impl Registers for F16 {
    #[inline(always)]
    fn sixteen(raw: &[Self::Raw; 16]) -> Lanes {
        let fours = raw.as_flattened().as_chunks().0;
        array::from_fn(|i| load_f16_bytes(&fours[i]))
    }
}

impl Registers for Bf16 {
    #[inline(always)]
    fn sixteen(raw: &[Self::Raw; 16]) -> Lanes {
        let fours = raw.as_flattened().as_chunks().0;
        array::from_fn(|i| load_bf16_bytes(&fours[i]))
    }
}

/// `out[token][row] = w[row] . x[token]` for the rectangle of `out`.
pub(super) fn matmul<F: Registers>(w: &Matrix<'_>, input: &Input<'_>, out: &mut Tile<'_, f32>) {
    let k = w.cols();
    let (rows, tokens) = (out.cols(), out.rows());
    // Two rows and two tokens are 16 registers of lanes; surplus ones are computed and dropped.
    for row in rows.clone().step_by(2) {
        let these = [row, (row + 1).min(rows.end - 1)].map(|row| F::elements(w.rows_data(row..row + 1)));
        for token in tokens.clone().step_by(2) {
            let x = [token, (token + 1).min(tokens.end - 1)].map(|token| &input.x[token * k..][..k]);
            let y = if token + 1 == tokens.end {
                [panel::<F, 1>(these, [x[0]])[0], [0.0; 2]]
            } else {
                panel::<F, 2>(these, x)
            };
            for (token, y) in (token..tokens.end).zip(y) {
                let out = &mut out.row_mut(token)[row - rows.start..];
                out.iter_mut().zip(y).for_each(|(out, y)| *out = y);
            }
        }
    }
}

/// The outputs of two rows and `T` tokens, all of the same length.
#[inline(never)]
pub(super) fn panel<F: Registers, const T: usize>(w: [&[F::Raw]; 2], x: [&[f32]; T]) -> [[f32; 2]; T] {
    let k = w[0].len();
    let (w16, x16) = (w.map(|row| row[..k].as_chunks::<16>()), x.map(|token| token[..k].as_chunks::<16>()));
    let chunks = w16[0].0.len();
    let (w, x) = (w16.map(|w| &w.0[..chunks]), x16.map(|x| &x.0[..chunks]));
    let mut lanes = [[no_lanes(); 2]; T];
    for c in 0..chunks {
        let w: [Lanes; 2] = array::from_fn(|r| F::sixteen(&w[r][c]));
        for (x, lanes) in x.iter().zip(&mut lanes) {
            let x = x[c].as_chunks::<4>().0;
            for i in 0..4 {
                let x = load_f32(&x[i]);
                for r in 0..2 {
                    lanes[r][i] = vfmaq_f32(lanes[r][i], w[r][i], x);
                }
            }
        }
    }
    array::from_fn(|t| {
        array::from_fn(|r| {
            let pairs = w16[r].1.iter().map(|w| F::widen(*w)).zip(x16[t].1.iter().copied());
            fold16(tail(lanes[t][r], pairs))
        })
    })
}
