//! Broken vocabularies, small buffers, and what the two commands say about bad lines.

use kinglet::cmd_tokenize::{LineError, detokenize, tokenize};
use kinglet_core::cast::RegionError;
use kinglet_core::gguf::{Gguf, GgufFault, Meta, TensorInfo};
use kinglet_core::token::{
    AddedTokens, DecodeError, EncodeError, Scratch, Segment, StreamDecoder, Tokenizer, TokenizerFault,
    TokenizerRequirements,
};
use kinglet_tests::fixture;
use kinglet_tests::fuzz_tokenizer::builtin;
use kinglet_tests::vocab::{Region, Vocab, with_tokenizer};

/// The fault of the built-in vocabulary after `change`, and the last part of its key.
fn fault(change: impl FnOnce(&mut Vocab)) -> (TokenizerFault, String) {
    let mut vocab = builtin();
    change(&mut vocab);
    with_tokenizer(&vocab.to_gguf(), |tokenizer| {
        let error = tokenizer.expect_err("a broken vocabulary");
        let key = error.key.as_str().strip_prefix("tokenizer.ggml.").expect("a key of ours");
        assert!(error.to_string().contains(key), "{error}");
        (error.fault, key.to_owned())
    })
}

fn check(change: impl FnOnce(&mut Vocab), expected: TokenizerFault, key: &str) {
    assert_eq!(fault(change), (expected, key.to_owned()));
}

/// Sets token `i` of the built-in vocabulary.
fn token(i: usize, text: &str) -> impl FnOnce(&mut Vocab) {
    let text = text.to_owned();
    move |vocab| vocab.tokens.as_mut().unwrap()[i] = text
}

fn merge(text: &str) -> impl FnOnce(&mut Vocab) {
    let text = text.to_owned();
    move |vocab| vocab.merges.as_mut().unwrap()[3] = text
}

#[test]
fn missing_keys_and_other_models() {
    use TokenizerFault::Metadata;
    let missing = Metadata(GgufFault::MissingKey);
    check(|v| v.model = None, missing, "model");
    check(|v| v.pre = None, missing, "pre");
    check(|v| v.tokens = None, missing, "tokens");
    check(|v| v.token_type = None, missing, "token_type");
    check(|v| v.merges = None, missing, "merges");
    check(|v| v.eos = None, missing, "eos_token_id");
    check(|v| v.add_bos = Some(true), missing, "bos_token_id");
    check(|v| v.model = Some("llama".into()), TokenizerFault::Model, "model");
    check(|v| v.pre = Some("qwen35".into()), TokenizerFault::Split, "pre");
}

#[test]
fn broken_lists() {
    let n = builtin().tokens.unwrap().len();
    check(|v| v.eos = Some(n as u32), TokenizerFault::TokenId { id: n as u32, tokens: n }, "eos_token_id");
    let length = |found| TokenizerFault::Length { tokens: n, found };
    check(|v| v.token_type.as_mut().unwrap().truncate(n - 1), length(n - 1), "token_type");
    check(|v| v.token_type.as_mut().unwrap().push(1), length(n + 1), "token_type");
    for ty in [-1, 0, 2, 6, 7, i32::MAX] {
        let fault = TokenizerFault::TokenType { token: 7 };
        check(|v| v.token_type.as_mut().unwrap()[7] = ty, fault, "token_type");
    }
    let most = 1 << 20;
    check(|v| v.tokens = Some(vec![]), TokenizerFault::Count { found: 0, most }, "tokens");
    let many = vec![String::new(); most + 1];
    check(|v| v.merges = Some(many), TokenizerFault::Count { found: most + 1, most }, "merges");
}

#[test]
fn broken_tokens() {
    check(token(260, "a b"), TokenizerFault::Alphabet { token: 260 }, "tokens");
    check(token(260, "漢"), TokenizerFault::Alphabet { token: 260 }, "tokens");
    check(token(260, ""), TokenizerFault::Empty { token: 260 }, "tokens");
    check(token(260, &"é".repeat(1025)), TokenizerFault::TooLong { token: 260 }, "tokens");
    // An ordinary character stands for one byte, an added one for those it has.
    let (mut vocab, text) = (builtin(), "é".repeat(513));
    vocab.tokens.as_mut().unwrap().push(text);
    vocab.token_type.as_mut().unwrap().push(1);
    with_tokenizer(&vocab.to_gguf(), |tokenizer| assert!(tokenizer.is_ok()));
    check(token(260, "a"), TokenizerFault::DuplicateToken { token: 260 }, "tokens");
    check(token(97, "aaaaaaaaaaaaa"), TokenizerFault::MissingByte { byte: 97 }, "tokens");
    let n = builtin().tokens.unwrap().len();
    // The list ends with four user-defined tokens and a hole.
    check(token(n - 2, "<think>"), TokenizerFault::DuplicateToken { token: n as u32 - 2 }, "tokens");
    check(token(n - 2, ""), TokenizerFault::Empty { token: n as u32 - 2 }, "tokens");
    with_tokenizer(
        &{
            let mut vocab = builtin();
            token(n - 1, "")(&mut vocab);
            vocab.to_gguf()
        },
        |tokenizer| assert!(tokenizer.is_ok(), "a hole may have any text"),
    );
}

/// Added tokens are searched for at every place of a text, so they have a length of their own.
#[test]
fn long_added_tokens() {
    let n = builtin().tokens.unwrap().len();
    // The list ends with four control tokens, four user-defined ones and a hole.
    for place in [n - 9, n - 2] {
        let fault = TokenizerFault::TooLong { token: place as u32 };
        for text in ["<".repeat(129), "é".repeat(65)] {
            check(token(place, &text), fault, "tokens");
        }
        for text in ["<".repeat(128), "é".repeat(64)] {
            let mut vocab = builtin();
            token(place, &text)(&mut vocab);
            with_tokenizer(&vocab.to_gguf(), |tokenizer| {
                let whole = text.clone() + &text[2..];
                let found: Vec<Segment<'_>> =
                    tokenizer.unwrap().segments(&whole, AddedTokens::Recognised).collect();
                assert_eq!(found, [Segment::Added(place as u32), Segment::Text(&text[2..])]);
            });
        }
    }
}

#[test]
fn broken_merges() {
    for text in ["", "th", "t h e"] {
        check(merge(text), TokenizerFault::MergeSyntax { merge: 3 }, "merges");
    }
    for text in ["t a", "a 漢", " a", "a "] {
        check(merge(text), TokenizerFault::MergeUnknown { merge: 3 }, "merges");
    }
    check(merge("a a"), TokenizerFault::DuplicateMerge { merge: 3 }, "merges");
}

#[test]
fn index_of_the_exact_size_fits_and_one_byte_less_does_not() {
    let file = builtin().to_gguf();
    let counts = Gguf::counts(&file).unwrap();
    let mut metas = vec![Meta::EMPTY; counts.metas];
    let mut tensors = vec![TensorInfo::EMPTY; counts.tensors];
    let gguf = Gguf::parse(&file, &mut metas, &mut tensors).unwrap();
    let needed = TokenizerRequirements::of(&gguf).unwrap().index;
    let error = Tokenizer::new(&gguf, Region::new(needed - 1).get()).unwrap_err();
    assert!(matches!(error.fault, TokenizerFault::Region(RegionError::BufferTooSmall { .. })));
    let mut region = Region::new(needed + 1);
    let error = Tokenizer::new(&gguf, &mut region.get()[1..]).unwrap_err();
    assert_eq!(error.fault, TokenizerFault::Region(RegionError::Misaligned));
    assert!(Tokenizer::new(&gguf, Region::new(needed).get()).is_ok());
}

#[test]
fn small_outputs_and_windows() {
    with_tokenizer(&builtin().to_gguf(), |tokenizer| {
        let tokenizer = tokenizer.unwrap();
        let needed = Scratch::bytes(8);
        let error = Scratch::new(Region::new(needed - 1).get(), 8).unwrap_err();
        assert_eq!(error, RegionError::BufferTooSmall { needed, got: needed - 1 });
        let mut memory = Region::new(needed);
        let mut scratch = Scratch::new(memory.get(), 8).unwrap();
        let mut out = [9; 2];
        let error = tokenizer.encode_text("xyz", &mut scratch, &mut out).unwrap_err();
        assert_eq!(error, EncodeError::OutputTooSmall { needed: 3, got: 2 });
        assert_eq!(out, [u32::from(b'x' - b'!'), u32::from(b'y' - b'!')].map(|i| i + 33));
        // The longest token is the control token <|endoftext|> of 13 bytes.
        let error = tokenizer.encode_text("aaaaaaaaa", &mut scratch, &mut out).unwrap_err();
        assert_eq!(error, EncodeError::WindowTooSmall { needed: 26, got: 8 });
        let error = tokenizer.token_bytes(256, &mut [0]).unwrap_err();
        assert_eq!(error, DecodeError::OutputTooSmall { needed: 2, got: 1 });
        let (id, tokens) = (9999, tokenizer.vocab_size());
        let error = tokenizer.token_bytes(id, &mut []).unwrap_err();
        assert_eq!(error, DecodeError::UnknownId { id, tokens });
        assert!(StreamDecoder::new(tokenizer, true).push(id, &mut |_| ()).is_err());
    });
}

/// Neighbours in the alphabet merge, the last of the alphabet first: which letters pair up
/// depends on where the word ends, and a window cannot see that.
#[test]
fn a_word_without_a_seam_is_an_error() {
    let letters: String = ('a'..='z').chain('A'..='Z').collect();
    let merges: Vec<(&str, &str)> =
        (1..letters.len()).rev().map(|i| (&letters[i - 1..i], &letters[i..=i])).collect();
    with_tokenizer(&Vocab::new(&merges, &[], &[]).to_gguf(), |tokenizer| {
        let encode = |window| {
            let mut memory = Region::new(Scratch::bytes(window));
            let mut scratch = Scratch::new(memory.get(), window).unwrap();
            tokenizer.unwrap().encode_text(&format!("1{letters}"), &mut scratch, &mut [0; 64])
        };
        assert_eq!(encode(64), Ok(27));
        assert_eq!(encode(16), Ok(27));
        assert_eq!(encode(15), Err(EncodeError::NoSeam { offset: 1 }));
    });
}

#[test]
fn added_tokens_are_leftmost_longest() {
    with_tokenizer(&builtin().to_gguf(), |tokenizer| {
        let tokenizer = tokenizer.unwrap();
        let id = |text| Segment::Added(tokenizer.added_id(text).unwrap());
        let segments = |text, mode| tokenizer.segments(text, mode).collect::<Vec<_>>();
        let all = segments("<think<think>é!é<|im_end|>", AddedTokens::Recognised);
        let rest = [id("<think"), id("<think>"), id("é!"), Segment::Text("é"), id("<|im_end|>")];
        assert_eq!(all, rest);
        let all = segments("<|im_end|><think><|fim_pad|>x", AddedTokens::SpecialAsText);
        let rest = [Segment::Text("<|im_end|>"), id("<think>"), id("<|fim_pad|>"), Segment::Text("x")];
        assert_eq!(all, rest);
        assert_eq!(segments("<think>", AddedTokens::AllAsText), [Segment::Text("<think>")]);
        assert_eq!(segments("", AddedTokens::Recognised), []);
    });
}

#[test]
fn nothing_is_recognised_inside_a_token_that_is_text() {
    with_tokenizer(&Vocab::new(&[], &["<|a<b>|>"], &["<b>", ">|"]).to_gguf(), |tokenizer| {
        let segments = |mode| tokenizer.unwrap().segments("<|a<b>|><b>", mode).collect::<Vec<_>>();
        let b = Segment::Added(257);
        assert_eq!(segments(AddedTokens::Recognised), [Segment::Added(256), b]);
        assert_eq!(segments(AddedTokens::SpecialAsText), [Segment::Text("<|a<b>|>"), b]);
    });
}

#[test]
fn commands() {
    with_tokenizer(&fixture("qwen3-tokenizer/qwen3-vocab.gguf"), |tokenizer| {
        let tokenizer = tokenizer.unwrap();
        let ids = |input: &str, mode| {
            let mut out = Vec::new();
            tokenize(tokenizer, mode, input.as_bytes(), &mut out).map(|()| String::from_utf8(out).unwrap())
        };
        let text = |input: &str, skip| {
            let mut out = Vec::new();
            detokenize(tokenizer, skip, input.as_bytes(), &mut out).map(|()| String::from_utf8(out).unwrap())
        };
        let input = "\"\"\n\"a<|im_end|>\\u0301\"\r\n\"<think>\"";
        assert_eq!(ids(input, AddedTokens::Recognised).unwrap(), "[]\n[64,151645,53839]\n[151667]\n");
        let special = ids("\"<|im_end|><think>\"\n", AddedTokens::SpecialAsText).unwrap();
        assert_eq!(special, "[27,91,318,6213,91,29,151667]\n");
        assert_eq!(text("[64,151645,223]\n[]", false).unwrap(), "\"a<|im_end|>\u{FFFD}\"\n\"\"\n");
        assert_eq!(text("[64,151645,65]", true).unwrap(), "\"ab\"\n");
        for (input, error) in [
            ("\"a\"\n17\n", "line 2, column 2: invalid type: integer `17`, expected a string"),
            ("\"\\ud800\"", "line 1, column 8: unexpected end of hex escape"),
            ("\n", "line 1, column 0: EOF while parsing a value"),
        ] {
            assert_eq!(ids(input, AddedTokens::Recognised).unwrap_err().to_string(), error);
        }
        let error = text("[1]\n[151936]", false).unwrap_err();
        assert!(matches!(error, LineError::Decode { line: 2, .. }));
        assert!(matches!(text("[-1]", false), Err(LineError::Json { line: 1, .. })));
    });
}
