//! A group's queries against one KV block, in pairs: K and V are loaded and widened once for two. The
//! scalar kernels of the same names, eight scores or dims at a time.

use super::elementwise::exp;
use super::vec::*;
use crate::kernels::scalar::attention::Softmax;
use crate::kv::{BLOCK_TOKENS, HeadF32, HeadQ8};
use crate::math::Scale;
use crate::ops::attention::{Group, MAX_HEAD_DIM, QUERIES};
use core::arch::x86_64::*;

/// Groups of four tokens in a block.
pub(crate) const GROUPS: usize = BLOCK_TOKENS / 4;

/// Defines `block_q8` for an instruction set, which `$features` names, with its `products` and `weighted`.
macro_rules! define_block_q8 {
    ($features:literal) => {
        /// Adds a block of type `q8` to every query; see `scalar::attention::block_q8`.
        #[target_feature(enable = $features)]
        pub(in crate::kernels) fn block_q8(
            group: &mut Group,
            seen: &[usize; QUERIES],
            reference: &[f32],
            head: &HeadQ8<'_>,
        ) {
            for first in (0..group.len()).step_by(2) {
                match seen[first..first + 2] {
                    [0, 0] => {}
                    [_, 0] => few_q8::<1>(group, first, seen, reference, head),
                    [0, _] => few_q8::<1>(group, first + 1, seen, reference, head),
                    _ => few_q8::<2>(group, first, seen, reference, head),
                }
            }
        }

        /// Adds a block to the `N` queries from `first` on, which see some of it.
        #[target_feature(enable = $features)]
        fn few_q8<const N: usize>(
            group: &mut Group,
            first: usize,
            seen: &[usize; QUERIES],
            reference: &[f32],
            head: &HeadQ8<'_>,
        ) {
            let d = reference.len();
            let mut q = [&[][..]; N];
            for (n, q) in q.iter_mut().enumerate() {
                *q = &group.q[first + n][..d];
            }
            let mut scores = [[[0.0f32; 8]; 4]; N];
            products(&q, head.k, &mut scores);
            let mut weights = [Weights { w: [[0; 4]; GROUPS], sum: 0, scale: 0.0, shrink: 1.0 }; N];
            for n in 0..N {
                let (scores, seen) = (&mut scores[n], seen[first + n]);
                let offset = dot(&group.raw[first + n][..d], reference) * group.root;
                let (scale, offset) = (_mm256_set1_ps(group.scale[first + n]), _mm256_set1_ps(offset));
                for (s, dk) in scores.iter_mut().zip(head.dk.as_chunks::<8>().0) {
                    let factor = _mm256_mul_ps(scale, load(dk));
                    store(s, _mm256_fmadd_ps(load(s), factor, offset));
                }
                let shrink = absorb(&mut group.softmax[first + n], scores, seen);
                for (p, dv) in scores.iter_mut().zip(head.dv.as_chunks::<8>().0) {
                    store(p, _mm256_mul_ps(load(p), load(dv)));
                }
                // A scale of a token that cannot be seen may be anything, NaN too.
                scores.as_flattened_mut()[seen..].fill(0.0);
                weights[n].shrink = shrink;
                quantize_weights(scores, &mut weights[n]);
            }
            if let Some(out) = group.out[first..].first_chunk_mut::<N>() {
                weighted(&weights, head.v, d, out);
            }
        }
    };
}
pub(crate) use define_block_q8;
define_block_q8!("avx2,fma");

/// What a query adds up of a block's V.
#[derive(Clone, Copy)]
pub(crate) struct Weights {
    /// Of each token, 0 to 255, in steps of `scale`.
    pub w: [[i16; 4]; GROUPS],
    /// The sum of `w`.
    pub sum: i32,
    pub scale: f32,
    /// Factor of what was added up before.
    pub shrink: f32,
}

/// Adds a block of type `f32` to every query; see `scalar::attention::block_f32`.
#[target_feature(enable = "avx2,fma")]
pub(super) fn block_f32(group: &mut Group, seen: &[usize; QUERIES], head: &HeadF32<'_>) {
    let d = group.head_dim();
    for i in (0..QUERIES).filter(|i| seen[*i] > 0) {
        let (seen, a) = (seen[i], &mut group.out[i][..d]);
        let mut scores = [[0.0f32; 8]; 4];
        for (score, k) in scores.as_flattened_mut()[..seen].iter_mut().zip(head.k.chunks_exact(d)) {
            *score = dot(&group.raw[i][..d], k) * group.root;
        }
        let shrink = _mm256_set1_ps(absorb(&mut group.softmax[i], &mut scores, seen));
        for (j, a) in a.as_chunks_mut::<16>().0.iter_mut().enumerate() {
            let a = a.as_chunks_mut::<8>().0;
            let mut sums = [_mm256_mul_ps(load(&a[0]), shrink), _mm256_mul_ps(load(&a[1]), shrink)];
            for (p, v) in scores.as_flattened()[..seen].iter().zip(head.v.chunks_exact(d)) {
                let v = v.as_chunks::<16>().0[j].as_chunks::<8>().0;
                for i in 0..2 {
                    sums[i] = _mm256_fmadd_ps(_mm256_set1_ps(*p), load(&v[i]), sums[i]);
                }
            }
            store(&mut a[0], sums[0]);
            store(&mut a[1], sums[1]);
        }
    }
}

/// `math::dot` of two heads, whose length is a multiple of 16.
#[target_feature(enable = "avx2,fma")]
pub(crate) fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut lanes = [_mm256_setzero_ps(); 2];
    let pairs = a.as_chunks::<8>().0.as_chunks::<2>().0.iter().zip(b.as_chunks::<8>().0.as_chunks::<2>().0);
    for (a, b) in pairs {
        for i in 0..2 {
            lanes[i] = _mm256_fmadd_ps(load(&a[i]), load(&b[i]), lanes[i]);
        }
    }
    fold16(lanes)
}

/// `scores[n][t] = q[n] . k_t` as floats, for all tokens of the block.
#[target_feature(enable = "avx2")]
fn products<const N: usize>(q: &[&[i16]; N], k: &[i8], scores: &mut [[[f32; 8]; 4]; N]) {
    let per_group = q[0].len() / 4;
    let tiles = k.as_chunks::<16>().0;
    let mut q4 = [&[][..]; N];
    for (q4, q) in q4.iter_mut().zip(q) {
        *q4 = &q.as_chunks::<4>().0[..per_group];
    }
    // Twice 16 tokens: eight registers of sums for two queries.
    for part in 0..2 {
        let mut groups = [&tiles[..0]; GROUPS / 2];
        for (g, group) in groups.iter_mut().enumerate() {
            *group = &tiles[(part * GROUPS / 2 + g) * per_group..][..per_group];
        }
        let mut sums = [[_mm256_setzero_si256(); GROUPS / 2]; N];
        for i in 0..per_group {
            let mut q = [_mm256_setzero_si256(); N];
            for n in 0..N {
                q[n] = splat_8(&q4[n][i]);
            }
            for g in 0..GROUPS / 2 {
                let k = _mm256_cvtepi8_epi16(load_half_i8(&groups[g][i]));
                for n in 0..N {
                    sums[n][g] = _mm256_add_epi32(sums[n][g], _mm256_madd_epi16(k, q[n]));
                }
            }
        }
        for (sums, scores) in sums.iter().zip(scores.iter_mut()) {
            for (pair, out) in sums.as_chunks::<2>().0.iter().zip(&mut scores[2 * part..]) {
                store(out, _mm256_cvtepi32_ps(fold_pairs(pair)));
            }
        }
    }
}

/// The sums of neighbours of two vectors, in order: 4 of the first, 4 of the second.
#[target_feature(enable = "avx2")]
#[inline]
fn fold_pairs(v: &[__m256i; 2]) -> __m256i {
    _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_hadd_epi32(v[0], v[1]))
}

/// `Softmax::absorb`: the scores of the first `seen` tokens, of which there is one at least, become
/// probabilities, relative to the new maximum; those of the others, which may be anything, become 0.
#[target_feature(enable = "avx2,fma")]
pub(crate) fn absorb(softmax: &mut Softmax, scores: &mut [[f32; 8]; 4], seen: usize) -> f32 {
    // What cannot be seen gets the probability 0, which changes no sum: none holds a -0.0.
    scores.as_flattened_mut()[seen..].fill(f32::NEG_INFINITY);
    // max(s, m) of the instruction is m where s is NaN: a NaN is passed over, as the contract says.
    let mut most = _mm256_set1_ps(softmax.m);
    for s in scores.iter() {
        most = _mm256_max_ps(load(s), most);
    }
    let mut lanes = [0.0; 8];
    store(&mut lanes, most);
    let m = lanes.into_iter().fold(softmax.m, crate::math::max);
    let drop = softmax.m - m;
    // Mostly the maximum stays: exp(0) is 1.
    let shrink = if drop == 0.0 { 1.0 } else { _mm256_cvtss_f32(exp(_mm256_set1_ps(drop))) };
    for s in scores.iter_mut() {
        store(s, exp(_mm256_sub_ps(load(s), _mm256_set1_ps(m))));
    }
    let sum = |i: usize| _mm256_add_ps(load(&scores[i]), load(&scores[i + 2]));
    let sum = _mm_set_ss(fold16([sum(0), sum(1)]));
    softmax.l = _mm_cvtss_f32(_mm_fmadd_ss(_mm_set_ss(softmax.l), _mm_set_ss(shrink), sum));
    softmax.m = m;
    shrink
}

/// Weights in 0..=255, their sum and their scale.
#[target_feature(enable = "avx2")]
pub(crate) fn quantize_weights(w: &[[f32; 8]; 4], out: &mut Weights) {
    let mut most = _mm256_setzero_si256();
    for w in w {
        // Of numbers without a sign the larger has the larger bits; those of NaN are larger still.
        let bits = _mm256_and_si256(_mm256_castps_si256(load(w)), _mm256_set1_epi32(i32::MAX));
        most = _mm256_max_epi32(most, bits);
    }
    let mut lanes = [0; 8];
    store_i32(&mut lanes, most);
    let scale = Scale::of_amax(lanes.into_iter().fold(0, i32::max) as u32, 255.0);
    out.scale = scale.d;
    if scale.inv == 0.0 {
        return;
    }
    let mut sums = _mm256_setzero_si256();
    let outs = out.w.as_flattened_mut().as_chunks_mut::<16>().0;
    for (out, w) in outs.iter_mut().zip(w.as_chunks::<2>().0) {
        let q = |w| _mm256_cvtps_epi32(_mm256_mul_ps(load(w), _mm256_set1_ps(scale.inv)));
        // Halves of both alternate.
        let q = _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_packs_epi32(q(&w[0]), q(&w[1])));
        // Of a weight below zero, which only a damaged scale of V makes, a byte is left as in a cast.
        let q = _mm256_and_si256(q, _mm256_set1_epi16(255));
        store_i16(out, q);
        sums = _mm256_add_epi32(sums, _mm256_madd_epi16(q, _mm256_set1_epi16(1)));
    }
    out.sum = sum(sums);
}

/// `a_j = fma(dw, sum_t w_t v_tj, a_j * shrink)` for `N` queries, whose `a` are the first `d` elements of
/// the rows of `out`.
#[target_feature(enable = "avx2,fma")]
fn weighted<const N: usize>(weights: &[Weights; N], v: &[u8], d: usize, out: &mut [[f32; MAX_HEAD_DIM]; N]) {
    // Heads are multiples of 16: no dim is left over.
    let tiles = &v.as_chunks::<16>().0.as_chunks::<GROUPS>().0.as_chunks::<2>().0[..d / 8];
    for (i, [first, second]) in tiles.iter().enumerate() {
        let mut sums = [[_mm256_setzero_si256(); 2]; N];
        for t in 0..GROUPS {
            let v = [first, second].map(|dims| _mm256_cvtepu8_epi16(load_half(&dims[t])));
            for n in 0..N {
                let w = splat_8(&weights[n].w[t]);
                for half in 0..2 {
                    sums[n][half] = _mm256_add_epi32(sums[n][half], _mm256_madd_epi16(v[half], w));
                }
            }
        }
        for n in 0..N {
            let a = &mut out[n].as_chunks_mut::<8>().0[i];
            let before = _mm256_mul_ps(load(a), _mm256_set1_ps(weights[n].shrink));
            // 128 was added to V when it was stored.
            let sum = _mm256_sub_epi32(fold_pairs(&sums[n]), _mm256_set1_epi32(128 * weights[n].sum));
            store(a, _mm256_fmadd_ps(_mm256_set1_ps(weights[n].scale), _mm256_cvtepi32_ps(sum), before));
        }
    }
}
