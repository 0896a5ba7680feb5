//! Replies as pieces: stop strings, reasoning and calls, however the text is cut into tokens.

use kinglet::output::{Output, Piece, Wanted};
use kinglet_core::token::Tokenizer;
use kinglet_tests::fuzz_output::{Joined, join, joined};
use kinglet_tests::pieces_vocab::{all_bytes, cut, pieces_file};
use kinglet_tests::random_model::Rng;
use kinglet_tests::vocab::with_tokenizer;

fn with(f: impl Fn(&Tokenizer<'_>, &[Vec<u8>])) {
    for special in [false, true] {
        with_tokenizer(pieces_file(special), |tokenizer| {
            let tokenizer = tokenizer.unwrap();
            f(tokenizer, &all_bytes(tokenizer));
        });
    }
}

fn text(text: &str) -> Piece {
    Piece::Text(text.into())
}

fn reasoning(text: &str) -> Piece {
    Piece::Reasoning(text.into())
}

fn call(index: usize, name: &str, arguments: &str) -> Vec<Piece> {
    vec![Piece::ToolCall { index, name: name.into() }, Piece::Arguments { index, part: arguments.into() }]
}

const TOOLS: Wanted<'_> = Wanted { stops: &[], tools: true, reasoning: false, starts_in_reasoning: false };
const THINKS: Wanted<'_> = Wanted { stops: &[], tools: true, reasoning: true, starts_in_reasoning: false };
const THINKING: Wanted<'_> = Wanted { starts_in_reasoning: true, ..THINKS };

/// `reply` gives `pieces`, cut in many ways.
fn gives(wanted: &Wanted<'_>, reply: &str, pieces: &[Piece], called: usize) {
    with(|tokenizer, bytes| {
        for seed in 0..20 {
            let ids = cut(bytes, reply.as_bytes(), &mut Rng(seed));
            let expected = Joined { pieces: pieces.to_vec(), stopped: None, called };
            assert_eq!(joined(tokenizer, wanted, &ids), expected, "{reply:?}");
        }
    });
}

/// The text before the stop string that is complete first, and which that is, in the plainest way.
fn naive(text: &str, stops: &[String]) -> (String, Option<String>) {
    for (end, _) in text.char_indices().map(|(at, c)| (at + c.len_utf8(), c)) {
        let met = stops.iter().filter(|stop| text[..end].ends_with(&stop[..])).max_by_key(|stop| stop.len());
        if let Some(stop) = met {
            return (text[..end - stop.len()].into(), Some(stop.clone()));
        }
    }
    (text.into(), None)
}

#[test]
fn stop_strings() {
    let sets =
        [&["stop it", "END.\n\n"][..], &["aab", "ab", "b<"], &["abaabaa"], &["é🦀é", "🦀"], &["abcd", "bc"]];
    let letters =
        ["a", "b", "ab", "aa", "c", "d", "é", "🦀", "stop it", "stop", "END.\n\n", "END.\n", "<", "abaab"];
    with(|tokenizer, bytes| {
        let mut rng = Rng(1);
        let mut met = 0;
        for round in 0..3000 {
            let stops: Vec<String> = sets[round % sets.len()].iter().map(|stop| stop.to_string()).collect();
            let parts = (0..rng.number() % 12).map(|_| letters[(rng.number() >> 4) as usize % letters.len()]);
            let reply: String = parts.collect();
            let wanted = Wanted { stops: &stops, ..Wanted::default() };
            let ids = cut(bytes, reply.as_bytes(), &mut rng);
            let mut output = Output::new(tokenizer, &wanted);
            let (mut out, mut seen, mut pieces) = (String::new(), Vec::new(), Vec::new());
            let (expected, stop) = naive(&reply, &stops);
            for &id in &ids {
                output.push(id, &mut pieces).unwrap();
                seen.extend(&bytes[id as usize]);
                for piece in pieces.drain(..) {
                    let Piece::Text(text) = piece else { panic!("{piece:?}") };
                    assert!(!text.is_empty());
                    out.push_str(&text);
                }
                if output.stopped().is_some() {
                    continue;
                }
                // All is out but what may become a stop string, and an incomplete character.
                let whole = String::from_utf8_lossy(&seen).trim_end_matches('\u{FFFD}').to_string();
                let may_be = |at: &usize| stops.iter().any(|stop| stop.starts_with(&whole[*at..]));
                let sure = whole.char_indices().map(|(at, _)| at).find(may_be).unwrap_or(whole.len());
                assert_eq!(out, whole[..sure]);
            }
            output.finish(&mut pieces);
            join(pieces).into_iter().for_each(|piece| match piece {
                Piece::Text(text) => out.push_str(&text),
                other => panic!("{other:?}"),
            });
            assert_eq!((&out, output.stopped()), (&expected, stop.as_deref()), "{reply:?} {stops:?}");
            met += usize::from(stop.is_some());
        }
        assert!((500..2900).contains(&met), "{met}");
    });
}

#[test]
fn an_empty_stop_string_is_none() {
    let stops = [String::new()];
    let wanted = Wanted { stops: &stops, ..Wanted::default() };
    gives(&wanted, "all of it", &[text("all of it")], 0);
}

#[test]
fn calls() {
    let body = "{\"city\": \"Osl\\\"o é}\", \"n\": [1.50, {}, null]}";
    let reply =
        format!("Let me see.\n<tool_call>\n{{\"name\": \"get\", \"arguments\": {body}}}\n</tool_call>");
    let pieces = [vec![text("Let me see.")], call(0, "get", body)].concat();
    gives(&TOOLS, &reply, &pieces, 1);
    // Two of them, and white space where it need not be.
    let second = "<tool_call> { \"name\" :\"b\\u0061\",\n\"arguments\": { } } </tool_call>";
    let pieces = [pieces, call(1, "ba", "{ }")].concat();
    gives(&TOOLS, &format!("{reply}\n{second}"), &pieces, 2);
    gives(&TOOLS, &format!("{reply}{second}\n\nDone."), &[pieces, vec![text("Done.")]].concat(), 2);
    // Not looked for.
    gives(&Wanted::default(), "a<b", &[text("a<b")], 0);
}

#[test]
fn without_tools_tags_are_text() {
    let reply = "<tool_call>\n{}\n</tool_call>";
    with_tokenizer(pieces_file(false), |tokenizer| {
        let tokenizer = tokenizer.unwrap();
        let ids = cut(&all_bytes(tokenizer), reply.as_bytes(), &mut Rng(3));
        assert_eq!(joined(tokenizer, &Wanted::default(), &ids).pieces, [text(reply)]);
    });
}

#[test]
fn calls_in_another_order() {
    let pieces = call(0, "f", "{\"a\":1}");
    gives(&TOOLS, "<tool_call>{\"arguments\": {\"a\": 1}, \"name\": \"f\"}</tool_call>", &pieces, 1);
    gives(&TOOLS, "<tool_call>{\"name\": \"f\", \"arguments\": \"{\\\"a\\\":1}\"}</tool_call>", &pieces, 1);
    gives(&TOOLS, "<tool_call>{\"name\": \"f\"}</tool_call>", &call(0, "f", "{}"), 1);
    gives(
        &TOOLS,
        "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\":1}, \"id\": 5}</tool_call>",
        &pieces,
        1,
    );
    let long = format!("{{\"name\": {}\"f\", \"arguments\": {{\"a\":1}}}}", " ".repeat(5000));
    gives(&TOOLS, &format!("<tool_call>{long}</tool_call>"), &pieces, 1);
}

#[test]
fn what_is_no_call_is_text() {
    for reply in [
        "<tool_call>",
        "<tool_call>\n{\"name\": \"f\", \"argu",
        "<tool_call>no JSON</tool_call> and more",
        "<tool_call>{\"name\": 5, \"arguments\": {}}</tool_call>",
        "<tool_call>{\"name\": \"\", \"arguments\": {}}</tool_call>",
        "<tool_call>{\"name\": \"f\", \"arguments\": [1]}</tool_call>",
        "<tool_call>{\"name\": \"f\"",
        "a < b, <tool_, </tool_call>, <tool_call",
    ] {
        gives(&TOOLS, reply, &[text(reply)], 0);
    }
    // Behind it calls are calls again.
    let (bad, good) =
        ("<tool_call>x</tool_call>", "<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>");
    gives(&TOOLS, &format!("{bad}{good}"), &[vec![text(bad)], call(0, "f", "{}")].concat(), 1);
}

#[test]
fn calls_that_break_off() {
    let head = "<tool_call>\n{\"name\": \"f\", \"arguments\": ";
    gives(&TOOLS, &format!("{head}{{\"a\": [1, "), &call(0, "f", "{\"a\": [1, "), 0);
    gives(&TOOLS, &format!("{head}{{\"a\": 1}}"), &call(0, "f", "{\"a\": 1}"), 1);
    gives(&TOOLS, &format!("{head}{{\"a\": 1}}}}\n"), &call(0, "f", "{\"a\": 1}"), 1);
    // No longer JSON: the rest is text, and the next call has the next number.
    let pieces = [call(0, "f", "{\"a\": "), vec![text("oops</tool_call>")], call(1, "f", "{}")].concat();
    gives(&TOOLS, &format!("{head}{{\"a\": oops</tool_call>\n{head}{{}}}}\n</tool_call>"), &pieces, 1);
}

#[test]
fn reasoning_and_answer() {
    gives(&THINKS, "<think>\nHm.\n\nSo.\n</think>\n\nYes.\n", &[reasoning("Hm.\n\nSo."), text("Yes.\n")], 0);
    gives(&THINKS, "\n <think>Hm.</think>", &[reasoning("Hm.")], 0);
    gives(&THINKS, "<think>\n\n</think>\n\nYes.", &[text("Yes.")], 0);
    gives(&THINKS, "<think>\nHm.\n", &[reasoning("Hm.")], 0);
    gives(&THINKS, "\nThe tag <think> is text.", &[text("\nThe tag <think> is text.")], 0);
    gives(&THINKS, "<thi", &[text("<thi")], 0);
    gives(&THINKING, "\nHm <b></thin.\n</think>\nYes.", &[reasoning("Hm <b></thin."), text("Yes.")], 0);
    gives(&THINKING, "<think>\nHm.</think>Yes.", &[reasoning("Hm."), text("Yes.")], 0);
    let reply =
        "<think>a <tool_call></think>\n\n<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>";
    gives(&THINKS, reply, &[vec![reasoning("a <tool_call>")], call(0, "f", "{}")].concat(), 1);
}

#[test]
fn stop_strings_are_looked_for_in_the_answer() {
    let stops = ["\n\n".to_string(), "<tool_call>".into()];
    let wanted = Wanted { stops: &stops[..1], ..THINKS };
    with(|tokenizer, bytes| {
        let met = |wanted: &Wanted<'_>, reply: &str, seed| {
            joined(tokenizer, wanted, &cut(bytes, reply.as_bytes(), &mut Rng(seed)))
        };
        for seed in 0..20 {
            let joined = met(&wanted, "<think>\na\n\nb\n</think>\n\nYes.\n\nNo.", seed);
            assert_eq!(joined.pieces, [reasoning("a\n\nb"), text("Yes.")]);
            assert_eq!(joined.stopped.as_deref(), Some("\n\n"));
            let reply = "<tool_call>{\"name\":\"f\",\"arguments\":{\n\n}}</tool_call>a\n\nb";
            let joined = met(&wanted, reply, seed);
            assert_eq!(
                (joined.pieces, joined.called),
                ([call(0, "f", "{\n\n}"), vec![text("a")]].concat(), 1)
            );
            // What is both a tag and a stop string stops.
            let joined = met(&Wanted { stops: &stops, ..TOOLS }, "a<tool_call>b", seed);
            assert_eq!((joined.pieces, joined.stopped.as_deref()), (vec![text("a")], Some("<tool_call>")));
            // So does one in what turned out to be no call.
            let joined = met(&wanted, "<tool_call>a\n\nb</tool_call>c", seed);
            assert_eq!(
                (joined.pieces, joined.stopped.as_deref()),
                (vec![text("<tool_call>a")], Some("\n\n"))
            );
        }
    });
}

/// Arguments go out as they come, not when they end.
#[test]
fn arguments_come_in_parts() {
    with(|tokenizer, _| {
        let mut output = Output::new(tokenizer, &TOOLS);
        let arguments = "{\"key\": \"some long text\"}";
        let reply = format!("<tool_call>\n{{\"name\": \"f\", \"arguments\": {arguments}}}\n</tool_call>");
        let start = reply.find(arguments).unwrap();
        let (mut pieces, mut parts) = (Vec::new(), 0);
        for (at, byte) in reply.bytes().enumerate() {
            output.push(u32::from(byte), &mut pieces).unwrap();
            let is_inside = (start..start + arguments.len()).contains(&at);
            assert_eq!(
                pieces.iter().any(|piece| matches!(piece, Piece::Arguments { .. })),
                is_inside,
                "{at}"
            );
            parts += pieces.drain(..).count();
        }
        assert_eq!((parts, output.called()), (1 + arguments.len(), 1));
        assert!(output.push(1 << 20, &mut pieces).is_err());
    });
}

/// Special tokens show nothing; characters that are cut show whole or as U+FFFD.
#[test]
fn special_tokens_and_broken_characters() {
    with_tokenizer(pieces_file(true), |tokenizer| {
        let tokenizer = tokenizer.unwrap();
        let end = tokenizer.eos();
        let ids = [0x61, end, 0xC3, end, 0xA9, 0xF0, 0x9F];
        let joined = joined(tokenizer, &Wanted::default(), &ids);
        assert_eq!(joined.pieces, [text("aé\u{FFFD}")]);
    });
}
