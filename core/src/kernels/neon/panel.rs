//! Covers a tile of outputs with panels, and the interleaving of rows inside one.
//! Must not know weight types.

use super::vec::*;
use crate::par::Tile;
use core::array;
use core::ops::Range;

/// Rows of a panel of unpacked weights.
pub(super) const ROWS: usize = 8;
/// Panels that are unpacked side by side: so often tokens are found in the first-level cache.
pub(super) const PANELS: usize = 4;
/// Most tokens that a panel is unpacked for at once.
pub(super) const TOKENS: usize = 128;
/// Tokens of the larger inner kernel: panels are multiplied with multiples of it.
pub(super) const STEP: usize = 8;
/// Fewer tokens than this are taken one by one.
const MANY: usize = 4;

/// Partial outputs of a panel: `[tokens][rows]`.
pub(super) type Acc = [[f32; ROWS]; TOKENS];

/// See [`cover`]. Called once for many blocks, and 3,000 bytes of code would be there once for each kernel.
type One<'f> = &'f dyn Fn(Range<usize>, usize) -> [f32; ROWS];
/// See [`cover`].
type Many<'f> = &'f dyn Fn(&[[usize; ROWS]], Range<usize>, &mut [&mut [[f32; ROWS]]; PANELS]);

/// Fills `out` (rows are tokens, columns weight rows).
///
/// `one(rows, token)` gives the outputs of the rows, at most eight, for one token, and anything past them.
/// `many(panels, tokens, acc)` adds to `acc[p][i]` the outputs of the rows `panels[p]` for the i-th of the
/// tokens, and anything to the rest of `acc`, which goes up to the next multiple of [`STEP`]. At the edges
/// the last row is repeated and the surplus dropped: what an output is does not depend on its neighbours.
pub(super) fn cover(out: &mut Tile<'_, f32>, one: One<'_>, many: Many<'_>) {
    let (rows, tokens) = (out.cols(), out.rows());
    let put = |out: &mut Tile<'_, f32>, token: usize, row: usize, values: &[f32; ROWS]| {
        let out = &mut out.row_mut(token)[row - rows.start..];
        match out.first_chunk_mut() {
            Some(out) => *out = *values,
            None => put_some(out, values),
        }
    };
    for first in tokens.clone().step_by(TOKENS) {
        let n = TOKENS.min(tokens.end - first);
        if n < MANY {
            for row in rows.clone().step_by(ROWS) {
                let end = rows.end.min(row + ROWS);
                for token in first..first + n {
                    put(out, token, row, &one(row..end, token));
                }
            }
            continue;
        }
        for row in rows.clone().step_by(PANELS * ROWS) {
            let panels: [[usize; ROWS]; PANELS] = array::from_fn(|p| eight(row + p * ROWS..rows.end));
            let used = (rows.end - row).div_ceil(ROWS).min(PANELS);
            let mut acc: [Acc; PANELS] = [[[0.0; ROWS]; TOKENS]; PANELS];
            let padded = n.next_multiple_of(STEP);
            many(&panels[..used], first..first + n, &mut acc.each_mut().map(|acc| &mut acc[..padded]));
            for (p, acc) in acc[..used].iter().enumerate() {
                for (i, values) in acc[..n].iter().enumerate() {
                    put(out, first + i, row + p * ROWS, values);
                }
            }
        }
    }
}

/// The first eight of the rows, of which there is at least one; past the last one, it again.
pub(super) fn eight(rows: Range<usize>) -> [usize; ROWS] {
    array::from_fn(|i| (rows.start + i).min(rows.end - 1))
}

/// The first values, where the tile ends. Apart: in one piece with the usual case it would make that a
/// copy of unknown length.
#[cold]
#[inline(never)]
fn put_some(out: &mut [f32], values: &[f32; ROWS]) {
    out.iter_mut().zip(values).for_each(|(out, y)| *out = *y);
}

/// The blocks of up to [`TOKENS`] tokens, column by column: found once for all panels.
pub(super) struct Columns<'x, X> {
    rows: [&'x [X]; TOKENS],
    column: [&'x X; TOKENS],
    /// Tokens, up to the next multiple of [`STEP`]: past the last one, its row again.
    padded: usize,
}

impl<'x, X> Columns<'x, X> {
    /// Of as many tokens as `x` has rows of `stride` blocks.
    ///
    /// # Panics
    /// If there are none.
    pub(super) fn new(x: &'x [X], stride: usize) -> Self {
        let tokens = (x.len() / stride).min(TOKENS);
        let row = |t: usize| &x[t.min(tokens - 1) * stride..][..stride];
        let padded = tokens.next_multiple_of(STEP);
        Columns { rows: array::from_fn(row), column: [&x[0]; TOKENS], padded }
    }

    /// Block `b` of every token.
    #[inline(always)]
    pub(super) fn get(&mut self, b: usize) -> &[&'x X] {
        let steps = self.column.as_chunks_mut::<STEP>().0.iter_mut().zip(self.rows.as_chunks::<STEP>().0);
        for (slots, rows) in steps.take(self.padded / STEP) {
            // One by one: this is done for every block, and as a loop it is twice the instructions.
            for i in 0..STEP {
                slots[i] = &rows[i][b];
            }
        }
        &self.column[..self.padded]
    }
}

/// Four rows of 16 bytes as four groups of columns: group j holds bytes 4j to 4j + 3 of each row.
#[inline(always)]
pub(super) fn interleave(rows: [int8x16_t; 4]) -> [int8x16_t; 4] {
    let [a, b, c, d] = rows.map(vreinterpretq_s32_s8);
    let wide = vreinterpretq_s64_s32;
    let (ab, cd) = (wide(vtrn1q_s32(a, b)), wide(vtrn1q_s32(c, d)));
    let (ab_odd, cd_odd) = (wide(vtrn2q_s32(a, b)), wide(vtrn2q_s32(c, d)));
    [vtrn1q_s64(ab, cd), vtrn1q_s64(ab_odd, cd_odd), vtrn2q_s64(ab, cd), vtrn2q_s64(ab_odd, cd_odd)]
        .map(vreinterpretq_s8_s64)
}

/// The transpose of 8 x 8 integers.
#[inline(always)]
pub(super) fn transpose(rows: [int16x8_t; 8]) -> [int16x8_t; 8] {
    let wide = vreinterpretq_s32_s16;
    let (mut even, mut odd) = ([vdupq_n_s32(0); 4], [vdupq_n_s32(0); 4]);
    for i in 0..4 {
        even[i] = wide(vtrn1q_s16(rows[2 * i], rows[2 * i + 1]));
        odd[i] = wide(vtrn2q_s16(rows[2 * i], rows[2 * i + 1]));
    }
    let [c0, c2, c4, c6] = halves(even);
    let [c1, c3, c5, c7] = halves(odd);
    [c0, c1, c2, c3, c4, c5, c6, c7]
}

/// Of pairs of rows the columns (0, 1), (2, 3), (4, 5), (6, 7).
#[inline(always)]
fn halves(pairs: [int32x4_t; 4]) -> [int16x8_t; 4] {
    let wide = vreinterpretq_s64_s32;
    let (a, b) = (wide(vtrn1q_s32(pairs[0], pairs[1])), wide(vtrn1q_s32(pairs[2], pairs[3])));
    let (c, d) = (wide(vtrn2q_s32(pairs[0], pairs[1])), wide(vtrn2q_s32(pairs[2], pairs[3])));
    [vtrn1q_s64(a, b), vtrn1q_s64(c, d), vtrn2q_s64(a, b), vtrn2q_s64(c, d)].map(vreinterpretq_s16_s64)
}

/// Sums of the elements of four vectors.
#[inline(always)]
pub(super) fn sum_each(v: [int32x4_t; 4]) -> int32x4_t {
    vpaddq_s32(vpaddq_s32(v[0], v[1]), vpaddq_s32(v[2], v[3]))
}
