//! Products of weight types with blocks of 32 and up to four tokens: blocks are unpacked in registers and
//! met by all tokens at once. The weights come from memory in one go, row after row, as they do for one
//! token, and are asked for in time; by way of panels they would come in pieces.

use super::block32::{blocks_of, columns, start};
use super::dot::{pairs, plus, widen};
use super::inner::Inner;
use super::panel::*;
use super::unpack32::*;
use super::vec::*;
use crate::ops::isa::Avx2;
use crate::ops::{BlockQ32, Input, Precision};
use crate::par::Tile;
use crate::weights::Matrix;
use core::arch::x86_64::*;

/// Blocks of a row between two stores of the results: of 6,144 weights, which is most rows.
pub(crate) const SEGMENT: usize = 192;
/// What the integer sums start from, by token.
pub(crate) type Starts = [[i32; SEGMENT]; GROUP];

/// `out[token][row] = w[row] . x[token]` for one to four tokens.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn four<K: Inner>(k: K, w: &Matrix<'_>, input: &Input<'_>, out: &mut Tile<'_, f32>) {
    let blocks = w.cols() / 32;
    let (rows, tokens) = (out.cols(), out.rows());
    let (ty, fine) = (w.ty() as u8, input.precision == Precision::Fine);
    let sign = if signed(ty) { K::sign(fine) } else { 0 };
    let next = PANEL * w.row_bytes();
    let mut starts: Starts = [[0; SEGMENT]; GROUP];
    for from in (0..blocks).step_by(SEGMENT) {
        let these = from..blocks.min(from + SEGMENT);
        let mut x = [&[][..]; GROUP];
        for (t, (x, starts)) in x.iter_mut().zip(&mut starts).enumerate() {
            // A token that is not there is the last one again, whose results are dropped.
            let token = (tokens.start + t).min(tokens.end - 1);
            *x = &input.q32[token * blocks..][these.clone()];
            start(x, offset(ty) + i32::from(sign), starts);
        }
        for row in rows.clone().step_by(PANEL) {
            let pieces = rows_of(w, row, rows.end, these.clone());
            let mut results = [[0.0; PANEL]; GROUP];
            if from > 0 {
                for (token, results) in tokens.clone().zip(&mut results) {
                    let so_far = &out.row_mut(token)[row - rows.start..];
                    results.iter_mut().zip(so_far).for_each(|(to, from)| *to = *from);
                }
            }
            let operands = (&pieces, next, x, &starts);
            match ty {
                Q4_0 => k.four32::<Q4_0, 18>(fine, operands, &mut results),
                Q4_1 => k.four32::<Q4_1, 20>(fine, operands, &mut results),
                Q5_0 => k.four32::<Q5_0, 22>(fine, operands, &mut results),
                Q5_1 => k.four32::<Q5_1, 24>(fine, operands, &mut results),
                Q8_0 => k.four32::<Q8_0, 34>(fine, operands, &mut results),
                _ => k.four32::<IQ4_NL, 18>(fine, operands, &mut results),
            }
            for (token, results) in tokens.clone().zip(&results) {
                put(out, token, row, results);
            }
        }
    }
}

/// Pieces of eight rows, how far behind each of their blocks lies what is asked for, four tokens, and what
/// their sums start from.
pub(crate) type Operands<'a> = (&'a [&'a [u8]; PANEL], usize, [&'a [BlockQ32]; GROUP], &'a Starts);

/// [`eight_rows`] with what `fine` says made known to the compiler.
#[target_feature(enable = "avx2,fma,f16c")]
#[inline]
pub(super) fn either<const TY: u8, const L: usize>(
    fine: bool,
    operands: Operands<'_>,
    results: &mut [[f32; PANEL]; GROUP],
) {
    if fine {
        eight_rows::<TY, L, true>(operands, results);
    } else {
        eight_rows::<TY, L, false>(operands, results);
    }
}

/// Adds the products of eight rows and four tokens to `results`.
#[target_feature(enable = "avx2,fma,f16c")]
#[inline(never)]
fn eight_rows<const TY: u8, const L: usize, const FINE: bool>(
    (rows, next, x, starts): Operands<'_>,
    results: &mut [[f32; PANEL]; GROUP],
) {
    let n = x[0].len().min(SEGMENT);
    let (rows, x) = (blocks_of::<L>(rows, n), x.map(|x| &x[..n]));
    let (ones, high) = (_mm256_set1_epi16(1), _mm256_set1_epi16(128));
    let mut acc = [_mm256_setzero_ps(); GROUP];
    for t in 0..GROUP {
        acc[t] = load(&results[t]);
    }
    for b in 0..n {
        let (raw, mut q) = columns::<TY, L>(&rows, b, next);
        if signed(TY) && Avx2::sign(FINE) != 0 {
            for q in &mut q {
                *q = _mm256_add_epi8(*q, _mm256_set1_epi8(Avx2::sign(FINE) as i8));
            }
        }
        let d = halves(&raw, 0);
        for t in 0..GROUP {
            let x = &x[t][b];
            let mut sums = _mm256_set1_epi32(starts[t][b]);
            sums = match (signed(TY), FINE) {
                (false, false) => all_32::<4, false>(&q, &x.lo, ones, sums),
                (false, true) => {
                    all_32::<4, false>(&q, &x.lo, ones, all_32::<4, false>(&q, &x.hi, high, sums))
                }
                (true, false) => all_32::<1, true>(&q, &x.lo, ones, sums),
                (true, true) => {
                    all_32::<1, false>(&q, &x.lo, ones, all_32::<1, false>(&q, &x.hi, high, sums))
                }
            };
            let scale = _mm256_mul_ps(d, _mm256_set1_ps(x.d));
            acc[t] = _mm256_fmadd_ps(scale, _mm256_cvtepi32_ps(sums), acc[t]);
        }
        if has_min(TY) {
            let m = halves(&raw, 2);
            for t in 0..GROUP {
                acc[t] = _mm256_fmadd_ps(m, _mm256_set1_ps(x[t][b].s), acc[t]);
            }
        }
    }
    for t in 0..GROUP {
        store(&mut results[t], acc[t]);
    }
}

/// `sums` and, times `scale`, the products of 32 elements of eight rows with those of a token; `SPAN` and
/// `SIGNED` as of [`quad`].
#[target_feature(enable = "avx2")]
#[inline]
fn all_32<const SPAN: usize, const SIGNED: bool>(
    q: &[__m256i; 8],
    x: &[i8; 32],
    scale: __m256i,
    sums: __m256i,
) -> __m256i {
    let (x, mut sums) = (x.as_chunks::<4>().0, sums);
    let two = |j: usize| pairs::<SIGNED>(q[j], splat_4(&x[j]));
    for i in (0..8).step_by(SPAN) {
        let mut few = two(i);
        for j in i + 1..i + SPAN {
            few = _mm256_add_epi16(few, two(j));
        }
        sums = plus(sums, widen(few, scale));
    }
    sums
}
