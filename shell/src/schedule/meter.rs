//! Speed of the last seconds of work. Must not know of what.

use crate::generate::rate;
use core::time::Duration;

/// How much work counts.
const WINDOW: Duration = Duration::from_secs(4);

/// Items and the time they took.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Meter {
    items: usize,
    time: Duration,
}

impl Meter {
    /// Counts `items` that took `time`.
    pub fn add(&mut self, items: usize, time: Duration) {
        self.items += items;
        self.time += time;
        if self.time > WINDOW {
            self.items /= 2;
            self.time /= 2;
        }
    }

    /// Items per second; 0 before there were any.
    pub fn rate(&self) -> f64 {
        rate(self.items, self.time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_work_counts_most() {
        let mut meter = Meter::default();
        assert_eq!(meter.rate(), 0.0);
        for _ in 0..100 {
            meter.add(10, Duration::from_secs(1));
        }
        assert!((9.0..=10.0).contains(&meter.rate()));
        for _ in 0..20 {
            meter.add(100, Duration::from_secs(1));
        }
        assert!(meter.rate() > 90.0);
    }
}
