//! `tokenize`, `detokenize` and `template`: the flags around the functions that answer JSON lines.
//! Must not know how they are answered.

use crate::cmd_template;
use crate::cmd_tokenize::{self, LineError};
use crate::failure::Failure;
use crate::loader::Model;
use crate::vocabulary::{Template, Vocabulary};
use crate::words::{Help, Word, Words};
use kinglet_core::chat::Family;
use kinglet_core::token::AddedTokens;
use std::io;
use std::path::PathBuf;

/// Help text of `tokenize`.
pub const TOKENIZE_HELP: Help = &["usage: kinglet tokenize -m FILE --jsonl [FLAGS] < LINES

Reads lines of JSON strings and answers each with a JSON array of token ids. The model file needs
a vocabulary only.

  -m, --model FILE         GGUF file (needed)
      --jsonl              lines of JSON, the only format (needed)
      --special-as-text    special tokens such as <|im_end|> in the text are text
      --no-special         all added tokens in the text are text
"];

/// Help text of `detokenize`.
pub const DETOKENIZE_HELP: Help = &["usage: kinglet detokenize -m FILE --jsonl [FLAGS] < LINES

Reads lines of JSON arrays of token ids and answers each with a JSON string. The model file needs
a vocabulary only.

  -m, --model FILE         GGUF file (needed)
      --jsonl              lines of JSON, the only format (needed)
      --skip-special       leaves special tokens out (--no-special means the same)
"];

/// Help text of `template`.
pub const TEMPLATE_HELP: Help = &["usage: kinglet template -m FILE --jsonl [FLAGS] < LINES

Reads lines such as {\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}], \"tools\": [..],
\"enable_thinking\": false, \"add_generation_prompt\": true} and answers each with the prompt as a
JSON string, or with {\"error\": \"..\"}. The model file needs no weights.

  -m, --model FILE         GGUF file with a chat template
      --family NAME        qwen2.5, qwen3 or qwen3-vl, whatever the file says (needs no file)
      --jsonl              lines of JSON, the only format (needed)
"];

/// Reads `-m`, `--jsonl` and what `other` takes.
fn flags(
    words: &mut Words,
    other: &mut dyn FnMut(&str, &mut Words) -> Result<bool, Failure>,
) -> Result<Option<PathBuf>, Failure> {
    let (mut model, mut jsonl) = (None, None);
    while let Some(word) = words.advance()? {
        let Word::Flag(flag) = &word else { return Err(words.unknown(word)) };
        match flag.as_str() {
            "-m" | "--model" => model = Some(words.path()?),
            "--jsonl" => jsonl = Some(()),
            flag if other(flag, words)? => {}
            _ => return Err(words.unknown(word)),
        }
    }
    words.need(jsonl, "--jsonl")?;
    Ok(model)
}

/// Runs `tokenize`.
///
/// # Errors
/// Of the command line, the file, a line.
pub fn tokenize(words: &mut Words) -> Result<(), Failure> {
    let mut mode = AddedTokens::Recognised;
    let model = flags(words, &mut |flag, _| {
        mode = match flag {
            "--special-as-text" => AddedTokens::SpecialAsText,
            "--no-special" => AddedTokens::AllAsText,
            _ => return Ok(false),
        };
        Ok(true)
    })?;
    let model = Model::open(&words.need(model, "-m FILE")?)?;
    let tokenizer = Vocabulary::open(&model)?.tokenizer;
    cmd_tokenize::tokenize(tokenizer, mode, io::stdin().lock(), io::stdout().lock()).map_err(line_failure)
}

/// Runs `detokenize`.
///
/// # Errors
/// Of the command line, the file, a line.
pub fn detokenize(words: &mut Words) -> Result<(), Failure> {
    let mut skip = false;
    let model = flags(words, &mut |flag, _| {
        let ours = matches!(flag, "--skip-special" | "--no-special");
        skip |= ours;
        Ok(ours)
    })?;
    let model = Model::open(&words.need(model, "-m FILE")?)?;
    let tokenizer = Vocabulary::open(&model)?.tokenizer;
    cmd_tokenize::detokenize(tokenizer, skip, io::stdin().lock(), io::stdout().lock()).map_err(line_failure)
}

/// Runs `template`.
///
/// # Errors
/// Of the command line, the file, standard input or output. A chat that cannot be rendered is
/// answered with an error and makes the command fail in the end.
pub fn template(words: &mut Words) -> Result<(), Failure> {
    const FAMILIES: [Family; 3] = [Family::Qwen2_5, Family::Qwen3, Family::Qwen3Vl];
    let mut family = None;
    let model = flags(words, &mut |flag, words| {
        if flag == "--family" {
            family = Some(FAMILIES[words.choice(&["qwen2.5", "qwen3", "qwen3-vl"])?]);
        }
        Ok(flag == "--family")
    })?;
    let family = match family {
        Some(family) => family,
        None => {
            let model = Model::open(&words.need(model, "-m FILE")?)?;
            let template = Template::of(&model)?;
            if let Some(guess) = template.guessed {
                crate::term::note(format_args!("{guess}; using that of {:?}", template.family));
            }
            template.family
        }
    };
    let summary = cmd_template::run(family, io::stdin().lock(), io::stdout().lock()).map_err(io_failure)?;
    match summary.errors {
        0 => Ok(()),
        n => Err(Failure::new(format_args!("{n} of {} lines could not be rendered", summary.lines))),
    }
}

fn line_failure(e: LineError) -> Failure {
    match e {
        LineError::Io(e) => io_failure(e),
        other => Failure::new(other),
    }
}

fn io_failure(e: io::Error) -> Failure {
    match e.kind() {
        io::ErrorKind::BrokenPipe => Failure::PipeClosed,
        _ => Failure::new(format_args!("standard input or output: {e}")),
    }
}
