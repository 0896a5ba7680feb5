//! Every element once, whatever the workers do.

use super::*;
extern crate std;
use std::vec;

/// Calls `f` more often and from several threads at once, as no honest pool would.
struct Careless;

impl Workers for Careless {
    fn count(&self) -> usize {
        3
    }

    fn run(&self, tasks: usize, f: &(dyn Fn(usize) + Sync)) {
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| (0..tasks).for_each(f));
            }
        });
    }
}

/// Calls `f` too seldom.
struct Lazy;

impl Workers for Lazy {
    fn count(&self) -> usize {
        2
    }

    fn run(&self, _: usize, f: &(dyn Fn(usize) + Sync)) {
        f(0);
    }
}

#[test]
fn every_element_is_written_once_whatever_the_workers_do() {
    for workers in [&Single as &dyn Workers, &Careless, &Lazy] {
        for (rows, width, tile_rows, tile_cols) in [(7, 10, 2, 3), (1, 1, 5, 5), (0, 4, 1, 1), (3, 0, 1, 1)] {
            let mut data = vec![0u32; rows * width];
            for_each_tile(workers, &mut data, width, tile_rows, tile_cols, |mut tile| {
                for row in tile.rows() {
                    tile.row_mut(row).iter_mut().for_each(|v| *v += 1);
                }
            });
            assert!(data.iter().all(|v| *v == 1), "{data:?}");
        }
        let (mut a, mut b) = (vec![0u8; 22], vec![0u64; 11]);
        let parts = (Rows::new(&mut a, 2), Rows::new(&mut b, 1), Rows::none(), Rows::none());
        for_each_rows(workers, 11, parts, |range, a, b, _, _| {
            assert_eq!((a.len(), b.len()), (range.len() * 2, range.len()));
            a.iter_mut().for_each(|v| *v += 1);
            b.iter_mut().for_each(|v| *v += 1);
        });
        assert!(a.iter().all(|v| *v == 1) && b.iter().all(|v| *v == 1));
        for rows in [0, 1, 65, 130] {
            let (mut a, mut b) = (vec![0u8; rows * 3], vec![0u8; rows * 100]);
            let matrices = [Rows::new(&mut a, 3), Rows::new(&mut b, 100)];
            for_each_tile_of(workers, matrices, |which, mut tile| {
                for row in tile.rows() {
                    tile.row_mut(row).iter_mut().for_each(|v| *v += 1 + which as u8);
                }
            });
            assert!(a.iter().all(|v| *v == 1) && b.iter().all(|v| *v == 2), "{rows}");
            let mut b2 = b.clone();
            let pair = [Rows::new(&mut b, 100), Rows::new(&mut b2, 100)];
            for_each_tile_pair(workers, pair, |mut a, mut b| {
                assert_eq!((a.rows(), a.cols()), (b.rows(), b.cols()));
                for row in a.rows() {
                    for (a, b) in a.row_mut(row).iter_mut().zip(b.row_mut(row)) {
                        (*a, *b) = (*a + *b, 9);
                    }
                }
            });
            assert!(b.iter().all(|v| *v == 4) && b2.iter().all(|v| *v == 9), "{rows}");
        }
    }
}

#[test]
#[should_panic(expected = "row outside its tile")]
fn a_tile_guards_its_rows() {
    let mut data = [0u8; 8];
    Tile::whole(&mut data, 4).row_mut(2);
}
