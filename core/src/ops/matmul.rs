//! Products of weights with activations, embedding rows, and the quantisation before them.

use super::{BlockQ32, BlockQ256, Input, Isa, Precision};
#[cfg(target_arch = "x86_64")]
use crate::kernels::avx2;
#[cfg(all(target_arch = "aarch64", target_feature = "neon"))]
use crate::kernels::neon;
use crate::kernels::scalar;
use crate::par::Tile;
use crate::quant;
use crate::weights::Matrix;

/// `x` in form Q32: `x: [n * 32]`, `out: [n]`.
///
/// # Panics
/// If the lengths do not fit.
pub fn quantize_q32(isa: Isa, precision: Precision, x: &[f32], out: &mut [BlockQ32]) {
    let (runs, rest) = x.as_chunks::<32>();
    assert!(rest.is_empty() && runs.len() == out.len(), "x and out differ in length");
    for (x, out) in runs.iter().zip(out) {
        match isa.without_dot() {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2(token) => avx2::quantize_q32(token, x, precision, out),
            #[cfg(all(target_arch = "aarch64", target_feature = "neon"))]
            Isa::Neon(_) | Isa::DotProd(_) => neon::quantize_q32(x, precision, out),
            _ => scalar::quantize_q32(x, precision, out),
        }
    }
}

/// `x` in form Q256: `x: [n * 256]`, `out: [n]`.
///
/// # Panics
/// If the lengths do not fit.
pub fn quantize_q256(isa: Isa, precision: Precision, x: &[f32], out: &mut [BlockQ256]) {
    let (runs, rest) = x.as_chunks::<256>();
    assert!(rest.is_empty() && runs.len() == out.len(), "x and out differ in length");
    for (x, out) in runs.iter().zip(out) {
        match isa.without_dot() {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2(token) => avx2::quantize_q256(token, x, precision, out),
            #[cfg(all(target_arch = "aarch64", target_feature = "neon"))]
            Isa::Neon(_) | Isa::DotProd(_) => neon::quantize_q256(x, precision, out),
            _ => scalar::quantize_q256(x, precision, out),
        }
    }
}

/// `out[token][row] = w[row] . x[token]` for the rectangle that `out` is: its rows are tokens
/// of `input`, its columns rows of `w: [rows, k]`. Nothing outside the rectangle is touched.
///
/// # Panics
/// If `input` lacks the form that the type of `w` asks for ([`super::Forms::of`]), or the
/// shapes do not fit.
pub fn matmul(isa: Isa, w: &Matrix<'_>, input: &Input<'_>, mut out: Tile<'_, f32>) {
    assert_eq!(w.cols(), input.k, "vectors of another length than the rows");
    let block = w.ty().block_len();
    let per_token = input.k / block;
    let found = match block {
        1 => input.x.len(),
        32 => input.q32.len(),
        _ => input.q256.len(),
    };
    assert_eq!(Some(found), input.tokens.checked_mul(per_token), "activations of another form");
    assert!(out.rows().end <= input.tokens && out.cols().end <= w.rows(), "tile outside the product");
    match isa {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2(token) => avx2::matmul(token, w, input, &mut out),
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512(token) => avx2::matmul(token, w, input, &mut out),
        #[cfg(all(target_arch = "aarch64", target_feature = "neon"))]
        Isa::Neon(token) => neon::matmul(token, w, input, &mut out),
        #[cfg(all(target_arch = "aarch64", target_feature = "neon"))]
        Isa::DotProd(token) => neon::matmul(token, w, input, &mut out),
        _ => scalar::matmul(w, input, &mut out),
    }
}

/// Row `row` of `w: [rows, k]` as f32, exactly as its type defines it; `out: [k]`.
///
/// # Panics
/// If there is no such row, or `out` has another length.
pub fn embed(w: &Matrix<'_>, row: usize, out: &mut [f32]) {
    assert!(row < w.rows() && out.len() == w.cols(), "no such row, or of another length");
    let done = quant::dequantize(w.ty(), w.rows_data(row..row + 1), out);
    debug_assert_eq!(done, Ok(()));
}
