//! Covers a tile of outputs with panels of a fixed number of rows and tokens.
//! Must not know weight types.

use crate::par::Tile;
use core::array;

/// Weight rows of a panel: a vector of activations is widened once for so many.
pub(super) const ROWS: usize = 4;
/// Tokens of a panel: a weight block is unpacked once for so many.
pub(super) const TOKENS: usize = 8;

/// Fills `out` (rows are tokens, columns weight rows).
///
/// `one(rows, tokens)` gives the panel of one token, `many` that of [`TOKENS`]. At the edges
/// the last row or token is repeated and the surplus dropped: what an output is does not
/// depend on its neighbours.
#[inline(always)]
pub(super) fn cover(
    out: &mut Tile<'_, f32>,
    one: impl Fn([usize; ROWS], [usize; 1]) -> [[f32; 1]; ROWS],
    many: impl Fn([usize; ROWS], [usize; TOKENS]) -> [[f32; TOKENS]; ROWS],
) {
    let (rows, tokens) = (out.cols(), out.rows());
    for row in rows.clone().step_by(ROWS) {
        let these: [usize; ROWS] = array::from_fn(|i| (row + i).min(rows.end - 1));
        let n_rows = ROWS.min(rows.end - row);
        let mut put = |token: usize, column: &mut dyn Iterator<Item = f32>| {
            let out = &mut out.row_mut(token)[row - rows.start..][..n_rows];
            out.iter_mut().zip(column).for_each(|(out, y)| *out = y);
        };
        let mut token = tokens.start;
        while token < tokens.end {
            // Up to two tokens are faster one by one than as an almost empty panel.
            let n_tokens = TOKENS.min(tokens.end - token);
            if n_tokens > 2 {
                let panel = many(these, array::from_fn(|i| (token + i).min(tokens.end - 1)));
                for t in 0..n_tokens {
                    put(token + t, &mut panel.iter().map(|row| row[t]));
                }
                token += n_tokens;
            } else {
                let panel = one(these, [token]);
                put(token, &mut panel.iter().map(|row| row[0]));
                token += 1;
            }
        }
    }
}
