//! Fuzz target of replies as pieces: any text, cut into tokens in two ways, gives the same.
//!
//! It must not know where the bytes come from; the same bytes do the same.

use crate::pieces_vocab::{all_bytes, cut, pieces_file};
use crate::random_model::Rng;
use crate::vocab::with_tokenizer;
use kinglet::output::{Output, Piece, Wanted};
use kinglet_core::token::Tokenizer;
use serde_json::Value;

/// What texts are made of, besides bytes: each is chosen by a byte of the input.
const PARTS: [&str; 32] = [
    "<tool_call>",
    "</tool_call>",
    "<think>",
    "</think>",
    "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": [1, -2.5e3, \"é\\\"}\", null]}}\n</tool_call>",
    "<tool_call>\n{\"name\": \"f\", \"arguments\": ",
    "<tool_call>{\"arguments\": {\"x\": {}}, \"name\":\"g\"}</tool_call>",
    "{\"name\": \"",
    "\", \"arguments\": {",
    "}}\n</tool_call>",
    "{",
    "}",
    "[",
    "]",
    "\"",
    ": ",
    ",",
    "true",
    "12",
    "\\u00e9",
    "\n",
    "\n\n",
    "  ",
    "a",
    "é",
    "🦀",
    "stop it",
    "stop",
    "END.",
    "aab",
    "<",
    "</",
];

/// All that came out of a reply.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Joined {
    /// Pieces, neighbours of one kind joined.
    pub pieces: Vec<Piece>,
    /// The stop string that was met.
    pub stopped: Option<String>,
    /// Calls that are complete.
    pub called: usize,
}

/// What `ids` come to.
///
/// # Panics
/// If an id is unknown.
pub fn joined(tokenizer: &Tokenizer<'_>, wanted: &Wanted<'_>, ids: &[u32]) -> Joined {
    let mut output = Output::new(tokenizer, wanted);
    let (mut all, mut some) = (Vec::new(), Vec::new());
    for &id in ids {
        output.push(id, &mut some).unwrap();
        all.append(&mut some);
    }
    output.finish(&mut some);
    all.append(&mut some);
    let stopped = output.stopped().map(String::from);
    Joined { pieces: join(all), stopped, called: output.called() }
}

/// Joins neighbours of one kind.
pub fn join(all: Vec<Piece>) -> Vec<Piece> {
    let mut joined: Vec<Piece> = Vec::new();
    for piece in all {
        match (joined.last_mut(), &piece) {
            (Some(Piece::Text(last)), Piece::Text(part))
            | (Some(Piece::Reasoning(last)), Piece::Reasoning(part)) => last.push_str(part),
            (Some(Piece::Arguments { index, part: last }), Piece::Arguments { index: i, part })
                if index == i =>
            {
                last.push_str(part);
            }
            _ => joined.push(piece),
        }
    }
    joined
}

/// Runs everything once on `data`.
///
/// # Panics
/// If something is wrong.
pub fn fuzz_output(data: &[u8]) {
    let [flags, seed, rest @ ..] = data else { return };
    let mut text = Vec::new();
    for &byte in rest {
        match PARTS.get(usize::from(byte)) {
            Some(part) => text.extend(part.as_bytes()),
            None => text.push(byte),
        }
    }
    let stops: Vec<String> = ["stop it", "END.\n", "aab", "p", "\n\n"].map(String::from).to_vec();
    let wanted = Wanted {
        stops: &stops[..usize::from(flags >> 4) % 6],
        tools: flags & 1 > 0,
        reasoning: flags & 2 > 0,
        starts_in_reasoning: flags & 6 == 6,
    };
    with_tokenizer(pieces_file(flags & 8 > 0), |tokenizer| {
        let tokenizer = tokenizer.unwrap();
        let bytes = all_bytes(tokenizer);
        let mut rng = Rng(u64::from(*seed));
        // A token of its own is cut off from incomplete characters before it, as is none of single bytes.
        let single: Vec<u32> = text.iter().map(|&byte| u32::from(byte)).collect();
        let plain = |id: &u32| !tokenizer.is_special(*id);
        let ids = cut(&bytes, &text, &mut rng);
        let first = joined(tokenizer, &wanted, &ids);
        check(&first, &wanted);
        if ids.iter().all(plain) || wanted.tools && wanted.reasoning {
            assert_eq!(first, joined(tokenizer, &wanted, &single), "{:?}", String::from_utf8_lossy(&text));
        }
    });
}

/// What holds for the pieces of any reply.
fn check(joined: &Joined, wanted: &Wanted<'_>) {
    let (mut whole, mut names) = (0, 0);
    for piece in &joined.pieces {
        match piece {
            Piece::Text(text) => {
                let met = wanted.stops.iter().find(|stop| text.contains(&stop[..]));
                assert_eq!(met, None, "in {text:?}");
            }
            Piece::Reasoning(text) => {
                assert!(wanted.reasoning && !text.starts_with('\n') && !text.ends_with('\n'), "{text:?}");
            }
            Piece::ToolCall { index, name } => {
                assert!(wanted.tools && *index == names && !name.is_empty());
                names += 1;
            }
            Piece::Arguments { index, part } => {
                assert_eq!(*index + 1, names);
                whole += usize::from(matches!(serde_json::from_str(part), Ok(Value::Object(_))));
            }
        }
    }
    assert!(joined.called <= whole, "{joined:?}");
}
