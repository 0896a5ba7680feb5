//! What a request asks for, whichever API it came by: the fields that all of them share. Must not know how it
//! is answered.

use super::error::ApiError;
use super::fields::{Fields, as_real};
use kinglet_core::sample::Params;
use serde_json::Value;

/// Most replies to one prompt.
pub const MOST_CHOICES: i64 = 8;
/// Most stop strings.
const MOST_STOPS: usize = 16;
/// Longest stop string in bytes.
const LONGEST_STOP: usize = 4096;
/// Most alternatives of a token that are told.
pub const MOST_TOP: i64 = 20;
/// Most biases.
const MOST_BIASES: usize = 4096;

/// A prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Prompt {
    /// Text, special tokens in it included.
    Text(String),
    /// Tokens.
    Ids(Vec<u32>),
}

/// What a reply must look like.
#[derive(Clone, Debug, PartialEq)]
pub enum Form {
    /// Anything.
    Free,
    /// A JSON object.
    Object,
    /// JSON by a schema.
    Schema(Value),
    /// Calls of these tools: names and schemas of their arguments.
    Calls {
        /// The tools that may be called.
        tools: Vec<(String, Value)>,
        /// Whether there may be one call only.
        one: bool,
    },
}

/// What a request asks for.
#[derive(Clone, Debug, PartialEq)]
pub struct Ask {
    /// The model's name, as it was asked for.
    pub model: Option<String>,
    /// What is to be continued; each of them `n` times.
    pub prompts: Vec<Prompt>,
    /// Replies to each prompt.
    pub n: usize,
    /// Whether the reply comes in pieces.
    pub stream: bool,
    /// Whether a stream ends with the usage.
    pub include_usage: bool,
    /// Whether a stream tells how far the prompt is read.
    pub progress: bool,
    /// Most tokens of a reply.
    pub most: Option<usize>,
    /// How tokens are chosen, but for the bias and the seed.
    pub params: Params<'static>,
    /// Added to logits.
    pub bias: Vec<(u32, f32)>,
    /// The seed of the first reply; None: drawn.
    pub seed: Option<u64>,
    /// Texts that end a reply.
    pub stops: Vec<String>,
    /// How many alternatives of each token are told; None: nor its own probability.
    pub logprobs: Option<usize>,
    /// Whether the prompt is part of the reply.
    pub echo: bool,
    /// End tokens are tokens like any other.
    pub ignore_eos: bool,
    /// Whether the prompt's beginning is looked for in the cache.
    pub reuse: bool,
    /// Prompts find what others with the same salt have left.
    pub salt: Option<String>,
    /// What the reply must look like.
    pub form: Form,
    /// The field that says so, in the request's API.
    pub form_field: &'static str,
    /// Whether tool calls are looked for in the reply.
    pub tools: bool,
    /// Whether the model must not call tools, though it knows them.
    pub no_calls: bool,
    /// Whether the reply ends after one call.
    pub one_call: bool,
    /// Whether thinking is told apart from the reply.
    pub reasoning: bool,
    /// Whether the model thinks before it gives the reply its form.
    pub thinks_first: bool,
}

impl Ask {
    /// The fields that all APIs share; no prompt yet.
    ///
    /// # Errors
    /// The first field that is wrong, by its name.
    pub fn read(fields: &Fields<'_>, vocab: usize) -> Result<Ask, ApiError> {
        let options = match fields.get("stream_options") {
            Some(value) => Some(Fields::part(value, "stream_options.")?),
            None => None,
        };
        let include_usage = options.map_or(Ok(None), |options| options.switch("include_usage"))?;
        Ok(Ask {
            model: fields.text("model")?.map(String::from),
            prompts: Vec::new(),
            n: fields.whole("n", 1, MOST_CHOICES)?.unwrap_or(1) as usize,
            stream: fields.switch("stream")?.unwrap_or(false),
            include_usage: include_usage.unwrap_or(false),
            progress: fields.switch("return_progress")?.unwrap_or(false),
            most: most(fields)?,
            params: params(fields)?,
            bias: bias(fields, vocab)?,
            seed: fields.whole("seed", i64::MIN, i64::MAX)?.map(|seed| seed as u64),
            stops: stops(fields, "stop")?,
            logprobs: None,
            echo: false,
            ignore_eos: fields.switch("ignore_eos")?.unwrap_or(false),
            reuse: fields.switch("cache_prompt")?.unwrap_or(true),
            salt: fields.text("cache_salt")?.map(String::from),
            form: Form::Free,
            form_field: "response_format",
            tools: false,
            no_calls: false,
            one_call: false,
            reasoning: false,
            thinks_first: false,
        })
    }
}

/// Most tokens: the newer name goes before the older one, -1 means no limit.
fn most(fields: &Fields<'_>) -> Result<Option<usize>, ApiError> {
    for name in ["max_completion_tokens", "max_tokens"] {
        // 0 reads the prompt and no more.
        if let Some(n) = fields.whole(name, -1, i64::MAX)? {
            return Ok(usize::try_from(n).ok());
        }
    }
    Ok(None)
}

/// Where a request is silent, kinglet's own defaults hold, as for its other commands.
fn params(fields: &Fields<'_>) -> Result<Params<'static>, ApiError> {
    let mut params = Params::LLAMA_CPP;
    let real = |name, least, most, slot: &mut f32| -> Result<(), ApiError> {
        *slot = fields.real(name, least, most)?.unwrap_or(*slot);
        Ok(())
    };
    real("temperature", 0.0, 100.0, &mut params.temperature)?;
    real("top_p", 0.0, 1.0, &mut params.top_p)?;
    real("min_p", 0.0, 1.0, &mut params.min_p)?;
    real("presence_penalty", -2.0, 2.0, &mut params.presence_penalty)?;
    real("frequency_penalty", -2.0, 2.0, &mut params.frequency_penalty)?;
    for name in ["repetition_penalty", "repeat_penalty"] {
        real(name, 0.001, 1000.0, &mut params.repetition_penalty)?;
    }
    let whole = |name, slot: &mut u32| -> Result<(), ApiError> {
        // -1 is what other servers call "off" for one and "all" for the other.
        let n = fields.whole(name, -1, i64::from(u32::MAX))?;
        *slot = n.map_or(*slot, |n| u32::try_from(n).unwrap_or(if name == "top_k" { 0 } else { u32::MAX }));
        Ok(())
    };
    whole("top_k", &mut params.top_k)?;
    whole("repeat_last_n", &mut params.last_n)?;
    Ok(params)
}

fn bias(fields: &Fields<'_>, vocab: usize) -> Result<Vec<(u32, f32)>, ApiError> {
    const NAME: &str = "logit_bias";
    let Some(map) = fields.map(NAME)? else { return Ok(Vec::new()) };
    if map.len() > MOST_BIASES {
        return Err(fields.wrong(NAME, "has too many entries"));
    }
    let mut list = Vec::new();
    for (key, value) in map {
        let name = [NAME, ".", key].concat();
        let id = key.parse::<u32>().ok().filter(|id| (*id as usize) < vocab);
        let id = id.ok_or_else(|| fields.wrong(&name, "is no token id of this model"))?;
        let bias = as_real(value).filter(|bias| (-100.0..=100.0).contains(bias));
        list.push((id, bias.ok_or_else(|| fields.wrong(&name, "must be a number from -100 to 100"))?));
    }
    Ok(list)
}

/// A string or a list of them.
///
/// # Errors
/// Another type; too many or too long; an empty one.
pub fn stops(fields: &Fields<'_>, name: &str) -> Result<Vec<String>, ApiError> {
    let wrong = |what| Err(fields.wrong(name, what));
    let list = match fields.get(name) {
        None => return Ok(Vec::new()),
        Some(one @ Value::String(_)) => core::slice::from_ref(one),
        Some(Value::Array(list)) => list.as_slice(),
        Some(_) => return wrong("must be a string or a list of strings"),
    };
    if list.len() > MOST_STOPS {
        return wrong("has more than 16 strings");
    }
    let mut stops = Vec::new();
    for value in list {
        match value {
            Value::String(text) if text.is_empty() => return wrong("must not hold an empty string"),
            Value::String(text) if text.len() > LONGEST_STOP => {
                return wrong("holds a string that is too long");
            }
            Value::String(text) => stops.push(text.clone()),
            _ => return wrong("must be a string or a list of strings"),
        }
    }
    Ok(stops)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Ask, ApiError> {
        let value: Value = serde_json::from_str(text).unwrap();
        Ask::read(&Fields::of(&value).unwrap(), 100)
    }

    #[test]
    fn what_is_not_said_is_as_for_other_commands() {
        let ask = read("{}").unwrap();
        assert_eq!(ask.params, Params::LLAMA_CPP);
        assert!(ask.n == 1 && !ask.stream && ask.most.is_none() && ask.seed.is_none() && ask.reuse);
    }

    #[test]
    fn fields_are_read() {
        let ask = read(
            r#"{"model": "m", "n": 3, "stream": true, "stream_options": {"include_usage": true},
                "max_tokens": 5,
                "max_completion_tokens": 7, "temperature": 0, "top_p": 0.5, "top_k": 3, "min_p": 0.1,
                    "seed": -1,
                "presence_penalty": -2, "frequency_penalty": 1.5, "repetition_penalty": 1.1, "stop": "x",
                "logit_bias": {"5": -100, "99": 2.5}, "ignore_eos": true, "cache_prompt": false,
                "cache_salt": "s", "return_progress": true, "repeat_last_n": -1, "no such field": [1]}"#,
        )
        .unwrap();
        let params = Params {
            temperature: 0.0,
            top_p: 0.5,
            top_k: 3,
            min_p: 0.1,
            presence_penalty: -2.0,
            frequency_penalty: 1.5,
            repetition_penalty: 1.1,
            last_n: u32::MAX,
            ..Params::LLAMA_CPP
        };
        assert_eq!(ask.params, params);
        assert_eq!((ask.most, ask.seed, ask.n), (Some(7), Some(u64::MAX), 3));
        assert_eq!(ask.bias, [(5, -100.0), (99, 2.5)]);
        assert_eq!((ask.stops.as_slice(), ask.salt.as_deref()), (&[String::from("x")][..], Some("s")));
        assert!(ask.stream && ask.include_usage && ask.progress && ask.ignore_eos && !ask.reuse);
        assert_eq!(read(r#"{"max_tokens": -1, "stop": ["a", "b"], "top_k": -1}"#).unwrap().params.top_k, 0);
    }

    #[test]
    fn each_wrong_field_is_named() {
        for (text, param) in [
            (r#"{"model": 5}"#, "model"),
            (r#"{"n": 9}"#, "n"),
            (r#"{"n": 0}"#, "n"),
            (r#"{"stream": 1}"#, "stream"),
            (r#"{"stream_options": []}"#, "stream_options"),
            (r#"{"stream_options": {"include_usage": 1}}"#, "stream_options.include_usage"),
            (r#"{"max_tokens": -2}"#, "max_tokens"),
            (r#"{"max_tokens": "7"}"#, "max_tokens"),
            (r#"{"max_completion_tokens": 1.5}"#, "max_completion_tokens"),
            (r#"{"temperature": -0.1}"#, "temperature"),
            (r#"{"temperature": "0"}"#, "temperature"),
            (r#"{"top_p": 1.1}"#, "top_p"),
            (r#"{"top_k": 1.5}"#, "top_k"),
            (r#"{"min_p": []}"#, "min_p"),
            (r#"{"presence_penalty": 3}"#, "presence_penalty"),
            (r#"{"frequency_penalty": -3}"#, "frequency_penalty"),
            (r#"{"repetition_penalty": 0}"#, "repetition_penalty"),
            (r#"{"seed": 1.5}"#, "seed"),
            (r#"{"stop": 5}"#, "stop"),
            (r#"{"stop": [5]}"#, "stop"),
            (r#"{"stop": ""}"#, "stop"),
            (r#"{"stop": ["1","2","3","4","5","6","7","8","9","0","a","b","c","d","e","f","g"]}"#, "stop"),
            (r#"{"logit_bias": []}"#, "logit_bias"),
            (r#"{"logit_bias": {"x": 1}}"#, "logit_bias.x"),
            (r#"{"logit_bias": {"100": 1}}"#, "logit_bias.100"),
            (r#"{"logit_bias": {"5": 101}}"#, "logit_bias.5"),
            (r#"{"ignore_eos": "no"}"#, "ignore_eos"),
            (r#"{"cache_prompt": 1}"#, "cache_prompt"),
            (r#"{"cache_salt": 1}"#, "cache_salt"),
        ] {
            let error = read(text).unwrap_err();
            assert_eq!((error.status, error.param.as_deref()), (400, Some(param)), "{text}");
            assert!(error.message.starts_with(param), "{}", error.message);
        }
    }
}
