//! The KV cache in a step: puts keys and values into blocks, and attends over them.

use super::step::Ctx;
use super::{Chunk, Engine, ForwardError};
use crate::kv::{BLOCK_TOKENS, KvType, layout};
use crate::math;
use crate::ops::attention::{Group, MAX_HEAD_DIM, QUERIES};
use crate::ops::{self, Isa};
use crate::par::for_each_tile;

impl Engine<'_> {
    /// Puts k and v of every row into the sequences' blocks. A task is a KV head.
    pub(super) fn store(
        &mut self,
        ctx: &Ctx<'_>,
        i: usize,
        chunks: &[Chunk<'_>],
    ) -> Result<(), ForwardError> {
        let Engine { config: c, geometry, pool, scratch: s, kv, .. } = self;
        for chunk in chunks {
            // `table` below must not fail inside a task.
            pool.table(chunk.seq)?;
        }
        let (d, kv_dim) = (c.head_dim, c.kv_dim());
        let k_factor = &s.k_factor[i * kv_dim..(i + 1) * kv_dim];
        let k_constant = &s.k_constant[i * kv_dim..(i + 1) * kv_dim];
        let angles = (&*s.block_cos, &*s.block_sin);
        let (slab_bytes, all) = (geometry.slab_bytes(), usize::MAX / 2);
        for_each_tile(ctx.workers, kv, geometry.layer_bytes(), all, slab_bytes, |mut tile| {
            let h = tile.cols().start / slab_bytes;
            let head = h * d..(h + 1) * d;
            let mut conditioned = [0.0f32; MAX_HEAD_DIM];
            // The constant part of K, turned to the middle of block `reference_of`.
            let (mut reference, mut reference_of) = ([0.0f32; MAX_HEAD_DIM], usize::MAX);
            let (mut kq, mut vq) = ([0i8; MAX_HEAD_DIM], [0i8; MAX_HEAD_DIM]);
            for row in 0..ctx.n {
                let table = pool.table(chunks[s.chunk[row] as usize].seq).unwrap_or(&[]);
                let position = s.position[row] as usize;
                let (block, t) = (table[position / BLOCK_TOKENS] as usize, position % BLOCK_TOKENS);
                let slab = tile.row_mut(geometry.row(block, i));
                let k = &s.k[row * kv_dim..][head.clone()];
                let v = &s.v[row * kv_dim..][head.clone()];
                match geometry.kv_type {
                    KvType::F32 => layout::write_f32(slab, t, k, v),
                    KvType::Q8 => {
                        let conditioned = &mut conditioned[..d];
                        let reference = &mut reference[..d];
                        if reference_of != position / BLOCK_TOKENS {
                            reference_of = position / BLOCK_TOKENS;
                            reference.copy_from_slice(&k_constant[head.clone()]);
                            turn(ctx.isa, reference, angles, reference_of);
                        }
                        conditioned.copy_from_slice(k);
                        ops::elementwise::subtract(conditioned, reference);
                        ops::elementwise::condition(ctx.isa, conditioned, &k_factor[head.clone()]);
                        let dk = math::quantize(conditioned, &mut kq[..d]);
                        let dv = math::quantize(v, &mut vq[..d]);
                        layout::write_q8(slab, t, (&kq[..d], dk), (&vq[..d], dv));
                    }
                }
            }
        });
        Ok(())
    }

    /// Attention of every row and query head over its sequence. A task is a few rows of one KV head,
    /// with all query heads that read it.
    pub(super) fn attend(
        &mut self,
        ctx: &Ctx<'_>,
        i: usize,
        chunks: &[Chunk<'_>],
    ) -> Result<(), ForwardError> {
        let Engine { config: c, geometry, pool, scratch: s, kv, .. } = self;
        let kv = &**kv;
        let (d, q_dim, kv_dim, group) = (c.head_dim, c.q_dim(), c.kv_dim(), c.group());
        let layer = i * kv_dim..(i + 1) * kv_dim;
        let (q_factor, k_constant) = (&s.q_factor[layer.clone()], &s.k_constant[layer]);
        let angles = (&*s.block_cos, &*s.block_sin);
        let (q, chunk, position) = (&*s.q, &*s.chunk, &*s.position);
        let root = 1.0 / math::sqrt(d as f32);
        let kv_type = geometry.kv_type;
        let rows_at_once = (QUERIES / group).max(1);
        let out = &mut s.attn[..ctx.n * q_dim];
        for_each_tile(ctx.workers, out, q_dim, rows_at_once, group * d, |mut tile| {
            let kv_head = tile.cols().start / (group * d);
            let head = kv_head * d..(kv_head + 1) * d;
            let reference = |block: usize, out: &mut [f32]| {
                out.copy_from_slice(&k_constant[head.clone()]);
                turn(ctx.isa, out, angles, block);
            };
            let (rows, heads) = (tile.rows(), tile.cols().start / d..tile.cols().end / d);
            let mut todo = rows.flat_map(|row| heads.clone().map(move |h| (row, h))).peekable();
            while let Some(&(first, _)) = todo.peek() {
                // Queries of one sequence, as many as a group holds.
                let mut at = [(0, 0); QUERIES];
                let mut queries = Group::new(ctx.isa, d, root, kv_type);
                while queries.len() < QUERIES
                    && let Some((row, h)) = todo.next_if(|(row, _)| chunk[*row] == chunk[first])
                {
                    at[queries.len()] = (row, h);
                    let q = &q[row * q_dim + h * d..][..d];
                    queries.push(q, position[row] as usize + 1, &q_factor[head.clone()]);
                }
                let table = pool.table(chunks[chunk[first] as usize].seq).unwrap_or(&[]);
                let slab = |block: usize| {
                    let at = geometry.row(table[block] as usize, i) * geometry.layer_bytes()
                        + kv_head * geometry.slab_bytes();
                    &kv[at..at + geometry.slab_bytes()]
                };
                ops::attention::attend(&mut queries, slab, reference);
                for (n, (row, h)) in at[..queries.len()].iter().enumerate() {
                    let start = (h - heads.start) * d;
                    tile.row_mut(*row)[start..start + d].copy_from_slice(queries.result(n));
                }
            }
        });
        Ok(())
    }
}

/// Turns a head, by rope, to the middle of block `i`.
fn turn(isa: Isa, head: &mut [f32], (cos, sin): (&[f32], &[f32]), i: usize) {
    let half = head.len() / 2;
    let at = i * half..(i + 1) * half;
    ops::elementwise::rope(isa, head, &cos[at.clone()], &sin[at]);
}
