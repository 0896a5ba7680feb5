//! How evenly the work of a step is shared, in virtual time: every operator's own splitting and claiming,
//! at the shapes of real models, by workers of different speeds. No clock, so that it is the same everywhere.

use super::attend::{Heads, for_each_heads, for_each_slab};
use crate::par::{Rows, Workers, for_each_rows, for_each_tile, for_each_tile_of, for_each_tile_pair};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
extern crate std;
use std::{vec, vec::Vec};

/// Cost of taking a task, in multiply-adds: about 50 ns of a fast core with dot product.
const CLAIM: u64 = 1000;
/// Cost of an element of a vector that is normalised, turned or quantised, in multiply-adds.
const ELEMENT: usize = 20;

/// Workers whose tasks cost virtual time: what the task adds to `cost`, times the worker's slowness.
struct Virtual {
    slowness: Vec<u64>,
    cost: AtomicU64,
    /// Time of the last run, and the work in it.
    last: AtomicU64,
    work: AtomicU64,
    runs: AtomicU64,
}

impl Virtual {
    fn new(slowness: &[u64]) -> Virtual {
        let zero = || AtomicU64::new(0);
        Virtual { slowness: slowness.to_vec(), cost: zero(), last: zero(), work: zero(), runs: zero() }
    }

    fn spend(&self, cost: usize) {
        self.cost.fetch_add(cost as u64, Relaxed);
    }

    /// Work per time of all workers together.
    fn speed(&self) -> f64 {
        self.slowness.iter().map(|s| 1.0 / *s as f64).sum()
    }

    /// Time of the last run over that of the ideal split, which has no claims and no remainders.
    fn excess(&self) -> f64 {
        self.last.load(Relaxed) as f64 * self.speed() / self.work.load(Relaxed) as f64
    }
}

impl Workers for Virtual {
    fn count(&self) -> usize {
        self.slowness.len()
    }

    fn run(&self, tasks: usize, f: &(dyn Fn(usize) + Sync)) {
        let mut clocks = vec![0u64; self.slowness.len()];
        self.work.store(0, Relaxed);
        for i in 0..tasks {
            // The next to be free takes the next task; of several the slowest, which is the worst case.
            let worker = (0..clocks.len()).min_by_key(|&w| (clocks[w], u64::MAX - self.slowness[w])).unwrap();
            self.cost.store(0, Relaxed);
            f(i);
            let cost = self.cost.load(Relaxed);
            self.work.fetch_add(cost, Relaxed);
            clocks[worker] += (cost + CLAIM) * self.slowness[worker];
        }
        self.last.store(clocks.into_iter().max().unwrap_or(0), Relaxed);
        self.runs.fetch_add(1, Relaxed);
    }
}

/// What the test needs of a model.
struct Shape {
    name: &'static str,
    dim: usize,
    ffn: usize,
    vocab: usize,
    heads: Heads,
}

fn shapes() -> [Shape; 2] {
    let heads = |kv_heads, group, head_dim| Heads { rows: 1, kv_heads, group, head_dim };
    let vocab = 151_936;
    [
        Shape { name: "Qwen2.5-0.5B", dim: 896, ffn: 4864, vocab, heads: heads(2, 7, 64) },
        Shape { name: "Qwen3-VL-2B", dim: 2048, ffn: 6144, vocab, heads: heads(8, 2, 128) },
    ]
}

/// Product of `n` vectors of `k` with matrices of so many rows.
fn product<const N: usize>(workers: &Virtual, n: usize, k: usize, rows: [usize; N]) {
    let mut outs = rows.map(|rows| vec![0u8; n * rows]);
    let mut widths = rows.iter();
    let matrices = outs.each_mut().map(|out| Rows::new(out, *widths.next().unwrap()));
    for_each_tile_of(workers, matrices, |_, tile| workers.spend(tile.rows().len() * tile.cols().len() * k));
}

/// Calls `each(operator, parts)` after each operator of a layer that the workers run; `parts` are the equal
/// parts that its work consists of, where they are so few that they matter.
fn layer(
    workers: &Virtual,
    shape: &Shape,
    n: usize,
    before: usize,
    each: &mut dyn FnMut(&'static str, Option<u64>),
) {
    let h = Heads { rows: n, ..shape.heads };
    let heads = h.kv_heads * h.group;
    let (q_dim, kv_dim) = (heads * h.head_dim, h.kv_heads * h.head_dim);
    let mut done = |name, parts| {
        // Work of a few rows stays with the caller: nothing to be shared.
        if workers.runs.swap(0, Relaxed) > 0 {
            each(name, parts);
        }
    };
    let vectors = |width: usize| {
        let mut x = vec![0u8; n * width];
        let rows = (Rows::new(&mut x, width), Rows::none(), Rows::none(), Rows::none());
        for_each_rows(workers, n, rows, |range, _, _, _, _| workers.spend(range.len() * width * ELEMENT));
    };
    vectors(shape.dim);
    done("norm", None);
    product(workers, n, shape.dim, [q_dim, kv_dim, kv_dim]);
    done("q k v", None);
    vectors(q_dim + kv_dim);
    done("rope", None);
    store(workers, h, |_| workers.spend(n * 2 * h.head_dim * ELEMENT));
    done("store", None);
    for_each_heads(workers, h, &mut vec![0.0; n * q_dim], |rows, heads, _| {
        let seen: usize = rows.map(|row| before + row + 1).sum();
        workers.spend(seen * heads.len() * 2 * h.head_dim);
    });
    // A head of a token is computed block after block: no split can be finer.
    done("attention", (n == 1).then_some(heads as u64));
    vectors(q_dim);
    done("quantise", None);
    product(workers, n, q_dim, [shape.dim]);
    done("attention output", None);
    let (mut gate, mut up) = (vec![0u8; n * shape.ffn], vec![0u8; n * shape.ffn]);
    let pair = [Rows::new(&mut gate, shape.ffn), Rows::new(&mut up, shape.ffn)];
    for_each_tile_pair(workers, pair, |tile, _| {
        workers.spend(tile.rows().len() * tile.cols().len() * (2 * shape.dim + ELEMENT));
    });
    done("gate and up", None);
    vectors(shape.ffn);
    done("quantise", None);
    product(workers, n, shape.ffn, [shape.dim]);
    done("down", None);
    product(workers, 1, shape.dim, [shape.vocab]);
    done("logits", None);
}

/// Keys and values into blocks, by KV head, as the engine does it.
fn store(workers: &Virtual, heads: Heads, f: impl Fn(usize) + Sync) {
    let mut slabs = vec![0u8; heads.kv_heads];
    for_each_slab(workers, heads.rows, &mut slabs, heads.kv_heads, 1, |head, _| f(head));
}

/// Time in which workers can do so many equal parts, over that in which they could if parts had no end.
fn whole_parts(workers: &Virtual, parts: u64) -> f64 {
    let done = |time: u64| workers.slowness.iter().map(|slowness| time / slowness).sum::<u64>();
    let time = (1..).find(|time| done(*time) >= parts).unwrap_or(0);
    time as f64 * workers.speed() / parts as f64
}

/// Fast and slow cores of an RK3588, its fast ones alone, a desk.
const MACHINES: [&[u64]; 3] = [&[1, 1, 1, 1, 3, 3, 3, 3], &[1, 1, 1, 1], &[1, 1]];

#[test]
fn every_operator_is_shared_within_a_tenth_of_the_ideal() {
    for slowness in MACHINES {
        let workers = Virtual::new(slowness);
        for shape in shapes() {
            for (n, before) in [(1, 1000), (512, 0)] {
                let (mut stored, mut all) = (0.0, 0.0);
                layer(&workers, &shape, n, before, &mut |name, parts| {
                    let ideal = parts.map_or(1.0, |parts| whole_parts(&workers, parts));
                    let excess = workers.excess() / ideal;
                    let what = std::format!("{} of {}, {n} tokens, {slowness:?}", name, shape.name);
                    std::println!("{excess:.3} {what}");
                    let time = workers.last.load(Relaxed) as f64;
                    all += time;
                    if name == "store" {
                        // A task is all of a KV head: few and large, but next to nothing.
                        stored += time;
                    } else {
                        assert!(excess < 1.1, "{excess:.3} of the ideal time: {what}");
                    }
                });
                assert!(stored < all / 100.0, "{stored} of {all}: {}, {n} tokens, {slowness:?}", shape.name);
            }
        }
    }
}

#[test]
fn equal_tasks_would_not_do() {
    let workers = Virtual::new(MACHINES[0]);
    let mut out = vec![0u8; 896];
    for_each_tile(&workers, &mut out, 896, 1, 16, |tile| workers.spend(tile.cols().len() * 896));
    assert!(workers.excess() > 1.1, "{}", workers.excess());
}
