//! Fuzz target of constrained decoding: schemas of arbitrary JSON, and texts written under those
//! that are accepted. It must not know what a schema means.

use crate::pieces_vocab::{all_bytes, pieces_file};
use crate::random_model::Rng;
use crate::vocab::with_tokenizer;
use kinglet::constrain::{Constraint, Grammar, TokenTable};
use serde_json::Value;
use std::sync::Arc;

/// Tokens of a text at most.
const MOST: usize = 60;

/// Takes `data` up to the first zero as a schema; the rest chooses tokens. Whether it was a schema.
///
/// # Panics
/// If something is wrong.
pub fn fuzz_schema(data: &[u8]) -> bool {
    let end = data.iter().position(|&byte| byte == 0).unwrap_or(data.len());
    let (text, choices) = data.split_at(end);
    let Ok(schema) = serde_json::from_slice::<Value>(text) else { return false };
    let tools = [("f".to_string(), schema.clone())];
    let as_tool = Grammar::tool_calls(&tools, true, true);
    let grammar = match Grammar::schema(&schema) {
        Ok(grammar) => grammar,
        Err(error) => {
            // Null is no schema, but a tool without arguments.
            assert!((as_tool.is_err() || schema.is_null()) && !error.to_string().is_empty());
            return false;
        }
    };
    write(grammar, choices, &|text| drop(serde_json::from_str::<Value>(text).unwrap()));
    if let Ok(grammar) = as_tool {
        write(grammar, choices, &|text| {
            let body =
                text.strip_prefix("<tool_call>\n").and_then(|text| text.strip_suffix("\n</tool_call>"));
            assert!(serde_json::from_str::<Value>(body.unwrap()).unwrap()["arguments"].is_object());
        });
    }
    true
}

/// Writes tokens that are allowed: something must always be, and a whole text must be right.
fn write(grammar: Grammar, choices: &[u8], check: &dyn Fn(&str)) {
    with_tokenizer(pieces_file(false), |tokenizer| {
        let tokenizer = tokenizer.unwrap();
        let bytes = all_bytes(tokenizer);
        let table = Arc::new(TokenTable::new(tokenizer, bytes.len()));
        let mut constraint = Constraint::new(Arc::new(grammar), table);
        let mut text = Vec::new();
        let mut rng =
            Rng(choices.iter().fold(0, |sum: u64, &byte| sum.wrapping_mul(257) + u64::from(byte) % 251));
        for _ in 0..MOST {
            if constraint.is_complete() {
                return check(str::from_utf8(&text).unwrap());
            }
            let mut logits: Vec<f32> = bytes.iter().map(|_| rng.number() as f32).collect();
            assert!(constraint.mask(&mut logits), "nothing may follow {:?}", String::from_utf8_lossy(&text));
            let best = crate::model::argmax(&logits);
            assert!(logits[best as usize].is_finite());
            if tokenizer.is_end(best) {
                return check(str::from_utf8(&text).unwrap());
            }
            text.extend(&bytes[best as usize]);
            constraint.accept(best);
        }
    });
}
