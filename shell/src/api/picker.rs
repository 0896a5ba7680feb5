//! How the tokens of a reply are chosen. Runs on the engine's thread. Must not know requests.

use crate::constrain::Constraint;
use crate::failure::Failure;
use crate::map;
use crate::schedule::{Logprobs, Picked, Picker};
use kinglet_core::sample::{LogProb, LogProbs, Params, Sampler, Scratch};
use kinglet_core::token::Tokenizer;
use std::sync::{Arc, Mutex};

/// Memory for sampling, shared by all replies: their tokens are chosen one after the other.
#[derive(Clone, Debug)]
pub struct Shared(Arc<Mutex<Scratch<'static>>>);

impl Shared {
    /// For logits of `vocab` tokens.
    ///
    /// # Errors
    /// No memory.
    pub fn new(vocab: usize) -> Result<Shared, Failure> {
        let region = map::region(Scratch::bytes(vocab))
            .map_err(|e| Failure::new(format_args!("no memory for the sampler: {e}")))?;
        Ok(Shared(Arc::new(Mutex::new(Scratch::new(region, vocab).map_err(Failure::new)?))))
    }
}

/// What a reply must look like, and what may come before that.
pub struct Shape {
    /// The form.
    pub constraint: Constraint,
    /// The tokens that begin and end the thinking before it, until that is over.
    pub thinking: Option<(u32, u32)>,
}

/// Chooses the tokens of one reply.
pub struct Choosing {
    /// The random numbers.
    pub sampler: Sampler,
    /// All parameters but the bias.
    pub params: Params<'static>,
    /// Added to logits.
    pub bias: Vec<(u32, f32)>,
    /// How many alternatives are told; None: nor the token's own probability.
    pub top: Option<usize>,
    /// What the reply must look like.
    pub shape: Option<Shape>,
    /// Knows which tokens end a reply.
    pub tokenizer: &'static Tokenizer<'static>,
    /// End tokens are tokens like any other.
    pub ignore_eos: bool,
    /// Whether the thinking has begun.
    pub thinks: bool,
    /// Memory.
    pub shared: Shared,
}

impl Choosing {
    /// Forbids what does not fit the form.
    fn restrict(&mut self, logits: &mut [f32]) -> Result<(), Failure> {
        let Some(shape) = &mut self.shape else { return Ok(()) };
        match shape.thinking {
            Some((open, _)) if !self.thinks => {
                for (id, logit) in (0u32..).zip(logits) {
                    *logit = if id == open { 0.0 } else { f32::NEG_INFINITY };
                }
            }
            Some(_) => {
                for end in self.tokenizer.ends() {
                    if let Some(logit) = logits.get_mut(end as usize) {
                        *logit = f32::NEG_INFINITY;
                    }
                }
            }
            None if !shape.constraint.mask(logits) => {
                return Err(Failure::new("no token fits the form that the reply must have"));
            }
            None => {}
        }
        Ok(())
    }

    /// Takes note of a token; whether the form is complete with it.
    fn accept(&mut self, token: u32) -> bool {
        let Some(shape) = &mut self.shape else { return false };
        match shape.thinking {
            Some((_, close)) => {
                self.thinks = true;
                if token == close {
                    shape.thinking = None;
                }
                false
            }
            None => {
                shape.constraint.accept(token);
                shape.constraint.is_complete()
            }
        }
    }
}

impl Picker for Choosing {
    fn pick(&mut self, logits: &mut [f32], before: &[u32]) -> Result<Picked, Failure> {
        // Told are the probabilities that the model gives, before anything is done to them.
        let told = match self.top {
            None => None,
            Some(n) => {
                let all = LogProbs::new(logits).map_err(Failure::new)?;
                let mut top = vec![LogProb::default(); n];
                let n = all.top(logits, &mut top);
                Some((all, top.iter().take(n).map(|one| (one.id, one.logprob)).collect::<Vec<_>>()))
            }
        };
        self.restrict(logits)?;
        let params = Params { logit_bias: &self.bias, ..self.params };
        let token = {
            let mut scratch = self.shared.0.lock().unwrap_or_else(|e| e.into_inner());
            self.sampler.sample(&params, logits, before, &mut scratch).map_err(Failure::new)?
        };
        let logprob = told.map(|(all, top)| {
            let logit = logits.get(token as usize).copied().unwrap_or(f32::NEG_INFINITY);
            Box::new(Logprobs { logprob: all.of(logit), top })
        });
        let is_end = !self.ignore_eos && self.tokenizer.is_end(token);
        let last = is_end || self.accept(token);
        Ok(Picked { token, logprob, last })
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::tokenizer;
    use super::*;
    use crate::constrain::{Grammar, TokenTable};

    fn choosing(top: Option<usize>, shape: Option<Shape>) -> Choosing {
        Choosing {
            sampler: Sampler::new(1),
            params: Params::GREEDY,
            bias: Vec::new(),
            top,
            shape,
            tokenizer: tokenizer(),
            ignore_eos: false,
            thinks: false,
            shared: Shared::new(tokenizer().vocab_size()).unwrap(),
        }
    }

    /// Logits that like one token best, and another one second best.
    fn logits(best: u32, second: u32) -> Vec<f32> {
        let mut logits = vec![0.0; tokenizer().vocab_size()];
        logits[best as usize] = 9.0;
        logits[second as usize] = 8.0;
        logits
    }

    #[test]
    fn bias_decides_and_the_model_s_own_probabilities_are_told() {
        let mut choosing = choosing(Some(2), None);
        choosing.bias = vec![(7, f32::NEG_INFINITY)];
        let picked = choosing.pick(&mut logits(7, 8), &[1]).unwrap();
        let told = picked.logprob.unwrap();
        assert_eq!((picked.token, picked.last, told.top.len()), (8, false, 2));
        assert_eq!((told.top[0].0, told.top[1]), (7, (8, told.logprob)));
    }

    #[test]
    fn end_tokens_end_unless_they_are_ignored() {
        let end = tokenizer().eos();
        let mut choosing = choosing(None, None);
        assert!(choosing.pick(&mut logits(end, 8), &[1]).unwrap().last);
        choosing.ignore_eos = true;
        let picked = choosing.pick(&mut logits(end, 8), &[1]).unwrap();
        assert_eq!((picked.token, picked.last, picked.logprob), (end, false, None));
    }

    #[test]
    fn thinking_comes_first_and_then_the_form() {
        let table = Arc::new(TokenTable::new(tokenizer(), tokenizer().vocab_size()));
        let constraint = Constraint::new(Arc::new(Grammar::json_object()), table);
        let (open, close, end) = (70, 71, tokenizer().eos());
        let mut choosing = choosing(None, Some(Shape { constraint, thinking: Some((open, close)) }));
        let mut pick = |best, second| choosing.pick(&mut logits(best, second), &[1]).unwrap().token;
        assert_eq!(pick(8, 9), open);
        assert_eq!(pick(end, 9), 9);
        assert_eq!(pick(close, 9), close);
        // Whatever the model likes best now: an object begins with its bracket.
        let mut bytes = [0; 64];
        let first = tokenizer().token_bytes(pick(9, end), &mut bytes).unwrap();
        assert!(first.starts_with(b"{"), "{first:?}");
    }
}
