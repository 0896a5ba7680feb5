//! How often each instruction ran, as the emulator's plugin writes it.

use std::collections::BTreeMap;

/// How often each instruction ran.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// All instructions.
    pub total: i64,
    /// Per address; can be negative in a difference.
    pub at: BTreeMap<u64, i64>,
}

impl Counts {
    /// Reads what the plugin wrote.
    ///
    /// # Errors
    /// A line that is none of its, or parts that do not add up to the total.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut counts = Counts::default();
        let mut total = None;
        for line in text.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let wrong = || format!("no line of the plugin's: '{line}'");
            match words[..] {
                ["total", n] => total = Some(n.parse().map_err(|_| wrong())?),
                ["pc", address, n] => {
                    let address = u64::from_str_radix(address, 16).map_err(|_| wrong())?;
                    // An instruction may stand in several translated blocks.
                    *counts.at.entry(address).or_default() += n.parse::<i64>().map_err(|_| wrong())?;
                }
                _ => return Err(wrong()),
            }
        }
        counts.total = total.ok_or("no total")?;
        let sum: i64 = counts.at.values().sum();
        if sum != counts.total {
            return Err(format!("the instructions add up to {sum}, not to {}", counts.total));
        }
        Ok(counts)
    }

    /// What `self` ran more often than `other`.
    pub fn minus(mut self, other: &Counts) -> Counts {
        self.total -= other.total;
        for (address, n) in &other.at {
            *self.at.entry(*address).or_default() -= n;
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read_and_add_up() {
        let counts = Counts::parse("total 12\npc 1000 3\npc 1004 3\npc 1004 6\n").unwrap();
        assert_eq!(counts.total, 12);
        assert_eq!(counts.at, BTreeMap::from([(0x1000, 3), (0x1004, 9)]));
        assert!(Counts::parse("pc 1000 3\n").unwrap_err().contains("no total"));
        assert!(Counts::parse("total 4\npc 1000 3\n").unwrap_err().contains("add up to 3, not to 4"));
        for bad in ["total x", "pc zz 1", "pc 10", "mark 1 2", ""] {
            assert!(Counts::parse(&format!("total 0\n{bad}\n\n")).is_err(), "{bad}");
        }
    }

    #[test]
    fn differences_leave_out_what_both_do() {
        let long = Counts::parse("total 30\npc 10 20\npc 14 10\n").unwrap();
        let short = Counts::parse("total 16\npc 10 5\npc 18 11\n").unwrap();
        let more = long.minus(&short);
        assert_eq!(more.total, 14);
        assert_eq!(more.at, BTreeMap::from([(0x10, 15), (0x14, 10), (0x18, -11)]));
    }
}
