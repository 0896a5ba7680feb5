//! The simplest picker. Must not know why a token ends a reply.

use super::{Picked, Picker};
use crate::failure::Failure;
use kinglet_core::sample;

/// Always the most probable token; the smallest id among equals.
#[derive(Clone, Debug, Default)]
pub struct Greedy {
    /// Tokens that end the reply.
    pub ends: Vec<u32>,
}

impl Picker for Greedy {
    fn pick(&mut self, logits: &mut [f32], _before: &[u32]) -> Result<Picked, Failure> {
        let token = sample::argmax(logits).map_err(Failure::new)?;
        Ok(Picked { token, logprob: None, last: self.ends.contains(&token) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_logit_is_picked_and_end_tokens_are_last() {
        let mut greedy = Greedy { ends: vec![2] };
        let mut pick = |logits: &mut [f32]| greedy.pick(logits, &[]).unwrap();
        assert_eq!(pick(&mut [0.0, 3.0, 3.0]), Picked { token: 1, logprob: None, last: false });
        assert_eq!(pick(&mut [0.0, 3.0, 4.0]), Picked { token: 2, logprob: None, last: true });
    }
}
