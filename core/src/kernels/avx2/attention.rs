//! One query head against one KV block of type `q8`: the scalar kernel of the same name, eight
//! scores or dims at a time.

use super::elementwise::exp;
use super::inner::Inner;
use super::vec::*;
use crate::kernels::scalar::attention::Softmax;
use crate::kv::{BLOCK_TOKENS, HeadQ8};
use crate::math::Scale;
use crate::ops::attention::{Group, QUERIES};
use core::arch::x86_64::*;

/// Groups of four tokens in a block.
pub(crate) const GROUPS: usize = BLOCK_TOKENS / 4;

/// Adds a block to every query; see `scalar::attention::block_q8`.
#[target_feature(enable = "avx2,fma")]
pub(super) fn block_q8<K: Inner>(
    k: K,
    group: &mut Group,
    seen: &[usize; QUERIES],
    reference: &[f32],
    head: &HeadQ8<'_>,
) {
    let d = reference.len();
    for i in (0..QUERIES).filter(|i| seen[*i] > 0) {
        let offset = dot(&group.raw[i][..d], reference) * group.root;
        let query = (&group.q[i][..d], group.scale[i], offset);
        one_q8(k, &mut group.softmax[i], query, head, seen[i], &mut group.out[i][..d]);
    }
}

/// Adds a block to a query; see `scalar::attention::one_q8`.
#[target_feature(enable = "avx2,fma")]
fn one_q8<K: Inner>(
    k: K,
    softmax: &mut Softmax,
    (q, scale, offset): (&[i16], f32, f32),
    head: &HeadQ8<'_>,
    visible: usize,
    a: &mut [f32],
) {
    let mut scores = [[0.0f32; 8]; 4];
    products(q, head.k, &mut scores);
    let (scale, offset) = (_mm256_set1_ps(scale), _mm256_set1_ps(offset));
    for (s, dk) in scores.iter_mut().zip(head.dk.as_chunks::<8>().0) {
        let factor = _mm256_mul_ps(scale, load(dk));
        store(s, _mm256_fmadd_ps(load(s), factor, offset));
    }
    // What cannot be seen gets the probability 0, which changes no sum: none holds a -0.0.
    scores.as_flattened_mut()[visible..].fill(f32::NEG_INFINITY);
    let shrink = absorb(softmax, &mut scores);
    for (p, dv) in scores.iter_mut().zip(head.dv.as_chunks::<8>().0) {
        store(p, _mm256_mul_ps(load(p), load(dv)));
    }
    // A scale of a token that cannot be seen may be anything, NaN too.
    scores.as_flattened_mut()[visible..].fill(0.0);
    let (w, dw) = quantize_weights(&scores);
    k.weighted(&w, (dw, shrink), head.v, a);
}

/// `math::dot` of two heads, whose length is a multiple of 16.
#[target_feature(enable = "avx2,fma")]
fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut lanes = [_mm256_setzero_ps(); 2];
    let pairs = a.as_chunks::<8>().0.as_chunks::<2>().0.iter().zip(b.as_chunks::<8>().0.as_chunks::<2>().0);
    for (a, b) in pairs {
        for i in 0..2 {
            lanes[i] = _mm256_fmadd_ps(load(&a[i]), load(&b[i]), lanes[i]);
        }
    }
    fold16(lanes)
}

/// `scores[t] = q . k_t` as floats, for all tokens of the block.
#[target_feature(enable = "avx2")]
fn products(q: &[i16], k: &[i8], scores: &mut [[f32; 8]; 4]) {
    let per_group = q.len() / 4;
    let (tiles, mut sums) = (k.as_chunks::<16>().0, [_mm256_setzero_si256(); GROUPS]);
    let mut groups = [&tiles[..0]; GROUPS];
    for (g, group) in groups.iter_mut().enumerate() {
        *group = &tiles[g * per_group..(g + 1) * per_group];
    }
    for (i, q) in q.as_chunks::<4>().0.iter().enumerate() {
        let q = splat_8(q);
        for (sum, group) in sums.iter_mut().zip(groups) {
            let k = _mm256_cvtepi8_epi16(load_half_i8(&group[i]));
            *sum = _mm256_add_epi32(*sum, _mm256_madd_epi16(k, q));
        }
    }
    for (pair, out) in sums.as_chunks::<2>().0.iter().zip(scores) {
        store(out, _mm256_cvtepi32_ps(fold_pairs(pair)));
    }
}

/// The sums of neighbours of two vectors, in order: 4 of the first, 4 of the second.
#[target_feature(enable = "avx2")]
#[inline]
fn fold_pairs(v: &[__m256i; 2]) -> __m256i {
    _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_hadd_epi32(v[0], v[1]))
}

/// `Softmax::absorb`: scores become probabilities, relative to the new maximum.
#[target_feature(enable = "avx2,fma")]
fn absorb(softmax: &mut Softmax, scores: &mut [[f32; 8]; 4]) -> f32 {
    // max(s, m) of the instruction is m where s is NaN: a NaN is passed over, as the contract says.
    let mut most = _mm256_set1_ps(softmax.m);
    for s in scores.iter() {
        most = _mm256_max_ps(load(s), most);
    }
    let mut lanes = [0.0; 8];
    store(&mut lanes, most);
    let m = lanes.into_iter().fold(softmax.m, crate::math::max);
    let shrink = crate::math::exp(softmax.m - m);
    for s in scores.iter_mut() {
        store(s, exp(_mm256_sub_ps(load(s), _mm256_set1_ps(m))));
    }
    let sum = |i: usize| _mm256_add_ps(load(&scores[i]), load(&scores[i + 2]));
    softmax.l = crate::math::fma(softmax.l, shrink, fold16([sum(0), sum(1)]));
    softmax.m = m;
    shrink
}

/// Weights in 0..=255, in i16, and their scale.
#[target_feature(enable = "avx2")]
fn quantize_weights(w: &[[f32; 8]; 4]) -> ([[i16; 4]; GROUPS], f32) {
    let scale = Scale::of(w.as_flattened(), 255.0);
    let mut out = [[0i16; 4]; GROUPS];
    if scale.inv != 0.0 {
        for (out, w) in out.as_chunks_mut::<2>().0.iter_mut().zip(w) {
            let q = _mm256_cvtps_epi32(_mm256_mul_ps(load(w), _mm256_set1_ps(scale.inv)));
            let mut lanes = [0i32; 8];
            store_i32(&mut lanes, q);
            out.as_flattened_mut().iter_mut().zip(lanes).for_each(|(out, q)| *out = q as i16);
        }
    }
    (out, scale.d)
}

/// `a_j = fma(dw, sum_t w_t v_tj, a_j * shrink)`.
#[target_feature(enable = "avx2,fma")]
pub(super) fn weighted(w: &[[i16; 4]; GROUPS], (dw, shrink): (f32, f32), v: &[u8], a: &mut [f32]) {
    let (dw, shrink) = (_mm256_set1_ps(dw), _mm256_set1_ps(shrink));
    let sign = _mm_set1_epi8(-128);
    let mut tokens = [_mm256_setzero_si256(); GROUPS];
    for (tokens, w) in tokens.iter_mut().zip(w) {
        *tokens = splat_8(w);
    }
    // Heads are multiples of 16: no dim is left over.
    let tiles = v.as_chunks::<16>().0.as_chunks::<GROUPS>().0.as_chunks::<2>().0;
    for (a, dims) in a.as_chunks_mut::<8>().0.iter_mut().zip(tiles) {
        let mut sums = [_mm256_setzero_si256(); 2];
        for (sum, dims) in sums.iter_mut().zip(dims) {
            for (v, w) in dims.iter().zip(tokens) {
                // 128 was added to V when it was stored.
                let v = _mm256_cvtepi8_epi16(_mm_xor_si128(load_half(v), sign));
                *sum = _mm256_add_epi32(*sum, _mm256_madd_epi16(v, w));
            }
        }
        let sum = _mm256_cvtepi32_ps(fold_pairs(&sums));
        store(a, _mm256_fmadd_ps(dw, sum, _mm256_mul_ps(load(a), shrink)));
    }
}
