//! The parameters of the sampler and their ranges. Must not know how they are used.

use core::fmt;

/// How to choose the next token. See [`crate::sample`] for what each one does and in which order.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Params<'a> {
    /// 0: greedy. Finite, not negative.
    pub temperature: f32,
    /// 0: off.
    pub top_k: u32,
    /// 1: off; 0: the best token only. 0 to 1.
    pub top_p: f32,
    /// 0: off. 0 to 1.
    pub min_p: f32,
    /// 1: off. Finite, above 0; above 1 it makes repetition less likely.
    pub repetition_penalty: f32,
    /// 0: off. -2 to 2.
    pub presence_penalty: f32,
    /// 0: off. -2 to 2.
    pub frequency_penalty: f32,
    /// How many of the last tokens the three penalties see. 0: off; `u32::MAX`: all there are.
    pub last_n: u32,
    /// Added to logits: (token, bias). -infinity bans a token; NaN and +infinity are refused.
    pub logit_bias: &'a [(u32, f32)],
    /// For [`crate::sample::Sampler::new`].
    pub seed: u64,
}

impl Params<'_> {
    /// The defaults of llama.cpp: temperature 0.8, top_k 40, top_p 0.95, min_p 0.05, a window
    /// of 64 tokens and no penalties. The seed is 0, not random: core has no entropy.
    pub const LLAMA_CPP: Params<'static> = Params {
        temperature: 0.8,
        top_k: 40,
        top_p: 0.95,
        min_p: 0.05,
        repetition_penalty: 1.0,
        presence_penalty: 0.0,
        frequency_penalty: 0.0,
        last_n: 64,
        logit_bias: &[],
        seed: 0,
    };

    /// The defaults of the OpenAI API: temperature 1 and no filter; its penalties see the whole
    /// text.
    pub const OPEN_AI: Params<'static> =
        Params { temperature: 1.0, top_k: 0, top_p: 1.0, min_p: 0.0, last_n: u32::MAX, ..Params::LLAMA_CPP };

    /// Greedy, nothing else.
    pub const GREEDY: Params<'static> = Params { temperature: 0.0, ..Params::OPEN_AI };

    /// Checks every range.
    ///
    /// # Errors
    /// The first [`ParamError`], in the order of the fields.
    pub fn validate(&self) -> Result<(), ParamError> {
        let check = |ok: bool, error: ParamError| if ok { Ok(()) } else { Err(error) };
        // NaN is in no range.
        check((0.0..f32::INFINITY).contains(&self.temperature), ParamError::Temperature)?;
        check((0.0..=1.0).contains(&self.top_p), ParamError::TopP)?;
        check((0.0..=1.0).contains(&self.min_p), ParamError::MinP)?;
        let repeat = self.repetition_penalty;
        check(repeat > 0.0 && repeat < f32::INFINITY, ParamError::RepetitionPenalty)?;
        check((-2.0..=2.0).contains(&self.presence_penalty), ParamError::PresencePenalty)?;
        check((-2.0..=2.0).contains(&self.frequency_penalty), ParamError::FrequencyPenalty)?;
        check(self.logit_bias.iter().all(|&(_, bias)| bias < f32::INFINITY), ParamError::LogitBias)
    }

    /// Tokens the penalties look at: none if all of them are off.
    pub(super) fn window(&self) -> usize {
        let off =
            self.repetition_penalty == 1.0 && self.presence_penalty == 0.0 && self.frequency_penalty == 0.0;
        if off { 0 } else { usize::try_from(self.last_n).unwrap_or(usize::MAX) }
    }
}

impl Default for Params<'_> {
    /// [`Params::LLAMA_CPP`].
    fn default() -> Self {
        Self::LLAMA_CPP
    }
}

/// A parameter that is out of its range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ParamError {
    /// `temperature` is negative or not finite.
    Temperature,
    /// `top_p` is not in 0 to 1.
    TopP,
    /// `min_p` is not in 0 to 1.
    MinP,
    /// `repetition_penalty` is not above 0, or not finite.
    RepetitionPenalty,
    /// `presence_penalty` is not in -2 to 2.
    PresencePenalty,
    /// `frequency_penalty` is not in -2 to 2.
    FrequencyPenalty,
    /// A `logit_bias` is NaN or +infinity.
    LogitBias,
}

impl ParamError {
    /// Name of the field, as in [`Params`].
    pub const fn field(&self) -> &'static str {
        match self {
            Self::Temperature => "temperature",
            Self::TopP => "top_p",
            Self::MinP => "min_p",
            Self::RepetitionPenalty => "repetition_penalty",
            Self::PresencePenalty => "presence_penalty",
            Self::FrequencyPenalty => "frequency_penalty",
            Self::LogitBias => "logit_bias",
        }
    }
}

impl fmt::Display for ParamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let range = match self {
            Self::Temperature => "must be finite and not negative",
            Self::TopP | Self::MinP => "must be from 0 to 1",
            Self::RepetitionPenalty => "must be finite and above 0",
            Self::PresencePenalty | Self::FrequencyPenalty => "must be from -2 to 2",
            Self::LogitBias => "must be numbers or -infinity",
        };
        write!(f, "{} {range}", self.field())
    }
}

impl core::error::Error for ParamError {}
