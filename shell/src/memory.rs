//! Memory arithmetic: what a model and its context take, what there is, and the refusal that shows it.
//! Must not know how the parts come about.

use crate::decimal::fixed;
use std::fs;

/// The parts of memory that an engine takes, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Budget {
    /// The model file (mapped; it must stay in memory to be fast).
    pub weights: usize,
    /// KV blocks.
    pub kv: usize,
    /// Activations.
    pub scratch: usize,
    /// Tokenizer and KV indexes.
    pub index: usize,
}

impl Budget {
    /// All of it.
    pub fn total(&self) -> usize {
        self.weights.saturating_add(self.kv).saturating_add(self.scratch).saturating_add(self.index)
    }

    /// Checks the sum against `available` bytes; `ctx` is the context length that `kv` is for.
    ///
    /// # Errors
    /// The arithmetic and what to change, in one line.
    pub fn check(&self, available: usize, ctx: usize) -> Result<(), String> {
        let total = self.total();
        if total <= available {
            return Ok(());
        }
        let rest = total - self.kv;
        let per_token = self.kv.div_ceil(ctx.max(1)).max(1);
        let fits = available.saturating_sub(rest) / per_token / 256 * 256;
        let advice = if fits > 0 {
            format!("use --ctx {fits} or less (now {ctx})")
        } else if self.weights < available {
            format!("use a smaller --ctx (now {ctx}) and a smaller --batch")
        } else {
            String::from("use a smaller model or one with fewer bits per weight")
        };
        Err(format!(
            "not enough memory: weights {} + kv {} + scratch {} + index {} = {}, available {}; {advice}, \
             end other programs, or add --force to try all the same",
            megabytes(self.weights),
            megabytes(self.kv),
            megabytes(self.scratch),
            megabytes(self.index),
            megabytes(total),
            megabytes(available),
        ))
    }
}

/// Bytes as millions, rounded; small amounts in thousands.
pub fn megabytes(bytes: usize) -> String {
    match bytes {
        0 => String::from("0"),
        1..500_000 => format!("{} kB", bytes.div_ceil(1000)),
        500_000..9_950_000 => format!("{} MB", fixed(bytes as f64 / 1e6, 1)),
        _ => format!("{} MB", fixed(bytes as f64 / 1e6, 0)),
    }
}

/// Memory that can be used without swapping, in bytes: `MemAvailable`. None where the kernel does
/// not say.
pub fn available() -> Option<usize> {
    field(&fs::read_to_string("/proc/meminfo").ok()?, "MemAvailable:")
}

/// The most memory this process ever had resident, in bytes: `VmHWM`.
pub fn peak_resident() -> Option<usize> {
    field(&fs::read_to_string("/proc/self/status").ok()?, "VmHWM:")
}

/// The memory that this process has resident, in bytes: `VmRSS`.
pub fn resident() -> Option<usize> {
    field(&fs::read_to_string("/proc/self/status").ok()?, "VmRSS:")
}

/// The value of a `Name:   123 kB` line, in bytes.
fn field(text: &str, name: &str) -> Option<usize> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    let number: usize = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    number.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_refusal_shows_the_sum_and_a_context_that_fits() {
        let budget = Budget { weights: 500_000_000, kv: 81_920_000, scratch: 50_000_000, index: 2_000_000 };
        assert_eq!(budget.check(633_920_000, 8192), Ok(()));
        let message = budget.check(600_000_000, 8192).unwrap_err();
        assert!(message.contains("weights 500 MB + kv 82 MB + scratch 50 MB + index 2.0 MB = 634 MB"));
        assert!(message.contains("available 600 MB; use --ctx 4608 or less (now 8192)"), "{message}");
        // What is advised does fit.
        let smaller = Budget { kv: 81_920_000 / 8192 * 4608, ..budget };
        assert_eq!(smaller.check(600_000_000, 4608), Ok(()));
        assert!(budget.check(100, 8192).unwrap_err().contains("smaller model"));
        assert!(Budget { kv: usize::MAX, ..budget }.check(usize::MAX - 1, 1 << 40).is_err());
    }

    #[test]
    fn kernel_files_are_read() {
        let text = "MemTotal:       24105000 kB\nMemAvailable:   1024 kB\n";
        assert_eq!(field(text, "MemAvailable:"), Some(1024 * 1024));
        assert_eq!(field(text, "VmHWM:"), None);
        assert!(available().is_some_and(|bytes| bytes > 0));
        assert!(peak_resident().is_some_and(|bytes| bytes > 100_000));
    }
}
