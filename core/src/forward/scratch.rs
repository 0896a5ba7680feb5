//! The room of a step, split once into arrays of one role each.

use super::Engine;
use crate::cast::{Arena, RegionError};
use crate::config::Config;
use crate::ops::{BlockQ32, BlockQ256};
use crate::requirements::{Limits, array_bytes};

/// Arrays of up to `max_batch` rows, and tables computed at load.
///
/// Before the last block's attention the wanted rows of `x`, `xn`, `q32`, `q256`, `cos`, `sin`, `position`,
/// `chunk` and `wanted` move to the front, and only they are computed from then on. `k`, `v` and `token` are
/// done with by then and stay.
#[derive(Debug)]
pub(super) struct Scratch<'m> {
    /// `[batch, dim]` residual stream
    pub x: &'m mut [f32],
    /// `[batch, dim]` normalised
    pub xn: &'m mut [f32],
    /// `[batch, q_dim]`
    pub q: &'m mut [f32],
    /// `[batch, kv_dim]`
    pub k: &'m mut [f32],
    /// `[batch, kv_dim]`
    pub v: &'m mut [f32],
    /// `[batch, q_dim]` heads after attention
    pub attn: &'m mut [f32],
    /// `[batch, dim]` output of a block's half, before it is added
    pub proj: &'m mut [f32],
    /// `[batch, ffn_dim]`
    pub gate: &'m mut [f32],
    /// `[batch, ffn_dim]`
    pub up: &'m mut [f32],
    /// `[batch, widest / 32]` quantised input of the next matrix
    pub q32: &'m mut [BlockQ32],
    /// `[batch, widest / 256]`
    pub q256: &'m mut [BlockQ256],
    /// `[batch, head_dim / 2]`
    pub cos: &'m mut [f32],
    /// `[batch, head_dim / 2]`
    pub sin: &'m mut [f32],
    /// `[max_logits, vocab]`
    pub logits: &'m mut [f32],
    /// `[batch]` position of each row in its sequence
    pub position: &'m mut [u32],
    /// `[batch]` chunk of each row
    pub chunk: &'m mut [u32],
    /// `[batch]` token of each row
    pub token: &'m mut [u32],
    /// `[batch]` rows whose logits are wanted
    pub wanted: &'m mut [u32],
    /// `[head_dim / 2]` rotary frequencies
    pub inv_freq: &'m mut [f32],
    /// `[n_layers, kv_dim]` what Q is multiplied with
    pub q_factor: &'m mut [f32],
    /// `[n_layers, kv_dim]` what K is multiplied with
    pub k_factor: &'m mut [f32],
    /// `[n_layers, kv_dim]` the constant part of K before rope, damped; turned to a block's middle it
    /// is taken off K
    pub k_constant: &'m mut [f32],
    /// `[blocks of a sequence, head_dim / 2]` angles of the blocks' middles
    pub block_cos: &'m mut [f32],
    /// `[blocks of a sequence, head_dim / 2]`
    pub block_sin: &'m mut [f32],
}

/// Elements of the widest matrix input.
fn widest(c: &Config) -> usize {
    c.dim.max(c.q_dim()).max(c.ffn_dim)
}

/// Bytes that [`Scratch::new`] takes; saturates.
#[inline(never)]
#[cfg_attr(kinglet_small, optimize(size))]
pub(crate) fn bytes(c: &Config, limits: &Limits) -> usize {
    let b = limits.max_batch;
    let floats = [
        (b, c.dim),
        (b, c.dim),
        (b, c.q_dim()),
        (b, c.kv_dim()),
        (b, c.kv_dim()),
        (b, c.q_dim()),
        (b, c.dim),
        (b, c.ffn_dim),
        (b, c.ffn_dim),
        (b, c.head_dim / 2),
        (b, c.head_dim / 2),
        (limits.max_logits, c.vocab),
        (1, c.head_dim / 2),
        (c.n_layers, c.kv_dim()),
        (c.n_layers, c.kv_dim()),
        (c.n_layers, c.kv_dim()),
        (limits.block_angles(), c.head_dim / 2),
        (limits.block_angles(), c.head_dim / 2),
    ];
    let mut total = array_bytes::<BlockQ32>(b, widest(c) / 32)
        .saturating_add(array_bytes::<BlockQ256>(b, widest(c) / 256))
        .saturating_add(array_bytes::<u32>(b, 1).saturating_mul(4));
    for (rows, width) in floats {
        total = total.saturating_add(array_bytes::<f32>(rows, width));
    }
    total
}

impl<'m> Scratch<'m> {
    #[inline(never)]
    #[cfg_attr(kinglet_small, optimize(size))]
    pub(super) fn new(region: &'m mut [u8], c: &Config, limits: &Limits) -> Result<Self, RegionError> {
        let b = limits.max_batch;
        let mut arena = Arena::new(region)?;
        let mut floats = |rows: usize, width: usize| arena.take::<f32>(rows.saturating_mul(width));
        Ok(Scratch {
            x: floats(b, c.dim)?,
            xn: floats(b, c.dim)?,
            q: floats(b, c.q_dim())?,
            k: floats(b, c.kv_dim())?,
            v: floats(b, c.kv_dim())?,
            attn: floats(b, c.q_dim())?,
            proj: floats(b, c.dim)?,
            gate: floats(b, c.ffn_dim)?,
            up: floats(b, c.ffn_dim)?,
            cos: floats(b, c.head_dim / 2)?,
            sin: floats(b, c.head_dim / 2)?,
            logits: floats(limits.max_logits, c.vocab)?,
            inv_freq: floats(1, c.head_dim / 2)?,
            q_factor: floats(c.n_layers, c.kv_dim())?,
            k_factor: floats(c.n_layers, c.kv_dim())?,
            k_constant: floats(c.n_layers, c.kv_dim())?,
            block_cos: floats(limits.block_angles(), c.head_dim / 2)?,
            block_sin: floats(limits.block_angles(), c.head_dim / 2)?,
            q32: arena.take(b.saturating_mul(widest(c) / 32))?,
            q256: arena.take(b.saturating_mul(widest(c) / 256))?,
            position: arena.take(b)?,
            chunk: arena.take(b)?,
            token: arena.take(b)?,
            wanted: arena.take(b)?,
        })
    }
}

impl Engine<'_> {
    /// Hands out the arrays that hold something while a step is under way only, one after the other. They are
    /// the most of the scratch. What is written there, or done to the pages (a system may take them back
    /// until they are used again), changes no result.
    pub fn lend_scratch(&mut self, borrow: &mut dyn FnMut(&mut [f32])) {
        let Scratch { x, xn, q, k, v, attn, proj, gate, up, cos, sin, logits, .. } = &mut self.scratch;
        for array in [x, xn, q, k, v, attn, proj, gate, up, cos, sin, logits] {
            borrow(array);
        }
    }
}
