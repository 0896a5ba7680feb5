//! Time of a mask over the vocabulary of Qwen3, in several places of a text:
//! `cargo run --release -p kinglet-tests --example mask_speed`.

use kinglet::constrain::{Constraint, Grammar, TokenTable};
use kinglet_core::token::{AddedTokens, Scratch};
use kinglet_tests::fixture;
use kinglet_tests::vocab::{Region, with_tokenizer};
use serde_json::json;
use std::sync::Arc;
use std::time::Instant;

fn main() {
    with_tokenizer(&fixture("qwen3-tokenizer/qwen3-vocab.gguf"), |tokenizer| {
        let tokenizer = tokenizer.unwrap();
        let start = Instant::now();
        let table = Arc::new(TokenTable::new(tokenizer, 151_936));
        println!("{:8.3} ms  the table", start.elapsed().as_secs_f64() * 1e3);
        let schema = json!({"type": "object", "properties": {
            "name": {"type": "string"}, "short": {"type": "string", "maxLength": 20}, "n": {"type": "number"},
            "unit": {"enum": ["metre", "mile"]}}, "additionalProperties": true});
        let grammar = Arc::new(Grammar::schema(&schema).unwrap());
        for text in [
            "",
            "{",
            "{\"",
            "{\"na",
            "{\"name\":",
            "{\"name\": \"",
            "{\"name\": \"some",
            "{\"name\": \"x\",",
            "{\"short\": \"",
            "{\"short\": \"seventeen letters",
            "{\"n\": ",
            "{\"n\": 1",
            "{\"unit\": \"m",
            "{\"other\": ",
            "{\"other\": {\"",
            "{\"other\": [1",
            "{\"other\": [1, ",
        ] {
            let mut region = Region::new(Scratch::bytes(Scratch::WINDOW));
            let mut scratch = Scratch::new(region.get(), Scratch::WINDOW).unwrap();
            let mut ids = vec![0; 100];
            let n = tokenizer.encode(text, AddedTokens::AllAsText, &mut scratch, &mut ids).unwrap();
            let mut constraint = Constraint::new(grammar.clone(), table.clone());
            ids[..n].iter().for_each(|&id| constraint.accept(id));
            let mut best = f64::INFINITY;
            let mut logits = vec![0f32; 151_936];
            for _ in 0..20 {
                logits.fill(0.0);
                let start = Instant::now();
                assert!(constraint.mask(&mut logits));
                best = best.min(start.elapsed().as_secs_f64());
            }
            let allowed = logits.iter().filter(|l| **l == 0.0).count();
            println!("{:8.3} ms  {allowed:6} tokens after {text}", best * 1e3);
        }
    });
}
