//! Entry point for attention: a few query heads that read the same KV head of a sequence.

use super::{Isa, elementwise};
#[cfg(all(target_arch = "aarch64", target_feature = "neon"))]
use crate::kernels::neon;
use crate::kernels::scalar::attention::{self as scalar, Softmax};
#[cfg(target_arch = "x86_64")]
use crate::kernels::{avx2, avx512};
use crate::kv::{BLOCK_TOKENS, HeadF32, HeadQ8, KvType};
use crate::math;
use core::array;

/// Longest head; `Config` lets no longer one through.
pub const MAX_HEAD_DIM: usize = 256;
/// Queries of a group: as many as share one read of a KV block.
pub const QUERIES: usize = 8;

/// Query heads of one sequence and one KV head, and the state of their attention.
///
/// About 25 KB, meant for the stack of the task that uses it. Kernels may compute with the places of
/// queries that are not there: all zeros, and no position seen.
#[derive(Clone, Debug)]
pub struct Group {
    isa: Isa,
    kv_type: KvType,
    head_dim: usize,
    len: usize,
    /// `1 / sqrt(head_dim)`
    pub(crate) root: f32,
    /// The queries after rope.
    pub(crate) raw: [[f32; MAX_HEAD_DIM]; QUERIES],
    /// Conditioned and quantised (KV `q8`), for products of 16 bits.
    pub(crate) q: [[i16; MAX_HEAD_DIM]; QUERIES],
    /// The same as `128 * [0] + [1]`, for products of bytes.
    #[cfg(all(target_arch = "aarch64", target_feature = "neon"))]
    pub(crate) planes: [Planes; QUERIES],
    /// Quantisation scale times score scale.
    pub(crate) scale: [f32; QUERIES],
    /// Positions that each query sees.
    visible: [usize; QUERIES],
    pub(crate) softmax: [Softmax; QUERIES],
    pub(crate) out: [[f32; MAX_HEAD_DIM]; QUERIES],
}

/// The high and the low plane of a quantised query.
#[cfg(all(target_arch = "aarch64", target_feature = "neon"))]
pub(crate) type Planes = [[i8; MAX_HEAD_DIM]; 2];

impl Group {
    /// No queries yet; `isa` is what will compute with them. `root` is `1 / sqrt(head_dim)`.
    ///
    /// # Panics
    /// If `head_dim` exceeds [`MAX_HEAD_DIM`] or is no multiple of 16.
    pub fn new(isa: Isa, head_dim: usize, root: f32, kv_type: KvType) -> Self {
        assert!(head_dim <= MAX_HEAD_DIM && head_dim.is_multiple_of(16));
        Group {
            isa,
            kv_type,
            head_dim,
            len: 0,
            root,
            raw: [[0.0; MAX_HEAD_DIM]; QUERIES],
            q: [[0; MAX_HEAD_DIM]; QUERIES],
            #[cfg(all(target_arch = "aarch64", target_feature = "neon"))]
            planes: [[[0; MAX_HEAD_DIM]; 2]; QUERIES],
            scale: [0.0; QUERIES],
            visible: [0; QUERIES],
            softmax: [Softmax::START; QUERIES],
            out: [[0.0; MAX_HEAD_DIM]; QUERIES],
        }
    }

    /// Elements of a query.
    pub fn head_dim(&self) -> usize {
        self.head_dim
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
    pub fn push(&mut self, q: &[f32], visible: usize, factor: &[f32]) {
        let (i, d) = (self.len, self.head_dim);
        assert!(i < QUERIES && q.len() == d && visible > 0);
        self.raw[i][..d].copy_from_slice(q);
        self.visible[i] = visible;
        if self.kv_type == KvType::Q8 {
            // The place of the result serves no one yet.
            let conditioned = &mut self.out[i][..d];
            conditioned.copy_from_slice(q);
            elementwise::condition(self.isa, conditioned, factor);
            let dq = match self.isa {
                #[cfg(all(target_arch = "aarch64", target_feature = "neon"))]
                Isa::Neon(_) | Isa::DotProd(_) => neon::quantize_query(conditioned, &mut self.planes[i]),
                _ => math::quantize_i16(conditioned, math::QUERY_MOST, &mut self.q[i][..d]),
            };
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
    group: &mut Group,
    slab: impl Fn(usize) -> &'kv [u8],
    reference: impl Fn(usize, &mut [f32]),
) {
    let d = group.head_dim;
    let longest = group.visible[..group.len].iter().copied().max().unwrap_or(0);
    let mut turned = [0.0; MAX_HEAD_DIM];
    let turned = &mut turned[..d];
    for block in 0..longest.div_ceil(BLOCK_TOKENS) {
        let slab = slab(block);
        let left = |visible: usize| visible.saturating_sub(block * BLOCK_TOKENS);
        let seen: [usize; QUERIES] = array::from_fn(|i| BLOCK_TOKENS.min(left(group.visible[i])));
        match group.kv_type {
            KvType::Q8 => {
                reference(block, turned);
                let head = HeadQ8::new(slab, d).expect("slab of another geometry");
                match group.isa {
                    #[cfg(target_arch = "x86_64")]
                    Isa::Avx2(token) => avx2::attend_q8(token, group, &seen, turned, &head),
                    #[cfg(target_arch = "x86_64")]
                    Isa::Avx512(token) => avx512::attend_q8(token, group, &seen, turned, &head),
                    #[cfg(all(target_arch = "aarch64", target_feature = "neon"))]
                    Isa::Neon(token) => neon::attention::block_q8(token, group, &seen, turned, &head),
                    #[cfg(all(target_arch = "aarch64", target_feature = "neon"))]
                    Isa::DotProd(token) => neon::attention::block_q8(token, group, &seen, turned, &head),
                    _ => scalar::block_q8(group, &seen, turned, &head),
                }
            }
            KvType::F32 => {
                let head = HeadF32::new(slab, d).expect("slab of another geometry");
                match group.isa {
                    #[cfg(target_arch = "x86_64")]
                    Isa::Avx2(token) => avx2::attend_f32(token, group, &seen, &head),
                    #[cfg(target_arch = "x86_64")]
                    Isa::Avx512(token) => avx2::attend_f32(token.into(), group, &seen, &head),
                    #[cfg(all(target_arch = "aarch64", target_feature = "neon"))]
                    Isa::Neon(_) | Isa::DotProd(_) => neon::attention_f32::block(group, &seen, &head),
                    _ => scalar::block_f32(group, &seen, &head),
                }
            }
        }
    }
    for (softmax, out) in group.softmax.iter().zip(&mut group.out).take(group.len) {
        softmax.finish(&mut out[..d]);
    }
}
