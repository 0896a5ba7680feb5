//! Candidates as integers, sorted only as far as somebody looks. Must not know parameters.
//!
//! A candidate is one `u64` key: above, the bits of the logit, rearranged so that a larger
//! logit is a smaller integer; below, the id. Ascending order of keys is "logit descending,
//! then id ascending", and comparing is one integer instruction.

use crate::math;

/// 2^40.
const ONE: f32 = 1_099_511_627_776.0;

/// Logits whose `exp` is computed together.
const GROUP: usize = 16;

/// The key of a logit that is not NaN. Both zeros are the same logit.
pub(super) fn key(logit: f32, id: u32) -> u64 {
    let bits = (logit + 0.0).to_bits();
    let ascending = if bits >> 31 == 0 { bits | 0x8000_0000 } else { !bits };
    u64::from(!ascending) << 32 | u64::from(id)
}

pub(super) fn logit_of(key: u64) -> f32 {
    let ascending = !((key >> 32) as u32);
    f32::from_bits(if ascending >> 31 == 1 { ascending & 0x7FFF_FFFF } else { !ascending })
}

pub(super) fn id_of(key: u64) -> u32 {
    key as u32
}

/// `trunc(exp((logit - max) / temperature) * 2^40)`; `logit <= max`, `max` finite.
pub(super) fn weight(logit: f32, max: f32, temperature: f32) -> u64 {
    (math::exp((logit - max) / temperature) * ONE) as u64
}

/// Sum of the weights of all logits in a list.
pub(super) fn total<T>(list: &[T], logit: impl Fn(&T) -> f32, max: f32, temperature: f32) -> u64 {
    let (groups, rest) = list.as_chunks::<GROUP>();
    let mut total = 0;
    for group in groups {
        // A loop of nothing but `exp` over an array: the compiler turns it into vector code.
        let mut x = [0.0; GROUP];
        for (x, item) in x.iter_mut().zip(group) {
            *x = (logit(item) - max) / temperature;
        }
        for x in &mut x {
            *x = math::exp(*x);
        }
        for x in x {
            total += (x * ONE) as i64 as u64;
        }
    }
    total + rest.iter().map(|item| weight(logit(item), max, temperature)).sum::<u64>()
}

/// A weight sum as a multiple of the largest weight.
pub(super) fn in_ones(total: u64) -> f64 {
    total as f64 / f64::from(ONE)
}

/// Moves the `k` smallest keys to the front, in any order.
///
/// By the highest bit in which keys differ, then within the half where the border lies: a tenth of the
/// code of `select_nth_unstable`, which is made for keys that can only be compared.
fn best_first(mut keys: &mut [u64], mut k: usize) {
    while k < keys.len() {
        let (all, any) = keys.iter().fold((u64::MAX, 0), |(all, any), key| (all & key, any | key));
        let Some(top) = (all ^ any).checked_ilog2() else { return };
        let mut zeros = 0;
        for i in 0..keys.len() {
            if keys[i] >> top & 1 == 0 {
                keys.swap(zeros, i);
                zeros += 1;
            }
        }
        if k <= zeros {
            keys = &mut keys[..zeros];
        } else {
            keys = &mut keys[zeros..];
            k -= zeros;
        }
    }
}

/// The best candidates; the first `sorted` of them are in order and precede all others.
pub(super) struct Candidates<'k> {
    keys: &'k mut [u64],
    sorted: usize,
}

impl<'k> Candidates<'k> {
    /// The `k` best; all for `k` = 0.
    pub(super) fn top(keys: &'k mut [u64], k: usize) -> Self {
        if (1..keys.len()).contains(&k) {
            best_first(keys, k);
            Candidates { keys: &mut keys[..k], sorted: 0 }
        } else {
            Candidates { keys, sorted: 0 }
        }
    }

    /// The `i`-th best.
    pub(super) fn get(&mut self, i: usize) -> Option<u64> {
        if i >= self.sorted && i < self.keys.len() {
            self.sort_beyond(i);
        }
        self.keys.get(i).copied()
    }

    /// Doubles the sorted part, at least up to `i`. What lies behind it is only partitioned, so
    /// that looking at the first k of n costs O(n + k log k) as long as k is small, and never
    /// more than O(n log n).
    fn sort_beyond(&mut self, i: usize) {
        const FIRST: usize = 64;
        let end = (self.sorted * 2).max(i + 1).max(FIRST).min(self.keys.len());
        let rest = &mut self.keys[self.sorted..];
        let len = end - self.sorted;
        if len < rest.len() {
            best_first(rest, len);
        }
        rest[..len].sort_unstable();
        self.sorted = end;
    }

    /// Sum of the weights: exact, hence not in need of an order.
    pub(super) fn total(&self, max: f32, temperature: f32) -> u64 {
        total(self.keys, |&key| logit_of(key), max, temperature)
    }

    /// Goes through the candidates in order and keeps those up to the first for which `done`
    /// is true, that one included.
    pub(super) fn keep_until(&mut self, mut done: impl FnMut(u64) -> bool) {
        let mut i = 0;
        while let Some(key) = self.get(i) {
            i += 1;
            if done(key) {
                self.truncate(i);
                return;
            }
        }
    }

    /// Goes through the candidates in order and drops the first for which `good` is false and
    /// all after it. The best one stays in any case.
    pub(super) fn keep_while(&mut self, mut good: impl FnMut(u64) -> bool) {
        let mut i = 1;
        while let Some(key) = self.get(i) {
            if !good(key) {
                self.truncate(i);
                return;
            }
            i += 1;
        }
    }

    /// `len` <= `sorted`.
    fn truncate(&mut self, len: usize) {
        let keys = core::mem::take(&mut self.keys);
        self.keys = &mut keys[..len];
        self.sorted = len;
    }

    /// The last one kept, if they are sorted.
    pub(super) fn last(&self) -> Option<u64> {
        self.keys.last().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    extern crate std;
    use std::vec::Vec;

    #[test]
    fn the_best_come_first() {
        let mut state = 1u64;
        let mut random = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            state >> 33
        };
        let logits: Vec<f32> = (0..300).map(|_| (random() % 64) as f32 - 32.0).collect();
        let keys: Vec<u64> = (0..).zip(&logits).map(|(id, logit)| key(*logit, id)).collect();
        let mut sorted = keys.clone();
        sorted.sort_unstable();
        for k in [0, 1, 2, 63, 64, 65, 150, 299, 300, 301] {
            let mut keys = keys.clone();
            best_first(&mut keys, k);
            let k = k.min(keys.len());
            keys[..k].sort_unstable();
            assert_eq!(keys[..k], sorted[..k], "{k}");
        }
        // Equal keys, and none.
        best_first(&mut [7; 5], 3);
        best_first(&mut [], 0);
    }
}
