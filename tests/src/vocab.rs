//! Vocabularies for tests: written as GGUF, and loaded.
//!
//! It must not know what a text encodes to.

use kinglet_core::cast::REGION_ALIGN;
use kinglet_core::gguf::{Gguf, Meta, TensorInfo};
use kinglet_core::token::{Tokenizer, TokenizerError, TokenizerRequirements};
use std::sync::OnceLock;

/// Bytes at an address that regions may have.
#[derive(Debug)]
pub struct Region {
    bytes: Vec<u8>,
    start: usize,
    len: usize,
}

impl Region {
    /// `len` bytes, filled with a pattern, since regions come with whatever was there.
    pub fn new(len: usize) -> Self {
        let bytes = vec![0xA5; len + REGION_ALIGN];
        let start = bytes.as_ptr().align_offset(REGION_ALIGN);
        Region { bytes, start, len }
    }

    /// The bytes.
    pub fn get(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.len]
    }
}

/// The character that stands for a byte in the texts of tokens.
pub fn alphabet(byte: u8) -> char {
    let all = ALPHABET.get_or_init(|| {
        let printable = |b: &u8| matches!(b, 0x21..=0x7E | 0xA1..=0xAC | 0xAE..=0xFF);
        let mut others = (0x100..).filter_map(char::from_u32);
        (0..=255).map(|b| if printable(&b) { char::from(b) } else { others.next().unwrap() }).collect()
    });
    all[usize::from(byte)]
}

static ALPHABET: OnceLock<Vec<char>> = OnceLock::new();

/// The keys of a tokenizer; `None` leaves a key out.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "named after the keys")]
pub struct Vocab {
    pub model: Option<String>,
    pub pre: Option<String>,
    pub tokens: Option<Vec<String>>,
    pub token_type: Option<Vec<i32>>,
    pub merges: Option<Vec<String>>,
    pub eos: Option<u32>,
    pub bos: Option<u32>,
    pub add_bos: Option<bool>,
}

impl Vocab {
    /// The 256 bytes, what `merges` make, then control and user-defined tokens, then a hole.
    pub fn new(merges: &[(&str, &str)], control: &[&str], user: &[&str]) -> Self {
        let mut tokens: Vec<String> = (0..=255).map(|b| alphabet(b).to_string()).collect();
        for (left, right) in merges {
            let made = format!("{left}{right}");
            if !tokens.contains(&made) {
                tokens.push(made);
            }
        }
        let mut types = vec![1; tokens.len()];
        for (texts, ty) in [(control, 3), (user, 4), (&["[PAD]"], 5)] {
            tokens.extend(texts.iter().map(|text| text.to_string()));
            types.extend(texts.iter().map(|_| ty));
        }
        Vocab {
            model: Some("gpt2".into()),
            pre: Some("qwen2".into()),
            tokens: Some(tokens),
            token_type: Some(types),
            merges: Some(merges.iter().map(|(left, right)| format!("{left} {right}")).collect()),
            eos: Some(0),
            bos: None,
            add_bos: None,
        }
    }

    /// A GGUF file with these keys and no tensors.
    pub fn to_gguf(&self) -> Vec<u8> {
        let mut metas: Vec<Vec<u8>> = Vec::new();
        let mut add = |key: &str, ty: u32, value: Vec<u8>| {
            metas.push([string(key), ty.to_le_bytes().to_vec(), value].concat());
        };
        if let Some(v) = &self.model {
            add("tokenizer.ggml.model", 8, string(v));
        }
        if let Some(v) = &self.pre {
            add("tokenizer.ggml.pre", 8, string(v));
        }
        if let Some(v) = &self.tokens {
            add("tokenizer.ggml.tokens", 9, array(8, v.iter().map(|s| string(s))));
        }
        if let Some(v) = &self.token_type {
            add("tokenizer.ggml.token_type", 9, array(5, v.iter().map(|t| t.to_le_bytes().to_vec())));
        }
        if let Some(v) = &self.merges {
            add("tokenizer.ggml.merges", 9, array(8, v.iter().map(|s| string(s))));
        }
        if let Some(v) = self.eos {
            add("tokenizer.ggml.eos_token_id", 4, v.to_le_bytes().to_vec());
        }
        if let Some(v) = self.bos {
            add("tokenizer.ggml.bos_token_id", 4, v.to_le_bytes().to_vec());
        }
        if let Some(v) = self.add_bos {
            add("tokenizer.ggml.add_bos_token", 7, vec![u8::from(v)]);
        }
        let mut file = b"GGUF\x03\0\0\0\0\0\0\0\0\0\0\0".to_vec();
        file.extend((metas.len() as u64).to_le_bytes());
        file.extend(metas.concat());
        file
    }
}

fn string(text: &str) -> Vec<u8> {
    [&(text.len() as u64).to_le_bytes()[..], text.as_bytes()].concat()
}

fn array(ty: u32, elements: impl Iterator<Item = Vec<u8>>) -> Vec<u8> {
    let elements: Vec<Vec<u8>> = elements.collect();
    let count = elements.len() as u64;
    [&ty.to_le_bytes()[..], &count.to_le_bytes(), &elements.concat()].concat()
}

/// Builds the tokenizer of a GGUF file and passes it on.
///
/// # Panics
/// If `file` is no GGUF file.
pub fn with_tokenizer<R>(file: &[u8], use_it: impl FnOnce(Result<&Tokenizer<'_>, TokenizerError>) -> R) -> R {
    let counts = Gguf::counts(file).expect("a GGUF header");
    let mut metas = vec![Meta::EMPTY; counts.metas];
    let mut tensors = vec![TensorInfo::EMPTY; counts.tensors];
    let gguf = Gguf::parse(file, &mut metas, &mut tensors).expect("a GGUF file");
    let needed = match TokenizerRequirements::of(&gguf) {
        Ok(needed) => needed,
        Err(error) => return use_it(Err(error)),
    };
    let mut region = Region::new(needed.index);
    let tokenizer = Tokenizer::new(&gguf, region.get());
    use_it(tokenizer.as_ref().map_err(|&error| error))
}
