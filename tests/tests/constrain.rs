//! Constrained decoding: whatever is written under a schema fits it, and what fits can be written.

use kinglet::constrain::{Constraint, Grammar, TokenTable};
use kinglet_core::token::{TokenKind, Tokenizer};
use kinglet_tests::fixture;
use kinglet_tests::pieces_vocab::{all_bytes, pieces_vocab};
use kinglet_tests::random_model::Rng;
use kinglet_tests::schema_model::{below, document, fits, random_schema};
use kinglet_tests::vocab::{Vocab, with_tokenizer};
use serde_json::{Value, json};
use std::sync::Arc;

/// A vocabulary, and what constraints need of it.
struct Kit<'t> {
    tokenizer: &'t Tokenizer<'t>,
    bytes: Vec<Vec<u8>>,
    table: Arc<TokenTable>,
    /// More logits than tokens, as models have.
    vocab: usize,
}

fn with_kit(file: &[u8], f: impl FnOnce(&Kit<'_>)) {
    with_tokenizer(file, |tokenizer| {
        let tokenizer = tokenizer.unwrap();
        let vocab = tokenizer.vocab_size() + 100;
        let table = Arc::new(TokenTable::new(tokenizer, vocab));
        f(&Kit { tokenizer, bytes: all_bytes(tokenizer), table, vocab });
    });
}

fn small() -> Vec<u8> {
    pieces_vocab(false).to_gguf()
}

/// One token for each byte, and the tokens that end a text.
fn bytes_only() -> Vec<u8> {
    let mut vocab = Vocab::new(&[], &["<|im_end|>"], &["<tool_call>", "</tool_call>"]);
    vocab.eos = Some(256);
    vocab.to_gguf()
}

fn qwen3() -> Vec<u8> {
    fixture("qwen3-tokenizer/qwen3-vocab.gguf")
}

impl Kit<'_> {
    fn constraint(&self, grammar: Grammar) -> Constraint {
        Constraint::new(Arc::new(grammar), self.table.clone())
    }

    /// The tokens that may come next; none if nothing may.
    fn allowed(&self, constraint: &mut Constraint) -> Vec<u32> {
        let mut logits = vec![0.0; self.vocab];
        let any = constraint.mask(&mut logits);
        let allowed: Vec<u32> = (0..).zip(&logits).filter(|(_, l)| **l == 0.0).map(|(id, _)| id).collect();
        assert_eq!(any, !allowed.is_empty());
        let is_constrained = allowed.len() < self.vocab;
        assert!(
            !is_constrained || allowed.iter().all(|id| (*id as usize) < self.bytes.len()),
            "no such token"
        );
        allowed
    }

    /// Writes tokens at random; after `patience` of them those that end things. None if a text has no end.
    fn random_text(&self, constraint: &mut Constraint, rng: &mut Rng, patience: usize) -> Option<String> {
        let mut text = Vec::new();
        for step in 0..patience + 400 {
            if constraint.is_complete() {
                return Some(String::from_utf8(text).unwrap());
            }
            let allowed = self.allowed(constraint);
            assert!(!allowed.is_empty(), "nothing may follow {:?}", String::from_utf8_lossy(&text));
            let ends: Vec<u32> = allowed.iter().copied().filter(|&id| self.tokenizer.is_end(id)).collect();
            let single = |byte: u8| allowed.iter().copied().find(|&id| self.bytes[id as usize] == [byte]);
            let ending = || {
                let end = ends.first().copied();
                let bytes: &[u8] = if is_in_string(&text) { b"\"" } else { b"}]\"" };
                end.or_else(|| bytes.iter().find_map(|&byte| single(byte)))
            };
            let ending = if step > patience { ending() } else { None };
            let id = ending.unwrap_or_else(|| allowed[below(rng, allowed.len())]);
            if self.tokenizer.is_end(id) {
                return Some(String::from_utf8(text).unwrap());
            }
            text.extend(&self.bytes[id as usize]);
            constraint.accept(id);
        }
        None
    }

    /// Whether `text` can be written token by token, with nothing behind it.
    fn accepts(&self, constraint: &mut Constraint, ids: &[u32]) -> bool {
        for &id in ids {
            if constraint.is_complete() || !self.allowed(constraint).contains(&id) {
                return false;
            }
            constraint.accept(id);
        }
        constraint.is_complete() || self.allowed(constraint).iter().any(|&id| self.tokenizer.is_end(id))
    }
}

/// Whether JSON that begins like this goes on inside a string.
fn is_in_string(text: &[u8]) -> bool {
    let (mut inside, mut escaped) = (false, false);
    for &byte in text {
        inside ^= byte == b'"' && !escaped;
        escaped = inside && byte == b'\\' && !escaped;
    }
    inside
}

fn ids(text: &str) -> Vec<u32> {
    text.bytes().map(u32::from).collect()
}

fn grammar(schema: &Value) -> Grammar {
    Grammar::schema(schema).unwrap_or_else(|e| panic!("{e}: {schema}"))
}

fn writes_what_fits(file: &[u8], seed: u64, schemas: usize, texts: usize) {
    with_kit(file, |kit| {
        let mut rng = Rng(seed);
        let (mut written, mut long) = (0, 0);
        for _ in 0..schemas {
            let schema = random_schema(&mut rng);
            for _ in 0..texts {
                let patience = [3, 12, 60][below(&mut rng, 3)];
                let mut constraint = kit.constraint(grammar(&schema));
                let text = kit.random_text(&mut constraint, &mut rng, patience);
                let text = text.unwrap_or_else(|| panic!("no end: {schema}"));
                let value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text:?}"));
                assert!(fits(&schema, &schema, &value), "{text:?} does not fit {schema}");
                written += 1;
                long += usize::from(text.len() > 60);
            }
        }
        assert!(long * 30 > written, "{long} of {written} are long");
    });
}

#[test]
fn what_is_written_fits_small_vocabulary() {
    writes_what_fits(&small(), 1, 250, 4);
}

#[test]
fn what_is_written_fits_bytes() {
    writes_what_fits(&bytes_only(), 2, 250, 4);
}

#[test]
fn what_is_written_fits_qwen3() {
    writes_what_fits(&qwen3(), 3, 25, 4);
}

#[test]
fn what_fits_can_be_written() {
    with_kit(&bytes_only(), |kit| {
        let mut rng = Rng(4);
        let mut count = 0;
        while count < 1500 {
            let schema = random_schema(&mut rng);
            for _ in 0..4 {
                let Some(text) = document(&mut rng, &schema) else { continue };
                let value = serde_json::from_str(&text).unwrap();
                assert!(fits(&schema, &schema, &value), "the generator is wrong: {text} {schema}");
                let mut constraint = kit.constraint(grammar(&schema));
                assert!(kit.accepts(&mut constraint, &ids(&text)), "{text} is refused by {schema}");
                count += 1;
            }
        }
    });
}

/// Each single change of a byte is either refused on the way or still gives a document that fits.
#[test]
fn changed_documents_fit_or_are_refused() {
    with_kit(&bytes_only(), |kit| {
        let mut rng = Rng(5);
        let (mut refused, mut fine) = (0, 0);
        while refused < 1500 {
            let schema = random_schema(&mut rng);
            let Some(text) = document(&mut rng, &schema) else { continue };
            let mut bytes = text.into_bytes();
            let at = below(&mut rng, bytes.len());
            match below(&mut rng, 3) {
                0 => bytes[at] = b"\"{}[],:0-e\\ \nx"[below(&mut rng, 14)],
                1 => drop(bytes.remove(at)),
                _ => bytes.insert(at, bytes[at]),
            }
            let mut constraint = kit.constraint(grammar(&schema));
            let ids: Vec<u32> = bytes.iter().map(|&b| u32::from(b)).collect();
            if !kit.accepts(&mut constraint, &ids) {
                refused += 1;
                continue;
            }
            fine += 1;
            let value = serde_json::from_slice(&bytes).unwrap_or_else(|e| panic!("{e}: {bytes:?}"));
            assert!(fits(&schema, &schema, &value), "{value} does not fit {schema}");
        }
        assert!(fine > 100, "{fine}");
    });
}

/// A mask says of each token what its bytes say one after the other.
#[test]
fn masks_agree_with_bytes() {
    with_kit(&small(), |kit| {
        let mut rng = Rng(6);
        for _ in 0..60 {
            let schema = random_schema(&mut rng);
            let grammar = Arc::new(grammar(&schema));
            let mut constraint = Constraint::new(grammar.clone(), kit.table.clone());
            let mut path = Vec::new();
            for _ in 0..12 {
                let allowed = kit.allowed(&mut constraint);
                for id in (0..kit.bytes.len() as u32).filter(|id| !kit.tokenizer.is_end(*id)) {
                    let bytes = &kit.bytes[id as usize];
                    let is_added = kit.tokenizer.kind(id) != Some(TokenKind::Normal);
                    let mut again = Constraint::new(grammar.clone(), kit.table.clone());
                    let mut each = path.iter().chain(bytes).map(|&byte| u32::from(byte));
                    let fits = !bytes.is_empty()
                        && !is_added
                        && each.all(|byte| {
                            again.accept(byte);
                            again.is_complete() || again.mask(&mut vec![0.0; kit.vocab])
                        });
                    assert_eq!(fits, allowed.contains(&id), "{path:?} + {bytes:?} in {schema}");
                }
                let some: Vec<u32> = allowed.into_iter().filter(|&id| !kit.tokenizer.is_end(id)).collect();
                let Some(&id) = some.get(below(&mut rng, some.len().max(1))) else { break };
                constraint.accept(id);
                path.extend(&kit.bytes[id as usize]);
            }
        }
    });
}

#[test]
fn any_object() {
    with_kit(&bytes_only(), |kit| {
        let accepts = |text: &str| kit.accepts(&mut kit.constraint(Grammar::json_object()), &ids(text));
        for text in ["{}", "{ }", "{\n}", "{\"a\": [1, {\"b\": null}], \"c\":true}", "{\"\":-0.5e+3}"] {
            assert!(accepts(text), "{text}");
        }
        for text in
            ["[]", "1", " {}", "{}\n", "{\"a\":1,}", "{\"a\" :1}", "{\"a\":  1}", "{  }", "{\"a\":01}"]
        {
            assert!(!accepts(text), "{text}");
        }
        let deep = |n: usize| format!("{{\"a\":{}1{}}}", "[".repeat(n), "]".repeat(n));
        assert!(accepts(&deep(63)) && !accepts(&deep(64)));
        // Indentation ends somewhere.
        assert!(accepts("{\n    \"a\":1}") && !accepts("{\n     \"a\":1}"));
    });
}

#[test]
fn names_are_not_said_twice_with_two_meanings() {
    with_kit(&bytes_only(), |kit| {
        let schema = json!({"properties": {"a": {"type": "null"}, "ab\"": {"type": "null"}},
            "additionalProperties": {"type": "integer"}});
        let accepts = |text: &str| kit.accepts(&mut kit.constraint(grammar(&schema)), &ids(text));
        assert!(accepts("{\"a\":null,\"b\":1}") && accepts("{\"ab\":1}") && accepts("{\"ab\\\"c\":1}"));
        assert!(accepts("{\"ab\\\"\":null}") && accepts("{\"x\":1,\"y\":2}"));
        for text in
            ["{\"a\":1}", "{\"a\":null,\"a\":1}", "{\"b\":1,\"a\":null}", "{\"\\u0061\":1}", "{\"ab\\\"\":1}"]
        {
            assert!(!accepts(text), "{text}");
        }
    });
}

#[test]
fn whole_numbers_within_limits() {
    with_kit(&bytes_only(), |kit| {
        for (low, high) in [(0, 9), (-12, 105), (7, 7), (95, 1003), (-1003, -95), (-1, 0), (1, 1), (-10, -10)]
        {
            let schema = json!({"type": "integer", "minimum": low, "exclusiveMaximum": high + 1});
            for n in -1200..1200 {
                let mut constraint = kit.constraint(grammar(&schema));
                let accepted = kit.accepts(&mut constraint, &ids(&n.to_string()));
                assert_eq!(accepted, (low..=high).contains(&n), "{n} in {schema}");
            }
            let mut constraint = kit.constraint(grammar(&schema));
            assert!(!kit.accepts(&mut constraint, &ids("-0")) && !kit.accepts(&mut constraint, &ids("1.0")));
        }
        for (n, fits) in [(i64::MIN, true), (i64::MIN + 1, false), (i64::MAX, false)] {
            let schema = json!({"type": "integer", "maximum": i64::MIN});
            assert_eq!(kit.accepts(&mut kit.constraint(grammar(&schema)), &ids(&n.to_string())), fits);
        }
    });
}

#[test]
fn numbers_end_by_what_follows() {
    with_kit(&bytes_only(), |kit| {
        let mut constraint = kit.constraint(grammar(&json!({"enum": [1, 12, "1"]})));
        constraint.accept(u32::from(b'1'));
        assert!(!constraint.is_complete());
        let allowed = kit.allowed(&mut constraint);
        assert_eq!(allowed, [u32::from(b'2'), 256]);
        constraint.accept(u32::from(b'2'));
        assert!(constraint.is_complete());
        assert!(kit.allowed(&mut constraint).contains(&256));
        // What was forbidden and came all the same leaves nothing.
        let mut constraint = kit.constraint(Grammar::json_object());
        constraint.accept(u32::from(b'x'));
        assert!(kit.allowed(&mut constraint).is_empty() && !constraint.is_complete());
    });
}

#[test]
fn recursion_ends_at_the_limit() {
    with_kit(&bytes_only(), |kit| {
        let below = json!({"anyOf": [{"type": "null"}, {"$ref": "#/definitions/t"}]});
        let object = json!({"type": "object", "properties": {"t": below}, "required": ["t"]});
        let schema = json!({"$ref": "#/definitions/t", "definitions": {"t": object}});
        let text = |n: usize| format!("{}{{\"t\":null}}{}", "{\"t\":".repeat(n), "}".repeat(n));
        let accepts = |text: String| kit.accepts(&mut kit.constraint(grammar(&schema)), &ids(&text));
        assert!(accepts(text(0)) && accepts(text(63)) && !accepts(text(64)));
    });
}

#[test]
fn tool_calls() {
    let weather = json!({"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]});
    let tools =
        [("weather".to_string(), weather), ("we\"ird é".into(), Value::Null), ("any".into(), json!({}))];
    let call = "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Oslo\"}}\n</tool_call>";
    let odd = "<tool_call>\n{\"name\": \"we\\\"ird é\", \"arguments\": {}}\n</tool_call>";
    with_kit(&bytes_only(), |kit| {
        let with = |at_least, one| kit.constraint(Grammar::tool_calls(&tools, at_least, one).unwrap());
        assert!(kit.accepts(&mut with(true, true), &ids(call)));
        assert!(kit.accepts(&mut with(true, true), &ids(odd)));
        assert!(kit.accepts(&mut with(true, false), &ids(&format!("{call}\n{odd}"))));
        assert!(!kit.accepts(&mut with(true, true), &ids(&format!("{call}\n{odd}"))));
        for text in
            ["", "Sure.", &call.replace("weather", "other"), &call.replace("city", "town"), "<tool_call>"]
        {
            assert!(!kit.accepts(&mut with(true, false), &ids(text)), "{text}");
        }
        // Any text, then calls as they must be.
        let mut lazy = with(false, false);
        assert!(kit.accepts(&mut lazy, &ids(&format!("I <tool_ look.\n{call} and {odd} done"))));
        assert!(!lazy.is_complete());
        let mut lazy = with(false, false);
        assert!(!kit.accepts(&mut lazy, &ids(&call.replace("city", "town"))));
        let mut once = with(false, true);
        assert!(kit.accepts(&mut once, &ids(&format!("So: {call}"))) && once.is_complete());
        // The tags as tokens of their own, but not inside a string.
        let (open, close) = (257, 258);
        let tagged = |text: &str| {
            let mut all = vec![open];
            all.extend(ids(text.strip_prefix("<tool_call>").unwrap().strip_suffix("</tool_call>").unwrap()));
            all.push(close);
            all
        };
        assert!(kit.accepts(&mut with(true, true), &tagged(call)));
        assert!(kit.accepts(&mut with(false, true), &tagged(call)));
        let mut inside = with(true, true);
        ids(call).iter().take(60).for_each(|&id| inside.accept(id));
        assert!(!kit.allowed(&mut inside).contains(&close));
        // Whatever is written is a call.
        let mut rng = Rng(7);
        for _ in 0..50 {
            let text = kit.random_text(&mut with(true, true), &mut rng, 80).unwrap();
            let body = text.strip_prefix("<tool_call>\n").unwrap().strip_suffix("\n</tool_call>").unwrap();
            let value: Value = serde_json::from_str(body).unwrap();
            assert!(value["arguments"].is_object());
            assert!(value["name"] != "weather" || value["arguments"]["city"].is_string());
        }
    });
}

#[test]
fn behind_reasoning() {
    with_kit(&bytes_only(), |kit| {
        let with = || kit.constraint(grammar(&json!({"type": "integer"}))).after("</think>");
        for text in ["So.</think>5", "</</think>\n\n-12", "no end of it, {[", "</think></think"] {
            let is_fine = text != "</think></think";
            assert_eq!(kit.accepts(&mut with(), &ids(text)) || text.contains("{["), is_fine, "{text}");
        }
        assert!(!kit.accepts(&mut with(), &ids("</think>\n\n\n5")));
        let tools = [("f".to_string(), Value::Null)];
        let call = "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>";
        let text = format!("thinking of <tool_call> </think>\n\n{call}");
        for at_least_one in [true, false] {
            let grammar = Grammar::tool_calls(&tools, at_least_one, true).unwrap();
            let mut constraint = kit.constraint(grammar).after("</think>");
            assert!(kit.accepts(&mut constraint, &ids(&text)) && constraint.is_complete());
        }
    });
}

#[test]
fn all_ways_to_be_refused() {
    let nested = (0..70).fold(json!(true), |of, _| json!({"type": "array", "items": of, "minItems": 1}));
    let many: Vec<Value> = (0..65).map(|i| json!({"const": i})).collect();
    let huge: serde_json::Map<String, Value> = (0..9000).map(|i| (i.to_string(), json!({}))).collect();
    let cases = [
        ("", json!([])),
        ("", json!("string")),
        ("/type", json!({"type": "int"})),
        ("/type", json!({"type": []})),
        ("/type", json!({"type": ["string", 5]})),
        ("/pattern", json!({"type": "string", "pattern": "a+"})),
        ("/properties/a~1b~0/pattern", json!({"properties": {"a/b~": {"pattern": "x"}}})),
        ("/items/anyOf/1/not", json!({"items": {"anyOf": [{}, {"not": {}}]}})),
        ("/$defs/x/if", json!({"$ref": "#/$defs/x", "$defs": {"x": {"if": {}}}})),
        ("/$ref", json!({"$ref": "#/$defs/none"})),
        ("/$ref", json!({"$ref": "https://example.org/schema"})),
        ("/$ref", json!({"$ref": 5})),
        ("/prefixItems", json!({"type": "array", "prefixItems": []})),
        ("/uniqueItems", json!({"type": "array", "uniqueItems": true})),
        ("/multipleOf", json!({"type": "integer", "multipleOf": 2})),
        ("/maximum", json!({"type": "number", "maximum": 1})),
        ("/minimum", json!({"type": "number", "minimum": 1})),
        ("/minimum", json!({"type": "integer", "minimum": 0.5})),
        ("", json!({"type": "integer", "minimum": 5, "maximum": 4})),
        ("/minLength", json!({"type": "string", "minLength": 5, "maxLength": 4})),
        ("/minLength", json!({"type": "string", "minLength": -1})),
        ("/maxItems", json!({"type": "array", "maxItems": 1.5})),
        ("/minLength", json!({"type": "integer", "minLength": 1})),
        ("/properties", json!({"properties": []})),
        ("/properties/a", json!({"properties": {"a": 1}})),
        ("/additionalProperties", json!({"additionalProperties": 1})),
        ("/required", json!({"required": "a"})),
        ("/required/1", json!({"properties": {"a": {}}, "required": ["a", 1]})),
        ("/required/0", json!({"properties": {}, "required": ["a"], "additionalProperties": false})),
        ("/patternProperties", json!({"type": "object", "patternProperties": {}})),
        ("/anyOf", json!({"anyOf": []})),
        ("/anyOf", json!({"anyOf": {}})),
        ("/anyOf", json!({"anyOf": many})),
        ("/allOf", json!({"allOf": [{}, {}]})),
        ("/type", json!({"anyOf": [{}], "type": "object"})),
        ("/enum", json!({"enum": []})),
        ("/enum", json!({"enum": ["a"], "type": "integer"})),
        ("/minLength", json!({"enum": ["a"], "minLength": 1})),
        ("/enum/0", json!({"enum": ["x".repeat(5000)]})),
        ("/x-made-up", json!({"x-made-up": 1})),
        ("", json!(false)),
        ("", json!({"$ref": "#"})),
        ("", json!({"anyOf": [{"$ref": "#"}, {"allOf": [{"$ref": "#"}]}]})),
        ("", json!({"properties": {"a": {"$ref": "#"}}, "required": ["a"]})),
        ("", nested),
    ];
    for (path, schema) in cases {
        let error = Grammar::schema(&schema).map(|_| ()).expect_err(&schema.to_string());
        assert_eq!(error.path, path, "{error}: {schema}");
        assert!(!error.what.is_empty() && error.to_string().starts_with(&format!("#{path}: ")));
    }
    let error = Grammar::schema(&json!({"properties": huge})).map(|_| ()).unwrap_err();
    assert_eq!(error.what, "the schema is too large");
    let tools = |schema: Value| {
        let tools = [("ok".to_string(), Value::Null), ("b".into(), schema)];
        Grammar::tool_calls(&tools, true, true).map(|_| ()).unwrap_err().path
    };
    assert_eq!(tools(json!({"properties": {"a": {"pattern": ""}}})), "/1/properties/a/pattern");
    assert_eq!(tools(json!({"$ref": "#/$defs/a", "$defs": {"a": {"not": {}}}})), "/1/$defs/a/not");
    assert_eq!(tools(json!({"type": "string"})), "/1");
    assert_eq!(tools(json!(false)), "/1");
    assert!(Grammar::tool_calls(&[], true, true).is_err());
}
