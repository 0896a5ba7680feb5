//! A model's tokenizer and chat template, ready for use. Must not know the engine.

use crate::failure::Failure;
use crate::loader::Model;
use crate::map;
use crate::tokenize::{self, ScratchMemory};
use core::fmt;
use kinglet_core::chat::{self, Conversation, Family, Message};
use kinglet_core::gguf::GgufFault;
use kinglet_core::token::{
    AddedTokens, StreamDecoder, Tokenizer, TokenizerError, TokenizerFault, TokenizerRequirements,
};

/// Key of the chat template in a GGUF file.
const TEMPLATE: &str = "tokenizer.chat_template";

/// A tokenizer; like its model it lives as long as the process.
pub struct Vocabulary {
    /// Ids and texts.
    pub tokenizer: &'static Tokenizer<'static>,
    scratch: ScratchMemory,
}

impl Vocabulary {
    /// Builds the index. Needs no weights in the file.
    ///
    /// # Errors
    /// The file has no vocabulary, or one that cannot be used.
    pub fn open(model: &Model) -> Result<Vocabulary, Failure> {
        let need = TokenizerRequirements::of(&model.gguf).map_err(|e| model.fail(Advised(e)))?;
        let region = map::region(need.index)
            .map_err(|e| Failure::new(format_args!("no memory for the tokenizer: {e}")))?;
        let tokenizer = Tokenizer::new(&model.gguf, region).map_err(|e| model.fail(Advised(e)))?;
        Ok(Vocabulary { tokenizer: Box::leak(Box::new(tokenizer)), scratch: ScratchMemory::new() })
    }

    /// The ids of `text`; added tokens in it are recognised, as the reference does.
    ///
    /// # Errors
    /// An overlong word that an odd vocabulary cannot encode.
    pub fn encode(&mut self, text: &str) -> Result<Vec<u32>, Failure> {
        let mut ids = Vec::new();
        tokenize::encode(
            self.tokenizer,
            text,
            AddedTokens::Recognised,
            &mut self.scratch.scratch(),
            &mut ids,
        )
        .map_err(|e| Failure::new(format_args!("the text cannot be encoded: {e}")))?;
        Ok(ids)
    }

    /// As [`Vocabulary::encode`], with the token in front that the model asks for, if it does.
    ///
    /// # Errors
    /// As there.
    pub fn encode_prompt(&mut self, text: &str) -> Result<Vec<u32>, Failure> {
        let mut ids = self.encode(text)?;
        if let Some(bos) = self.tokenizer.bos()
            && ids.first() != Some(&bos)
        {
            ids.insert(0, bos);
        }
        Ok(ids)
    }

    /// The text of `ids`, without special tokens.
    pub fn decode(&self, ids: &[u32]) -> String {
        let mut text = String::new();
        let mut decoder = StreamDecoder::new(self.tokenizer, true);
        for &id in ids {
            // Holes of the embedding matrix beyond the vocabulary have no text.
            let _ = decoder.push(id, &mut |part| text.push_str(part));
        }
        decoder.finish(&mut |part| text.push_str(part));
        text
    }
}

/// A fault of a vocabulary together with what the user can do.
struct Advised(TokenizerError);

impl fmt::Display for Advised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let advice = match self.0.fault {
            TokenizerFault::Model | TokenizerFault::Split => "use a Qwen model",
            TokenizerFault::Metadata(GgufFault::MissingKey) => "this file has no complete vocabulary",
            _ => "the file is damaged or was written by a faulty converter; get it again",
        };
        write!(f, "{}; {advice}", self.0)
    }
}

/// Which template a model uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Template {
    /// The template that is rendered.
    pub family: Family,
    /// Why it is a guess from the architecture, if it is.
    pub guessed: Option<Guess>,
}

/// Why a template was not recognised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guess {
    /// The file has none.
    Missing,
    /// It has one that we do not know.
    Unknown(chat::UnknownTemplate),
}

impl fmt::Display for Guess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Guess::Missing => write!(f, "the model file has no chat template"),
            Guess::Unknown(e) => e.fmt(f),
        }
    }
}

impl Template {
    /// The template of a model, or the usual one of its architecture.
    ///
    /// # Errors
    /// Neither is known.
    pub fn of(model: &Model) -> Result<Template, Failure> {
        let guess = match model.gguf.str(TEMPLATE) {
            Err(_) => Guess::Missing,
            Ok(text) => match Family::detect(text) {
                Ok(family) => return Ok(Template { family, guessed: None }),
                Err(e) => Guess::Unknown(e),
            },
        };
        let architecture = model.gguf.str("general.architecture").unwrap_or("");
        match Family::of_architecture(architecture) {
            Some(family) => Ok(Template { family, guessed: Some(guess) }),
            None => Err(model.fail(format_args!("{guess}; use --raw with text in the model's own format"))),
        }
    }

    /// A conversation as a prompt that the model answers.
    ///
    /// # Errors
    /// The template refuses the conversation.
    pub fn render(&self, messages: &[Message<'_>], no_think: bool) -> Result<String, Failure> {
        let conversation = Conversation {
            messages,
            enable_thinking: no_think.then_some(false),
            add_generation_prompt: true,
            ..Conversation::default()
        };
        let mut text = String::new();
        chat::render(self.family, &conversation, &mut text).map_err(Failure::new)?;
        Ok(text)
    }
}
