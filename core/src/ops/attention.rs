//! Entry point for attention: one query head of one token over its sequence's blocks.

use super::Isa;
use crate::kernels::scalar::attention::{Softmax, block_f32, block_q8};
use crate::kv::{BLOCK_TOKENS, HeadF32, HeadQ8};

/// A query head, as the KV type wants it.
#[derive(Clone, Copy, Debug)]
pub enum Query<'q> {
    /// Conditioned and quantised; `scale` is its scale times the score scale.
    Q8 {
        /// `[head_dim]`
        q: &'q [i16],
        /// Quantisation scale times score scale.
        scale: f32,
    },
    /// As it is; `scale` is the score scale.
    F32 {
        /// `[head_dim]`
        q: &'q [f32],
        /// Score scale.
        scale: f32,
    },
}

/// `out = softmax(q . K^T * scale) V` over the first `visible` positions of a sequence.
///
/// `slab(i)` gives the bytes of the sequence's i-th block for this layer and KV head.
///
/// # Panics
/// If a slab is not the slab of a head as long as `out`, or `visible` is 0.
pub fn attend<'kv>(
    isa: Isa,
    query: Query<'_>,
    visible: usize,
    slab: impl Fn(usize) -> &'kv [u8],
    out: &mut [f32],
) {
    assert!(visible > 0);
    let head_dim = out.len();
    let mut softmax = Softmax::START;
    out.fill(0.0);
    for block in 0..visible.div_ceil(BLOCK_TOKENS) {
        let seen = BLOCK_TOKENS.min(visible - block * BLOCK_TOKENS);
        match (isa, query) {
            (_, Query::Q8 { q, scale }) => {
                assert_eq!(q.len(), head_dim);
                let head = HeadQ8::new(slab(block), head_dim).expect("slab of another geometry");
                block_q8(&mut softmax, q, scale, &head, seen, out);
            }
            (_, Query::F32 { q, scale }) => {
                assert_eq!(q.len(), head_dim);
                let head = HeadF32::new(slab(block), head_dim).expect("slab of another geometry");
                block_f32(&mut softmax, q, scale, &head, seen, out);
            }
        }
    }
    softmax.finish(out);
}
