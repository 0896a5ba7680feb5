//! The tokenizer against the reference: encode, decode and class vectors of Qwen3.

use kinglet::nfc::nfc;
use kinglet::tokenize::{ScratchMemory, encode};
use kinglet_core::token::{
    AddedTokens, Class, MAX_TOKEN_BYTES, Scratch, Segment, StreamDecoder, TokenKind, Tokenizer, Utf8Stream,
    class,
};
use kinglet_tests::fixture;
use kinglet_tests::vocab::{Region, with_tokenizer};
use proptest::prelude::*;
use serde_json::Value;
use std::collections::BTreeSet;

const MODES: [AddedTokens; 3] = [AddedTokens::Recognised, AddedTokens::SpecialAsText, AddedTokens::AllAsText];

/// Lines of `encode.jsonl` (by `n`), all of category `uni_any`, with code points whose composition
/// is newer than the reference's Unicode tables for NFC: none so far.
const NEWER_COMPOSITIONS: [u64; 0] = [];

fn qwen3<R>(f: impl FnOnce(&Tokenizer<'_>) -> R) -> R {
    with_tokenizer(&fixture("qwen3-tokenizer/qwen3-vocab.gguf"), |tokenizer| f(tokenizer.unwrap()))
}

fn lines(name: &str) -> Vec<Value> {
    let text = String::from_utf8(fixture(&format!("qwen3-tokenizer/{name}"))).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn ids(value: &Value) -> Vec<u32> {
    value.as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect()
}

fn hex(text: &str) -> Vec<u8> {
    let digits = text.as_bytes().chunks(2);
    digits.map(|pair| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

fn encoded(tokenizer: &Tokenizer<'_>, text: &str, mode: AddedTokens, window: usize) -> Vec<u32> {
    let mut memory = Region::new(Scratch::bytes(window));
    let mut scratch = Scratch::new(memory.get(), window).unwrap();
    let mut ids = Vec::new();
    encode(tokenizer, text, mode, &mut scratch, &mut ids).unwrap();
    ids
}

fn decoded(tokenizer: &Tokenizer<'_>, ids: &[u32], skip_special: bool) -> String {
    let mut text = String::new();
    let mut decoder = StreamDecoder::new(tokenizer, skip_special);
    ids.iter().for_each(|&id| decoder.push(id, &mut |part| text.push_str(part)).unwrap());
    decoder.finish(&mut |part| text.push_str(part));
    text
}

#[test]
fn encode_vectors() {
    qwen3(|tokenizer| {
        let mut memory = ScratchMemory::new();
        let mut scratch = memory.scratch();
        let (mut newer, mut checked) = (BTreeSet::new(), 0);
        for case in lines("encode.jsonl") {
            let (text, n) = (case["text"].as_str().unwrap(), case["n"].as_u64().unwrap());
            for (mode, key) in MODES.into_iter().zip(["ids", "ids_special_as_text", "ids_no_added_tokens"]) {
                let mut got = Vec::new();
                encode(tokenizer, text, mode, &mut scratch, &mut got).unwrap();
                let expected = ids(case.get(key).unwrap_or(&case["ids"]));
                let same_nfc = nfc(text) == case.get("nfc").unwrap_or(&case["text"]).as_str().unwrap();
                if got != expected && !same_nfc && case["cat"] == "uni_any" {
                    newer.insert(n);
                    continue;
                }
                assert_eq!(got, expected, "line {n}, {mode:?}: {text:?}");
                checked += 1;
            }
        }
        assert_eq!(newer, BTreeSet::from(NEWER_COMPOSITIONS));
        assert_eq!(checked, 3 * (1500 - NEWER_COMPOSITIONS.len()));
    });
}

#[test]
fn decode_vectors() {
    qwen3(|tokenizer| {
        let mut buffer = [0; MAX_TOKEN_BYTES];
        for case in lines("decode.jsonl") {
            let ids = ids(&case["ids"]);
            let mut bytes = Vec::<u8>::new();
            for &id in &ids {
                bytes.extend(tokenizer.token_bytes(id, &mut buffer).unwrap());
            }
            assert_eq!(bytes, hex(case["bytes_hex"].as_str().unwrap()));
            assert_eq!(decoded(tokenizer, &ids, false), case["text"].as_str().unwrap());
            let skipped = case.get("text_skip_special").unwrap_or(&case["text"]);
            assert_eq!(decoded(tokenizer, &ids, true), skipped.as_str().unwrap());
        }
    });
}

/// What is out after each id: everything but one incomplete character. The reference holds
/// the whole step back while its text ends in U+FFFD, and has caught up when it does not.
#[test]
fn stream_vectors() {
    qwen3(|tokenizer| {
        let mut exact = 0;
        for case in lines("decode.jsonl") {
            for (skip, key) in [(false, "stream"), (true, "stream_skip_special")] {
                let steps = case.get(key).unwrap_or(&case["stream"]).as_array().unwrap();
                let ids = ids(&case["ids"]);
                let (mut ours, mut theirs) = (String::new(), String::new());
                let mut decoder = StreamDecoder::new(tokenizer, skip);
                assert_eq!(steps.len(), ids.len());
                for (n, (&id, step)) in (1..).zip(ids.iter().zip(steps)) {
                    decoder.push(id, &mut |part| ours.push_str(part)).unwrap();
                    theirs.push_str(step.as_str().unwrap_or_default());
                    let all = decoded(tokenizer, &ids[..n], skip);
                    assert!(ours == all || format!("{ours}\u{FFFD}") == all, "{ours:?} {all:?}");
                    if all.ends_with('\u{FFFD}') {
                        assert!(ours.starts_with(&theirs) || all == theirs, "{ours:?} {theirs:?}");
                    } else {
                        assert_eq!(ours, theirs);
                        exact += 1;
                    }
                }
                decoder.finish(&mut |part| ours.push_str(part));
                assert_eq!(ours, decoded(tokenizer, &ids, skip));
            }
        }
        assert!(exact > 1000, "{exact}");
    });
}

#[test]
fn single_tokens() {
    qwen3(|tokenizer| {
        let mut buffer = [0; MAX_TOKEN_BYTES];
        for case in lines("token_bytes.jsonl") {
            let id = case["id"].as_u64().unwrap() as u32;
            let bytes = tokenizer.token_bytes(id, &mut buffer).unwrap();
            assert_eq!(bytes, hex(case["bytes_hex"].as_str().unwrap()));
            assert_eq!(tokenizer.kind(id) != Some(TokenKind::Normal), case["added"] == true);
        }
    });
}

#[test]
fn classes_are_those_of_the_reference() {
    let file: Value = serde_json::from_slice(&fixture("qwen3-tokenizer/classes.json")).unwrap();
    let mut classes = vec![Class::Other; 0x11_0000];
    for (key, class) in [("L", Class::Letter), ("N", Class::Number), ("s", Class::Space)] {
        for range in file[key].as_array().unwrap() {
            let range = ids(range);
            classes[range[0] as usize..=range[1] as usize].fill(class);
        }
    }
    classes[usize::from(b'\n')] = Class::Newline;
    classes[usize::from(b'\r')] = Class::Newline;
    for c in '\0'..=char::MAX {
        assert_eq!(class(c), classes[c as usize], "{c:?}");
    }
}

#[test]
fn accessors() {
    qwen3(|tokenizer| {
        assert_eq!(tokenizer.vocab_size(), 151_936);
        assert_eq!((tokenizer.eos(), tokenizer.bos()), (151_645, None));
        let ends: Vec<u32> = (0..151_936).filter(|&id| tokenizer.is_end(id)).collect();
        assert_eq!(ends, [151_643, 151_645]);
        assert_eq!(tokenizer.added_id("<think>"), Some(151_667));
        assert_eq!(tokenizer.added_id("<think"), None);
        assert_eq!(tokenizer.added_id("the"), None);
        let special = (0..151_936).filter(|&id| tokenizer.is_special(id)).count();
        assert_eq!(special, 14);
        assert_eq!(tokenizer.kind(151_935), Some(TokenKind::Unused));
        assert_eq!(tokenizer.kind(151_936), None);
        assert_eq!(tokenizer.token_bytes(151_935, &mut []), Ok(&[][..]));
    });
}

/// Generated words: one letter, few letters, all letters, real words run together.
fn words(len: usize) -> Vec<String> {
    let mut state = 1_u64;
    let mut random = move |below: usize| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) as usize % below
    };
    let real = ["international", "ization", "the", "of", "Übergröße", "мир", "漢字", "ing"];
    let mut words = vec!["a".repeat(len), "Ab".repeat(len / 2), "\u{E9}".repeat(len / 2)];
    for letters in ["ab", "xyz", "abcdefghijklmnopqrstuvwxyz"] {
        let letters: Vec<char> = letters.chars().collect();
        words.push((0..len).map(|_| letters[random(letters.len())]).collect());
    }
    let mut joined = String::new();
    while joined.len() < len {
        joined.push_str(real[random(real.len())]);
    }
    words.extend([joined, "=".repeat(len), " ".repeat(len), "-=".repeat(len / 2)]);
    // Marks are reordered by NFC before anything is split.
    words.push("\u{301}\u{316}".repeat(len / 4));
    words
}

#[test]
fn long_words_do_not_depend_on_the_window() {
    qwen3(|tokenizer| {
        for word in words(3000) {
            let direct = encoded(tokenizer, &word, AddedTokens::Recognised, 32_768);
            for window in [256, 300, 1024] {
                let windowed = encoded(tokenizer, &word, AddedTokens::Recognised, window);
                assert_eq!(windowed, direct, "window {window}: {:?}", word.get(..16));
            }
        }
    });
}

#[test]
fn work_grows_with_the_length_only() {
    qwen3(|tokenizer| {
        let mut memory = ScratchMemory::new();
        for (short, long) in words(50_000).iter().zip(words(200_000)) {
            let mut lookups = |text: &str| {
                let mut scratch = memory.scratch();
                let mut ids = Vec::new();
                encode(tokenizer, text, AddedTokens::Recognised, &mut scratch, &mut ids).unwrap();
                assert_eq!(decoded(tokenizer, &ids, false), nfc(text));
                scratch.lookups()
            };
            let (a, b) = (lookups(short), lookups(&long));
            assert!(b > 3 * a && b < 5 * a, "{a} lookups, then {b}: {:?}", long.get(..16));
        }
    });
}

/// Up to 70 bytes, many of them parts of characters.
fn utf8_like() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![any::<u8>(), 0x80..=0xBF_u8, 0xC2..=0xF4_u8, Just(b'a')];
    prop::collection::vec(byte, 0..70)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn decoding_gives_the_text_back(texts in prop::collection::vec(any::<String>(), 64)) {
        qwen3(|tokenizer| {
            for text in &texts {
                for mode in MODES {
                    let ids = encoded(tokenizer, text, mode, Scratch::WINDOW);
                    assert_eq!(decoded(tokenizer, &ids, false), nfc(text));
                }
            }
        });
    }

    #[test]
    fn bytes_in_parts_are_the_whole_text(parts in prop::collection::vec(utf8_like(), 0..40)) {
        let mut text = String::new();
        let mut stream = Utf8Stream::new();
        parts.iter().for_each(|part| stream.push(part, &mut |piece| text.push_str(piece)));
        stream.finish(&mut |piece| text.push_str(piece));
        assert_eq!(text, String::from_utf8_lossy(&parts.concat()));
    }

    #[test]
    fn added_tokens_in_text_come_back(
        texts in prop::collection::vec(
            "(<\\|im_end\\|>|<think>|<\\|fim_pad\\|>|<|é| a|\\|>|\u{301}){0,9}", 64)
    ) {
        qwen3(|tokenizer| {
            for (text, mode) in texts.iter().flat_map(|text| MODES.map(|mode| (text, mode))) {
                let ids = encoded(tokenizer, text, mode, Scratch::WINDOW);
                let parts = tokenizer.segments(text, mode).map(|segment| match segment {
                    Segment::Added(id) => decoded(tokenizer, &[id], false),
                    Segment::Text(text) => nfc(text).into_owned(),
                });
                assert_eq!(decoded(tokenizer, &ids, false), parts.collect::<String>());
                let special = ids.iter().filter(|&&id| tokenizer.is_special(id)).count();
                let recognised = mode == AddedTokens::Recognised;
                assert_eq!(special, if recognised { text.matches("<|im_end|>").count() } else { 0 });
                let added = ids.iter().filter(|&&id| tokenizer.kind(id) != Some(TokenKind::Normal));
                assert!(mode != AddedTokens::AllAsText || added.count() == 0);
            }
        });
    }

    #[test]
    fn any_ids_can_be_decoded(ids in prop::collection::vec(0_u32..151_936, 0..4000)) {
        qwen3(|tokenizer| {
            let mut bytes = Vec::<u8>::new();
            for &id in &ids {
                bytes.extend(tokenizer.token_bytes(id, &mut [0; MAX_TOKEN_BYTES]).unwrap());
            }
            assert_eq!(decoded(tokenizer, &ids, false), String::from_utf8_lossy(&bytes));
        });
    }
}
