//! Matrix products of weight types with blocks of 256. Must not know how a type packs them.

use super::dot::{pairs, plus, widen};
use super::inner::Inner;
use super::panel::*;
use super::unpack32::halves;
use super::unpack256::*;
use super::vec::*;
use crate::ops::{BlockQ256, Input, Precision};
use crate::par::Tile;
use crate::weights::Matrix;
use core::arch::x86_64::*;

/// Few tokens: `out[token][row] = w[row] . x[token]`, straight from the blocks.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn few<K: Inner>(k: K, w: &Matrix<'_>, input: &Input<'_>, out: &mut Tile<'_, f32>) {
    let blocks = w.cols() / 256;
    let (rows, fine) = (out.cols(), input.precision == Precision::Fine);
    for row in rows.clone().step_by(PANEL) {
        let these = rows_of(w, row, rows.end, 0..blocks);
        for token in out.rows() {
            let x = &input.q256[token * blocks..][..blocks];
            let results = match w.ty() as u8 {
                Q2_K => k.one256::<Q2_K, 84>(&these, x, fine),
                Q3_K => k.one256::<Q3_K, 110>(&these, x, fine),
                Q4_K => k.one256::<Q4_K, 144>(&these, x, fine),
                Q5_K => k.one256::<Q5_K, 176>(&these, x, fine),
                Q6_K => k.one256::<Q6_K, 210>(&these, x, fine),
                _ => k.one256::<IQ4_XS, 136>(&these, x, fine),
            };
            put(out, token, row, &results);
        }
    }
}

/// Defines `one` for CPUs with `$features`: with the registers of AVX-512 the same code spills less.
macro_rules! define_one {
    ($features:literal) => {
        /// Eight rows times one token.
        #[target_feature(enable = $features)]
        #[inline(never)]
        pub(super) fn one<const TY: u8, const L: usize>(
            rows: &[&[u8]; PANEL],
            x: &[BlockQ256],
            fine: bool,
        ) -> [f32; PANEL] {
            let mut acc = _mm256_setzero_ps();
            for (b, x) in x.iter().enumerate() {
                let mut raw = [&[0; L]; PANEL];
                let mut parts = [_mm256_setzero_si256(); PANEL];
                let mut mins = [_mm256_setzero_si256(); PANEL];
                for r in 0..PANEL {
                    next_bytes(rows[0], (b * PANEL + r) * L, L);
                    raw[r] = &rows[r].as_chunks().0[b];
                    (parts[r], mins[r]) = block::<TY, L>(raw[r], x, fine);
                }
                let dx = _mm256_set1_ps(x.d);
                let scale = _mm256_mul_ps(halves(&raw, d_offset(TY)), dx);
                acc = _mm256_fmadd_ps(scale, _mm256_cvtepi32_ps(sums(&parts)), acc);
                if has_min(TY) {
                    let scale = _mm256_mul_ps(halves(&raw, d_offset(TY) + 2), dx);
                    acc = _mm256_fnmadd_ps(scale, _mm256_cvtepi32_ps(sums(&mins)), acc);
                }
            }
            let mut out = [0.0; PANEL];
            store(&mut out, acc);
            out
        }

        /// The integer sums of one block, each in eight parts: of the weights, and of the minima.
        #[target_feature(enable = $features)]
        #[inline]
        fn block<const TY: u8, const L: usize>(
            raw: &[u8; L],
            x: &BlockQ256,
            fine: bool,
        ) -> (__m256i, __m256i) {
            let q = weights::<TY, L>(raw);
            let (scales, mins) = scales::<TY, L>(raw);
            // Sub-scales of even runs of 16 in the lower half, of odd ones in the upper.
            let apart = _mm_set_epi8(15, 13, 11, 9, 7, 5, 3, 1, 14, 12, 10, 8, 6, 4, 2, 0);
            let apart = _mm256_cvtepi8_epi16(_mm_shuffle_epi8(scales, apart));
            let (mut sums, mut above) = (_mm256_setzero_si256(), _mm256_setzero_si256());
            for (i, q) in q.into_iter().enumerate() {
                let lane = 2 * i as i16;
                let scale = _mm256_shuffle_epi8(apart, _mm256_set1_epi16(lane | (lane + 1) << 8));
                let dot = |x: &[i8; 32]| {
                    let x = load_i8(x);
                    widen(if signed(TY) { pairs::<true>(q, x) } else { pairs::<false>(q, x) }, scale)
                };
                sums = plus(sums, dot(&x.lo.as_chunks().0[i]));
                if fine {
                    above = plus(above, dot(&x.hi.as_chunks().0[i]));
                }
            }
            if fine {
                sums = plus(sums, _mm256_slli_epi32::<7>(above));
            }
            let x_sums = load_i16(&x.sums);
            if offset(TY) != 0 {
                let taken = widen(_mm256_cvtepi8_epi16(scales), x_sums);
                sums = _mm256_sub_epi32(sums, _mm256_mullo_epi32(taken, _mm256_set1_epi32(offset(TY))));
            }
            (sums, widen(_mm256_cvtepu8_epi16(mins), x_sums))
        }
    };
}
pub(crate) use define_one;
define_one!("avx2,fma,f16c");

/// Many tokens: the same, by way of panels.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn many<K: Inner>(k: K, w: &Matrix<'_>, input: &Input<'_>, out: &mut Tile<'_, f32>) {
    let ty = w.ty() as u8;
    // What a sign is taken off with comes back as an offset does.
    let sign = if signed(ty) { K::sign(false) } else { 0 };
    let offset = offset(ty) + i32::from(sign);
    let blocks = w.cols() / 256;
    let (rows, tokens) = (out.cols(), out.rows());
    let fine = input.precision == Precision::Fine;
    let mut panel = Panel::ZERO;
    let mut results: Results = [[[0.0; PANEL]; TOKENS]; ROWS / PANEL];
    // For few tokens rows are taken from beginning to end, so that the weights come in one go.
    let at_once = if tokens.len() <= GROUP { PANEL } else { ROWS };
    for row in rows.clone().step_by(at_once) {
        let end = rows.end.min(row + at_once);
        for token in tokens.clone().step_by(TOKENS) {
            let count = TOKENS.min(tokens.end - token);
            for results in results.iter_mut().take((end - row).div_ceil(PANEL)) {
                results[..count.next_multiple_of(GROUP)].fill([0.0; PANEL]);
            }
            for b in 0..blocks {
                for (at, results) in (row..end).step_by(PANEL).zip(&mut results) {
                    fill(w, (row, at, end), b, sign, &mut panel);
                    let groups = results.as_chunks_mut::<GROUP>().0.iter_mut();
                    for (g, results) in groups.enumerate().take(count.div_ceil(GROUP)) {
                        let at = |t: usize| (token + (g * GROUP + t).min(count - 1)) * blocks + b;
                        let mut four = [&input.q256[at(0)]; GROUP];
                        for (t, four) in four.iter_mut().enumerate() {
                            *four = &input.q256[at(t)];
                        }
                        k.group256(ty, &panel, four, (has_min(ty), offset, fine), results);
                    }
                }
            }
            for (row, results) in (row..end).step_by(PANEL).zip(&results) {
                for (t, results) in results.iter().enumerate().take(count) {
                    put(out, token + t, row, results);
                }
            }
        }
    }
}

/// Lays out block `b` of eight rows of `w`, by its type; `sign` is added to each weight.
#[target_feature(enable = "avx2,f16c")]
fn fill(w: &Matrix<'_>, (first, row, end): (usize, usize, usize), b: usize, sign: u8, panel: &mut Panel) {
    let rows = rows_of(w, row, end, b..b + 1);
    let next = next_piece(w, rows[0].len(), (first, row, end));
    match w.ty() as u8 {
        Q2_K => fill_of::<Q2_K, 84>(&rows, next, sign, panel),
        Q3_K => fill_of::<Q3_K, 110>(&rows, next, sign, panel),
        Q4_K => fill_of::<Q4_K, 144>(&rows, next, sign, panel),
        Q5_K => fill_of::<Q5_K, 176>(&rows, next, sign, panel),
        Q6_K => fill_of::<Q6_K, 210>(&rows, next, sign, panel),
        _ => fill_of::<IQ4_XS, 136>(&rows, next, sign, panel),
    }
}

#[target_feature(enable = "avx2,f16c")]
#[inline(never)]
fn fill_of<const TY: u8, const L: usize>(rows: &[&[u8]; PANEL], next: usize, sign: u8, panel: &mut Panel) {
    let zero = _mm256_setzero_si256();
    let mut raw = [&[0; L]; PANEL];
    // By row; the elements of a vector are four weights, or two sub-scales, of a row.
    let mut q = [[zero; PANEL]; 8];
    let mut twice = [[zero; PANEL]; 2];
    let mut sub = [zero; PANEL];
    for r in 0..PANEL {
        raw[r] = &rows[r].as_chunks().0[0];
        for at in (0..L).step_by(LINE) {
            prefetch(raw[r], next.wrapping_add(at));
        }
        for (q, run) in q.iter_mut().zip(weights::<TY, L>(raw[r])) {
            q[r] = run;
        }
        let (scales, mins) = scales::<TY, L>(raw[r]);
        let wide = _mm256_cvtepi8_epi16(scales);
        twice[0][r] = _mm256_unpacklo_epi16(wide, wide);
        twice[1][r] = _mm256_unpackhi_epi16(wide, wide);
        sub[r] = if has_min(TY) { _mm256_cvtepu8_epi16(mins) } else { wide };
    }
    for (w, q) in panel.w.as_chunks_mut::<8>().0.iter_mut().zip(&q) {
        for (w, q) in w.iter_mut().zip(transpose(q)) {
            store_u8(&mut w.0, _mm256_add_epi8(q, _mm256_set1_epi8(sign as i8)));
        }
    }
    // Halves of a vector: sub-scales 0-3 and 8-11 in the first, 4-7 and 12-15 in the second.
    for (half, twice) in twice.iter().enumerate() {
        for (i, v) in transpose(twice).into_iter().enumerate() {
            store_i16(&mut panel.scales[4 * half + i % 4 + i / 4 * 8].0, v);
        }
    }
    for (sub, v) in panel.sub.iter_mut().zip(transpose(&sub)) {
        store_i16(&mut sub.0, v);
    }
    store(&mut panel.d[0].0, halves(&raw, d_offset(TY)));
    if has_min(TY) {
        store(&mut panel.m[0].0, halves(&raw, d_offset(TY) + 2));
    }
}

/// Adds the products of a panel with four tokens to `results`; `how` as of [`apply`].
#[target_feature(enable = "avx2,fma")]
#[inline(never)]
pub(super) fn group<const SPAN: usize, const SIGNED: bool>(
    panel: &Panel,
    x: [&BlockQ256; GROUP],
    how: (bool, i32, bool),
    results: &mut [[f32; PANEL]; GROUP],
) {
    let mut sums = [_mm256_setzero_si256(); GROUP];
    let w = panel.w.as_chunks::<4>().0.iter().zip(&panel.scales);
    if how.2 {
        for (i, (w, scale)) in w.clone().enumerate() {
            quad::<SPAN, SIGNED>(w, x.map(|x| fours(&x.hi, i)), load_i16(&scale.0), &mut sums);
        }
        for sums in &mut sums {
            *sums = _mm256_slli_epi32::<7>(*sums);
        }
    }
    for (i, (w, scale)) in w.enumerate() {
        quad::<SPAN, SIGNED>(w, x.map(|x| fours(&x.lo, i)), load_i16(&scale.0), &mut sums);
    }
    apply(panel, x, how, sums, results);
}

/// Adds the sums of a panel with four tokens to `results`: scales, minima and, times the sub-scales,
/// the offset. `how`: whether there are minima, the offset, whether activations are fine.
#[target_feature(enable = "avx2,fma")]
#[inline]
pub(crate) fn apply(
    panel: &Panel,
    x: [&BlockQ256; GROUP],
    (has_min, offset, _): (bool, i32, bool),
    sums: [__m256i; GROUP],
    results: &mut [[f32; PANEL]; GROUP],
) {
    let mut mins = [_mm256_setzero_si256(); GROUP];
    if has_min || offset != 0 {
        for (i, sub) in panel.sub.iter().enumerate() {
            let sub = load_i16(&sub.0);
            for t in 0..GROUP {
                mins[t] = plus(mins[t], widen(sub, splat_2(&x[t].sums.as_chunks().0[i])));
            }
        }
    }
    for t in 0..GROUP {
        let taken = _mm256_mullo_epi32(mins[t], _mm256_set1_epi32(offset));
        let dx = _mm256_set1_ps(x[t].d);
        let scale = _mm256_mul_ps(load(&panel.d[0].0), dx);
        let sum = _mm256_cvtepi32_ps(_mm256_sub_epi32(sums[t], taken));
        let mut acc = _mm256_fmadd_ps(scale, sum, load(&results[t]));
        if has_min {
            let scale = _mm256_mul_ps(load(&panel.m[0].0), dx);
            acc = _mm256_fnmadd_ps(scale, _mm256_cvtepi32_ps(mins[t]), acc);
        }
        store(&mut results[t], acc);
    }
}
