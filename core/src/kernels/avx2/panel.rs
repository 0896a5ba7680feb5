//! Eight weight rows, 256 elements of each, laid out for many tokens: a vector holds four
//! elements of every row, so that four activations, repeated, meet all rows at once.

use super::dot::{pairs, plus, widen};
use super::vec::*;
use crate::par::Tile;
use crate::weights::Matrix;
use core::arch::x86_64::*;
use core::ops::Range;

/// Rows of a panel: the sums of a vector.
pub(crate) const PANEL: usize = 8;
/// Elements of a row in a panel.
pub(crate) const CHUNK: usize = 256;
/// Tokens of a micro-kernel.
pub(crate) const GROUP: usize = 4;
/// Rows and tokens whose results are kept while the chunks go by.
pub(crate) const ROWS: usize = 64;
/// As [`ROWS`]; a multiple of [`GROUP`].
pub(crate) const TOKENS: usize = 64;
/// Bytes that memory is fetched by.
pub(crate) const LINE: usize = 64;
/// From so many tokens on it pays to lay weights out for them, in a panel or in registers.
pub(crate) const MANY: usize = 3;

/// The results of [`ROWS`] x [`TOKENS`] so far, eight rows to a vector.
pub(crate) type Results = [[[f32; PANEL]; TOKENS]; ROWS / PANEL];

/// See the module.
pub(crate) struct Panel {
    /// Runs of 16 elements in a block of 32: two. A number that the compiler does not know keeps
    /// it from unrolling a loop whose vectors then would not fit the registers.
    pub quads: usize,
    /// Weights; of type i8 if they have a sign that [`Inner::sign`](super::inner::Inner::sign) leaves them.
    pub w: [Aligned<[u8; 32]>; CHUNK / 4],
    /// Sub-scale of 16 elements of each row, twice. Blocks of 256 only.
    pub scales: [Aligned<[i16; 16]>; CHUNK / 16],
    /// What meets the sums of activations, two runs of 16 to a pair. Blocks of 256 only.
    pub sub: [Aligned<[i16; 16]>; CHUNK / 32],
    /// Scales of the blocks.
    pub d: [Aligned<[f32; PANEL]>; CHUNK / 32],
    /// Offsets (blocks of 32) or scales of the minima.
    pub m: [Aligned<[f32; PANEL]>; CHUNK / 32],
}

impl Panel {
    pub(crate) const ZERO: Panel = Panel {
        quads: 2,
        w: [Aligned([0; 32]); CHUNK / 4],
        scales: [Aligned([0; 16]); CHUNK / 16],
        sub: [Aligned([0; 16]); CHUNK / 32],
        d: [Aligned([0.0; PANEL]); CHUNK / 32],
        m: [Aligned([0.0; PANEL]); CHUNK / 32],
    };
}

/// The bytes of `blocks` of eight rows from `row`; past `end` the last row again, whose results
/// are dropped.
#[inline(never)]
pub(crate) fn rows_of<'a>(w: &Matrix<'a>, row: usize, end: usize, blocks: Range<usize>) -> [&'a [u8]; PANEL] {
    let (bytes, stride) = (w.ty().block_bytes(), w.row_bytes());
    let piece = blocks.start * bytes..blocks.end * bytes;
    let last = end - row - 1;
    let all = &w.data()[row * stride..end * stride];
    let mut rows = [&[][..]; PANEL];
    for (i, these) in rows.iter_mut().enumerate() {
        *these = &all[i.min(last) * stride..][piece.clone()];
    }
    rows
}

/// While eight rows, of which `first` is the first, are multiplied: asks for `len` bytes of the eight
/// behind them, from byte `from`. Rows are too short for the CPU to see eight streams in them.
#[target_feature(enable = "avx2")]
#[inline]
pub(crate) fn next_bytes(first: &[u8], from: usize, len: usize) {
    for line in 0..len.div_ceil(LINE) {
        prefetch(first, PANEL * first.len() + from + line * LINE);
    }
}

/// How far it is from where a piece of `len` bytes of row `row` begins to what a panel lays out in the same
/// place next: the same piece of the row eight further, or behind the last eight of the rows from `first` to
/// `end`, which take turns, the next piece of one of the first eight. Less than nothing is added by
/// wrapping. Eight rows that do not take turns with others are followed by the eight behind them.
pub(crate) fn next_piece(w: &Matrix<'_>, len: usize, (first, row, end): (usize, usize, usize)) -> usize {
    let stride = w.row_bytes();
    if row + PANEL < end || end - first <= PANEL {
        PANEL * stride
    } else {
        len.wrapping_sub((row - first) * stride)
    }
}

/// Writes the results of a token and eight rows from `row`, as many as the tile has.
#[inline(always)]
pub(crate) fn put(out: &mut Tile<'_, f32>, token: usize, row: usize, results: &[f32; PANEL]) {
    let from = row - out.cols().start;
    let out = &mut out.row_mut(token)[from..];
    match out.first_chunk_mut::<PANEL>() {
        Some(out) => *out = *results,
        None => out.iter_mut().zip(results).for_each(|(out, y)| *out = *y),
    }
}

/// Adds to `sums` the products of 16 elements of eight rows with those of each token, times `scale`.
///
/// `SPAN` vectors of sums of two are added up in i16: with activations of magnitude 127, weights of
/// up to 31 allow 4 (31 * 127 * 2 * 4 = 31,496), of up to 63 allow 2. `SIGNED` weights, and those of up to
/// 255 with activations of magnitude 64, allow 1.
#[target_feature(enable = "avx2")]
#[inline]
pub(crate) fn quad<const SPAN: usize, const SIGNED: bool>(
    w: &[Aligned<[u8; 32]>; 4],
    x: [&[[i8; 4]; 4]; GROUP],
    scale: __m256i,
    sums: &mut [__m256i; GROUP],
) {
    let mut i = 0;
    while i < 4 {
        let mut few = [_mm256_setzero_si256(); GROUP];
        for j in i..i + SPAN {
            let w = load_u8(&w[j].0);
            for t in 0..GROUP {
                let two = pairs::<SIGNED>(w, splat_4(&x[t][j]));
                few[t] = if j == i { two } else { _mm256_add_epi16(few[t], two) };
            }
        }
        for t in 0..GROUP {
            sums[t] = plus(sums[t], widen(few[t], scale));
        }
        i += SPAN;
    }
}

/// Run `i` of 16 elements, in groups of four.
#[inline(always)]
pub(crate) fn fours<const N: usize>(x: &[i8; N], i: usize) -> &[[i8; 4]; 4] {
    match x.as_chunks::<4>().0[4 * i..].first_chunk() {
        Some(fours) => fours,
        None => unreachable!(), // callers stay below N / 16
    }
}
