//! A group's queries against a KV block of type `f32`, two at a time.

use super::float::panel;
use super::softmax::{Row, absorb};
use super::vec::*;
use crate::cast;
use crate::kernels::scalar::float::F32;
use crate::kv::{BLOCK_TOKENS, HeadF32};
use crate::ops::attention::{Group, QUERIES};
use core::array;
use core::ops::Range;

/// Adds a block to every query; see `scalar::attention::block_f32`.
pub(crate) fn block(group: &mut Group, seen: &[usize; QUERIES], head: &HeadF32<'_>) {
    let d = group.head_dim();
    let k = cast::bytes(head.k).as_chunks::<4>().0;
    for (pair, seen) in seen.as_chunks::<2>().0.iter().enumerate() {
        let (first, most) = (2 * pair, seen[0].max(seen[1]));
        if most == 0 {
            continue;
        }
        let mut scores: [Row; 2] = [[[0.0; 4]; BLOCK_TOKENS / 4]; 2];
        let q = array::from_fn(|n| &group.raw[first + n][..d]);
        for t in (0..most).step_by(2) {
            // A block holds whole pairs: a token that is not seen is there and may be anything.
            let products = panel::<F32, 2>([&k[t * d..][..d], &k[(t + 1) * d..][..d]], q);
            for (scores, products) in scores.iter_mut().zip(products) {
                let two = &mut scores.as_flattened_mut()[t..t + 2];
                two.copy_from_slice(&products.map(|product| product * group.root));
            }
        }
        let mut shrink = [0.0; 2];
        absorb(&mut group.softmax[first..first + 2], &mut scores, seen, &mut shrink);
        for (a, shrink) in group.out[first..].iter_mut().zip(shrink) {
            a[..d].iter_mut().for_each(|a| *a *= shrink);
        }
        let [p, p_second] = scores.each_ref().map(|scores| scores.as_flattened());
        let [a, a_second] = &mut group.out.as_chunks_mut::<2>().0[pair];
        let (a, a_second) = (&mut a[..d], &mut a_second[..d]);
        let both = seen[0].min(seen[1]);
        add_values([p, p_second], 0..both, head.v, [a, a_second]);
        add_values([p], both..seen[0], head.v, [a]);
        add_values([p_second], both..seen[1], head.v, [a_second]);
    }
}

/// `a_j = fma(p_t, v_tj, a_j)` for the tokens t in ascending order and `N` queries.
#[inline(never)]
fn add_values<const N: usize>(p: [&[f32]; N], tokens: Range<usize>, v: &[f32], a: [&mut [f32]; N]) {
    let d = a[0].len();
    for j in (0..d).step_by(16) {
        let mut sums: [[float32x4_t; 4]; N] = array::from_fn(|n| {
            let a = a[n][j..j + 16].as_chunks().0;
            array::from_fn(|i| load_f32(&a[i]))
        });
        for t in tokens.clone() {
            let v = v[t * d + j..][..16].as_chunks().0;
            for (i, v) in v.iter().enumerate() {
                let v = load_f32(v);
                for n in 0..N {
                    sums[n][i] = vfmaq_n_f32(sums[n][i], v, p[n][t]);
                }
            }
        }
        for n in 0..N {
            for (a, sum) in a[n][j..j + 16].as_chunks_mut().0.iter_mut().zip(sums[n]) {
                store_f32(a, sum);
            }
        }
    }
}
