//! Matrix products of weight types with blocks of 32. Must not know how a type packs them.

use super::dot::{pairs, partial_sums, plus, widen};
use super::inner::Inner;
use super::panel::*;
use super::unpack32::*;
use super::vec::*;
use crate::ops::{BlockQ32, Input, Precision};
use crate::par::Tile;
use crate::weights::Matrix;
use core::arch::x86_64::*;

/// Blocks of a panel's row.
pub(crate) const BLOCKS: usize = CHUNK / 32;

/// Few tokens: `out[token][row] = w[row] . x[token]`, straight from the blocks.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn few<K: Inner>(k: K, w: &Matrix<'_>, input: &Input<'_>, out: &mut Tile<'_, f32>) {
    let blocks = w.cols() / 32;
    let (rows, fine) = (out.cols(), input.precision == Precision::Fine);
    for row in rows.clone().step_by(PANEL) {
        let these = rows_of(w, row, rows.end, 0..blocks);
        for token in out.rows() {
            let x = &input.q32[token * blocks..][..blocks];
            let results = match w.ty() as u8 {
                Q4_0 => k.one32::<Q4_0, 18>(&these, x, fine),
                Q4_1 => k.one32::<Q4_1, 20>(&these, x, fine),
                Q5_0 => k.one32::<Q5_0, 22>(&these, x, fine),
                Q5_1 => k.one32::<Q5_1, 24>(&these, x, fine),
                Q8_0 => k.one32::<Q8_0, 34>(&these, x, fine),
                _ => k.one32::<IQ4_NL, 18>(&these, x, fine),
            };
            put(out, token, row, &results);
        }
    }
}

/// Eight rows times one token.
#[target_feature(enable = "avx2,fma,f16c")]
#[inline(never)]
pub(super) fn one<const TY: u8, const L: usize>(
    rows: &[&[u8]; PANEL],
    x: &[BlockQ32],
    fine: bool,
) -> [f32; PANEL] {
    let bytes = rows[0];
    let rows = blocks_of::<L>(rows, x.len());
    let (ones, high) = (_mm256_set1_epi16(1), _mm256_set1_epi16(128));
    let mut acc = _mm256_setzero_ps();
    for (b, x) in x.iter().enumerate() {
        next_bytes(bytes, b * PANEL * L, PANEL * L);
        let (lo, hi) = (load_i8(&x.lo), load_i8(&x.hi));
        let mut taken = _mm256_setzero_si256();
        if offset(TY) != 0 {
            taken = partial_sums(lo);
            if fine {
                taken = plus(taken, _mm256_slli_epi32::<7>(partial_sums(hi)));
            }
            taken = _mm256_mullo_epi32(taken, _mm256_set1_epi32(offset(TY)));
        }
        let mut raw = [&[0; L]; PANEL];
        let mut parts = [_mm256_setzero_si256(); PANEL];
        for r in 0..PANEL {
            raw[r] = &rows[r][b];
            let q = weights::<TY, L>(raw[r]);
            let mut part = if signed(TY) { pairs::<true>(q, lo) } else { pairs::<false>(q, lo) };
            part = widen(part, ones);
            if fine {
                let above = if signed(TY) { pairs::<true>(q, hi) } else { pairs::<false>(q, hi) };
                part = plus(part, widen(above, high));
            }
            parts[r] = if offset(TY) != 0 { _mm256_sub_epi32(part, taken) } else { part };
        }
        let scale = _mm256_mul_ps(halves(&raw, 0), _mm256_set1_ps(x.d));
        acc = _mm256_fmadd_ps(scale, _mm256_cvtepi32_ps(sums(&parts)), acc);
        if has_min(TY) {
            acc = _mm256_fmadd_ps(halves(&raw, 2), _mm256_set1_ps(x.s), acc);
        }
    }
    let mut out = [0.0; PANEL];
    store(&mut out, acc);
    out
}

/// The first `n` blocks of eight rows.
#[inline(always)]
pub(crate) fn blocks_of<'a, const L: usize>(rows: &[&'a [u8]; PANEL], n: usize) -> [&'a [[u8; L]]; PANEL] {
    let mut blocks = [&[][..]; PANEL];
    for (blocks, row) in blocks.iter_mut().zip(rows) {
        *blocks = &row.as_chunks().0[..n];
    }
    blocks
}

/// Many tokens: the same, by way of panels.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn many<K: Inner>(k: K, w: &Matrix<'_>, input: &Input<'_>, out: &mut Tile<'_, f32>) {
    let ty = w.ty() as u8;
    // What a sign is taken off with comes back as an offset does.
    let sign = if signed(ty) { K::sign(input.precision == Precision::Fine) } else { 0 };
    let offset = offset(ty) + i32::from(sign);
    let blocks = w.cols() / 32;
    let (rows, tokens) = (out.cols(), out.rows());
    let mut panel = core::hint::black_box(Panel::ZERO);
    let mut starts = [[0i32; BLOCKS]; TOKENS];
    let mut results: Results = [[[0.0; PANEL]; TOKENS]; ROWS / PANEL];
    for row in rows.clone().step_by(ROWS) {
        let end = rows.end.min(row + ROWS);
        for token in tokens.clone().step_by(TOKENS) {
            let count = TOKENS.min(tokens.end - token);
            for results in results.iter_mut().take((end - row).div_ceil(PANEL)) {
                results[..count.next_multiple_of(GROUP)].fill([0.0; PANEL]);
            }
            for from in (0..blocks).step_by(BLOCKS) {
                let these = from..blocks.min(from + BLOCKS);
                let x = |t: usize| &input.q32[(token + t.min(count - 1)) * blocks..][these.clone()];
                for (t, starts) in starts.iter_mut().enumerate().take(count) {
                    start(x(t), offset, starts);
                }
                for (at, results) in (row..end).step_by(PANEL).zip(&mut results) {
                    fill(w, (row, at, end), these.clone(), sign, &mut panel);
                    let groups = results.as_chunks_mut::<GROUP>().0.iter_mut();
                    let groups = groups.zip(starts.as_chunks::<GROUP>().0);
                    for (g, (results, starts)) in groups.enumerate().take(count.div_ceil(GROUP)) {
                        let mut four = [&[][..]; GROUP];
                        for (t, four) in four.iter_mut().enumerate() {
                            *four = x(g * GROUP + t);
                        }
                        let how = (has_min(ty), input.precision == Precision::Fine);
                        k.group32(signed(ty), &panel, four, starts, how, results);
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

/// Minus the offset times the sum of each block: what the integer sums start from.
#[target_feature(enable = "avx2")]
#[inline]
pub(super) fn start(x: &[BlockQ32], offset: i32, starts: &mut [i32]) {
    if offset == 0 {
        return;
    }
    for (x, starts) in x.chunks(BLOCKS).zip(starts.chunks_mut(BLOCKS)) {
        let mut parts = [_mm256_setzero_si256(); BLOCKS];
        for (x, part) in x.iter().zip(&mut parts) {
            let above = _mm256_slli_epi32::<7>(partial_sums(load_i8(&x.hi)));
            *part = plus(partial_sums(load_i8(&x.lo)), above);
        }
        let all = _mm256_mullo_epi32(sums(&parts), _mm256_set1_epi32(-offset));
        let mut eight = [0; BLOCKS];
        store_i32(&mut eight, all);
        starts.iter_mut().zip(eight).for_each(|(start, all)| *start = all);
    }
}

/// Lays out eight rows of `w`, by its type; `sign` is added to each weight.
#[target_feature(enable = "avx2,f16c")]
fn fill(
    w: &Matrix<'_>,
    (first, row, end): (usize, usize, usize),
    blocks: core::ops::Range<usize>,
    sign: u8,
    panel: &mut Panel,
) {
    let rows = rows_of(w, row, end, blocks);
    let next = next_piece(w, rows[0].len(), (first, row, end));
    match w.ty() as u8 {
        Q4_0 => fill_of::<Q4_0, 18>(&rows, next, sign, panel),
        Q4_1 => fill_of::<Q4_1, 20>(&rows, next, sign, panel),
        Q5_0 => fill_of::<Q5_0, 22>(&rows, next, sign, panel),
        Q5_1 => fill_of::<Q5_1, 24>(&rows, next, sign, panel),
        Q8_0 => fill_of::<Q8_0, 34>(&rows, next, sign, panel),
        _ => fill_of::<IQ4_NL, 18>(&rows, next, sign, panel),
    }
}

#[target_feature(enable = "avx2,f16c")]
#[inline(never)]
fn fill_of<const TY: u8, const L: usize>(rows: &[&[u8]; PANEL], next: usize, sign: u8, panel: &mut Panel) {
    let blocks = rows[0].len() / L;
    let rows = blocks_of::<L>(rows, blocks);
    let groups = panel.w.as_chunks_mut::<8>().0;
    let scales = panel.d.iter_mut().zip(&mut panel.m);
    for (b, (w, (d, m))) in groups.iter_mut().zip(scales).enumerate().take(blocks) {
        let (raw, q) = columns::<TY, L>(&rows, b, next);
        for (w, q) in w.iter_mut().zip(q) {
            store_u8(&mut w.0, _mm256_add_epi8(q, _mm256_set1_epi8(sign as i8)));
        }
        store(&mut d.0, halves(&raw, 0));
        if has_min(TY) {
            store(&mut m.0, halves(&raw, 2));
        }
    }
}

/// Block `b` of eight rows, and its weights by columns, four to a vector. Asks for what lies `next` bytes
/// behind each row's.
#[target_feature(enable = "avx2,f16c")]
#[inline]
pub(crate) fn columns<'a, const TY: u8, const L: usize>(
    rows: &[&'a [[u8; L]]; PANEL],
    b: usize,
    next: usize,
) -> ([&'a [u8; L]; PANEL], [__m256i; 8]) {
    let mut raw = [&[0; L]; PANEL];
    let mut q = [_mm256_setzero_si256(); PANEL];
    for r in 0..PANEL {
        raw[r] = &rows[r][b];
        prefetch(raw[r], next);
        q[r] = weights::<TY, L>(raw[r]);
    }
    (raw, transpose(&q))
}

/// Adds the products of a panel with four tokens to `results`.
#[target_feature(enable = "avx2,fma")]
#[inline(never)]
pub(super) fn group<const SPAN: usize, const SIGNED: bool>(
    panel: &Panel,
    x: [&[BlockQ32]; GROUP],
    starts: &[[i32; BLOCKS]; GROUP],
    (has_min, fine): (bool, bool),
    results: &mut [[f32; PANEL]; GROUP],
) {
    let n = x[0].len();
    let mut x = x;
    for x in &mut x {
        *x = &x[..n];
    }
    let (ones, high) = (_mm256_set1_epi16(1), _mm256_set1_epi16(128));
    let mut acc = [_mm256_setzero_ps(); GROUP];
    for t in 0..GROUP {
        acc[t] = load(&results[t]);
    }
    let quads = if SPAN == 1 { panel.quads } else { 2 };
    let scales = panel.d.iter().zip(&panel.m);
    let panels = panel.w.as_chunks::<4>().0.as_chunks::<2>().0.iter().zip(scales);
    for (b, (w, (d, m))) in panels.enumerate().take(n) {
        let mut sums = [_mm256_setzero_si256(); GROUP];
        for t in 0..GROUP {
            sums[t] = _mm256_set1_epi32(starts[t][b]);
        }
        if fine {
            for (i, w) in w[..quads].iter().enumerate() {
                let mut four = [fours(&x[0][b].hi, i); GROUP];
                for t in 1..GROUP {
                    four[t] = fours(&x[t][b].hi, i);
                }
                quad::<SPAN, SIGNED>(w, four, high, &mut sums);
            }
        }
        for (i, w) in w[..quads].iter().enumerate() {
            let mut four = [fours(&x[0][b].lo, i); GROUP];
            for t in 1..GROUP {
                four[t] = fours(&x[t][b].lo, i);
            }
            quad::<SPAN, SIGNED>(w, four, ones, &mut sums);
        }
        let d = load(&d.0);
        for t in 0..GROUP {
            let scale = _mm256_mul_ps(d, _mm256_set1_ps(x[t][b].d));
            acc[t] = _mm256_fmadd_ps(scale, _mm256_cvtepi32_ps(sums[t]), acc[t]);
        }
        if has_min {
            for t in 0..GROUP {
                acc[t] = _mm256_fmadd_ps(load(&m.0), _mm256_set1_ps(x[t][b].s), acc[t]);
            }
        }
    }
    for t in 0..GROUP {
        store(&mut results[t], acc[t]);
    }
}
