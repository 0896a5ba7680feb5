//! Covers a tile of outputs with panels of a fixed number of rows and tokens.
//! Must not know weight types.

use crate::par::Tile;
use core::array;

/// Weight rows of a panel: a vector of activations is widened once for so many.
pub(super) const ROWS: usize = 4;
/// Tokens of a panel: a weight block is unpacked once for so many. On CPUs that have kernels of their
/// own in any case, where this is but the yardstick, the code for one token serves all.
pub(super) const TOKENS: usize =
    if cfg!(all(target_arch = "aarch64", target_feature = "neon")) { 1 } else { 8 };

/// Rows that all tokens pass before the next rows are read: they fit a small second-level
/// cache, and the tokens of a panel the first-level one.
const CHUNK: usize = 64;

/// Fills `out` (rows are tokens, columns weight rows).
///
/// `one(rows, tokens)` gives the panel of one token, `many` that of [`TOKENS`]. At the edges
/// the last row or token is repeated and the surplus dropped: what an output is does not
/// depend on its neighbours.
#[inline(always)]
pub(super) fn cover(
    out: &mut Tile<'_, f32>,
    one: impl Fn([usize; ROWS], [usize; 1]) -> [[f32; ROWS]; 1],
    many: impl Fn([usize; ROWS], [usize; TOKENS]) -> [[f32; ROWS]; TOKENS],
) {
    let (rows, tokens) = (out.cols(), out.rows());
    let mut put = |token: usize, row: usize, panel: &[f32; ROWS]| {
        let out = &mut out.row_mut(token)[row - rows.start..];
        out.iter_mut().zip(panel).for_each(|(out, y)| *out = *y);
    };
    for chunk in rows.clone().step_by(CHUNK) {
        let chunk = chunk..rows.end.min(chunk + CHUNK);
        let mut token = tokens.start;
        while token < tokens.end {
            // Up to four tokens are faster one by one than as a half-empty panel.
            let left = tokens.end - token;
            let n = if left > 4 { left.min(TOKENS) } else { 1 };
            for row in chunk.clone().step_by(ROWS) {
                let these = array::from_fn(|i| (row + i).min(rows.end - 1));
                if n == 1 {
                    put(token, row, &one(these, [token])[0]);
                } else {
                    let panel = many(these, array::from_fn(|i| (token + i).min(tokens.end - 1)));
                    panel[..n].iter().enumerate().for_each(|(i, column)| put(token + i, row, column));
                }
            }
            token += n;
        }
    }
}
