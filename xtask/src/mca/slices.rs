//! One turn of a kernel's loop, or one call, cut out of a trace of what ran.
//!
//! A trace knows what a disassembly does not: how often inner loops turn, and which way branches go.

use super::disassembly::Loop;
use core::ops::Range;
use std::collections::HashMap;

/// Bytes of an instruction.
const BYTES: u64 = 4;

/// Addresses of instructions in the order of running.
pub type Trace = Vec<u64>;

/// Reads the plugin's traces, `count` of them.
///
/// # Errors
/// A line that is none of its.
pub fn parse(text: &str, count: usize) -> Result<Vec<Trace>, String> {
    let mut traces = vec![Trace::new(); count];
    for line in text.lines().filter(|l| !l.starts_with("total ")) {
        let words: Vec<&str> = line.split(' ').collect();
        let run = match words[..] {
            ["run", i, address, n] => {
                let numbers = (i.parse::<usize>(), u64::from_str_radix(address, 16), n.parse::<u64>());
                match numbers {
                    (Ok(i), Ok(address), Ok(n)) if i < count && n <= 4096 => Some((i, address, n)),
                    _ => None,
                }
            }
            _ => None,
        };
        let (i, address, n) = run.ok_or_else(|| format!("no line of a trace: '{line}'"))?;
        traces[i].extend((0..n).map(|k| address + k * BYTES));
    }
    Ok(traces)
}

/// What ran again and again, and how much of the trace it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slice {
    /// Addresses in the order of running.
    pub addresses: Vec<u64>,
    /// Slices that were just like it, and all.
    pub alike: [usize; 2],
}

/// The most frequent way around a loop, of those that `is_it` takes: one loop can serve two forms of data.
///
/// A turn ends where the next one starts. Where no loop ever turns twice (rows of one block), it ends
/// where the loop is left.
pub fn turn(trace: &[u64], around: Loop, is_it: &dyn Fn(&[u64]) -> bool) -> Option<Slice> {
    let (mut whole, mut left) = (Vec::new(), Vec::new());
    let mut open: Option<usize> = None;
    for (i, &address) in trace.iter().enumerate() {
        if address == around.start {
            whole.extend(open.map(|from| &trace[from..i]));
            open = Some(i);
        } else if !(around.start..=around.end).contains(&address) {
            left.extend(open.map(|from| &trace[from..i]));
            open = None;
        }
    }
    most_frequent(whole, is_it).or_else(|| most_frequent(left, is_it))
}

/// The most frequent way through a function, of those that `is_it` takes.
pub fn call(trace: &[u64], function: &Range<u64>, is_it: &dyn Fn(&[u64]) -> bool) -> Option<Slice> {
    let starts: Vec<usize> = (0..trace.len()).filter(|&i| trace[i] == function.start).collect();
    most_frequent(starts.windows(2).map(|pair| &trace[pair[0]..pair[1]]).collect(), is_it)
}

fn most_frequent(mut slices: Vec<&[u64]>, is_it: &dyn Fn(&[u64]) -> bool) -> Option<Slice> {
    slices.retain(|slice| is_it(slice));
    let all = slices.len();
    let mut times: HashMap<&[u64], usize> = HashMap::new();
    slices.into_iter().for_each(|slice| *times.entry(slice).or_default() += 1);
    // Of equally frequent ones the longer: the order of a map must not matter.
    let (slice, alike) = times.into_iter().max_by_key(|(slice, n)| (*n, slice.len(), slice.to_vec()))?;
    Some(Slice { addresses: slice.to_vec(), alike: [alike, all] })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traces_are_read() {
        let text = "total 99\nrun 1 100 3\nrun 0 20 1\nrun 1 200 1\n";
        assert_eq!(parse(text, 2).unwrap(), [vec![0x20], vec![0x100, 0x104, 0x108, 0x200]]);
        for bad in ["run 2 100 1", "run 0 zz 1", "run 0 100 9999999999", "pc 1 2"] {
            assert!(parse(bad, 2).is_err(), "{bad}");
        }
    }

    const LOOP: Loop = Loop { start: 8, end: 20 };

    #[test]
    fn a_turn_is_the_most_frequent_way_around() {
        // Entered in the middle; three turns of which two are alike; left; entered again.
        let trace = [0, 16, 20, 8, 12, 16, 20, 8, 16, 20, 8, 12, 16, 20, 8, 12, 24, 0, 8, 12, 20, 24];
        let slice = turn(&trace, LOOP, &|_| true).unwrap();
        assert_eq!(slice, Slice { addresses: vec![8, 12, 16, 20], alike: [2, 3] });
        // Of those without 12 there is one.
        let slice = turn(&trace, LOOP, &|slice| !slice.contains(&12)).unwrap();
        assert_eq!(slice, Slice { addresses: vec![8, 16, 20], alike: [1, 1] });
    }

    #[test]
    fn a_loop_of_one_turn_ends_where_it_is_left() {
        let trace = [0, 4, 8, 12, 20, 24, 0, 4, 8, 12, 20, 24, 0, 4, 8];
        assert_eq!(
            turn(&trace, LOOP, &|_| true).unwrap(),
            Slice { addresses: vec![8, 12, 20], alike: [2, 2] }
        );
        assert_eq!(turn(&[0, 4], LOOP, &|_| true), None);
    }

    #[test]
    fn a_call_goes_from_entry_to_entry() {
        let trace = [4, 8, 4, 8, 12, 4, 8, 12, 4];
        let slice = call(&trace, &(4..16), &|_| true).unwrap();
        assert_eq!(slice, Slice { addresses: vec![4, 8, 12], alike: [2, 3] });
        assert_eq!(call(&trace[..2], &(4..16), &|_| true), None);
    }
}
