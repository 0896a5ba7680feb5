//! Matrix products of weights that are floats: `sum16` dot products with f32 activations.

use super::panel::put;
use super::vec::*;
use crate::math;
use crate::ops::Input;
use crate::par::Tile;
use crate::quant::WeightType;
use crate::quant::half::{bf16_to_f32, f16_to_f32};
use crate::weights::Matrix;
use core::arch::x86_64::*;

/// The types, as the constants that choose code at compile time.
pub(super) const F32: u8 = WeightType::F32 as u8;
pub(super) const F16: u8 = WeightType::F16 as u8;
pub(super) const BF16: u8 = WeightType::Bf16 as u8;

/// Rows of a panel: their results are one store of eight.
const ROWS: usize = 8;

/// Eight elements of `L` bytes.
#[target_feature(enable = "avx2,f16c")]
#[inline]
fn widen<const TY: u8, const L: usize>(raw: &[[u8; L]; 8]) -> __m256 {
    let bytes = raw.as_flattened();
    if TY == F32 {
        return match bytes.first_chunk() {
            Some(raw) => _mm256_castsi256_ps(load_u8(raw)),
            None => unreachable!(), // L is 4
        };
    }
    let raw = match bytes.first_chunk() {
        Some(raw) => load_half(raw),
        None => unreachable!(), // L is at least 2
    };
    match TY {
        F16 => _mm256_cvtph_ps(raw),
        _ => _mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(raw))),
    }
}

/// One element.
#[inline(always)]
fn widen_one<const TY: u8, const L: usize>(raw: [u8; L]) -> f32 {
    let mut bytes = [0; 4];
    bytes[..L].copy_from_slice(&raw);
    match TY {
        F32 => f32::from_le_bytes(bytes),
        F16 => f16_to_f32(u16::from_le_bytes([bytes[0], bytes[1]])),
        _ => bf16_to_f32(u16::from_le_bytes([bytes[0], bytes[1]])),
    }
}

/// `out[token][row] = w[row] . x[token]` for the rectangle of `out`; elements of `L` bytes.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn matmul<const TY: u8, const L: usize>(
    w: &Matrix<'_>,
    input: &Input<'_>,
    out: &mut Tile<'_, f32>,
) {
    let (rows, tokens, k) = (out.cols(), out.rows(), w.cols());
    for row in rows.clone().step_by(ROWS) {
        let end = rows.end.min(row + ROWS);
        let elements = |row: usize| w.rows_data(row..row + 1).as_chunks::<L>().0;
        let x = |token: usize| &input.x[token * k..][..k];
        let mut token = tokens.start;
        while token < tokens.end {
            let mut results = [[0.0; ROWS]; 3];
            let count = if tokens.end - token < 3 { 1 } else { 3 };
            if count == 1 {
                for first in (row..end).step_by(4) {
                    let mut these = [elements(first); 4];
                    for (i, these) in these.iter_mut().enumerate() {
                        *these = elements((first + i).min(end - 1));
                    }
                    let [dots] = panel::<TY, L, 4, 1>(&these, &[x(token)]);
                    results[0][first - row..][..4].copy_from_slice(&dots);
                }
            } else {
                let x = [x(token), x(token + 1), x(token + 2)];
                for first in (row..end).step_by(2) {
                    let these = [elements(first), elements((first + 1).min(end - 1))];
                    let dots = panel::<TY, L, 2, 3>(&these, &x);
                    for (results, dots) in results.iter_mut().zip(dots) {
                        results[first - row..][..2].copy_from_slice(&dots);
                    }
                }
            }
            for (t, results) in results.iter().enumerate().take(count) {
                put(out, token + t, row, results);
            }
            token += count;
        }
    }
}

/// The outputs of `R` rows and `T` tokens, all of the same length.
#[target_feature(enable = "avx2,fma,f16c")]
#[inline(never)]
fn panel<const TY: u8, const L: usize, const R: usize, const T: usize>(
    w: &[&[[u8; L]]; R],
    x: &[&[f32]; T],
) -> [[f32; R]; T] {
    let k = w[0].len();
    let (mut w, mut x) = (*w, *x);
    for w in &mut w {
        *w = &w[..k];
    }
    for x in &mut x {
        *x = &x[..k];
    }
    let mut lanes = [[[_mm256_setzero_ps(); 2]; R]; T];
    for c in 0..k / 16 {
        let mut x16 = [[_mm256_setzero_ps(); 2]; T];
        for t in 0..T {
            let x = x[t].as_chunks::<8>().0;
            x16[t] = [load(&x[2 * c]), load(&x[2 * c + 1])];
        }
        for r in 0..R {
            let w = w[r].as_chunks::<8>().0;
            let w = [widen::<TY, L>(&w[2 * c]), widen::<TY, L>(&w[2 * c + 1])];
            for t in 0..T {
                for i in 0..2 {
                    lanes[t][r][i] = _mm256_fmadd_ps(w[i], x16[t][i], lanes[t][r][i]);
                }
            }
        }
    }
    let whole = k / 16 * 16;
    let mut out = [[0.0; R]; T];
    for t in 0..T {
        for r in 0..R {
            out[t][r] = if whole == k {
                fold16(lanes[t][r])
            } else {
                let mut all = [[0.0; 8]; 2];
                store(&mut all[0], lanes[t][r][0]);
                store(&mut all[1], lanes[t][r][1]);
                let tail = w[r][whole..].iter().zip(&x[t][whole..]);
                for (lane, (w, x)) in all.as_flattened_mut().iter_mut().zip(tail) {
                    *lane = math::fma(widen_one::<TY, L>(*w), *x, *lane);
                }
                fold16([load(&all[0]), load(&all[1])])
            };
        }
    }
    out
}
