//! A binary heap over a caller's slice: the smallest key first.
//!
//! It must not know what keys mean.

/// Keys in heap order: no key is smaller than its parent, the one at `(i - 1) / 2`.
#[derive(Debug)]
pub(super) struct Heap<'s> {
    keys: &'s mut [u64],
    len: usize,
}

impl<'s> Heap<'s> {
    pub(super) fn new(keys: &'s mut [u64]) -> Self {
        Heap { keys, len: 0 }
    }

    pub(super) fn clear(&mut self) {
        self.len = 0;
    }

    /// Adds a key; the slice must have room.
    pub(super) fn push(&mut self, key: u64) {
        let mut at = self.len;
        self.len += 1;
        while at > 0 {
            let parent = (at - 1) / 2;
            if self.keys[parent] <= key {
                break;
            }
            self.keys[at] = self.keys[parent];
            at = parent;
        }
        self.keys[at] = key;
    }

    /// Removes the smallest key.
    pub(super) fn pop(&mut self) -> Option<u64> {
        self.len = self.len.checked_sub(1)?;
        let keys = &mut self.keys[..=self.len];
        let (smallest, moved) = (keys[0], keys[self.len]);
        let keys = &mut keys[..self.len];
        let mut at = 0;
        loop {
            let mut child = 2 * at + 1;
            if child >= keys.len() {
                break;
            }
            if child + 1 < keys.len() && keys[child + 1] < keys[child] {
                child += 1;
            }
            if moved <= keys[child] {
                break;
            }
            keys[at] = keys[child];
            at = child;
        }
        if let Some(slot) = keys.get_mut(at) {
            *slot = moved;
        }
        Some(smallest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_come_out_in_order() {
        let mut keys = [0; 200];
        let mut heap = Heap::new(&mut keys);
        assert_eq!(heap.pop(), None);
        let (mut state, mut sum) = (1u64, 0u64);
        for _ in 0..200 {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            sum = sum.wrapping_add(state >> 58);
            heap.push(state >> 58);
        }
        let mut last = 0;
        for _ in 0..200 {
            let key = heap.pop().unwrap();
            assert!(key >= last);
            last = key;
            sum = sum.wrapping_sub(key);
        }
        assert_eq!((heap.pop(), sum), (None, 0));
    }
}
