//! Work shared among threads: the [`Workers`] trait and disjoint writable tiles.
//!
//! Threads themselves belong to the caller. Soundness does not rest on the implementation
//! of [`Workers`]: tiles are claimed from a counter of our own, each exactly once.
#![allow(unsafe_code)]

mod pieces;

pub use pieces::Pieces;

use core::marker::PhantomData;
use core::ops::Range;
use core::sync::atomic::{AtomicUsize, Ordering};

/// Threads of the caller.
pub trait Workers: Sync {
    /// How many tasks can run at once, at least 1.
    fn count(&self) -> usize;

    /// Calls `f(0)` to `f(tasks - 1)`, in any order, on any threads, and returns when all are done.
    fn run(&self, tasks: usize, f: &(dyn Fn(usize) + Sync));
}

/// The calling thread alone.
#[derive(Clone, Copy, Debug, Default)]
pub struct Single;

impl Workers for Single {
    fn count(&self) -> usize {
        1
    }

    fn run(&self, tasks: usize, f: &(dyn Fn(usize) + Sync)) {
        (0..tasks).for_each(f);
    }
}

/// Runs `f` for every index below `tasks`, each exactly once, whatever `workers` does.
///
/// Not generic: a task is long, and its code would be there twice, for the workers and for one thread.
pub fn for_each(workers: &dyn Workers, tasks: usize, f: &(dyn Fn(usize) + Sync)) {
    let next = AtomicUsize::new(0);
    let claim_one = |_| {
        let i = next.fetch_add(1, Ordering::Relaxed);
        if i < tasks {
            f(i);
        }
    };
    if tasks > 1 && workers.count() > 1 {
        workers.run(tasks, &claim_one);
    }
    // All there is with one thread; what a careless implementation left out otherwise.
    while next.load(Ordering::Relaxed) < tasks {
        claim_one(0);
    }
}

/// A `[rows, width]` matrix that many tasks write, each its own part.
struct Grid<'a, T> {
    start: *mut T,
    rows: usize,
    width: usize,
    owner: PhantomData<&'a mut [T]>,
}

// SAFETY: a Grid only hands out parts through `tile`, whose callers keep them disjoint; the
// elements may move between threads because T: Send.
unsafe impl<T: Send> Sync for Grid<'_, T> {}

impl<'a, T> Grid<'a, T> {
    fn new(data: &'a mut [T], width: usize) -> Self {
        let rows = data.len().checked_div(width).unwrap_or(0);
        Grid { start: data.as_mut_ptr(), rows, width, owner: PhantomData }
    }

    /// # Safety
    /// No two live tiles may share an element.
    unsafe fn tile(&self, rows: Range<usize>, cols: Range<usize>) -> Tile<'_, T> {
        assert!(rows.start <= rows.end && rows.end <= self.rows);
        assert!(cols.start <= cols.end && cols.end <= self.width);
        // The pointer is formed row by row, in `row_mut`: an empty tile never moves it.
        Tile { start: self.start, stride: self.width, rows, cols, owner: PhantomData }
    }
}

/// A rectangle of a row-major matrix, writable by one task.
#[derive(Debug)]
pub struct Tile<'a, T> {
    /// First element of the whole matrix.
    start: *mut T,
    stride: usize,
    rows: Range<usize>,
    cols: Range<usize>,
    owner: PhantomData<&'a mut [T]>,
}

impl<'a, T> Tile<'a, T> {
    /// A tile over a whole slice of rows of `width` elements.
    pub fn whole(data: &'a mut [T], width: usize) -> Tile<'a, T> {
        let rows = data.len().checked_div(width).unwrap_or(0);
        Tile { start: data.as_mut_ptr(), stride: width, rows: 0..rows, cols: 0..width, owner: PhantomData }
    }

    /// The rows of the matrix that the tile covers.
    pub fn rows(&self) -> Range<usize> {
        self.rows.clone()
    }

    /// The columns of the matrix that the tile covers.
    pub fn cols(&self) -> Range<usize> {
        self.cols.clone()
    }

    /// The same tile, for a shorter time.
    pub fn reborrow(&mut self) -> Tile<'_, T> {
        Tile {
            start: self.start,
            stride: self.stride,
            rows: self.rows(),
            cols: self.cols(),
            owner: PhantomData,
        }
    }

    /// The tile's part of row `row` of the matrix.
    ///
    /// # Panics
    /// If the tile does not cover that row.
    #[inline]
    pub fn row_mut(&mut self, row: usize) -> &mut [T] {
        assert!(self.rows.contains(&row), "row outside its tile");
        // SAFETY: the makers (`whole`, `Grid::tile`) checked rows and cols against the matrix, so
        // that this range lies inside it; the tile is exclusive for 'a and borrowed mutably here.
        unsafe {
            core::slice::from_raw_parts_mut(
                self.start.add(row * self.stride + self.cols.start),
                self.cols.len(),
            )
        }
    }
}

/// Splits a `[rows, width]` matrix into tiles of `tile_rows` x `tile_cols` and calls `f` for each.
///
/// Tiles in the same rows follow each other. Elements past the last whole row stay untouched.
pub fn for_each_tile<T: Send>(
    workers: &dyn Workers,
    data: &mut [T],
    width: usize,
    tile_rows: usize,
    tile_cols: usize,
    f: impl Fn(Tile<'_, T>) + Sync,
) {
    let grid = Grid::new(data, width);
    let (tile_rows, tile_cols) = (tile_rows.max(1), tile_cols.max(1));
    let across = grid.width.div_ceil(tile_cols);
    for_each(workers, grid.rows.div_ceil(tile_rows) * across, &|i| {
        let (r, c) = (i / across * tile_rows, i % across * tile_cols);
        // SAFETY: `for_each` gives every i to one task once; different i are different rectangles.
        f(unsafe { grid.tile(r..grid.rows.min(r + tile_rows), c..grid.width.min(c + tile_cols)) });
    });
}

/// So few rows of work on one vector at a time are done before other workers have woken up.
pub const FEW_ROWS: usize = 4;

/// Splits several `[rows, width]` matrices by the same ranges of rows, and calls
/// `f(range, a, b, c, d)` with the rows `range` of each. A matrix of no width is an empty slice.
///
/// # Panics
/// If a matrix has fewer than `rows` rows.
pub fn for_each_rows<A: Send, B: Send, C: Send, D: Send>(
    workers: &dyn Workers,
    rows: usize,
    (a, b, c, d): (Rows<'_, A>, Rows<'_, B>, Rows<'_, C>, Rows<'_, D>),
    f: impl Fn(Range<usize>, &mut [A], &mut [B], &mut [C], &mut [D]) + Sync,
) {
    let (a, b, c, d) = (a.shared(rows), b.shared(rows), c.shared(rows), d.shared(rows));
    let unit = if rows <= FEW_ROWS { FEW_ROWS } else { 1 };
    let pieces = Pieces::new(rows, unit, workers.count());
    for_each(workers, pieces.count(), &|i| {
        let range = pieces.get(i);
        // SAFETY: `for_each` gives every i to one task once, and the pieces of different i do not
        // overlap; `shared` checked that each matrix has `rows` rows.
        let (a, b, c, d) = unsafe {
            (a.rows(range.clone()), b.rows(range.clone()), c.rows(range.clone()), d.rows(range.clone()))
        };
        f(range, a, b, c, d);
    });
}

/// A row-major matrix to be split by rows.
#[derive(Debug)]
pub struct Rows<'a, T> {
    data: &'a mut [T],
    width: usize,
}

impl<'a, T> Rows<'a, T> {
    /// Rows of `width` elements.
    pub fn new(data: &'a mut [T], width: usize) -> Self {
        Rows { data, width }
    }

    fn shared(self, rows: usize) -> SharedRows<'a, T> {
        assert!(rows.checked_mul(self.width).is_some_and(|n| n <= self.data.len()), "too few rows");
        SharedRows { start: self.data.as_mut_ptr(), width: self.width, owner: PhantomData }
    }
}

impl Rows<'_, u8> {
    /// No matrix: `f` gets an empty slice.
    pub fn none() -> Self {
        Rows { data: &mut [], width: 0 }
    }
}

struct SharedRows<'a, T> {
    start: *mut T,
    width: usize,
    owner: PhantomData<&'a mut [T]>,
}

// SAFETY: parts are handed out by `rows` only, whose caller keeps them disjoint; T: Send lets
// them move between threads.
unsafe impl<T: Send> Sync for SharedRows<'_, T> {}

impl<T> SharedRows<'_, T> {
    /// # Safety
    /// `range` lies below the row count that `shared` checked, and no live part overlaps it.
    #[allow(clippy::mut_from_ref, reason = "disjointness is the caller's promise")]
    unsafe fn rows(&self, range: Range<usize>) -> &mut [T] {
        // SAFETY: in bounds and disjoint by the caller's promise.
        unsafe {
            core::slice::from_raw_parts_mut(
                self.start.add(range.start * self.width),
                range.len() * self.width,
            )
        }
    }
}

/// Rows (tokens) of a tile of a product: as many as a kernel takes through a panel of weights.
const TILE_ROWS: usize = 128;
/// Columns (rows of the weights) of the smallest tile of a product; the largest has 8 times as many.
const TILE_COLS: usize = 8;

/// Splits several `[rows, width]` matrices of as many rows into tiles of 128 rows or fewer and 8 to 64
/// columns, large ones first, and calls `f(which, tile)` for each, in one run of the workers.
///
/// # Panics
/// If the matrices differ in rows.
pub fn for_each_tile_of<T: Send, const N: usize>(
    workers: &dyn Workers,
    matrices: [Rows<'_, T>; N],
    f: impl Fn(usize, Tile<'_, T>) + Sync,
) {
    let grids = matrices.map(|m| Grid::new(m.data, m.width));
    let (rows, width) = product_shape(&grids);
    for_each_part(workers, rows, width, |rows, cols| {
        // Where the matrix begins in the line of all columns.
        let mut first = 0;
        for (which, grid) in grids.iter().enumerate() {
            let (start, end) = (cols.start.max(first), cols.end.min(first + grid.width));
            if start < end {
                // SAFETY: `for_each_part` gives disjoint rectangles of the matrices side by side.
                f(which, unsafe { grid.tile(rows.clone(), start - first..end - first) });
            }
            first += grid.width;
        }
    });
}

/// Splits two matrices of the same shape as [`for_each_tile_of`] does and calls `f(a, b)` with the same
/// tile of each.
///
/// # Panics
/// If the matrices differ in shape.
pub fn for_each_tile_pair<T: Send>(
    workers: &dyn Workers,
    matrices: [Rows<'_, T>; 2],
    f: impl Fn(Tile<'_, T>, Tile<'_, T>) + Sync,
) {
    let [a, b] = matrices.map(|m| Grid::new(m.data, m.width));
    assert!(a.rows == b.rows && a.width == b.width, "matrices of different shapes");
    for_each_part(workers, a.rows, a.width, |rows, cols| {
        // SAFETY: `for_each_part` gives disjoint rectangles; a and b are different matrices.
        f(unsafe { a.tile(rows.clone(), cols.clone()) }, unsafe { b.tile(rows, cols) });
    });
}

/// Rows of all the matrices, and their widths together.
fn product_shape<T>(grids: &[Grid<'_, T>]) -> (usize, usize) {
    let wide = || grids.iter().filter(|g| g.width > 0);
    let rows = wide().next().map_or(0, |g| g.rows);
    assert!(wide().all(|g| g.rows == rows), "matrices of different heights");
    (rows, wide().map(|g| g.width).sum())
}

/// Calls `f(rows, cols)` for disjoint rectangles that cover `rows` x `width`.
///
/// Bands of 128 rows lie one after the other in a line of columns, which is cut into pieces; a piece
/// that goes on in the next band is two rectangles.
fn for_each_part(
    workers: &dyn Workers,
    rows: usize,
    width: usize,
    f: impl Fn(Range<usize>, Range<usize>) + Sync,
) {
    let Some(line) = rows.div_ceil(TILE_ROWS).checked_mul(width) else { return };
    let pieces = Pieces::new(line, TILE_COLS, workers.count());
    for_each(workers, pieces.count(), &|i| {
        let mut piece = pieces.get(i);
        while !piece.is_empty() {
            let (band, col) = (piece.start / width, piece.start % width);
            let end = width.min(col + piece.len());
            let first = band * TILE_ROWS;
            f(first..rows.min(first + TILE_ROWS), col..end);
            piece.start += end - col;
        }
    });
}

#[cfg(test)]
mod tests;
