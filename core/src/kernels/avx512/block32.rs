//! Weight types with blocks of 32: the functions of the same names in `avx2`, by dot products that
//! want weights without a sign. Where they have one 128 is added, and taken off as an offset is.

use super::dot::{dot, quad};
use crate::kernels::avx2::block32::{BLOCKS, blocks_of, columns};
use crate::kernels::avx2::four32::{Operands, SEGMENT};
use crate::kernels::avx2::panel::*;
use crate::kernels::avx2::unpack32::*;
use crate::kernels::avx2::vec::*;
use crate::ops::BlockQ32;
use core::arch::x86_64::*;

/// Eight rows times one token.
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512vnni")]
#[inline(never)]
pub(super) fn one<const TY: u8, const L: usize>(
    rows: &[&[u8]; PANEL],
    x: &[BlockQ32],
    fine: bool,
) -> [f32; PANEL] {
    let bytes = rows[0];
    let rows = blocks_of::<L>(rows, x.len());
    let (zero, sign) = (_mm256_setzero_si256(), _mm256_set1_epi8(-128));
    // What is taken off the weights fits their bytes.
    let taken = _mm256_set1_epi8(if signed(TY) { -128 } else { offset(TY) as i8 });
    let mut acc = _mm256_setzero_ps();
    for (b, x) in x.iter().enumerate() {
        next_bytes(bytes, b * PANEL * L, PANEL * L);
        let (lo, hi) = (load_i8(&x.lo), load_i8(&x.hi));
        let mut start = zero;
        if signed(TY) || offset(TY) != 0 {
            let above = if fine { _mm256_slli_epi32::<7>(dot(zero, taken, hi)) } else { zero };
            start = _mm256_sub_epi32(zero, dot(above, taken, lo));
        }
        let mut raw = [&[0; L]; PANEL];
        let (mut q, mut parts) = ([zero; PANEL], [start; PANEL]);
        for r in 0..PANEL {
            raw[r] = &rows[r][b];
            q[r] = weights::<TY, L>(raw[r]);
            if signed(TY) {
                q[r] = _mm256_xor_si256(q[r], sign);
            }
        }
        if fine {
            for r in 0..PANEL {
                parts[r] = _mm256_add_epi32(start, _mm256_slli_epi32::<7>(dot(zero, q[r], hi)));
            }
        }
        for r in 0..PANEL {
            parts[r] = dot(parts[r], q[r], lo);
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

/// Adds the products of eight rows and four tokens to `results`.
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512vnni")]
#[inline(never)]
pub(super) fn four<const TY: u8, const L: usize>(
    fine: bool,
    (rows, next, x, starts): Operands<'_>,
    results: &mut [[f32; PANEL]; GROUP],
) {
    let n = x[0].len().min(SEGMENT);
    let rows = blocks_of::<L>(rows, n);
    let [x0, x1, x2, x3] = x;
    let x = [&x0[..n], &x1[..n], &x2[..n], &x3[..n]];
    let zero = _mm256_setzero_si256();
    let mut acc = [_mm256_setzero_ps(); GROUP];
    for t in 0..GROUP {
        acc[t] = load(&results[t]);
    }
    for b in 0..n {
        let (raw, mut q) = columns::<TY, L>(&rows, b, next);
        if signed(TY) {
            for q in &mut q {
                *q = _mm256_xor_si256(*q, _mm256_set1_epi8(-128));
            }
        }
        let d = halves(&raw, 0);
        for t in 0..GROUP {
            let x = &x[t][b];
            let mut sums = _mm256_set1_epi32(starts[t][b]);
            if fine {
                let above = all_32(&q, &x.hi, zero);
                sums = _mm256_add_epi32(sums, _mm256_slli_epi32::<7>(above));
            }
            sums = all_32(&q, &x.lo, sums);
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

/// `sums` and the products of 32 elements of eight rows with those of a token.
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512vnni")]
#[inline]
fn all_32(q: &[__m256i; 8], x: &[i8; 32], sums: __m256i) -> __m256i {
    let mut sums = sums;
    for (q, x) in q.iter().zip(x.as_chunks::<4>().0) {
        sums = dot(sums, *q, splat_4(x));
    }
    sums
}

/// Adds the products of a panel with four tokens to `results`.
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512vnni")]
#[inline(never)]
pub(super) fn group(
    panel: &Panel,
    x: [&[BlockQ32]; GROUP],
    starts: &[[i32; BLOCKS]; GROUP],
    (has_min, fine): (bool, bool),
    results: &mut [[f32; PANEL]; GROUP],
) {
    let n = x[0].len();
    // `map` would be called, not inlined: it is not compiled for this CPU.
    let [x0, x1, x2, x3] = x;
    let x = [&x0[..n], &x1[..n], &x2[..n], &x3[..n]];
    let mut acc = [_mm256_setzero_ps(); GROUP];
    for t in 0..GROUP {
        acc[t] = load(&results[t]);
    }
    let scales = panel.d.iter().zip(&panel.m);
    let panels = panel.w.as_chunks::<4>().0.as_chunks::<2>().0.iter().zip(scales);
    for (b, (w, (d, m))) in panels.enumerate().take(n) {
        let x = [&x[0][b], &x[1][b], &x[2][b], &x[3][b]];
        let mut sums = [_mm256_setzero_si256(); GROUP];
        for t in 0..GROUP {
            sums[t] = _mm256_set1_epi32(starts[t][b]);
        }
        if fine {
            let mut above = [_mm256_setzero_si256(); GROUP];
            for (i, w) in w.iter().enumerate() {
                let [a, b, c, d] = x;
                quad(w, [fours(&a.hi, i), fours(&b.hi, i), fours(&c.hi, i), fours(&d.hi, i)], &mut above);
            }
            for t in 0..GROUP {
                sums[t] = _mm256_add_epi32(sums[t], _mm256_slli_epi32::<7>(above[t]));
            }
        }
        for (i, w) in w.iter().enumerate() {
            let [a, b, c, d] = x;
            quad(w, [fours(&a.lo, i), fours(&b.lo, i), fours(&c.lo, i), fours(&d.lo, i)], &mut sums);
        }
        let d = load(&d.0);
        for t in 0..GROUP {
            let scale = _mm256_mul_ps(d, _mm256_set1_ps(x[t].d));
            acc[t] = _mm256_fmadd_ps(scale, _mm256_cvtepi32_ps(sums[t]), acc[t]);
        }
        if has_min {
            for t in 0..GROUP {
                acc[t] = _mm256_fmadd_ps(load(&m.0), _mm256_set1_ps(x[t].s), acc[t]);
            }
        }
    }
    for t in 0..GROUP {
        store(&mut results[t], acc[t]);
    }
}
