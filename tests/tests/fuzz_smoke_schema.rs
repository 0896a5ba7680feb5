//! Runs the fuzz target of constrained decoding over seeded random inputs.

use kinglet_tests::fuzz_schema::fuzz_schema;
use kinglet_tests::random_model::Rng;
use kinglet_tests::schema_model::{below, random_schema};
use serde_json::{Value, json};

/// Arbitrary JSON that often has a keyword's name where an object's name stands.
fn arbitrary(rng: &mut Rng, depth: usize) -> Value {
    const NAMES: [&str; 20] = [
        "type",
        "properties",
        "required",
        "additionalProperties",
        "items",
        "minItems",
        "maxItems",
        "minLength",
        "maxLength",
        "minimum",
        "maximum",
        "enum",
        "const",
        "anyOf",
        "oneOf",
        "allOf",
        "$ref",
        "$defs",
        "a",
        "not",
    ];
    const TEXTS: [&str; 10] =
        ["object", "array", "string", "integer", "number", "null", "#", "#/$defs/a", "#/properties/a", "a"];
    match below(rng, if depth == 0 { 5 } else { 9 }) {
        0 => json!(below(rng, 2) == 0),
        1 => json!(null),
        2 => json!(below(rng, 5)),
        3 | 4 => json!(TEXTS[below(rng, 10)]),
        5 => Value::Array((0..below(rng, 3)).map(|_| arbitrary(rng, depth - 1)).collect()),
        _ => {
            let member = |rng: &mut Rng| (NAMES[below(rng, 20)].to_string(), arbitrary(rng, depth - 1));
            Value::Object((0..below(rng, 4)).map(|_| member(rng)).collect())
        }
    }
}

/// Puts something else into one place.
fn change(value: &mut Value, rng: &mut Rng) {
    let size = match value {
        Value::Array(list) => list.len(),
        Value::Object(map) => map.len(),
        _ => 0,
    };
    if size == 0 || below(rng, 4) == 0 {
        *value = arbitrary(rng, 2);
        return;
    }
    let at = below(rng, size);
    match value {
        Value::Array(list) => change(&mut list[at], rng),
        Value::Object(map) => change(map.values_mut().nth(at).unwrap(), rng),
        _ => {}
    }
}

fn input(schema: &Value, rng: &mut Rng) -> Vec<u8> {
    let mut data = schema.to_string().into_bytes();
    data.extend([0, rng.number() as u8, rng.number() as u8]);
    data
}

#[test]
fn arbitrary_json() {
    let mut rng = Rng(21);
    let mut good = 0;
    for _ in 0..8000 {
        let schema = arbitrary(&mut rng, 4);
        good += usize::from(fuzz_schema(&input(&schema, &mut rng)));
    }
    assert!((500..7000).contains(&good), "{good}");
}

#[test]
fn changed_schemas() {
    let mut rng = Rng(22);
    let mut good = 0;
    for _ in 0..1500 {
        let mut schema = random_schema(&mut rng);
        change(&mut schema, &mut rng);
        good += usize::from(fuzz_schema(&input(&schema, &mut rng)));
    }
    assert!((300..1400).contains(&good), "{good}");
}

#[test]
fn bytes_that_are_no_json() {
    let mut rng = Rng(23);
    for _ in 0..500 {
        let data: Vec<u8> = (0..below(&mut rng, 40)).map(|_| b"{}[]\":,a1\0"[below(&mut rng, 10)]).collect();
        fuzz_schema(&data);
    }
    let deep = "{\"items\":".repeat(5000) + "1" + &"}".repeat(5000);
    assert!(!fuzz_schema(deep.as_bytes()));
}
