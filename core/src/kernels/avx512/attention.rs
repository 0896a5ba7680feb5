//! A group's queries against a KV block of type `q8`, as in `avx2`, by dot products of 64 bytes.

use super::vec::{each_four, fold_lanes, load_f32_16, load_i8_64, load_u8_64, store_f32_16};
use crate::kernels::avx2::attention::{GROUPS, Weights, absorb, define_block_q8, dot, quantize_weights};
use crate::kernels::avx2::dot::plus;
use crate::kernels::avx2::vec::*;
use crate::kv::HeadQ8;
use crate::ops::attention::{Group, MAX_HEAD_DIM, QUERIES};
use core::arch::x86_64::*;

/// Elements of a query that meet four tokens of K at once.
const SIXTEENS: usize = MAX_HEAD_DIM / 16;

define_block_q8!("avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512vnni");

/// `scores[n][t] = q[n] . k_t` as floats, for all tokens of the block.
///
/// The instruction wants K without a sign: 128 is added, and taken off the sums.
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512vnni")]
fn products<const N: usize>(q: &[&[i16]; N], k: &[i8], scores: &mut [[[f32; 8]; 4]; N]) {
    let sixteens = q[0].len() / 16;
    // 16 elements of both planes: `q = 128 * [0] + [1]`.
    let mut planes = [[[0i8; 32]; SIXTEENS]; N];
    let mut starts = [0; N];
    for n in 0..N {
        let mut total = _mm256_setzero_si256();
        for (q, planes) in q[n].as_chunks::<16>().0.iter().zip(&mut planes[n]) {
            let q = load_i16(q);
            let high = _mm256_srai_epi16::<7>(_mm256_add_epi16(q, _mm256_set1_epi16(64)));
            let low = _mm256_sub_epi16(q, _mm256_slli_epi16::<7>(high));
            // Halves of both alternate.
            let both = _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_packs_epi16(high, low));
            store_i8(planes, both);
            total = plus(total, _mm256_madd_epi16(q, _mm256_set1_epi16(1)));
        }
        starts[n] = -128 * sum(total);
    }
    let (zero, sign) = (_mm512_setzero_si512(), _mm512_set1_epi8(-128));
    // 4 tokens x 16 dims.
    let tiles = k.as_chunks::<16>().0.as_chunks::<4>().0;
    for part in 0..2 {
        let mut sums = [[[zero; 4]; 2]; N];
        for i in 0..sixteens {
            let mut x = [[zero; 2]; N];
            for n in 0..N {
                x[n] = [each_four(&planes[n][i], 0), each_four(&planes[n][i], 1)];
            }
            for g in 0..4 {
                let k = _mm512_xor_si512(load_i8_64(&tiles[(4 * part + g) * sixteens + i]), sign);
                for n in 0..N {
                    for plane in 0..2 {
                        sums[n][plane][g] = _mm512_dpbusd_epi32(sums[n][plane][g], k, x[n][plane]);
                    }
                }
            }
        }
        for n in 0..N {
            let mut all = [zero; 4];
            for g in 0..4 {
                all[g] = _mm512_add_epi32(_mm512_slli_epi32::<7>(sums[n][0][g]), sums[n][1][g]);
            }
            let all = _mm512_add_epi32(fold_lanes(&all), _mm512_set1_epi32(starts[n]));
            store_f32_16(&mut scores[n].as_flattened_mut().as_chunks_mut().0[part], _mm512_cvtepi32_ps(all));
        }
    }
}

/// `a_j = fma(dw, sum_t w_t v_tj, a_j * shrink)` for `N` queries, whose `a` are the first `d` elements of
/// the rows of `out`.
///
/// V is stored with 128 added; the instruction wants it with its sign, and so there is nothing to take off.
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512vnni")]
fn weighted<const N: usize>(weights: &[Weights; N], v: &[u8], d: usize, out: &mut [[f32; MAX_HEAD_DIM]; N]) {
    let (zero, sign) = (_mm512_setzero_si512(), _mm512_set1_epi8(-128));
    let mut w = [[zero; 2]; N];
    for n in 0..N {
        let sixteens = weights[n].w.as_flattened().as_chunks::<16>().0;
        let all = _mm256_packus_epi16(load_i16(&sixteens[0]), load_i16(&sixteens[1]));
        let mut bytes = [0; 32];
        store_i8(&mut bytes, _mm256_permute4x64_epi64::<0b11_01_10_00>(all));
        w[n] = [each_four(&bytes, 0), each_four(&bytes, 1)];
    }
    // 16 dims, by fours; 32 tokens in two halves.
    let tiles = v.as_chunks::<16>().0.as_chunks::<4>().0.as_chunks::<2>().0.as_chunks::<4>().0;
    for (i, dims) in tiles[..d / 16].iter().enumerate() {
        let mut sums = [[zero; 4]; N];
        for (j, tokens) in dims.iter().enumerate() {
            for half in 0..2 {
                let v = _mm512_xor_si512(load_u8_64(&tokens[half]), sign);
                for n in 0..N {
                    sums[n][j] = _mm512_dpbusd_epi32(sums[n][j], w[n][half], v);
                }
            }
        }
        for n in 0..N {
            let a = &mut out[n].as_chunks_mut::<16>().0[i];
            let before = _mm512_mul_ps(load_f32_16(a), _mm512_set1_ps(weights[n].shrink));
            let sum = _mm512_cvtepi32_ps(fold_lanes(&sums[n]));
            store_f32_16(a, _mm512_fmadd_ps(_mm512_set1_ps(weights[n].scale), sum, before));
        }
    }
}
