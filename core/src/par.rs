//! Work shared among threads: the [`Workers`] trait and disjoint writable tiles.
//!
//! Threads themselves belong to the caller. Soundness does not rest on the implementation
//! of [`Workers`]: tiles are claimed from a counter of our own, each exactly once.
#![allow(unsafe_code)]

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
pub fn for_each(workers: &dyn Workers, tasks: usize, f: impl Fn(usize) + Sync) {
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
    let (down, across) = (grid.rows.div_ceil(tile_rows), grid.width.div_ceil(tile_cols));
    for_each(workers, down * across, |i| {
        let (r, c) = (i / across * tile_rows, i % across * tile_cols);
        let rows = r..grid.rows.min(r + tile_rows);
        let cols = c..grid.width.min(c + tile_cols);
        // SAFETY: `for_each` gives every i to one task once, and the rectangles of different i
        // do not overlap.
        f(unsafe { grid.tile(rows, cols) });
    });
}

/// Splits `data` into parts of the given ranges and calls `f(i, part)` for range i.
///
/// # Panics
/// If a range is out of bounds, or begins before the end of the one before it.
pub fn for_each_range<T: Send>(
    workers: &dyn Workers,
    data: &mut [T],
    ranges: &[Range<usize>],
    f: impl Fn(usize, &mut [T]) + Sync,
) {
    let mut end = 0;
    for range in ranges {
        assert!(range.start >= end && range.start <= range.end && range.end <= data.len());
        end = range.end;
    }
    let grid = Grid::new(data, data.len().max(1));
    for_each(workers, ranges.len(), |i| {
        let range = ranges[i].clone();
        if range.is_empty() {
            return f(i, &mut []);
        }
        // SAFETY: the ranges were just checked to be in bounds and disjoint, and each i comes once.
        let mut tile = unsafe { grid.tile(0..1, range) };
        f(i, tile.row_mut(0));
    });
}
