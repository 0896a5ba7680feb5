//! Runs the fuzz target of requests for replies over seeded random inputs.

use kinglet_tests::fuzz_request::{Seen, fuzz_request};
use kinglet_tests::random_model::Rng;
use kinglet_tests::schema_model::below;
use std::collections::BTreeSet;

fn add(all: &mut Seen, seen: Seen) {
    all.json += seen.json;
    all.asks.iter_mut().zip(seen.asks).for_each(|(sum, n)| *sum += n);
    all.wrong.extend(seen.wrong);
}

#[test]
fn requests_of_names_and_values() {
    let mut rng = Rng(31);
    let mut all = Seen::default();
    for _ in 0..20_000 {
        let mut data: Vec<u8> = (0..2 * below(&mut rng, 7)).map(|_| below(&mut rng, 240) as u8).collect();
        if below(&mut rng, 4) > 0 {
            // Something to be answered, which most requests need to come far.
            data.splice(0..0, [below(&mut rng, 5) as u8, [0, 2, 4, 5, 32][below(&mut rng, 5)]]);
        }
        add(&mut all, fuzz_request(&data));
    }
    println!("{:?} of {}", all.asks, all.json);
    assert!(all.json > 10_000 && all.asks.iter().all(|&n| n > 1000), "{:?} of {}", all.asks, all.json);
    let wrong: BTreeSet<&str> = all.wrong.iter().map(String::as_str).collect();
    for name in
        ["messages", "messages[0].role", "prompt", "n", "stop", "logit_bias.300", "tools[0].function.name"]
    {
        assert!(wrong.contains(name), "{name}: {wrong:?}");
    }
}

#[test]
fn sound_requests_with_changed_bytes() {
    let sound = concat!(
        r#"{"model": "m", "messages": [{"role": "user", "content": [{"type": "text", "text": "\u00e4"}]},"#,
        r#"{"role": "assistant", "content": "", "tool_calls": [{"id": "1", "function": {"name": "f","#,
        r#""arguments": "{}"}}]}], "prompt": ["a", [1]], "tools": [{"type": "function", "function": {"#,
        r#""name": "f", "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}}}}],"#,
        r#""temperature": 0.5, "stop": ["x"], "logit_bias": {"1": -1.5e1}, "max_tokens": 12, "n": 2}"#,
    );
    let mut rng = Rng(32);
    let mut all = Seen::default();
    for _ in 0..20_000 {
        let mut data = Vec::from(sound);
        for _ in 0..1 + below(&mut rng, 4) {
            let at = below(&mut rng, data.len());
            match below(&mut rng, 4) {
                0 => data[at] = below(&mut rng, 256) as u8,
                1 => data[at] = b"{}[]\",:0-9eE.\\u "[below(&mut rng, 16)],
                2 => drop(data.remove(at)),
                _ => drop(data.drain(at..(at + below(&mut rng, 40)).min(data.len()))),
            }
            if data.is_empty() {
                break;
            }
        }
        add(&mut all, fuzz_request(&data));
    }
    println!("{:?} of {}", all.asks, all.json);
    assert!(all.json > 5000 && all.asks[0] > 2000 && all.asks[1] > 2000, "{:?} of {}", all.asks, all.json);
}

#[test]
fn requests_that_are_too_deep_or_too_large() {
    for open in ["[", "{\"messages\":", "{\"a\":[", "[[[{\"$ref\":"] {
        assert_eq!(fuzz_request(open.repeat(100_000).as_bytes()).asks, [0; 3]);
    }
    // As deep as is read, at every place where something is looked into or copied.
    let deep = |n: usize| "[".repeat(n) + &"]".repeat(n);
    let content =
        |content: &str| r#"{"messages": [{"role": "assistant", "content": HERE}]}"#.replace("HERE", content);
    let beside =
        |more: &str| r#"{"messages": [{"role": "user", "content": "a"}], HERE}"#.replace("HERE", more);
    let function = r#"{"name": "f", "parameters": {"const": HERE}}"#;
    for place in [
        content("HERE"),
        content(r#"[{"type": "tool_use", "name": "f", "input": {"a": HERE}}]"#),
        beside(&format!(
            r#""tools": [{{"type": "function", "function": {function}}}], "tool_choice": "required""#
        )),
        beside(r#""response_format": {"type": "json_object", "schema": {"enum": [HERE]}}"#),
        content(r#""", "tool_calls": [{"function": {"name": "f", "arguments": "{\"a\": HERE}"}}]"#),
    ] {
        for n in [100, 110, 115, 118, 119, 120, 121, 122, 123, 124, 125, 126, 127, 128] {
            fuzz_request(place.replace("HERE", &deep(n)).as_bytes());
        }
        let number = "9".repeat(1_000_000);
        for number in [&number, &format!("1e{number}"), &format!("0.{number}e-{number}")] {
            fuzz_request(place.replace("HERE", number).as_bytes());
        }
        fuzz_request(place.replace("HERE", &format!("\"{}\"", "x".repeat(1_000_000))).as_bytes());
    }
    let key = "k".repeat(1_000_000);
    let seen = fuzz_request(format!(r#"{{"prompt": "a", "logit_bias": {{"{key}": 1}}}}"#).as_bytes());
    assert!(seen.wrong.iter().all(|name| name.len() <= 200) && !seen.wrong.is_empty());
}
