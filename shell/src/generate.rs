//! The loop that makes a reply, token by token. Must not know where tokens go.
//!
//! Nothing in here allocates once it runs.

use crate::failure::Failure;
use crate::session::Session;
use crate::signal;
use core::time::Duration;
use kinglet_core::sample;
use std::time::Instant;

/// Why a reply ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The model ended it with this token, which is not part of the reply.
    End(u32),
    /// As many tokens as were asked for.
    Length,
    /// The context is full.
    ContextFull,
    /// Ctrl-C.
    Interrupted,
}

/// A finished reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply {
    /// Tokens made.
    pub tokens: usize,
    /// Steps of the engine; a reply's last token needs none.
    pub steps: usize,
    /// Time that the loop took.
    pub time: Duration,
    /// Why it ended.
    pub stop: Stop,
}

/// Picks a token.
pub trait Choose {
    /// Picks the token that follows `before`, by the logits after it.
    ///
    /// # Errors
    /// No token can be picked from these logits.
    fn choose(&mut self, logits: &[f32], before: &[u32]) -> Result<u32, Failure>;
}

/// The most probable token: the largest logit, the smallest id among equals.
#[derive(Clone, Copy, Debug)]
pub struct Greedy;

impl Choose for Greedy {
    fn choose(&mut self, logits: &[f32], _before: &[u32]) -> Result<u32, Failure> {
        sample::argmax(logits).map_err(Failure::new)
    }
}

/// Makes at most `most` tokens after what `session` has computed. `is_end` says which tokens end
/// the reply; `emit` gets all others.
///
/// The last token given to `emit` is in the session only if another one followed.
///
/// # Errors
/// Of the engine and of `emit`.
pub fn generate(
    session: &mut Session,
    most: usize,
    chooser: &mut dyn Choose,
    is_end: &dyn Fn(u32) -> bool,
    emit: &mut dyn FnMut(u32) -> Result<(), Failure>,
) -> Result<Reply, Failure> {
    let start = Instant::now();
    let (mut tokens, mut steps) = (0, 0);
    let stop = loop {
        if tokens == most {
            break Stop::Length;
        }
        if signal::interrupted() {
            break Stop::Interrupted;
        }
        let token = chooser.choose(session.logits(), session.tokens())?;
        if is_end(token) {
            break Stop::End(token);
        }
        emit(token)?;
        tokens += 1;
        if tokens < most && session.room() == 0 {
            break Stop::ContextFull;
        }
        if tokens < most {
            session.step(token)?;
            steps += 1;
        }
    };
    Ok(Reply { tokens, steps, time: start.elapsed(), stop })
}

/// Items per second; 0 for no time.
pub fn rate(items: usize, time: Duration) -> f64 {
    let seconds = time.as_secs_f64();
    if seconds > 0.0 { items as f64 / seconds } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_of_nothing_are_zero() {
        assert_eq!(rate(5, Duration::ZERO), 0.0);
        assert_eq!(rate(5, Duration::from_millis(500)), 10.0);
    }
}
