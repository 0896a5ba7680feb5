//! Rows of blocks of 32 times one token, straight from the blocks. Must not know how a type packs them.

use super::dot::Dot;
use super::panel::{ROWS, sum_each};
use super::unpack32::Often32;
use super::vec::*;
use super::walk::{Four, Walk};
use crate::ops::BlockQ32;
use core::array;

/// Eight rows that begin in the first bytes, so many bytes from one to the next, times one token.
pub(super) type Few<D> = fn(D, &[u8], usize, &[BlockQ32]) -> [f32; ROWS];

/// The kernels of a type for coarse and for fine activations, if they are worth having.
pub(super) fn kernels<B: Often32, D: Dot>() -> Option<[Few<D>; 2]> {
    D::FAST.then_some([few::<B, D, false>, few::<B, D, true>])
}

/// See [`Few`].
///
/// Integer sums run on from block to block, and a block's is the difference to the one before:
/// exact modulo 2^32, and cheaper than a fresh start for every row.
fn few<B: Often32, D: Dot, const FINE: bool>(d: D, w: &[u8], stride: usize, x: &[BlockQ32]) -> [f32; ROWS] {
    const { assert!(!B::HAS_MIN) }
    let mut walk = Walk::<B::Raw>::new(w, stride, x);
    let zero = vdupq_n_s32(0);
    let quad = Quad { sums: [[zero; 4]; 2], before: zero, acc: vdupq_n_f32(0.0) };
    let (mut low, mut high) = (quad, quad);
    // What the high plane counts.
    let plane = opaque_s32(vdupq_n_s32(128));
    while let Some((x, [blocks_low, mut blocks_high])) = walk.next() {
        let planes = [halves(&x.lo), halves(&x.hi)];
        let mut offset = zero;
        if B::OFFSET != 0 {
            // What takes the surplus of the type's quants off: the same for every row.
            let surplus = [vdupq_n_s8(-B::OFFSET); 2];
            offset = two(d, zero, surplus, planes[0]);
            if FINE {
                offset = vmlaq_s32(offset, two(d, zero, surplus, planes[1]), plane);
            }
            offset = opaque_s32(sum_each([offset; 4]));
        }
        low.add::<B, D, FINE>(d, blocks_low.load(), x.d, planes, offset, plane);
        if B::HEAVY {
            blocks_high = blocks_high.after(&mut low.acc);
        }
        high.add::<B, D, FINE>(d, blocks_high.load(), x.d, planes, offset, plane);
    }
    let mut out = [0.0; ROWS];
    out.as_chunks_mut().0.iter_mut().zip([low, high]).for_each(|(out, quad)| store_f32(out, quad.acc));
    out
}

/// Four rows on their way through the blocks.
#[derive(Clone, Copy)]
struct Quad {
    /// Per plane and row four integers whose sum runs on.
    sums: [[int32x4_t; 4]; 2],
    /// The rows' sums before the present block.
    before: int32x4_t,
    acc: float32x4_t,
}

impl Quad {
    /// Adds the products of a block of row `R`.
    #[inline(always)]
    fn row<B: Often32, D: Dot, const FINE: bool, const R: usize>(
        &mut self,
        d: D,
        blocks: &Four<'_, B::Raw, B::Heads>,
        planes: [[int8x16_t; 2]; 2],
    ) {
        let q = B::row::<R>(blocks);
        self.sums[0][R] = two(d, self.sums[0][R], q, planes[0]);
        if FINE {
            self.sums[1][R] = two(d, self.sums[1][R], q, planes[1]);
        }
    }

    /// Adds a block of each row times one of activations with the scale `dx`. `offset` is part of every
    /// row's sum of this block; `plane` is what the high plane counts.
    #[inline(always)]
    fn add<B: Often32, D: Dot, const FINE: bool>(
        &mut self,
        d: D,
        blocks: Four<'_, B::Raw, B::Heads>,
        dx: f32,
        planes: [[int8x16_t; 2]; 2],
        offset: int32x4_t,
        plane: int32x4_t,
    ) {
        // One by one: as a loop it would keep the sums in memory.
        self.row::<B, D, FINE, 0>(d, &blocks, planes);
        self.row::<B, D, FINE, 1>(d, &blocks, planes);
        self.row::<B, D, FINE, 2>(d, &blocks, planes);
        self.row::<B, D, FINE, 3>(d, &blocks, planes);
        let mut now = sum_each(self.sums[0]);
        if FINE {
            now = vmlaq_s32(now, sum_each(self.sums[1]), plane);
        }
        if B::OFFSET != 0 {
            // Else the compiler takes the pairwise sum apart to bring the offset in.
            now = opaque_s32(now);
        }
        let mut sum = vsubq_s32(now, self.before);
        self.before = now;
        if B::OFFSET != 0 {
            sum = vaddq_s32(sum, offset);
        }
        let sum = vcvtq_f32_s32(sum);
        self.acc = vfmaq_f32(self.acc, vmulq_n_f32(B::four_scales(blocks.heads), dx), sum);
    }
}

/// The registers of a plane.
#[inline(always)]
fn halves(plane: &[i8; 32]) -> [int8x16_t; 2] {
    // A plane has exactly two.
    array::from_fn(|h| load_i8(&plane.as_chunks().0[h]))
}

#[inline(always)]
fn two<D: Dot>(d: D, start: int32x4_t, q: [int8x16_t; 2], x: [int8x16_t; 2]) -> int32x4_t {
    d.dot(d.dot(start, q[0], x[0]), q[1], x[1])
}
