//! Where the bytes of a block are.
//!
//! A block is `[layer][kv head]` slabs. A slab of type `q8`, for head_dim D:
//!
//! | bytes | what | order |
//! |---|---|---|
//! | 32 D | K, i8 | `[token / 4][dim / 4][token % 4][dim % 4]` |
//! | 32 D | V + 128, u8 | `[dim / 4][token / 4][dim % 4][token % 4]` |
//! | 128 | K scales, f32 | `[token]` |
//! | 128 | V scales, f32 | `[token]` |
//!
//! 16 bytes of K are 4 tokens x 4 dims: one dot-product instruction by lane adds 4 dims of a query
//! to 4 scores. V is the same with the roles exchanged; it is stored with 128 added, since its partners,
//! the weights, have no sign either and unsigned dot products exist. A slab of type `f32` is K
//! `[token][dim]`, then V `[token][dim]`. Multi-byte values are in the machine's order, which snapshots
//! require to be little-endian.

use super::{BLOCK_TOKENS, KvType};
use crate::cast;
use crate::config::{self, Config};

/// Sizes of a model's KV blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// How keys and values are stored.
    pub kv_type: KvType,
    /// Decoder blocks of the model.
    pub n_layers: usize,
    /// KV heads of a layer.
    pub n_kv_heads: usize,
    /// Elements of a head.
    pub head_dim: usize,
}

impl Geometry {
    /// The geometry of `config`'s cache.
    pub const fn of(config: &Config, kv_type: KvType) -> Self {
        Geometry {
            kv_type,
            n_layers: config.n_layers,
            n_kv_heads: config.n_kv_heads,
            head_dim: config.head_dim,
        }
    }

    /// The first size that no model has, by name: the ranges are those of [`Config::check`]. Bytes of a
    /// block of a geometry that passes are below 2^39.
    pub fn check(&self) -> Option<(&'static str, usize)> {
        let ranges = [
            ("n_layers", self.n_layers, config::MAX_LAYERS),
            ("n_kv_heads", self.n_kv_heads, config::MAX_HEADS),
            ("head_dim", self.head_dim, config::MAX_HEAD_DIM),
        ];
        let out = ranges.iter().find(|(_, found, most)| *found == 0 || *found > *most as usize);
        match out {
            Some(&(name, found, _)) => Some((name, found)),
            None if !self.head_dim.is_multiple_of(16) => Some(("head_dim", self.head_dim)),
            None => None,
        }
    }

    /// Bytes of one head of one layer.
    pub const fn slab_bytes(&self) -> usize {
        match self.kv_type {
            KvType::Q8 => 2 * BLOCK_TOKENS * (self.head_dim + 4),
            KvType::F32 => 2 * BLOCK_TOKENS * self.head_dim * 4,
        }
    }

    /// Bytes of one layer.
    pub const fn layer_bytes(&self) -> usize {
        self.n_kv_heads.saturating_mul(self.slab_bytes())
    }

    /// Bytes of a block; saturates, where addresses are short.
    pub const fn block_bytes(&self) -> usize {
        self.n_layers.saturating_mul(self.layer_bytes())
    }

    /// Row of block `block`, layer `layer`, when a pool is seen as a matrix of
    /// [`Geometry::layer_bytes`] wide rows.
    pub const fn row(&self, block: usize, layer: usize) -> usize {
        block * self.n_layers + layer
    }
}

/// Offset in K of a `q8` slab of token `t`, dim `d`.
#[inline(always)]
pub const fn k_offset(head_dim: usize, t: usize, d: usize) -> usize {
    ((t / 4 * (head_dim / 4) + d / 4) * 4 + t % 4) * 4 + d % 4
}

/// Offset in V of a `q8` slab of token `t`, dim `d`.
#[inline(always)]
pub const fn v_offset(t: usize, d: usize) -> usize {
    ((d / 4 * (BLOCK_TOKENS / 4) + t / 4) * 4 + d % 4) * 4 + t % 4
}

/// A `q8` slab, readable.
#[derive(Clone, Copy, Debug)]
pub struct HeadQ8<'a> {
    /// K, `32 * head_dim`, interleaved.
    pub k: &'a [i8],
    /// V + 128, `32 * head_dim`, interleaved.
    pub v: &'a [u8],
    /// K scale of each token.
    pub dk: &'a [f32; BLOCK_TOKENS],
    /// V scale of each token.
    pub dv: &'a [f32; BLOCK_TOKENS],
}

impl<'a> HeadQ8<'a> {
    /// Splits a slab; `None` if its size or alignment is not right.
    #[inline]
    pub fn new(slab: &'a [u8], head_dim: usize) -> Option<Self> {
        let n = BLOCK_TOKENS * head_dim;
        let (k, rest) = slab.split_at_checked(n)?;
        let (v, scales) = rest.split_at_checked(n)?;
        let (dk, dv) = cast::view::<f32>(scales)?.split_at_checked(BLOCK_TOKENS)?;
        Some(HeadQ8 { k: cast::view(k)?, v, dk: dk.try_into().ok()?, dv: dv.try_into().ok()? })
    }
}

/// Writes token `t` of a `q8` slab. `k`, `v`: `[head_dim]`.
///
/// # Panics
/// If the slab's size or alignment, `t` or a length is not right.
pub fn write_q8(slab: &mut [u8], t: usize, (k, dk): (&[i8], f32), (v, dv): (&[i8], f32)) {
    assert!(t < BLOCK_TOKENS && k.len() == v.len());
    let head_dim = k.len();
    let (k_out, rest) = slab.split_at_mut(BLOCK_TOKENS * head_dim);
    let (v_out, scales) = rest.split_at_mut(BLOCK_TOKENS * head_dim);
    for (d, (&k, &v)) in k.iter().zip(v).enumerate() {
        k_out[k_offset(head_dim, t, d)] = k as u8;
        v_out[v_offset(t, d)] = (v as u8) ^ 0x80;
    }
    let scales = cast::view_mut::<f32>(scales).expect("a slab is aligned");
    scales[t] = dk;
    scales[BLOCK_TOKENS + t] = dv;
}

/// An `f32` slab, readable.
#[derive(Clone, Copy, Debug)]
pub struct HeadF32<'a> {
    /// K, `[32, head_dim]`.
    pub k: &'a [f32],
    /// V, `[32, head_dim]`.
    pub v: &'a [f32],
}

impl<'a> HeadF32<'a> {
    /// Splits a slab; `None` if its size or alignment is not right.
    #[inline]
    pub fn new(slab: &'a [u8], head_dim: usize) -> Option<Self> {
        let (k, v) = cast::view::<f32>(slab)?.split_at_checked(BLOCK_TOKENS * head_dim)?;
        (v.len() == k.len()).then_some(HeadF32 { k, v })
    }
}

/// Writes token `t` of an `f32` slab. `k`, `v`: `[head_dim]`.
///
/// # Panics
/// If the slab's size or alignment, `t` or a length is not right.
pub fn write_f32(slab: &mut [u8], t: usize, k: &[f32], v: &[f32]) {
    assert!(t < BLOCK_TOKENS && k.len() == v.len());
    let head_dim = k.len();
    let slab = cast::view_mut::<f32>(slab).expect("a slab is aligned");
    let (k_out, v_out) = slab.split_at_mut(BLOCK_TOKENS * head_dim);
    k_out[t * head_dim..][..head_dim].copy_from_slice(k);
    v_out[t * head_dim..][..head_dim].copy_from_slice(v);
}

#[cfg(test)]
mod tests {
    use super::*;
    extern crate std;

    #[test]
    fn sizes_are_those_of_the_design() {
        let g = Geometry { kv_type: KvType::Q8, n_layers: 28, n_kv_heads: 8, head_dim: 128 };
        assert_eq!(g.layer_bytes() / BLOCK_TOKENS, 2112);
        assert_eq!(g.block_bytes() % 4096, 0);
        let g = Geometry { kv_type: KvType::Q8, n_layers: 24, n_kv_heads: 2, head_dim: 64 };
        assert_eq!(g.layer_bytes() / BLOCK_TOKENS, 272);
    }

    #[test]
    fn interleaving_is_a_permutation() {
        for head_dim in [16, 48, 64, 128] {
            let mut seen = std::vec![[false; 2]; BLOCK_TOKENS * head_dim];
            for t in 0..BLOCK_TOKENS {
                for d in 0..head_dim {
                    for (which, at) in [k_offset(head_dim, t, d), v_offset(t, d)].into_iter().enumerate() {
                        assert!(!seen[at][which]);
                        seen[at][which] = true;
                    }
                }
            }
        }
    }
}
