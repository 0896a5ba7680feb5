//! A hash table over a caller's slice of slots that holds indices of entries kept elsewhere.
//!
//! Open addressing, linear probing, no removal. No entry lies more than [`MOST_PROBES`] slots
//! from its home, so that neither building nor looking up can be made slow by a hostile file.

use core::ops::ControlFlow;

/// With at most two thirds of the slots used, chance makes runs of about 200 among a million.
const MOST_PROBES: usize = 512;

/// Bits of a slot for an index plus one; 0 is a free slot. The others hold bits of the hash, so that
/// entries with another hash are seldom looked at: they lie far apart in memory.
const INDEX_MASK: u32 = (1 << 21) - 1;
/// Most entries of a table.
pub(super) const MAX_ENTRIES: usize = 1 << 20;

/// Slots for `entries` entries.
pub(super) fn slots_for(entries: usize) -> usize {
    entries.saturating_add(entries / 2).max(2).next_power_of_two()
}

/// Empties the table.
pub(super) fn clear(slots: &mut [u32]) {
    slots.fill(0);
}

/// Slots that an entry of this hash may take, in order. `slots.len()` is a power of two.
fn probes(len: usize, hash: u64) -> impl Iterator<Item = usize> {
    // The upper half of a multiplicative hash is the well mixed one.
    let home = (hash >> 32) as usize;
    (0..MOST_PROBES.min(len)).map(move |step| home.wrapping_add(step) & (len - 1))
}

/// The entry for which `same` holds.
pub(super) fn find(slots: &[u32], hash: u64, same: impl Fn(u32) -> bool) -> Option<u32> {
    for at in probes(slots.len(), hash) {
        let slot = slots[at];
        let entry = (slot & INDEX_MASK).checked_sub(1)?;
        if slot & !INDEX_MASK == hash as u32 & !INDEX_MASK && same(entry) {
            return Some(entry);
        }
    }
    None
}

/// Enters `index`, below [`MAX_ENTRIES`], unless there is an equal entry.
///
/// `Break(Some(entry))` is that equal entry, `Break(None)` says there is no slot near enough.
pub(super) fn insert(
    slots: &mut [u32],
    hash: u64,
    index: u32,
    same: impl Fn(u32) -> bool,
) -> ControlFlow<Option<u32>> {
    let new = (hash as u32 & !INDEX_MASK) | (index + 1);
    for at in probes(slots.len(), hash) {
        let slot = slots[at];
        match (slot & INDEX_MASK).checked_sub(1) {
            None => {
                slots[at] = new;
                return ControlFlow::Continue(());
            }
            Some(entry) if slot & !INDEX_MASK == new & !INDEX_MASK && same(entry) => {
                return ControlFlow::Break(Some(entry));
            }
            Some(_) => {}
        }
    }
    ControlFlow::Break(None)
}

/// FNV-1a of all bytes, then one multiplication to mix the upper half.
pub(super) fn hash_bytes(bytes: impl Iterator<Item = u8>) -> u64 {
    let hash = bytes.fold(0xCBF2_9CE4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3)
    });
    mix(hash)
}

/// The hash of a pair of ids.
pub(super) fn hash_pair(left: u32, right: u32) -> u64 {
    mix(u64::from(left) << 32 | u64::from(right))
}

/// Fibonacci hashing; the shift lets the upper bits of the input reach the lower ones first.
fn mix(value: u64) -> u64 {
    (value ^ value >> 29).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_found_and_collisions_bounded() {
        let mut slots = [0; 2048];
        for i in 0..512 {
            assert!(insert(&mut slots, 7 << 32, i, |e| e == i).is_continue());
        }
        assert_eq!(insert(&mut slots, 7 << 32, 512, |e| e == 512), ControlFlow::Break(None));
        assert_eq!(insert(&mut slots, 7 << 32, 9, |e| e == 9), ControlFlow::Break(Some(9)));
        assert_eq!(find(&slots, 7 << 32, |e| e == 511), Some(511));
        assert_eq!(find(&slots, 7 << 32, |e| e == 512), None);
        assert_eq!(find(&[], 1, |_| true), None);
    }
}
