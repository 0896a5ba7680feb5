//! A group's queries against one KV block, and the online softmax that joins the blocks.
//!
//! Section 6 of the contract. State of a query: the largest score `m`, the sum `l`, and the
//! weighted values `a` (`[head_dim]`, in the group's `out`).

use crate::kv::{BLOCK_TOKENS, HeadF32, HeadQ8};
use crate::math;
use crate::ops::attention::{Group, QUERIES};

/// Running maximum and sum of a head's softmax.
#[derive(Clone, Copy, Debug)]
pub struct Softmax {
    pub(crate) m: f32,
    pub(crate) l: f32,
}

impl Softmax {
    /// Before the first block.
    pub const START: Softmax = Softmax { m: f32::NEG_INFINITY, l: 0.0 };

    /// Takes in the scores of a block: leaves the probabilities (relative to the new maximum) in
    /// their place and returns the factor by which earlier values shrink.
    #[inline]
    #[cfg_attr(kinglet_small, optimize(size))]
    fn absorb(&mut self, scores: &mut [f32]) -> f32 {
        let m = scores.iter().fold(self.m, |m, s| math::max(m, *s));
        let shrink = math::exp(self.m - m);
        for s in scores.iter_mut() {
            *s = math::exp(*s - m);
        }
        self.l = math::fma(self.l, shrink, math::sum(scores));
        self.m = m;
        shrink
    }

    /// After the last block: `a_j / l`.
    pub fn finish(&self, a: &mut [f32]) {
        for a in a {
            *a /= self.l;
        }
    }
}

/// Adds a `q8` block to every query of the group. Query i sees the first `seen[i]` tokens of the block;
/// `reference`, `[head_dim]`, is what was taken off its K.
pub fn block_q8(group: &mut Group, seen: &[usize; QUERIES], reference: &[f32], head: &HeadQ8<'_>) {
    let d = reference.len();
    for i in (0..QUERIES).filter(|i| seen[*i] > 0) {
        let offset = math::dot(&group.raw[i][..d], reference) * group.root;
        let query = (&group.q[i][..d], group.scale[i], offset);
        one_q8(&mut group.softmax[i], query, head, seen[i], &mut group.out[i][..d]);
    }
}

/// Adds a `q8` block to a query. `q`: `[head_dim]`; `scale` = its quantisation scale times the score
/// scale; `offset` is what every score of the block has besides; the first `visible` tokens of the
/// block count; `a`: `[head_dim]`.
fn one_q8(
    softmax: &mut Softmax,
    (q, scale, offset): (&[i16], f32, f32),
    head: &HeadQ8<'_>,
    visible: usize,
    a: &mut [f32],
) {
    let mut scores = [0.0f32; BLOCK_TOKENS];
    let groups = q.as_chunks::<4>().0;
    for (g, tokens) in head.k.chunks_exact(4 * q.len()).enumerate().take(visible.div_ceil(4)) {
        let mut sums = [0i32; 4];
        // 4 dims of q against 4 tokens x 4 dims.
        for (q4, k16) in groups.iter().zip(tokens.as_chunks::<16>().0) {
            for (sum, k4) in sums.iter_mut().zip(k16.as_chunks::<4>().0) {
                for (q, k) in q4.iter().zip(k4) {
                    *sum += i32::from(*q) * i32::from(*k);
                }
            }
        }
        for (t, sum) in sums.into_iter().enumerate() {
            scores[4 * g + t] = math::fma(sum as f32, scale * head.dk[4 * g + t], offset);
        }
    }
    let scores = &mut scores[..visible];
    let shrink = softmax.absorb(scores);

    for (p, dv) in scores.iter_mut().zip(head.dv) {
        *p *= dv;
    }
    let mut w = [0u8; BLOCK_TOKENS];
    let dw = math::quantize_weights(scores, &mut w[..visible]);
    let start = -128 * w.iter().map(|w| i32::from(*w)).sum::<i32>();
    for (a4, dims) in a.as_chunks_mut::<4>().0.iter_mut().zip(head.v.as_chunks::<{ 4 * BLOCK_TOKENS }>().0) {
        // V is stored with 128 added: start from what that adds.
        let mut sums = [start; 4];
        // 4 weights against 4 dims x 4 tokens.
        for (w4, v16) in w.as_chunks::<4>().0.iter().zip(dims.as_chunks::<16>().0) {
            for (sum, v4) in sums.iter_mut().zip(v16.as_chunks::<4>().0) {
                for (w, v) in w4.iter().zip(v4) {
                    *sum += i32::from(*w) * i32::from(*v);
                }
            }
        }
        for (a, sum) in a4.iter_mut().zip(sums) {
            *a = math::fma(dw, sum as f32, *a * shrink);
        }
    }
}

/// Adds an `f32` block to every query of the group, as [`block_q8`].
pub fn block_f32(group: &mut Group, seen: &[usize; QUERIES], head: &HeadF32<'_>) {
    let d = group.head_dim();
    for i in (0..QUERIES).filter(|i| seen[*i] > 0) {
        let query = (&group.raw[i][..d], group.root);
        one_f32(&mut group.softmax[i], query, head, seen[i], &mut group.out[i][..d]);
    }
}

/// Adds an `f32` block to a query, as [`one_q8`], with `scale` the score scale.
fn one_f32(
    softmax: &mut Softmax,
    (q, scale): (&[f32], f32),
    head: &HeadF32<'_>,
    visible: usize,
    a: &mut [f32],
) {
    let mut scores = [0.0f32; BLOCK_TOKENS];
    let scores = &mut scores[..visible];
    for (score, k) in scores.iter_mut().zip(head.k.chunks_exact(q.len())) {
        *score = math::dot(q, k) * scale;
    }
    let shrink = softmax.absorb(scores);
    for a in a.iter_mut() {
        *a *= shrink;
    }
    for (p, v) in scores.iter().zip(head.v.chunks_exact(q.len())) {
        for (a, v) in a.iter_mut().zip(v) {
            *a = math::fma(*p, *v, *a);
        }
    }
}
