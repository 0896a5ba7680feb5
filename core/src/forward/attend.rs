//! The KV cache in a step: puts keys and values into blocks, and attends over them.

use super::operators::Ctx;
use super::{Chunk, Engine, ForwardError};
use crate::kv::{BLOCK_TOKENS, KvType, layout};
use crate::math;
use crate::ops::attention::{Group, MAX_HEAD_DIM, QUERIES};
use crate::ops::{self, Isa};
use crate::par::{FEW_ROWS, Single, Tile, Workers, for_each_tile};
use core::ops::Range;
use core::sync::atomic::{AtomicUsize, Ordering};

impl Engine<'_> {
    /// Puts k and v of every row into the sequences' blocks, if they are numbers in there: later steps read
    /// them, and a row that is not wanted ends here in the last block.
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
        // The first row that holds anything else.
        let bad = AtomicUsize::new(usize::MAX);
        for_each_slab(
            ctx.workers,
            ctx.n,
            kv,
            geometry.layer_bytes(),
            geometry.slab_bytes(),
            |h, mut tile| {
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
                    let finite = match geometry.kv_type {
                        KvType::F32 => {
                            layout::write_f32(slab, t, k, v);
                            k.iter().chain(v).all(|x| x.is_finite())
                        }
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
                            // The scale of what holds NaN or infinity is one itself.
                            dk.is_finite() && dv.is_finite()
                        }
                    };
                    if !finite {
                        bad.fetch_min(row, Ordering::Relaxed);
                    }
                }
            },
        );
        match s.position.get(bad.into_inner()) {
            Some(position) => Err(ForwardError::NonFinite { position: *position as usize }),
            None => Ok(()),
        }
    }

    /// Attention of every row and query head over its sequence.
    pub(super) fn attend(
        &mut self,
        ctx: &Ctx<'_>,
        i: usize,
        chunks: &[Chunk<'_>],
    ) -> Result<(), ForwardError> {
        let Engine { config: c, geometry, pool, scratch: s, kv, .. } = self;
        let kv = &**kv;
        let (d, q_dim, kv_dim, group) = (c.head_dim, c.q_dim(), c.kv_dim(), c.group());
        let shape = Heads { rows: ctx.n, kv_heads: kv_dim / d, group, head_dim: d };
        let layer = i * kv_dim..(i + 1) * kv_dim;
        let (q_factor, k_constant) = (&s.q_factor[layer.clone()], &s.k_constant[layer]);
        let angles = (&*s.block_cos, &*s.block_sin);
        let (q, chunk, position) = (&*s.q, &*s.chunk, &*s.position);
        let root = 1.0 / math::sqrt(d as f32);
        let kv_type = geometry.kv_type;
        for_each_heads(ctx.workers, shape, &mut s.attn[..ctx.n * q_dim], |rows, heads, put| {
            let kv_head = heads.start / group;
            let head = kv_head * d..(kv_head + 1) * d;
            let reference = |block: usize, out: &mut [f32]| {
                out.copy_from_slice(&k_constant[head.clone()]);
                turn(ctx.isa, out, angles, block);
            };
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
                    put(*row, *h, queries.result(n));
                }
            }
        });
        Ok(())
    }
}

/// Calls `f(head, tile)` for every KV head, with its part of all layers and blocks of `kv`. A few rows
/// are not worth a run of the workers; for many it is a small part of the step, however few the heads.
pub(super) fn for_each_slab(
    workers: &dyn Workers,
    rows: usize,
    kv: &mut [u8],
    layer_bytes: usize,
    slab_bytes: usize,
    f: impl Fn(usize, Tile<'_, u8>) + Sync,
) {
    let workers = if rows <= FEW_ROWS { &Single } else { workers };
    for_each_tile(workers, kv, layer_bytes, usize::MAX / 2, slab_bytes, |tile| {
        f(tile.cols().start / slab_bytes, tile);
    });
}

/// What attention is computed for: `rows` of `kv_heads * group` query heads.
#[derive(Clone, Copy)]
pub(super) struct Heads {
    pub rows: usize,
    pub kv_heads: usize,
    /// Query heads that read one KV head.
    pub group: usize,
    pub head_dim: usize,
}

/// Takes a row, a query head and its result.
type Put<'p> = &'p mut dyn FnMut(usize, usize, &[f32]);

/// Calls `f(rows, heads, put)` for ranges of rows and query heads, those of one KV head, that cover all
/// of them; `put` writes to `out: [rows, kv_heads * group * head_dim]`.
///
/// Heads that read the same keys and values are best computed together, but a single token has few
/// groups: then they are taken apart, such that the workers have two tasks each where there are as many
/// heads.
pub(super) fn for_each_heads(
    workers: &dyn Workers,
    Heads { rows, kv_heads, group, head_dim: d }: Heads,
    out: &mut [f32],
    f: impl Fn(Range<usize>, Range<usize>, Put<'_>) + Sync,
) {
    let rows_at_once = (QUERIES / group).max(1);
    let wanted = workers.count().saturating_mul(2);
    if workers.count() == 1 || rows.div_ceil(rows_at_once) * kv_heads >= wanted {
        return for_each_tile(workers, out, kv_heads * group * d, rows_at_once, group * d, |mut tile| {
            let heads = tile.cols().start / d..tile.cols().end / d;
            let first = heads.start;
            f(tile.rows(), heads, &mut |row, head, result| {
                tile.row_mut(row)[(head - first) * d..][..d].copy_from_slice(result);
            });
        });
    }
    let most = (rows * kv_heads * group / wanted).clamp(1, group);
    // Parts of nearly the same size.
    let at_once = group.div_ceil(group.div_ceil(most));
    // A row of this view of `out` is one group, so that no tile has heads of two.
    for_each_tile(workers, out, group * d, 1, at_once * d, |mut tile| {
        let (at, cols) = (tile.rows().start, tile.cols());
        let (row, before) = (at / kv_heads, at % kv_heads * group);
        let heads = before + cols.start / d..before + cols.end / d;
        let first = heads.start;
        f(row..row + 1, heads, &mut |_, head, result| {
            tile.row_mut(at)[(head - first) * d..][..d].copy_from_slice(result);
        });
    });
}

/// Turns a head, by rope, to the middle of block `i`.
fn turn(isa: Isa, head: &mut [f32], (cos, sin): (&[f32], &[f32]), i: usize) {
    let half = head.len() / 2;
    let at = i * half..(i + 1) * half;
    ops::elementwise::rope(isa, head, &cos[at.clone()], &sin[at]);
}
