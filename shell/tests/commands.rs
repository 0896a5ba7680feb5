//! What the commands answer, on tiny models.

mod common;

use common::{qwen2, qwen3, run, run_with, vocabulary, words, write};
use serde_json::Value;

#[test]
fn a_reply_is_on_standard_output_and_its_numbers_are_the_last_line() {
    let line = format!("run -m {} -p Hi -n 7 --ignore-eos --temp 0", qwen3());
    let ran = run(&words(&line));
    assert_eq!(ran.code, 0, "{}", ran.err);
    let numbers = ran.err.lines().last().unwrap();
    let rest = numbers.strip_prefix("[kinglet] prompt ").unwrap();
    let parts: Vec<&str> = rest.split(' ').collect();
    assert!(
        matches!(
            parts[..],
            [
                n, "tokens", p, "tok/s,", "first", "token", "after", t, "ms,", "reply", "7", "tokens", r,
                "tok/s,",
                "peak", "memory", m, "MB"
            ]
            if n.parse::<usize>().is_ok_and(|n| n > 0) && p.contains('.') && r.contains('.')
                && t.parse::<usize>().is_ok()
                && m.parse::<usize>().is_ok_and(|m| m > 0)
        ),
        "{numbers}"
    );
    let quiet = run(&words(&format!("{line} --quiet")));
    assert_eq!((quiet.out, quiet.err.as_str()), (ran.out, ""));
}

#[test]
fn one_seed_gives_one_text_whatever_computes_it() {
    let line = format!("run -m {} -p Hi -n 12 --ignore-eos --temp 2 --quiet", qwen3());
    let with = |more: &str| run(&words(&format!("{line} {more}"))).ok();
    let text = with("--seed 7 --threads 1");
    assert_eq!(with("--seed 7 --threads 3 --batch 1"), text);
    assert_eq!(with("--seed 7 --kernels scalar"), text);
    assert_ne!(with("--seed 8"), text);
}

#[test]
fn logits_and_hash_do_not_depend_on_how_they_are_computed() {
    for model in [qwen2(), qwen3()] {
        for kv in ["q8", "f32"] {
            let ids: Vec<String> = (0..70).map(|i| (i * 7 % 200).to_string()).collect();
            let line = format!("logits -m {model} --ids {} --kv-type {kv}", ids.join(","));
            let with = |more: &str| run(&words(&format!("{line} {more}")));
            let all = with("--all -o -").bytes;
            let hash = format!("{}\n", blake3::hash(&all).to_hex());
            for more in ["", "--threads 1 --batch 1", "--batch 33 --threads 4", "--kernels scalar --all"] {
                assert_eq!(with(&format!("--hash {more}")).ok(), hash, "{more}");
            }
            let row = all.len() / 70;
            assert_eq!(with("-o - --batch 7").bytes, all[all.len() - row..]);
            let file = write(&format!("logits-{kv}"), b"");
            assert_eq!(with(&format!("--hash -o {file}")).ok(), hash);
            assert_eq!(std::fs::read(&file).unwrap(), all[all.len() - row..]);
        }
    }
}

#[test]
fn greedy_ids_are_those_of_the_logits() {
    let model = qwen3();
    let line = run(&words(&format!("generate -m {model} --ids 5,6,7 -n 4 --threads 2"))).ok();
    let ids: Vec<&str> = line.trim_end().split(',').collect();
    assert_eq!((ids.len(), line.lines().count()), (4, 1));
    let file = write("ids.txt", format!("[5, 6, 7, {}]\n", ids[..3].join(", ")).as_bytes());
    let logits = run(&words(&format!("logits -m {model} --ids-file {file} -o -"))).bytes;
    let logits: Vec<f32> = logits.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect();
    let best = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let best = logits.iter().position(|x| *x == best).unwrap();
    assert_eq!(ids[3], best.to_string());
}

#[test]
fn perplexity_is_that_of_the_logits() {
    let (model, file) = (qwen2(), write("text.txt", "The kinglet sings, 12 times.".as_bytes()));
    let said = run(&words(&format!("perplexity -m {model} --file {file}"))).ok();
    let value = |name: &str| -> f64 {
        said.lines().find_map(|l| l.strip_prefix(name)).unwrap().trim().parse().unwrap()
    };
    let text =
        run_with(&words(&format!("tokenize -m {model} --jsonl")), b"\"The kinglet sings, 12 times.\"").ok();
    let ids: Vec<usize> = serde_json::from_str(&text).unwrap();
    assert_eq!(value("tokens"), ids.len() as f64);
    let all = run(&words(&format!("logits -m {model} --all -o - --ids {}", text.trim()))).bytes;
    let all: Vec<f64> = all.as_chunks().0.iter().map(|b| f64::from(f32::from_le_bytes(*b))).collect();
    let rows = all.chunks(all.len() / ids.len());
    let nll: f64 =
        rows.zip(&ids[1..]).map(|(row, id)| row.iter().map(|x| x.exp()).sum::<f64>().ln() - row[*id]).sum();
    let mean = nll / (ids.len() - 1) as f64;
    assert!((value("mean_nll") - mean).abs() < 2e-6, "{said}{mean}");
    assert!((value("perplexity") / mean.exp() - 1.0).abs() < 1e-5, "{said}");
}

#[test]
fn a_chat_keeps_its_history_and_its_kv() {
    let line = words(&format!("chat -m {} --temp 0 -n 4 --ignore-eos --ctx 400", qwen2()));
    let ran = run_with(&line, b"Hello\n/help\n\nAnd more\n/clear\nHello\n/nonsense\n/exit\nnever read\n");
    assert_eq!(ran.code, 0, "{}", ran.err);
    let reports: Vec<&str> = ran.err.lines().filter(|l| l.starts_with("[kinglet] prompt ")).collect();
    let reused: Vec<usize> = ran
        .err
        .lines()
        .filter_map(|l| l.strip_prefix("[KV-PREFIX] reused ")?.strip_suffix(" tokens")?.parse().ok())
        .collect();
    // Three turns; the second goes on from the first, the third is the first again.
    assert_eq!((reports.len(), reused.len()), (3, 2), "{}", ran.err);
    let first: usize = reports[0].split(' ').nth(2).unwrap().parse().unwrap();
    assert!(reused[0] >= first && reused[1] == first - 1, "{}", ran.err);
    assert!(ran.err.contains("/system TEXT") && ran.err.contains("unknown command /nonsense"), "{}", ran.err);
    // Reused or computed anew: the same reply.
    let first_reply = run_with(&line, b"Hello").ok();
    assert!(ran.out.starts_with(&first_reply) && ran.out.ends_with(&first_reply), "{}", ran.out);
}

#[test]
fn a_full_context_is_said_and_the_chat_goes_on() {
    let line = words(&format!("chat -m {} --temp 0 --ignore-eos --ctx 128 --quiet", qwen2()));
    let long = "word ".repeat(80);
    let ran = run_with(&line, format!("Hi\n{long}\n/clear\nHi\n").as_bytes());
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert_eq!(ran.err.matches("the reply is cut after 128 tokens in all").count(), 2, "{}", ran.err);
    assert!(ran.err.contains("context full: with this message the conversation has"), "{}", ran.err);
}

#[test]
fn a_vocabulary_is_enough_for_texts() {
    let path = vocabulary();
    let lines =
        |line: &str, input: &str| run_with(&words(&format!("{line} -m {path} --jsonl")), input.as_bytes());
    let ids = lines("tokenize", "\"Hello world\"\n\"<|im_end|>\"\n").ok();
    assert_eq!(ids, "[9707,1879]\n[151645]\n");
    assert_eq!(lines("detokenize", &ids).ok(), "\"Hello world\"\n\"<|im_end|>\"\n");
    assert_eq!(lines("detokenize --skip-special", &ids).ok(), "\"Hello world\"\n\"\"\n");
    assert_ne!(lines("tokenize --no-special", "\"<|im_end|>\"").ok(), "[151645]\n");
    assert!(lines("tokenize", "nonsense\n").line(1).contains("line 1"));
    let chat = "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}]}\n";
    let prompt = lines("template --family qwen3", chat).ok();
    assert_eq!(prompt, "\"<|im_start|>user\\nHi<|im_end|>\\n\"\n");
    let wrong = lines("template --family qwen3", "{}\n");
    assert_eq!(wrong.code, 1);
    assert!(wrong.out.starts_with("{\"error\": ") && wrong.err.contains("1 of 1 lines"), "{}", wrong.err);
}

#[test]
fn inspect_says_what_it_can_about_any_file() {
    for (path, runs) in [(qwen3(), true), (qwen2(), true), (vocabulary(), false)] {
        let report: Value = serde_json::from_str(&run(&["inspect", &path, "--json"]).ok()).unwrap();
        assert_eq!(report["runs"], runs, "{path}");
        assert_eq!(report["memory"].as_array().map(Vec::len), runs.then_some(10));
        assert_eq!(report["bytes"], std::fs::metadata(&path).unwrap().len());
        let text = run(&["inspect", &path]).ok();
        assert!(text.contains("Metadata (") && text.contains("tokenizer.ggml.tokens"));
        assert_eq!(text.contains("runs        yes"), runs, "{text}");
        assert_eq!(text.contains("\nMemory\n"), runs);
    }
}

#[test]
fn bench_measures_both_ways() {
    let line = format!("bench -m {} --pp 20 --tg 3 --reps 2 --threads 2", qwen3());
    let tests: Value = serde_json::from_str(&run(&words(&format!("{line} --json"))).ok()).unwrap();
    for (test, name) in tests.as_array().unwrap().iter().zip(["pp20", "tg3"]) {
        assert_eq!(test["test"], name);
        assert_eq!(test["threads"], 2);
        assert_eq!(test["samples"].as_array().unwrap().len(), 2);
        assert!(test["tokens_per_second"].as_f64().unwrap() > 0.0);
    }
    let deep = run(&words(&format!("{line} --depth 9 --no-warmup --json"))).ok();
    let deep: Value = serde_json::from_str(&deep).unwrap();
    for (test, name) in deep.as_array().unwrap().iter().zip(["pp20@9", "tg3@9"]) {
        assert_eq!((&test["test"], &test["n_depth"]), (&name.into(), &9.into()));
        assert_eq!(test["samples"].as_array().unwrap().len(), 2);
    }
    // One thread for each CPU of the list.
    let cpu = kinglet::cpus::Cpus::allowed().ids[0];
    let line = format!("bench -m {} --pp 4 --tg 0 --reps 1 --cpus {cpu} --json", qwen3());
    let tests: Value = serde_json::from_str(&run(&words(&line)).ok()).unwrap();
    assert_eq!(tests[0]["threads"], 1);
    let line = format!("bench -m {} --pp 20 --tg 3 --reps 2 --threads 2", qwen3());
    let table = run(&words(&line)).ok();
    assert!(table.lines().count() == 4 && table.contains(" pp20 |") && table.contains(" ± "), "{table}");
}
