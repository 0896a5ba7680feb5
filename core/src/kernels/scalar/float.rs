//! Matrix products of weights that are floats: `sum16` dot products with f32 activations.
//! Must not know blocks.

use super::fma::fma_each;
use super::panel::{ROWS, cover};
use crate::math::{LANES, fma, fold16};
use crate::ops::Input;
use crate::par::Tile;
use crate::quant::half::{bf16_to_f32, f16_to_f32};
use crate::weights::Matrix;

/// A float type of weights.
pub(in crate::kernels) trait Float {
    /// The bytes of an element.
    type Raw: Copy;

    /// The elements in `bytes`.
    fn elements(bytes: &[u8]) -> &[Self::Raw];

    /// The value as f32.
    fn widen(raw: Self::Raw) -> f32;
}

/// Single.
pub(in crate::kernels) struct F32;

impl Float for F32 {
    type Raw = [u8; 4];

    #[inline(always)]
    fn elements(bytes: &[u8]) -> &[Self::Raw] {
        bytes.as_chunks().0
    }

    #[inline(always)]
    fn widen(raw: Self::Raw) -> f32 {
        f32::from_le_bytes(raw)
    }
}

/// IEEE half.
pub(in crate::kernels) struct F16;

impl Float for F16 {
    type Raw = [u8; 2];

    #[inline(always)]
    fn elements(bytes: &[u8]) -> &[Self::Raw] {
        bytes.as_chunks().0
    }

    #[inline(always)]
    fn widen(raw: Self::Raw) -> f32 {
        f16_to_f32(u16::from_le_bytes(raw))
    }
}

/// bfloat16.
pub(in crate::kernels) struct Bf16;

impl Float for Bf16 {
    type Raw = [u8; 2];

    #[inline(always)]
    fn elements(bytes: &[u8]) -> &[Self::Raw] {
        bytes.as_chunks().0
    }

    #[inline(always)]
    fn widen(raw: Self::Raw) -> f32 {
        bf16_to_f32(u16::from_le_bytes(raw))
    }
}

/// How elements `from..` of a row, at most [`LANES`] of them, are widened.
type Widen = fn(row: &[u8], from: usize, out: &mut [f32]);

#[cfg_attr(kinglet_small, optimize(size))]
fn widen<F: Float>(row: &[u8], from: usize, out: &mut [f32]) {
    out.iter_mut().zip(&F::elements(row)[from..]).for_each(|(out, raw)| *out = F::widen(*raw));
}

/// `out[token][row] = w[row] . x[token]` for the rectangle of `out`.
pub(super) fn matmul<F: Float>(w: &Matrix<'_>, input: &Input<'_>, out: &mut Tile<'_, f32>) {
    drive(widen::<F>, w, input, out);
}

#[inline(never)]
#[cfg_attr(kinglet_small, optimize(size))]
fn drive(widen: Widen, w: &Matrix<'_>, input: &Input<'_>, out: &mut Tile<'_, f32>) {
    let k = w.cols();
    let row = |row: usize| w.rows_data(row..row + 1);
    let token = |token: usize| &input.x[token * k..][..k];
    cover(
        out,
        |rows, tokens| panel(widen, rows.map(row), tokens.map(token)),
        |rows, tokens| panel(widen, rows.map(row), tokens.map(token)),
    );
}

/// The outputs of some rows and `T` tokens, all of the same length.
#[inline(never)]
#[cfg_attr(kinglet_small, optimize(size))]
fn panel<const T: usize>(widen: Widen, w: [&[u8]; ROWS], x: [&[f32]; T]) -> [[f32; ROWS]; T] {
    let k = x[0].len();
    let mut lanes = [[[0.0; LANES]; ROWS]; T];
    let mut wide = [0.0; LANES];
    for from in (0..k).step_by(LANES) {
        let n = LANES.min(k - from);
        for r in 0..ROWS {
            widen(w[r], from, &mut wide[..n]);
            for t in 0..T {
                let (x, lanes) = (&x[t][from..from + n], &mut lanes[t][r]);
                match <&[f32; LANES]>::try_from(x) {
                    Ok(x) => fma_each(&wide, x, lanes),
                    Err(_) => x.iter().enumerate().for_each(|(j, x)| lanes[j] = fma(wide[j], *x, lanes[j])),
                }
            }
        }
    }
    lanes.map(|token| token.map(fold16))
}
