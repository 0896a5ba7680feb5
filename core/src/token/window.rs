//! Words longer than the scratch: encoded window by window, to the same ids.
//!
//! Why that is exact. Call two tokens *stable* if the encoding of their joined bytes is these
//! two tokens. Theorem: a sequence of tokens is the encoding of its bytes if and only if every
//! two neighbours in it are stable.
//!
//! Proof. Run the merges over all the bytes and watch the bytes of two neighbours t, u. As long
//! as no merge crosses a border between tokens of the sequence, the merges that happen within
//! t u are, in order, those of t u alone: each is the first in the list, leftmost among equals,
//! of all pairs, hence of the pairs within t u. If: suppose some merge crosses a border, and take
//! the first one, between t and u. It too is the first of the pairs within t u, so t u alone
//! would do it, and t, u would not be stable. So none ever crosses, and each token comes out of
//! its bytes as it does in its pair. Only if: in the encoding no merge crosses a border, so t u
//! alone goes through the same merges and ends as t, u.
//!
//! Within one window all neighbours are stable, being an encoding. So windows may be joined
//! wherever the two tokens at the seam are stable.

use super::EncodeError;
use super::merge::{Rules, Scratch};
use core::mem;

/// Cuts tried in a window before giving up. The first is nearly always stable: the missing
/// text behind a window has to change tokens a quarter of the window back for it to fail.
const MOST_CUTS: usize = 256;

/// Encodes a piece of any length. `longest` is the length of the longest token.
///
/// # Errors
/// [`EncodeError::WindowTooSmall`]; [`EncodeError::NoSeam`] with the offset within `piece`.
#[inline(never)]
pub(super) fn encode_long(
    rules: &Rules<'_>,
    piece: &[u8],
    longest: usize,
    scratch: &mut Scratch<'_>,
    sink: &mut dyn FnMut(u32),
) -> Result<(), EncodeError> {
    let window = scratch.window();
    if window < 2 * longest {
        return Err(EncodeError::WindowTooSmall { needed: 2 * longest, got: window });
    }
    let Scratch { merger, now, ahead } = scratch;
    let mut start = 0;
    merger.encode_window(rules, &piece[..window.min(piece.len())], now);
    while piece.len() - start > window {
        let first = now.before(window / 4 * 3);
        let mut seam = None;
        for count in (1..=first).rev().take(MOST_CUTS) {
            // `count` tokens stay; the next begins at `cut`. There is none behind a last token
            // that reaches from 3/4 of the window to its end.
            let (Some(last), Some(cut)) = (now.start(count - 1), now.start(count)) else {
                continue;
            };
            let rest = &piece[start + cut..];
            merger.encode_window(rules, &rest[..window.min(rest.len())], ahead);
            let (left, right) = (now.ids()[count - 1], ahead.ids()[0]);
            let end = ahead.start(1).unwrap_or(window.min(rest.len()));
            if merger.is_pair(rules, &piece[start + last..start + cut + end], left, right) {
                seam = Some((count, cut));
                break;
            }
        }
        let (count, cut) = seam.ok_or(EncodeError::NoSeam { offset: start })?;
        now.ids()[..count].iter().for_each(|&id| sink(id));
        start += cut;
        mem::swap(now, ahead);
    }
    now.ids().iter().for_each(|&id| sink(id));
    Ok(())
}
