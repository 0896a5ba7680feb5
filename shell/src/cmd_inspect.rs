//! `inspect`: what is in a GGUF file, and what running it would take. Must not know engines.
//!
//! Whatever can be said about a file is said, also about one that cannot be run: then the reason
//! stands where the dimensions would.

use crate::decimal;
use crate::failure::Failure;
use crate::inspect_text;
use crate::loader::Model;
use crate::parts;
use crate::report::object;
use crate::setup::Setup;
use crate::term::print;
use crate::vocabulary::{Template, Vocabulary};
use crate::words::{Help, Word, Words};
use kinglet_core::KvType;
use kinglet_core::config::Config;
use kinglet_core::gguf::{Array, TensorInfo, Value as Meta};
use kinglet_core::search::split_at_first;
use serde_json::{Map, Value};

/// Help text.
pub const HELP: Help = &["usage: kinglet inspect FILE [FLAGS]

Shows the metadata of a GGUF file (long arrays shortened), its tensors, the types of its weights, the
model's dimensions, and the memory needed for contexts of 2048 to 32768 tokens.

      --batch N            tokens computed at a time (default 512), for the memory table
      --json               JSON in place of text
"];

/// Elements of an array that are shown.
const SHOWN: usize = 6;
/// Characters of a string that are shown as text.
pub const SHOWN_CHARS: usize = 120;
/// Contexts in the memory table.
const CONTEXTS: [usize; 5] = [2048, 4096, 8192, 16384, 32768];

/// Runs the command.
///
/// # Errors
/// Of the command line; a file that is no sound GGUF file.
pub fn command(words: &mut Words) -> Result<(), Failure> {
    let (mut file, mut as_json, mut batch) = (None, false, Setup::default().batch);
    while let Some(word) = words.advance()? {
        match word {
            Word::Value(value) if file.is_none() => file = Some(value.into()),
            Word::Flag(flag) if flag == "-m" || flag == "--model" => file = Some(words.path()?),
            Word::Flag(flag) if flag == "--json" => as_json = true,
            Word::Flag(flag) if flag == "--batch" => batch = words.number(1..=4096)?,
            other => return Err(words.unknown(other)),
        }
    }
    let model = Model::open(&words.need(file, "FILE")?)?;
    let report = report(&model, batch);
    if as_json { print(&format!("{report:#}\n")) } else { print(&inspect_text::render(&report)) }
}

/// Everything as JSON; the text is made from it, so that both say the same.
#[inline(never)]
fn report(model: &Model, batch: usize) -> Value {
    let tensors = model.gguf.tensors();
    let config = model.config();
    let memory = match &config {
        Ok(config) => memory(model, config, batch),
        Err(_) => Value::Null,
    };
    let weights =
        config.as_ref().map_err(said).and_then(|c| model.weights(c).map(drop).map_err(|e| said(&e)));
    let tokenizer = Vocabulary::open(model).map(|v| {
        object(&mut [("tokens", Value::from(v.tokenizer.vocab_size())), ("ends", Value::from(ends(&v)))])
    });
    let template = Template::of(model).map(|t| {
        let guess = t.guessed.map(|guess| guess.to_string());
        object(&mut [
            ("family", Value::from(format!("{:?}", t.family))),
            ("guessed_because", Value::from(guess)),
        ])
    });
    let missing = |failure| object(&mut [("missing", Value::from(said(&failure)))]);
    object(&mut [
        ("file", Value::from(model.path.to_string_lossy())),
        ("bytes", Value::from(model.bytes.len())),
        ("name", Value::from(model.name())),
        ("alignment", Value::from(model.gguf.alignment())),
        ("parameters", Value::from(tensors.iter().map(elements).sum::<u64>())),
        ("tensor_bytes", Value::from(tensors.iter().map(|t| t.data().len()).sum::<usize>())),
        ("metadata", metadata(model)),
        ("tensors", tensors.iter().map(|t| tensor(model, t)).collect()),
        ("types", types(tensors)),
        ("dimensions", config.as_ref().map_or(Value::Null, dimensions)),
        ("runs", Value::from(weights.is_ok())),
        ("runs_not_because", Value::from(weights.err())),
        ("tokenizer", tokenizer.unwrap_or_else(missing)),
        ("template", template.unwrap_or_else(missing)),
        ("memory", memory),
    ])
}

/// What a failure says, without the file's name.
fn said(failure: &Failure) -> String {
    match failure {
        Failure::Failed(line) => {
            split_at_first(line, ": ").map_or(line.as_str(), |(_, rest)| rest).to_string()
        }
        other => format!("{other:?}"),
    }
}

fn ends(vocabulary: &Vocabulary) -> Vec<u32> {
    let mut ends: Vec<u32> = vocabulary.tokenizer.ends().collect();
    ends.sort_unstable();
    ends.dedup();
    ends
}

fn elements(tensor: &TensorInfo<'_>) -> u64 {
    // The parser has checked that this does not overflow.
    tensor.dims().iter().product()
}

fn metadata(model: &Model) -> Value {
    let entries = model.gguf.metas().iter().map(|meta| (meta.key().to_string(), value(meta.value())));
    Value::Object(entries.collect::<Map<_, _>>())
}

/// A metadata value; a long array as its length and first elements.
fn value(value: Meta<'_>) -> Value {
    match value {
        Meta::U64(v) => Value::from(v),
        Meta::I64(v) => Value::from(v),
        // As short as the f32 it mostly was. JSON has no infinity.
        Meta::F64(v) if f64::from(v as f32) == v => Value::from(widened(v as f32)),
        Meta::F64(v) if v.is_finite() => Value::from(v),
        Meta::F64(v) => Value::from(decimal::fixed(v, 0)),
        Meta::Bool(v) => Value::from(v),
        Meta::Str(v) => Value::from(v),
        Meta::Array(array) => {
            let first: Vec<Value> = match array {
                Array::Str(strings) => strings.iter().take(SHOWN).map(Value::from).collect(),
                Array::Fixed(..) => (0..SHOWN).filter_map(|i| array.get(i)).map(self::value).collect(),
            };
            if array.len() <= SHOWN {
                Value::from(first)
            } else {
                object(&mut [("length", Value::from(array.len())), ("first", Value::from(first))])
            }
        }
    }
}

/// The `f64` with the digits of an `f32`: 0.000001 and not 0.0000009999999974752427.
fn widened(value: f32) -> f64 {
    decimal::parse_f64(&Value::from(value).to_string()).unwrap_or(f64::from(value))
}

#[inline(never)]
fn tensor(model: &Model, tensor: &TensorInfo<'_>) -> Value {
    // Of the file, where a hex editor or `dd` finds it, not of the data section.
    let offset = tensor.data().as_ptr().addr() - model.bytes.as_ptr().addr();
    object(&mut [
        ("name", Value::from(tensor.name())),
        ("type", Value::from(tensor.ty().name())),
        ("shape", Value::from(tensor.dims())),
        ("file_offset", Value::from(offset)),
        ("bytes", Value::from(tensor.data().len())),
    ])
}

#[inline(never)]
fn types(tensors: &[TensorInfo<'_>]) -> Value {
    let mut rows: Vec<(&str, usize, u64, usize)> = Vec::new();
    for tensor in tensors {
        let name = tensor.ty().name();
        let at = rows.iter().position(|row| row.0 == name).unwrap_or_else(|| {
            rows.push((name, 0, 0, 0));
            rows.len() - 1
        });
        let row = &mut rows[at];
        (row.1, row.2, row.3) = (row.1 + 1, row.2 + elements(tensor), row.3 + tensor.data().len());
    }
    rows.sort_by_key(|row| core::cmp::Reverse(row.3));
    rows.iter()
        .map(|(name, tensors, elements, bytes)| {
            let bits = 8.0 * *bytes as f64 / *elements as f64;
            object(&mut [
                ("type", Value::from(*name)),
                ("tensors", Value::from(*tensors)),
                ("elements", Value::from(*elements)),
                ("bytes", Value::from(*bytes)),
                ("bits_per_weight", Value::from(bits)),
            ])
        })
        .collect()
}

#[inline(never)]
fn dimensions(c: &Config) -> Value {
    object(&mut [
        ("architecture", Value::from(c.arch.name())),
        ("layers", Value::from(c.n_layers)),
        ("dim", Value::from(c.dim)),
        ("heads", Value::from(c.n_heads)),
        ("kv_heads", Value::from(c.n_kv_heads)),
        ("head_dim", Value::from(c.head_dim)),
        ("ffn_dim", Value::from(c.ffn_dim)),
        ("vocabulary", Value::from(c.vocab)),
        ("trained_context", Value::from(c.train_ctx)),
        ("rope_theta", Value::from(c.rope_theta)),
        ("rms_eps", Value::from(widened(c.rms_eps))),
    ])
}

#[inline(never)]
fn memory(model: &Model, config: &Config, batch: usize) -> Value {
    let mut rows = Vec::new();
    for kv_type in [KvType::Q8, KvType::F32] {
        for ctx in CONTEXTS {
            let setup = Setup { ctx: Some(ctx), kv_type, batch, ..Setup::default() };
            // Only a model of absurd dimensions has no answer; its row is left out.
            let Ok(need) = parts::budget(model, &setup, config, &parts::limits(&setup, config)) else {
                continue;
            };
            rows.push(object(&mut [
                ("ctx", Value::from(ctx)),
                ("kv_type", Value::from(kv_type.name())),
                ("kv", Value::from(need.kv)),
                ("scratch", Value::from(need.scratch)),
                ("index", Value::from(need.index)),
                ("weights", Value::from(need.weights)),
                ("total", Value::from(need.total())),
            ]));
        }
    }
    Value::Array(rows)
}
