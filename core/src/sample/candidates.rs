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

/// The best candidates; the first `sorted` of them are in order and precede all others.
pub(super) struct Candidates<'k> {
    keys: &'k mut [u64],
    sorted: usize,
}

impl<'k> Candidates<'k> {
    /// The `k` best; all for `k` = 0.
    pub(super) fn top(keys: &'k mut [u64], k: usize) -> Self {
        if (1..keys.len()).contains(&k) {
            keys.select_nth_unstable(k - 1);
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
            rest.select_nth_unstable(len - 1);
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
