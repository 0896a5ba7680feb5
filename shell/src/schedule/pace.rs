//! How much of a prompt is computed in one step. Must not know what else is in the step.

use core::time::Duration;

/// Tokens of the first slice, before anything is known of the machine.
const FIRST: usize = 64;
/// Fewer tokens at a time would read weights more often than they are used.
const LEAST: usize = 16;
/// How long a step may take while replies are written: about as long as a reader does not mind.
const AMONG_OTHERS: Duration = Duration::from_millis(200);
/// How long it may take where nobody is held up but those who come or go meanwhile.
const ALONE: Duration = Duration::from_secs(1);

/// What slices took so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pace {
    /// Nanoseconds for a token of a prompt; 0 is not known yet.
    per_token: u64,
}

impl Pace {
    /// How many tokens of prompts the next step takes; `among_others` says whether replies are written in it.
    pub fn slice(&self, among_others: bool) -> usize {
        if self.per_token == 0 {
            return FIRST;
        }
        let patience = if among_others { AMONG_OTHERS } else { ALONE };
        let worth = patience.as_nanos() as u64 / self.per_token;
        (worth.min(1 << 20) as usize / LEAST * LEAST).max(LEAST)
    }

    /// A step with `tokens` of prompts took `time`. What else was in it counts too, so that a step of the
    /// next size takes as long as it may: sizes settle where they do.
    pub fn took(&mut self, tokens: usize, time: Duration) {
        // The rest of a prompt says little: most of its step was for something else.
        if tokens >= LEAST {
            self.per_token = (time.as_nanos() as u64 / tokens as u64).max(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_begin_small_and_follow_the_machine() {
        let mut pace = Pace::default();
        assert_eq!((pace.slice(true), pace.slice(false)), (64, 64));
        pace.took(64, Duration::from_millis(64));
        assert_eq!((pace.slice(true), pace.slice(false)), (192, 992));
        // Too slow for any size.
        pace.took(64, Duration::from_secs(64));
        assert_eq!((pace.slice(true), pace.slice(false)), (16, 16));
        pace.took(3, Duration::from_millis(1));
        assert_eq!(pace.slice(false), 16);
        pace.took(64, Duration::ZERO);
        assert!(pace.slice(true) > 4096);
    }

    #[test]
    fn a_step_that_others_share_settles_at_its_measure() {
        let mut pace = Pace::default();
        // 80 ms for the others, 1.5 ms a token: 80 tokens are left for.
        for _ in 0..20 {
            let tokens = pace.slice(true);
            pace.took(tokens, Duration::from_micros(80_000 + 1500 * tokens as u64));
        }
        assert!((64..=80).contains(&pace.slice(true)), "{}", pace.slice(true));
    }
}
