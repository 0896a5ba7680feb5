//! What comes of a request while it is answered, and who hears of it. Must not know how it is written down.

use super::client::Gone;
use crate::output::Piece;
use core::time::Duration;

/// The numbers of one reply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Tokens of the prompt.
    pub prompt: usize,
    /// Tokens of it that need not be computed.
    pub cached: usize,
    /// How many of those came from disk.
    pub disk: usize,
    /// Tokens of the reply, the one that ends it included.
    pub decoded: usize,
    /// Time for the prompt.
    pub prefill: Duration,
    /// Time for finding and reading what was cached.
    pub restore: Duration,
    /// Time for the reply.
    pub decode: Duration,
    /// Time until the first token.
    pub first_token: Duration,
    /// The first token of the prompt that differs from what is in memory: where, and which.
    pub diverged: Option<(usize, u32)>,
}

impl Usage {
    /// Where the prompt's beginning came from.
    pub fn source(&self) -> &'static str {
        match (self.cached, self.disk) {
            (0, _) => "none",
            (_, 0) => "ram",
            _ => "disk",
        }
    }
}

/// Why a reply ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finish {
    /// The model ended it, or it is complete in its form.
    End,
    /// A stop string.
    Stop(String),
    /// As many tokens as were asked for, or the context is full.
    Length,
    /// The model calls tools.
    Calls,
}

impl Finish {
    /// OpenAI's word.
    pub fn openai(&self) -> &'static str {
        match self {
            Finish::End | Finish::Stop(_) => "stop",
            Finish::Length => "length",
            Finish::Calls => "tool_calls",
        }
    }

    /// Anthropic's word.
    pub fn anthropic(&self) -> &'static str {
        match self {
            Finish::End => "end_turn",
            Finish::Stop(_) => "stop_sequence",
            Finish::Length => "max_tokens",
            Finish::Calls => "tool_use",
        }
    }
}

/// A token and its probability.
#[derive(Clone, Debug, PartialEq)]
pub struct Told {
    /// The token.
    pub token: u32,
    /// The logarithm of its probability.
    pub logprob: f32,
    /// The most probable tokens at its place.
    pub top: Vec<(u32, f32)>,
}

/// Who hears how the replies to a request come about. `choice` counts them.
pub trait Listener {
    /// A prompt's turn has come.
    ///
    /// # Errors
    /// The client has gone; so for all of these.
    fn started(&mut self, choice: usize, usage: &Usage) -> Result<(), Gone>;

    /// `done` of `usage.prompt` tokens are read, after this time.
    ///
    /// # Errors
    /// As above.
    fn progress(&mut self, choice: usize, usage: &Usage, done: usize, time: Duration) -> Result<(), Gone>;

    /// There is more of a reply; with the probabilities of the tokens of its text, if those are wanted.
    ///
    /// # Errors
    /// As above.
    fn pieces(&mut self, choice: usize, pieces: &[Piece], told: &[Told]) -> Result<(), Gone>;

    /// A reply has ended.
    ///
    /// # Errors
    /// As above.
    fn ended(&mut self, choice: usize, finish: &Finish, usage: &Usage) -> Result<(), Gone>;

    /// Called several times in a second, whether anything comes or not.
    ///
    /// # Errors
    /// As above.
    fn idle(&mut self) -> Result<(), Gone>;
}

/// A call of a tool, whole.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Call {
    /// The tool.
    pub name: String,
    /// Its arguments as JSON.
    pub arguments: String,
}

/// A reply, whole.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Whole {
    /// What is said.
    pub text: String,
    /// What was thought before.
    pub reasoning: String,
    /// Calls of tools.
    pub calls: Vec<Call>,
    /// The tokens of the text.
    pub told: Vec<Told>,
    /// Why it ended, once it has.
    pub finish: Option<Finish>,
    /// Its numbers.
    pub usage: Usage,
}

impl Whole {
    /// Takes up what came.
    pub fn take(&mut self, pieces: &[Piece], told: &[Told]) {
        for piece in pieces {
            match piece {
                Piece::Text(text) => self.text.push_str(text),
                Piece::Reasoning(text) => self.reasoning.push_str(text),
                Piece::ToolCall { name, .. } => {
                    self.calls.push(Call { name: name.clone(), arguments: String::new() });
                }
                Piece::Arguments { index, part } => {
                    if let Some(call) = self.calls.get_mut(*index) {
                        call.arguments.push_str(part);
                    }
                }
            }
        }
        self.told.extend_from_slice(told);
    }
}

/// Keeps replies until all of them are whole.
pub struct Collector<'c> {
    /// The replies.
    pub replies: Vec<Whole>,
    is_gone: &'c dyn Fn() -> bool,
}

impl<'c> Collector<'c> {
    /// For so many replies, to a client that may go away.
    pub fn new(count: usize, is_gone: &'c dyn Fn() -> bool) -> Collector<'c> {
        Collector { replies: vec![Whole::default(); count], is_gone }
    }
}

impl Listener for Collector<'_> {
    fn started(&mut self, _choice: usize, _usage: &Usage) -> Result<(), Gone> {
        Ok(())
    }

    fn progress(&mut self, _: usize, _: &Usage, _: usize, _: Duration) -> Result<(), Gone> {
        Ok(())
    }

    fn pieces(&mut self, choice: usize, pieces: &[Piece], told: &[Told]) -> Result<(), Gone> {
        self.replies[choice].take(pieces, told);
        Ok(())
    }

    fn ended(&mut self, choice: usize, finish: &Finish, usage: &Usage) -> Result<(), Gone> {
        let reply = &mut self.replies[choice];
        (reply.finish, reply.usage) = (Some(finish.clone()), *usage);
        Ok(())
    }

    fn idle(&mut self) -> Result<(), Gone> {
        if (self.is_gone)() { Err(Gone) } else { Ok(()) }
    }
}
