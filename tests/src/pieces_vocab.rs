//! A vocabulary for tests of text that is cut into tokens: all bytes, some words and all their
//! beginnings, tags. It must not know what texts mean.

use crate::random_model::Rng;
use crate::vocab::{Vocab, alphabet};
use kinglet_core::token::{MAX_TOKEN_BYTES, Tokenizer};
use std::sync::OnceLock;

/// Words that tokens are made of.
const WORDS: [&str; 16] = [
    "{\"name\": \"",
    "\", \"arguments\": {",
    "\":",
    "\"}}\n",
    "}\n</tool_call>\n",
    "<tool_call>\n{\"",
    "</think>\n\n",
    "<think>\n",
    "null,",
    "true}",
    "-12.5e",
    "  \"",
    "\n    ",
    "é🦀",
    "stop it",
    "END.\n\n",
];

/// The file of [`pieces_vocab`], made once.
pub fn pieces_file(special: bool) -> &'static [u8] {
    static FILES: [OnceLock<Vec<u8>>; 2] = [OnceLock::new(), OnceLock::new()];
    FILES[usize::from(special)].get_or_init(|| pieces_vocab(special).to_gguf())
}

/// The vocabulary; the tags are control tokens if `special`, else added as text, as Qwen has them.
pub fn pieces_vocab(special: bool) -> Vocab {
    let mut merges: Vec<(String, String)> = Vec::new();
    for word in WORDS {
        let chars: Vec<char> = word.bytes().map(alphabet).collect();
        for len in 1..chars.len() {
            let pair = (chars[..len].iter().collect(), chars[len].to_string());
            if !merges.contains(&pair) {
                merges.push(pair);
            }
        }
    }
    let merges: Vec<(&str, &str)> = merges.iter().map(|(l, r)| (&l[..], &r[..])).collect();
    let tags = ["<tool_call>", "</tool_call>", "<think>", "</think>"];
    let mut control = vec!["<|endoftext|>", "<|im_start|>", "<|im_end|>"];
    control.extend(tags.iter().filter(|_| special));
    let user: Vec<&str> = if special { Vec::new() } else { tags.to_vec() };
    let mut vocab = Vocab::new(&merges, &control, &user);
    // `Vocab::new` puts the control tokens behind the merges.
    let is_end = |text: &String| text == "<|im_end|>";
    vocab.eos = vocab.tokens.as_ref().unwrap().iter().position(is_end).map(|id| id as u32);
    vocab
}

/// The bytes of all tokens.
pub fn all_bytes(tokenizer: &Tokenizer<'_>) -> Vec<Vec<u8>> {
    let mut buffer = [0; MAX_TOKEN_BYTES];
    let ids = 0..tokenizer.vocab_size() as u32;
    ids.map(|id| tokenizer.token_bytes(id, &mut buffer).unwrap().to_vec()).collect()
}

/// `text` cut into tokens at random; tags are sometimes one token.
pub fn cut(tokens: &[Vec<u8>], mut text: &[u8], rng: &mut Rng) -> Vec<u32> {
    let mut ids = Vec::new();
    while !text.is_empty() {
        let fits = |id: &usize| !tokens[*id].is_empty() && text.starts_with(&tokens[*id]);
        let all: Vec<usize> = (0..tokens.len()).filter(fits).collect();
        let id = all[rng.number() as usize % all.len()];
        ids.push(id as u32);
        text = &text[tokens[id].len()..];
    }
    ids
}
