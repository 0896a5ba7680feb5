//! A group's queries against a KV block of type `q8`, a few of them at a time: each K and V is loaded
//! once for so many.

use super::dot::Dot;
use super::float::{fold16, no_lanes};
use super::softmax::{Row, Weights, absorb, weigh};
use super::vec::*;
use crate::kv::{BLOCK_TOKENS, HeadQ8};
use crate::math;
use crate::ops::attention::{Group, MAX_HEAD_DIM, Planes, QUERIES};
use core::array;

/// Registers of V for four dims: a block's tokens in fours.
const FOURS: usize = BLOCK_TOKENS / 4;
/// Fours of tokens whose scores are summed at once: with four queries 16 registers of sums.
const COLUMN: usize = 4;

/// Adds a block to every query; see `scalar::attention::block_q8`.
#[allow(private_bounds, reason = "the tokens are public, what the kernels do with them is not")]
pub(crate) fn block_q8<D: Dot>(
    dot: D,
    group: &mut Group,
    seen: &[usize; QUERIES],
    reference: &[f32],
    head: &HeadQ8<'_>,
) {
    let mut first = 0;
    while first < group.len() {
        if D::QUERIES >= 4 && group.len() - first > 2 {
            tile::<D, 4>(dot, group, first, seen, reference, head);
            first += 4;
        } else {
            tile::<D, 2>(dot, group, first, seen, reference, head);
            first += 2;
        }
    }
}

/// Adds a block to the queries from `first` on: `N` of them, present or not.
///
/// One that sees nothing of the block is left as it is: its weights are 0 and nothing shrinks, and its
/// sums, never -0.0, do not change by +0.0. Where its maximum is infinite they are NaN already.
#[inline(never)]
fn tile<D: Dot, const N: usize>(
    dot: D,
    group: &mut Group,
    first: usize,
    seen: &[usize; QUERIES],
    reference: &[f32],
    head: &HeadQ8<'_>,
) {
    let seen: [usize; N] = array::from_fn(|n| seen[first + n]);
    if seen == [0; N] {
        return;
    }
    let dims = reference.len();
    let there = N.min(group.len() - first);
    let mut scores = [[[0.0; 4]; FOURS]; N];
    let planes = array::from_fn(|n| &group.planes[first + n]);
    let offset = array::from_fn(|n| dot16(&group.raw[first + n][..dims], reference) * group.root);
    let scale = array::from_fn(|n| group.scale[first + n]);
    products(dot, planes, (scale, offset), head, &mut scores);
    let (mut shrink, mut weights) = ([1.0; N], [Weights::NONE; N]);
    let (scores, seen) = (&mut scores[..there], &seen[..there]);
    absorb(&mut group.softmax[first..][..there], scores, seen, &mut shrink[..there]);
    weigh(scores, head.dv, seen, &mut weights[..there]);
    if let Some(out) = group.out[first..].first_chunk_mut::<N>() {
        add_values(dot, &weights, &shrink, head.v, out);
    }
}

/// `math::dot` of two heads, whose length is a multiple of 16.
#[inline(always)]
fn dot16(a: &[f32], b: &[f32]) -> f32 {
    let mut lanes = no_lanes();
    for (a, b) in a.as_chunks::<16>().0.iter().zip(b.as_chunks::<16>().0) {
        for ((lane, a), b) in lanes.iter_mut().zip(a.as_chunks().0).zip(b.as_chunks().0) {
            *lane = vfmaq_f32(*lane, load_f32(a), load_f32(b));
        }
    }
    fold16(lanes)
}

/// The scores of `N` queries and all tokens of the block: products times `scale` times K's scale, plus
/// `offset`.
#[inline(never)]
fn products<D: Dot, const N: usize>(
    dot: D,
    planes: [&Planes; N],
    (scale, offset): ([f32; N], [f32; N]),
    head: &HeadQ8<'_>,
    scores: &mut [Row; N],
) {
    // 4 tokens x 16 dims.
    let tiles = head.k.as_chunks::<16>().0.as_chunks::<4>().0;
    let sixteens = tiles.len() / FOURS;
    let plane_of = |plane: usize| -> [&[[i8; 16]]; N] {
        array::from_fn(|n| &planes[n][plane].as_chunks::<16>().0[..sixteens])
    };
    for first in (0..FOURS).step_by(COLUMN) {
        let k: [&[[[i8; 16]; 4]]; COLUMN] = array::from_fn(|g| &tiles[(first + g) * sixteens..][..sixteens]);
        let mut sums = [[vdupq_n_s32(0); N]; COLUMN];
        for plane in 0..2 {
            let q = plane_of(plane);
            for i in 0..sixteens {
                let q: [int8x16_t; N] = array::from_fn(|n| load_i8(&q[n][i]));
                // One by one: the compiler does not unroll what becomes so long.
                let [a, b, c, d] = &mut sums;
                add_products(dot, a, &k[0][i], q);
                add_products(dot, b, &k[1][i], q);
                add_products(dot, c, &k[2][i], q);
                add_products(dot, d, &k[3][i], q);
            }
            if plane == 0 {
                sums = sums.map(|sums| sums.map(vshlq_n_s32::<7>));
            }
        }
        for g in 0..COLUMN {
            let dk = load_f32(&head.dk.as_chunks().0[first + g]);
            for n in 0..N {
                let factor = vmulq_n_f32(dk, scale[n]);
                let score = vfmaq_f32(vdupq_n_f32(offset[n]), vcvtq_f32_s32(sums[g][n]), factor);
                store_f32(&mut scores[n][first + g], score);
            }
        }
    }
}

/// Adds to the sums of `N` queries the products of 4 tokens x 16 dims of K.
#[inline(always)]
fn add_products<D: Dot, const N: usize>(
    dot: D,
    sums: &mut [int32x4_t; N],
    k: &[[i8; 16]; 4],
    q: [int8x16_t; N],
) {
    let k = k.each_ref().map(load_i8);
    for n in 0..N {
        sums[n] = dot.dot_lane::<0>(sums[n], k[0], q[n]);
    }
    for n in 0..N {
        sums[n] = dot.dot_lane::<1>(sums[n], k[1], q[n]);
    }
    for n in 0..N {
        sums[n] = dot.dot_lane::<2>(sums[n], k[2], q[n]);
    }
    for n in 0..N {
        sums[n] = dot.dot_lane::<3>(sums[n], k[3], q[n]);
    }
}

/// Adds to the sums of `N` queries what 16 tokens weigh in twice 4 dims of V.
#[inline(always)]
fn add_weighted<D: Dot, const N: usize>(
    dot: D,
    sums: &mut [[D::Sums; N]; 2],
    v: [&[[u8; 16]; 4]; 2],
    w: [uint8x16_t; N],
) {
    /// Four tokens.
    #[inline(always)]
    fn lane<const L: i32, D: Dot, const N: usize>(
        dot: D,
        sums: &mut [[D::Sums; N]; 2],
        v: [&[[u8; 16]; 4]; 2],
        w: [uint8x16_t; N],
    ) {
        for (sums, v) in sums.iter_mut().zip(v.map(|v| load_u8(&v[L as usize]))) {
            for n in 0..N {
                sums[n] = dot.unsigned_dot_lane::<L>(sums[n], v, w[n]);
            }
        }
    }
    lane::<0, D, N>(dot, sums, v, w);
    lane::<1, D, N>(dot, sums, v, w);
    lane::<2, D, N>(dot, sums, v, w);
    lane::<3, D, N>(dot, sums, v, w);
}

/// `a_j = fma(dw, sum_t w_t v_tj, a_j * shrink)` for `N` queries, whose `a` are the rows of `out`.
#[inline(never)]
fn add_values<D: Dot, const N: usize>(
    dot: D,
    weights: &[Weights; N],
    shrink: &[f32; N],
    v: &[u8],
    out: &mut [[f32; MAX_HEAD_DIM]; N],
) {
    /// The sum's bits, read as a float, are `math::ROUND` + sum, exactly: the sum is below 2^22.
    const ROUND: u32 = math::ROUND.to_bits();
    let w = weights.each_ref().map(Weights::load);
    // What the 128 in V adds to every sum is taken off at the start.
    let start: [D::Sums; N] = array::from_fn(|n| {
        let sum = u32::from(vaddlvq_u8(w[n][0])) + u32::from(vaddlvq_u8(w[n][1]));
        dot.sums(ROUND.wrapping_sub(128 * sum))
    });
    // Twice 4 dims x twice 16 tokens; heads are multiples of 16.
    let pairs = v.as_chunks::<16>().0.as_chunks::<4>().0.as_chunks::<2>().0.as_chunks::<2>().0;
    let out = out.each_mut().map(|a| &mut a.as_chunks_mut::<8>().0[..pairs.len()]);
    for (i, v) in pairs.iter().enumerate() {
        // Of many queries by two loads each: copies take the pipes that multiply.
        let mut sums = if N > 2 { [*opaque(&start), *opaque(&start)] } else { [start; 2] };
        add_weighted(dot, &mut sums, [&v[0][0], &v[1][0]], w.map(|w| w[0]));
        add_weighted(dot, &mut sums, [&v[0][1], &v[1][1]], w.map(|w| w[1]));
        for n in 0..N {
            for (half, a) in out[n][i].as_chunks_mut::<4>().0.iter_mut().enumerate() {
                let sum =
                    vsubq_f32(vreinterpretq_f32_u32(dot.total(sums[half][n])), vdupq_n_f32(math::ROUND));
                let before = vmulq_n_f32(load_f32(a), shrink[n]);
                store_f32(a, vfmaq_n_f32(before, sum, weights[n].scale));
            }
        }
    }
}
