//! Matrix products of weights that are floats: `sum16` dot products with f32 activations.
//! Must not know blocks.

use super::fma::fma_each;
use super::panel::cover;
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

/// `out[token][row] = w[row] . x[token]` for the rectangle of `out`.
pub(super) fn matmul<F: Float>(w: &Matrix<'_>, input: &Input<'_>, out: &mut Tile<'_, f32>) {
    let k = w.cols();
    let row = |row: usize| F::elements(w.rows_data(row..row + 1));
    let token = |token: usize| &input.x[token * k..][..k];
    cover(
        out,
        |rows, tokens| panel::<F, _, _>(rows.map(row), tokens.map(token)),
        |rows, tokens| panel::<F, _, _>(rows.map(row), tokens.map(token)),
    );
}

/// The outputs of `R` rows and `T` tokens, all of the same length.
#[inline(never)]
fn panel<F: Float, const R: usize, const T: usize>(w: [&[F::Raw]; R], x: [&[f32]; T]) -> [[f32; R]; T] {
    let k = w[0].len();
    let (w, x) = (w.map(|row| &row[..k]), x.map(|token| &token[..k]));
    let mut lanes = [[[0.0; LANES]; R]; T];
    for c in 0..k / LANES {
        for r in 0..R {
            let w = w[r].as_chunks::<LANES>().0[c].map(F::widen);
            for t in 0..T {
                fma_each(&w, &x[t].as_chunks::<LANES>().0[c], &mut lanes[t][r]);
            }
        }
    }
    for (j, i) in (k / LANES * LANES..k).enumerate() {
        for r in 0..R {
            for t in 0..T {
                lanes[t][r][j] = fma(F::widen(w[r][i]), x[t][i], lanes[t][r][j]);
            }
        }
    }
    lanes.map(|token| token.map(fold16))
}
