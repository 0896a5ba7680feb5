//! Entry point for attention: a few query heads that read the same KV head of a sequence.

use super::{Isa, elementwise};
#[cfg(target_arch = "x86_64")]
use crate::kernels::avx2;
use crate::kernels::scalar::attention::{Softmax, block_f32, block_q8};
use crate::kv::{BLOCK_TOKENS, HeadF32, HeadQ8, KvType};
use crate::math;

/// Longest head; `Config` lets no longer one through.
pub const MAX_HEAD_DIM: usize = 256;
/// Queries of a group: as many as share one read of a KV block.
pub const QUERIES: usize = 8;

/// Query heads of one sequence and one KV head, and the state of their attention.
///
/// About 20 KB, meant for the stack of the task that uses it.
#[derive(Clone, Debug)]
pub struct Group {
    kv_type: KvType,
    head_dim: usize,
    len: usize,
    /// `1 / sqrt(head_dim)`
    root: f32,
    /// The queries after rope.
    raw: [[f32; MAX_HEAD_DIM]; QUERIES],
    /// Conditioned and quantised (KV `q8`).
    q: [[i16; MAX_HEAD_DIM]; QUERIES],
    /// Quantisation scale times score scale.
    scale: [f32; QUERIES],
    /// Positions that each query sees.
    visible: [usize; QUERIES],
    softmax: [Softmax; QUERIES],
    out: [[f32; MAX_HEAD_DIM]; QUERIES],
}

impl Group {
    /// No queries yet. `root` is `1 / sqrt(head_dim)`.
    ///
    /// # Panics
    /// If `head_dim` exceeds [`MAX_HEAD_DIM`].
    pub fn new(head_dim: usize, root: f32, kv_type: KvType) -> Self {
        assert!(head_dim <= MAX_HEAD_DIM);
        Group {
            kv_type,
            head_dim,
            len: 0,
            root,
            raw: [[0.0; MAX_HEAD_DIM]; QUERIES],
            q: [[0; MAX_HEAD_DIM]; QUERIES],
            scale: [0.0; QUERIES],
            visible: [0; QUERIES],
            softmax: [Softmax::START; QUERIES],
            out: [[0.0; MAX_HEAD_DIM]; QUERIES],
        }
    }

    /// Number of queries.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds a query that sees the first `visible` positions. `q`, `factor`: `[head_dim]`; `factor` is
    /// what conditions Q (KV `q8`).
    ///
    /// # Panics
    /// If the group is full, a length is not right, or `visible` is 0.
    pub fn push(&mut self, isa: Isa, q: &[f32], visible: usize, factor: &[f32]) {
        let (i, d) = (self.len, self.head_dim);
        assert!(i < QUERIES && q.len() == d && visible > 0);
        self.raw[i][..d].copy_from_slice(q);
        self.visible[i] = visible;
        if self.kv_type == KvType::Q8 {
            // The place of the result serves no one yet.
            let conditioned = &mut self.out[i][..d];
            conditioned.copy_from_slice(q);
            elementwise::condition(isa, conditioned, factor);
            let dq = math::quantize_i16(conditioned, math::QUERY_MOST, &mut self.q[i][..d]);
            self.scale[i] = dq * (self.root / elementwise::hadamard_run(d) as f32);
            conditioned.fill(0.0);
        }
        self.len += 1;
    }

    /// What query `i` got, `[head_dim]`, after [`attend`].
    ///
    /// # Panics
    /// If there is no such query.
    pub fn result(&self, i: usize) -> &[f32] {
        &self.out[..self.len][i][..self.head_dim]
    }
}

/// `softmax(q . K^T * scale) V` for every query of the group over the positions it sees.
///
/// `slab(i)` gives the bytes of the sequence's i-th block for this layer and KV head, `reference(i, out)`
/// the vector that was taken off K in that block (KV `q8`).
///
/// # Panics
/// If a slab is not that of a head of this group's length.
pub fn attend<'kv>(
    isa: Isa,
    group: &mut Group,
    slab: impl Fn(usize) -> &'kv [u8],
    reference: impl Fn(usize, &mut [f32]),
) {
    let d = group.head_dim;
    let longest = group.visible[..group.len].iter().copied().max().unwrap_or(0);
    let mut turned = [0.0; MAX_HEAD_DIM];
    for block in 0..longest.div_ceil(BLOCK_TOKENS) {
        let slab = slab(block);
        if group.kv_type == KvType::Q8 {
            reference(block, &mut turned[..d]);
        }
        for i in 0..group.len {
            let seen = BLOCK_TOKENS.min(group.visible[i].saturating_sub(block * BLOCK_TOKENS));
            if seen == 0 {
                continue;
            }
            let (softmax, out) = (&mut group.softmax[i], &mut group.out[i][..d]);
            match group.kv_type {
                KvType::Q8 => {
                    let head = HeadQ8::new(slab, d).expect("slab of another geometry");
                    let offset = math::dot(&group.raw[i][..d], &turned[..d]) * group.root;
                    let query = (&group.q[i][..d], group.scale[i], offset);
                    match isa {
                        #[cfg(target_arch = "x86_64")]
                        Isa::Avx2(token) => avx2::attend_q8(token, softmax, query, &head, seen, out),
                        _ => block_q8(softmax, query, &head, seen, out),
                    }
                }
                KvType::F32 => {
                    let head = HeadF32::new(slab, d).expect("slab of another geometry");
                    block_f32(softmax, &group.raw[i][..d], group.root, &head, seen, out);
                }
            }
        }
    }
    for i in 0..group.len {
        group.softmax[i].finish(&mut group.out[i][..d]);
    }
}
