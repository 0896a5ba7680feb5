//! Fuzz target of the tokenizer: vocabularies and texts made of arbitrary bytes.
//!
//! It must not know where the bytes come from; the same bytes do the same.

use crate::vocab::{Region, Vocab, alphabet, with_tokenizer};
use kinglet_core::gguf::{Gguf, Meta, TensorInfo};
use kinglet_core::token::{
    AddedTokens, EncodeError, Scratch, Segment, StreamDecoder, Tokenizer, TokenizerRequirements, pieces,
};
use std::collections::HashMap;

/// Bytes used up one by one; zeros after the end.
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn next(&mut self) -> usize {
        match self.0.split_first() {
            Some((&first, rest)) => {
                self.0 = rest;
                usize::from(first)
            }
            None => 0,
        }
    }
}

/// Runs everything once on `data`.
///
/// # Panics
/// If the tokenizer does something wrong.
pub fn fuzz_tokenizer(data: &[u8]) {
    let mut bytes = Bytes(data);
    let builtin = builtin();
    check_vocab(&builtin, data);
    let made = made(&mut bytes);
    check_vocab(&made, data);
    let broken = broken(if bytes.next() % 2 == 0 { builtin } else { made }, &mut bytes);
    check_vocab(&broken, bytes.0);
    check_file(broken.to_gguf(), &mut bytes);
}

/// A small vocabulary with merges over several levels, some of them in each other's way.
pub fn builtin() -> Vocab {
    let merges = [
        ("a", "a"),
        ("t", "h"),
        ("aa", "aa"),
        ("th", "e"),
        ("Ġ", "the"),
        ("a", "b"),
        ("b", "a"),
        ("ab", "ab"),
        ("h", "e"),
        ("Ċ", "Ċ"),
        ("Ã", "©"),
        ("b", "b"),
        ("aa", "b"),
    ];
    Vocab::new(
        &merges,
        &["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|fim_pad|>"],
        &["<think>", "</think>", "<think", "é!"],
    )
}

/// A sound vocabulary whose merges are chosen by `bytes`.
fn made(bytes: &mut Bytes<'_>) -> Vocab {
    let mut texts: Vec<String> = ["a", "b", "Ġ", "Ã", "©"].map(String::from).to_vec();
    let mut merges: Vec<(String, String)> = Vec::new();
    for _ in 0..bytes.next() % 24 {
        let pair = (texts[bytes.next() % texts.len()].clone(), texts[bytes.next() % texts.len()].clone());
        let made = format!("{}{}", pair.0, pair.1);
        if made.chars().count() > 40 || merges.contains(&pair) {
            continue;
        }
        if !texts.contains(&made) {
            texts.push(made);
        }
        merges.push(pair);
    }
    // Merges listed before those that make their sides.
    let len = merges.len();
    for _ in 0..bytes.next() % 8 {
        if len > 0 {
            merges.swap(bytes.next() % len, bytes.next() % len);
        }
    }
    let merges: Vec<(&str, &str)> = merges.iter().map(|(l, r)| (&l[..], &r[..])).collect();
    Vocab::new(&merges, &["<|im_end|>", "a<", "<a>"], &["<", "<a"])
}

/// Breaks a vocabulary in up to three ways.
fn broken(mut vocab: Vocab, bytes: &mut Bytes<'_>) -> Vocab {
    for _ in 0..1 + bytes.next() % 3 {
        let (what, a, b) = (bytes.next(), bytes.next() << 8 | bytes.next(), bytes.next());
        let text = ["", " ", "a", "a b", "  ", "a b c", "\u{4E2D}", "th e", "zz z", "<think>"][b % 10];
        match what % 12 {
            0 => vocab.model = [None, Some("llama".into())][b % 2].clone(),
            1 => vocab.pre = [None, Some("qwen35".into())][b % 2].clone(),
            2 => vocab.tokens = None,
            3 => vocab.token_type = None,
            4 => vocab.merges = None,
            5 => vocab.eos = [None, Some(u32::MAX), Some(a as u32)][b % 3],
            6 => vocab.bos = [None, Some(a as u32)][b % 2],
            7 => vocab.add_bos = Some(b % 2 == 0),
            8 => set(&mut vocab.tokens, a, text.into()),
            9 => set(&mut vocab.token_type, a, b as i32 % 8 - 1),
            10 => set(&mut vocab.merges, a, text.into()),
            _ => match b % 3 {
                0 => drop(vocab.tokens.as_mut().and_then(Vec::pop)),
                1 => vocab.token_type.iter_mut().for_each(|types| types.push(1)),
                _ => vocab.tokens.iter_mut().for_each(|tokens| tokens[a % 256] = "b".repeat(b * 8)),
            },
        }
    }
    vocab
}

fn set<T>(list: &mut Option<Vec<T>>, at: usize, value: T) {
    let Some(list) = list else { return };
    let len = list.len().max(1);
    if let Some(slot) = list.get_mut(at % len) {
        *slot = value;
    }
}

/// Flips bytes of a file behind its header; whatever is still a GGUF file must not panic.
fn check_file(mut file: Vec<u8>, bytes: &mut Bytes<'_>) {
    for _ in 0..bytes.next() % 6 {
        let at = (bytes.next() << 8 | bytes.next()) % file.len();
        file[at] ^= bytes.next() as u8;
    }
    let Ok(counts) = Gguf::counts(&file) else { return };
    let mut metas = vec![Meta::EMPTY; counts.metas];
    let mut tensors = vec![TensorInfo::EMPTY; counts.tensors.min(4)];
    let Ok(gguf) = Gguf::parse(&file, &mut metas, &mut tensors) else { return };
    let Ok(needed) = TokenizerRequirements::of(&gguf) else { return };
    assert!(Tokenizer::new(&gguf, Region::new(needed.index - 1).get()).is_err());
    let mut region = Region::new(needed.index);
    if let Ok(tokenizer) = Tokenizer::new(&gguf, region.get()) {
        check_tokenizer(&tokenizer, None, bytes.0);
    }
}

fn check_vocab(vocab: &Vocab, data: &[u8]) {
    with_tokenizer(&vocab.to_gguf(), |tokenizer| {
        if let Ok(tokenizer) = tokenizer {
            check_tokenizer(tokenizer, Some(vocab), data);
        }
    });
}

fn check_tokenizer(tokenizer: &Tokenizer<'_>, vocab: Option<&Vocab>, data: &[u8]) {
    let letters: String = data.iter().map(|&b| ['a', 'b', ' ', 'é', '<'][usize::from(b) / 64]).collect();
    let word = letters.replace([' ', '<'], "a");
    let mut ids = vec![0; 4 * data.len() + 8];
    let mut small = vec![0; ids.len()];
    let mut memory = Region::new(Scratch::bytes(Scratch::WINDOW));
    let mut scratch = Scratch::new(memory.get(), Scratch::WINDOW).unwrap();
    let window = 16 + data.len() % 100;
    let mut small_memory = Region::new(Scratch::bytes(window));
    let mut small_scratch = Scratch::new(small_memory.get(), window).unwrap();
    for text in [&String::from_utf8_lossy(data)[..], &letters, &word] {
        for mode in [AddedTokens::Recognised, AddedTokens::SpecialAsText, AddedTokens::AllAsText] {
            let segments = tokenizer.segments(text, mode).map(|segment| match segment {
                Segment::Text(text) => text.len(),
                Segment::Added(id) => tokenizer.token_bytes(id, &mut [0; 1024]).unwrap().len(),
            });
            assert_eq!(segments.sum::<usize>(), text.len());
            let n = match tokenizer.encode(text, mode, &mut scratch, &mut ids) {
                Ok(n) => n,
                Err(EncodeError::NoSeam { .. }) => continue,
                Err(error) => panic!("{error}"),
            };
            assert_eq!(decode(tokenizer, &ids[..n]), text);
            match tokenizer.encode(text, mode, &mut small_scratch, &mut small) {
                Ok(m) => assert_eq!(ids[..n], small[..m]),
                Err(EncodeError::NoSeam { .. } | EncodeError::WindowTooSmall { .. }) => {}
                Err(error) => panic!("{error}"),
            }
            if let (AddedTokens::AllAsText, Some(vocab)) = (mode, vocab) {
                assert_eq!(ids[..n], naive(vocab, text)[..]);
            }
        }
    }
    // Any ids, known or not.
    let mut text = String::new();
    let mut decoder = StreamDecoder::new(tokenizer, data.len().is_multiple_of(2));
    for pair in data.chunks(2) {
        let id = u32::from(pair[0]) | u32::from(pair.get(1).map_or(0, |b| b & 1)) << 8;
        let known = (id as usize) < tokenizer.vocab_size();
        assert_eq!(decoder.push(id, &mut |part| text.push_str(part)).is_ok(), known);
    }
    decoder.finish(&mut |part| text.push_str(part));
}

fn decode(tokenizer: &Tokenizer<'_>, ids: &[u32]) -> String {
    let mut text = String::new();
    let mut decoder = StreamDecoder::new(tokenizer, false);
    for &id in ids {
        decoder.push(id, &mut |part| text.push_str(part)).unwrap();
    }
    decoder.finish(&mut |part| text.push_str(part));
    text
}

/// The merges done in the plainest way, on texts in the alphabet.
fn naive(vocab: &Vocab, text: &str) -> Vec<u32> {
    let tokens = vocab.tokens.as_ref().unwrap();
    let types = vocab.token_type.as_ref().unwrap();
    let mut ids = HashMap::new();
    for (id, token) in (0..).zip(tokens) {
        if types[id as usize] == 1 || (types[id as usize] != 5 && !ids.contains_key(&token[..])) {
            ids.insert(&token[..], id);
        }
    }
    let merges = vocab.merges.as_ref().unwrap();
    let pairs = merges.iter().map(|merge| merge.split_once(' ').unwrap());
    let ranks: HashMap<(&str, &str), usize> = pairs.zip(0..).collect();
    let mut out = Vec::new();
    for piece in pieces(text) {
        let coded: String = piece.bytes().map(alphabet).collect();
        let mut ends: Vec<usize> = coded.char_indices().map(|(at, _)| at).skip(1).collect();
        ends.insert(0, 0);
        ends.push(coded.len());
        // Symbol i is the text between ends i and i + 1.
        let symbol = |ends: &[usize], i: usize| coded.get(ends[i]..ends[i + 1]).unwrap();
        loop {
            let rank = |i: usize| ranks.get(&(symbol(&ends, i), symbol(&ends, i + 1))).copied();
            let best = (0..ends.len() - 2).filter_map(|i| Some((rank(i)?, i))).min();
            let Some((_, at)) = best else { break };
            ends.remove(at + 1);
        }
        out.extend((0..ends.len() - 1).map(|i| ids[symbol(&ends, i)]));
    }
    out
}
