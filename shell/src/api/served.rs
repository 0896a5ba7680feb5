//! The model that answers, ready for use: text to tokens, jobs for the engine. Must not know HTTP.

use super::ask::{Ask, Form, Prompt};
use super::error::ApiError;
use super::picker::{Choosing, Shape, Shared};
use super::reply::now;

use crate::constrain::{Constraint, Grammar, SchemaError, TokenTable};

use crate::failure::Failure;
use crate::loader::Model;
use crate::schedule::{Job, Scheduler};
use crate::tokenize::{self, ScratchMemory};
use crate::vocabulary::{Template, Vocabulary};
use kinglet_core::chat::Family;
use kinglet_core::sample::Sampler;
use kinglet_core::token::{AddedTokens, StreamDecoder, Tokenizer};
use std::sync::{Arc, OnceLock};

/// The model that answers.
pub struct Served {
    /// Its tokens.
    pub tokenizer: &'static Tokenizer<'static>,
    /// Its chat template.
    pub family: Family,
    /// What computes.
    pub scheduler: Scheduler,
    /// The name that it goes by here.
    pub name: String,
    /// When it was ready, in seconds since 1970.
    pub created: u64,
    /// Bytes of the file.
    pub bytes: usize,
    /// Tokens it was trained for.
    pub train_ctx: usize,
    vocab: usize,
    shared: Shared,
    /// Made when the first reply needs it.
    table: OnceLock<Arc<TokenTable>>,
}

impl Served {
    /// Around a scheduler.
    ///
    /// # Errors
    /// No memory.
    pub fn new(
        model: &Model,
        vocabulary: &Vocabulary,
        template: Template,
        scheduler: Scheduler,
        alias: Option<String>,
    ) -> Result<Served, Failure> {
        let (vocab, train_ctx) = (scheduler.config().vocab, scheduler.config().train_ctx);
        Ok(Served {
            tokenizer: vocabulary.tokenizer,
            family: template.family,
            name: alias.unwrap_or_else(|| model.name()),
            created: now(),
            bytes: model.bytes.len(),
            train_ctx,
            vocab,
            shared: Shared::new(vocab)?,
            table: OnceLock::new(),
            scheduler,
        })
    }

    /// Number of logits.
    pub fn vocab(&self) -> usize {
        self.vocab
    }

    /// The ids of a text, with special tokens in it recognised or taken for text.
    ///
    /// # Errors
    /// An overlong word that an odd vocabulary cannot encode.
    pub fn encode(&self, text: &str, special: bool) -> Result<Vec<u32>, ApiError> {
        let mut ids = Vec::new();
        let mode = if special { AddedTokens::Recognised } else { AddedTokens::SpecialAsText };
        tokenize::encode(self.tokenizer, text, mode, &mut ScratchMemory::new().scratch(), &mut ids)
            .map_err(|e| ApiError::new(400, Failure::new(e).line()))?;
        Ok(ids)
    }

    /// The ids of a prompt, with the token in front that the model asks for, if it does.
    ///
    /// # Errors
    /// As [`Served::encode`].
    pub fn prompt(&self, prompt: &Prompt) -> Result<Vec<u32>, ApiError> {
        match prompt {
            Prompt::Ids(ids) => Ok(ids.clone()),
            Prompt::Text(text) => {
                let mut ids = self.encode(text, true)?;
                if let Some(bos) = self.tokenizer.bos()
                    && ids.first() != Some(&bos)
                {
                    ids.insert(0, bos);
                }
                Ok(ids)
            }
        }
    }

    /// The text of ids, without special tokens or with them.
    pub fn decode(&self, ids: &[u32], skip_special: bool) -> String {
        let mut text = String::new();
        let mut decoder = StreamDecoder::new(self.tokenizer, skip_special);
        for id in ids {
            // Holes of the embedding matrix beyond the vocabulary have no text.
            let _ = decoder.push(*id, &mut |part| text.push_str(part));
        }
        decoder.finish(&mut |part| text.push_str(part));
        text
    }

    /// The grammar of the form that is asked for.
    ///
    /// # Errors
    /// A schema that says what cannot be held to.
    pub fn grammar(&self, ask: &Ask) -> Result<Option<Arc<Grammar>>, ApiError> {
        let (grammar, param) = match &ask.form {
            Form::Free => return Ok(None),
            Form::Object => (Ok(Grammar::json_object()), ""),
            Form::Schema(schema) => (Grammar::schema(schema), ask.form_field),
            Form::Calls { tools, one } => (Grammar::tool_calls(tools, true, *one), "tools"),
        };
        let wrong =
            |e: SchemaError| ApiError::field(param, &Failure::new(e).line()).coded("unsupported_schema");
        grammar.map(|grammar| Some(Arc::new(grammar))).map_err(wrong)
    }

    /// The job for reply number `i` to a prompt.
    pub fn job(
        &self,
        ask: &Ask,
        prompt: &[u32],
        i: usize,
        seed: u64,
        salt: &[u8],
        grammar: Option<&Arc<Grammar>>,
    ) -> Job {
        let mut bias = ask.bias.clone();
        if ask.no_calls
            && let Some(call) = self.tokenizer.added_id("<tool_call>")
        {
            bias.retain(|(id, _)| *id != call);
            bias.push((call, f32::NEG_INFINITY));
        }
        let shape = grammar.map(|grammar| {
            let table = self.table.get_or_init(|| Arc::new(TokenTable::new(self.tokenizer, self.vocab)));
            let thinking = self.tokenizer.added_id("<think>").zip(self.tokenizer.added_id("</think>"));
            Shape {
                constraint: Constraint::new(Arc::clone(grammar), Arc::clone(table)),
                thinking: thinking.filter(|_| ask.thinks_first),
            }
        });
        let picker = Choosing {
            sampler: Sampler::new(seed.wrapping_add(i as u64)),
            params: ask.params,
            bias,
            top: ask.logprobs,
            shape,
            tokenizer: self.tokenizer,
            ignore_eos: ask.ignore_eos,
            thinks: false,
            shared: self.shared.clone(),
        };
        Job {
            prompt: prompt.to_vec(),
            salt: salt.to_vec(),
            most: ask.most.unwrap_or(usize::MAX),
            picker: Box::new(picker),
            reuse: ask.reuse,
            progress: ask.progress,
            // The picker knows what ends a reply.
            is_end: true,
        }
    }
}
