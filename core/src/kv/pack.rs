//! The payload of a block's file: a whole block as it is, of an unfinished one the positions that are there.
//!
//! Positions go in groups of four, since that is how the layout interleaves them. A slab is a row of runs, in
//! each of which the eight groups of a block follow each other; a payload has the first groups of every run.
//! So it is as many eighths of a block as there are groups. In the last group, places of positions that
//! are not there are zero, in every file: bytes of an earlier conversation never get into one.
//! Must not know headers, files or where blocks are.

use super::{BLOCK_TOKENS, Fault, Geometry, KvType};
use core::ops::Range;

/// Positions of a group.
const GROUP: usize = 4;
/// Groups of a block.
const GROUPS: usize = BLOCK_TOKENS / GROUP;

/// A part of a slab that is `[group][row][token in group][width]` bytes.
#[derive(Clone, Copy)]
struct Run {
    /// Bytes of all groups.
    bytes: usize,
    /// Bytes of one token that are together.
    width: usize,
}

impl Run {
    /// Runs of a slab.
    const fn count(geometry: &Geometry) -> usize {
        match geometry.kv_type {
            KvType::Q8 => 1 + geometry.head_dim / 4 + 2,
            KvType::F32 => 2,
        }
    }

    /// Run `i` of a slab, in the order of `kv/layout.rs`.
    const fn of(geometry: &Geometry, i: usize) -> Run {
        let head_dim = geometry.head_dim;
        match geometry.kv_type {
            KvType::F32 => Run { bytes: BLOCK_TOKENS * 4 * head_dim, width: 4 * head_dim },
            KvType::Q8 if i == 0 => Run { bytes: BLOCK_TOKENS * head_dim, width: 4 },
            // Four dims of V.
            KvType::Q8 if i <= head_dim / 4 => Run { bytes: BLOCK_TOKENS * 4, width: 1 },
            // Scales.
            KvType::Q8 => Run { bytes: BLOCK_TOKENS * 4, width: 4 },
        }
    }

    /// Bytes of the groups that `count` positions touch.
    const fn kept(&self, count: usize) -> usize {
        self.bytes / GROUPS * count.div_ceil(GROUP)
    }

    /// Where places of positions that are not there lie, in the kept bytes.
    fn padding(self, count: usize) -> impl Iterator<Item = Range<usize>> {
        let there = match count % GROUP {
            0 => GROUP,
            n => n,
        };
        let (row, end) = (GROUP * self.width, self.kept(count));
        let first = end - self.bytes / GROUPS;
        (first..end).step_by(row).map(move |at| at + there * self.width..at + row)
    }
}

/// All runs of a block from the first to the last.
fn runs(geometry: &Geometry) -> impl DoubleEndedIterator<Item = Run> {
    let geometry = *geometry;
    let slabs = 0..geometry.n_layers * geometry.n_kv_heads;
    slabs.flat_map(move |_| (0..Run::count(&geometry)).map(move |i| Run::of(&geometry, i)))
}

/// Bytes of the payload of `count` positions, 1 to 32; of 32, a whole block. `geometry` is one that
/// [`Geometry::check`] passes.
pub const fn payload_bytes(geometry: &Geometry, count: usize) -> u64 {
    // A slab's size is a multiple of 8. In u64, since a file may come from a larger machine.
    let slabs = geometry.n_layers as u64 * geometry.n_kv_heads as u64;
    slabs * (geometry.slab_bytes() / GROUPS) as u64 * count.div_ceil(GROUP) as u64
}

/// Checks a geometry, a count and the size of a block's memory; gives the payload's length.
fn check(geometry: &Geometry, count: usize, block: usize) -> Result<usize, Fault> {
    if let Some((field, found)) = geometry.check() {
        return Err(Fault::Geometry { field, found: found as u32 });
    }
    if count == 0 || count > BLOCK_TOKENS {
        return Err(Fault::Count { found: count as u32 });
    }
    let needed = payload_bytes(geometry, BLOCK_TOKENS);
    if block as u64 != needed {
        return Err(Fault::BlockBytes { needed, got: block as u64 });
    }
    // Not longer than the block, so a length of this machine.
    Ok(payload_bytes(geometry, count) as usize)
}

/// Copies the first `count` positions (1 to 32) of `block` to the front of `out`, as they stand in a file;
/// gives the payload's length.
///
/// # Errors
/// [`Fault::Geometry`], [`Fault::Count`]; [`Fault::BlockBytes`] if `block` has another size than a block;
/// [`Fault::PayloadBytes`] if `out` is shorter than the payload (a block's size is always enough).
pub fn pack(geometry: &Geometry, count: usize, block: &[u8], out: &mut [u8]) -> Result<usize, Fault> {
    let len = check(geometry, count, block.len())?;
    let got = out.len() as u64;
    let out = out.get_mut(..len).ok_or(Fault::PayloadBytes { needed: len as u64, found: got })?;
    if count == BLOCK_TOKENS {
        out.copy_from_slice(block);
        return Ok(len);
    }
    let (mut from, mut to) = (block, out);
    for run in runs(geometry) {
        let (kept, rest) = to.split_at_mut(run.kept(count));
        kept.copy_from_slice(&from[..kept.len()]);
        run.padding(count).for_each(|place| kept[place].fill(0));
        (from, to) = (&from[run.bytes..], rest);
    }
    Ok(len)
}

/// Spreads a payload at the front of `block` over it, in place; positions that are not there become zero.
///
/// # Errors
/// [`Fault::Geometry`], [`Fault::Count`]; [`Fault::BlockBytes`] if `block` has another size than a block;
/// [`Fault::Padding`], after which the contents of `block` are of no use.
pub fn unpack(geometry: &Geometry, count: usize, block: &mut [u8]) -> Result<(), Fault> {
    let mut from = check(geometry, count, block.len())?;
    if count == BLOCK_TOKENS {
        return Ok(());
    }
    check_padding(geometry, count, &block[..from])?;
    // From the last run to the first: each goes to where it was or behind it, so that what is written over
    // has been moved before.
    let mut to = block.len();
    for run in runs(geometry).rev() {
        let kept = run.kept(count);
        from -= kept;
        to -= run.bytes;
        block.copy_within(from..from + kept, to);
        block[to + kept..to + run.bytes].fill(0);
    }
    Ok(())
}

/// Whether places of positions that are not there are zero, in a payload of the right length.
#[cfg_attr(kinglet_small, optimize(size))]
pub(crate) fn check_padding(geometry: &Geometry, count: usize, payload: &[u8]) -> Result<(), Fault> {
    if count.is_multiple_of(GROUP) {
        return Ok(());
    }
    let mut rest = payload;
    for run in runs(geometry) {
        let (kept, after) = rest.split_at(run.kept(count));
        if !run.padding(count).all(|place| kept[place].iter().all(|byte| *byte == 0)) {
            return Err(Fault::Padding);
        }
        rest = after;
    }
    Ok(())
}
