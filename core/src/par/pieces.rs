//! How work is cut into pieces: large ones first, small ones at the end.
//!
//! Workers take pieces in order. With equal pieces a slow core that takes one of the last holds up all
//! others: on a board with cores of a third of the speed, by three pieces. With guided sizes
//! (Polychronopoulos and Kuck, "Guided self-scheduling", 1987) a piece is at most a share of what is left,
//! so that all end at nearly the same time, and small pieces, which cost a claim each, are few. Nothing
//! is known of the workers' speeds, and no bit of a result depends on where the cuts are.

use core::ops::Range;

/// Sizes of pieces in units, in the order they are handed out.
const SIZES: [usize; 4] = [8, 4, 2, 1];
/// A piece is at most one of so many shares of what is left, for each worker: a worker of a third of
/// the mean speed is then done with it before the others are with the rest.
const SHARES: usize = 2;

/// `0..total` in pieces.
#[derive(Clone, Copy, Debug)]
pub struct Pieces {
    total: usize,
    unit: usize,
    counts: [usize; SIZES.len()],
}

impl Pieces {
    /// Pieces for so many `workers`. All but the last are whole multiples of `unit`, at most 8 of them.
    pub fn new(total: usize, unit: usize, workers: usize) -> Pieces {
        let unit = unit.max(1);
        let (mut rest, mut counts) = (total, [0; SIZES.len()]);
        for (units, count) in SIZES.iter().zip(&mut counts) {
            let size = unit.saturating_mul(*units);
            let least = if *units == 1 { 1 } else { size.saturating_mul(SHARES).saturating_mul(workers) };
            // As many as begin while at least `least` is left.
            *count = if rest >= least.max(1) { (rest - least) / size + 1 } else { 0 };
            rest = rest.saturating_sub(*count * size);
        }
        Pieces { total, unit, counts }
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.counts.iter().sum()
    }

    /// Piece `i`. Pieces of different `i` do not overlap; from [`count`](Self::count) on they are empty.
    pub fn get(&self, i: usize) -> Range<usize> {
        let (mut i, mut start) = (i, 0);
        for (units, count) in SIZES.iter().zip(&self.counts) {
            let size = units * self.unit;
            if i < *count {
                let start = start + i * size;
                return start..self.total.min(start + size);
            }
            i -= count;
            start += count * size;
        }
        self.total..self.total
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_cover_everything_once_and_get_smaller() {
        for total in (0..300).chain([896, 4864, 151_936]) {
            for (unit, workers) in [(1, 1), (1, 8), (8, 2), (8, 8), (0, 3), (1000, 2), (8, 1000)] {
                let pieces = Pieces::new(total, unit, workers);
                let (mut end, mut before) = (0, usize::MAX);
                for i in 0..pieces.count() {
                    let piece = pieces.get(i);
                    assert_eq!(piece.start, end, "{total} {unit} {workers}");
                    assert!(!piece.is_empty() && piece.len() <= before, "{total} {unit} {workers}");
                    (end, before) = (piece.end, piece.len());
                }
                assert_eq!(end, total, "{total} {unit} {workers}");
                assert!(pieces.get(pieces.count()).is_empty());
            }
        }
    }

    #[test]
    fn a_piece_is_a_share_of_what_is_left() {
        let pieces = Pieces::new(896, 8, 8);
        for i in 0..pieces.count() {
            let piece = pieces.get(i);
            assert!(piece.len() <= 8 || piece.len() * SHARES * 8 <= 896 - piece.start, "{piece:?}");
        }
        assert_eq!(pieces.get(0).len(), 32);
        // One worker has no reason for small pieces but the end.
        assert!(Pieces::new(151_936, 8, 1).count() < 151_936 / 64 + 10);
        // What no machine has must not overflow.
        let huge = Pieces::new(usize::MAX / 2, 8, usize::MAX);
        assert_eq!(huge.get(0), 0..8);
    }
}
