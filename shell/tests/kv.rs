//! `kinglet kv` as its user meets it: what is there, what is wrong, what goes, what is copied.

mod common;

use common::cache::{Cache, ago, directory, files, identity, set_time};
use common::{Ran, run, words, write};
use kinglet::store::{Found, Lines, Options, Store};
use kinglet_core::KvType;
use kinglet_core::gguf::{Gguf, Meta, TensorInfo};
use kinglet_core::kv::{BlockId, ContentId, Identity};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

/// `kinglet kv` with these words, in the directory of a cache.
fn kv(cache: &Cache, line: &str) -> Ran {
    let mut args = words(&format!("kv {line} --disk-kv"));
    args.push(cache.arg().to_string());
    run(&args)
}

fn report(cache: &Cache) -> Value {
    serde_json::from_str(&kv(cache, "ls --json").ok()).unwrap()
}

/// The conversations of the first model.
fn rows(cache: &Cache) -> Vec<Value> {
    report(cache)["models"][0]["conversations"].as_array().unwrap().clone()
}

fn tokens(range: core::ops::Range<u32>) -> Vec<u32> {
    range.collect()
}

/// Two conversations with a head of two blocks: one ends with a whole block, the other with a tail.
fn two(name: &str) -> (Cache, Vec<BlockId>, Vec<BlockId>) {
    let cache = Cache::new(name);
    let whole = cache.chat(&tokens(0..96), ago(1000, 7));
    let with_tail = cache.chat(&[tokens(0..64), tokens(500..537)].concat(), ago(50, 3));
    (cache, whole, with_tail)
}

const BLOCK: u64 = 4096 + 1280;
/// 5 positions are two groups of four.
const TAIL: u64 = 4096 + 1280 / 4;

#[test]
fn ls_counts_what_is_there_and_what_is_shared() {
    let (cache, whole, with_tail) = two("ls");
    // What others use the head for says nothing about these two.
    set_time(&cache.block(&whole[0]), ago(0, 99));
    let rows = rows(&cache);
    assert_eq!(rows.len(), 2);
    let number = |row: usize, name: &str| rows[row][name].as_u64().unwrap();
    assert_eq!(rows[0]["id"], with_tail[3].to_string(), "the last used first");
    assert_eq!(rows[1]["id"], whole[2].to_string());
    let names = ["tokens", "blocks", "bytes", "shared_bytes", "hits"];
    assert_eq!(names.map(|name| number(0, name)), [101, 4, 3 * BLOCK + TAIL, 2 * BLOCK, 3]);
    assert_eq!(names.map(|name| number(1, name)), [96, 3, 3 * BLOCK, 2 * BLOCK, 7]);
    assert!((50..100).contains(&number(0, "age_seconds")), "{rows:?}");
    assert_eq!(rows[0]["token_ids"].as_array().unwrap().len(), 8);
    let report = report(&cache);
    assert_eq!((report["files"].as_u64(), report["bytes"].as_u64()), (Some(5), Some(4 * BLOCK + TAIL)));
    assert_eq!(report["models"][0]["kv_type"], "q8");
    let text = kv(&cache, "ls").ok();
    let line = format!("  {}      101", &with_tail[3].to_string()[..8]);
    assert!(text.contains(&line), "{text}");
    assert!(text.contains("ids 0 1 2 3 4 5 6 7\n"), "{text}");
    assert!(text.ends_with("\n2 conversations in 5 files, 26 kB\n"), "{text}");
}

#[test]
fn ls_names_orphans_and_leftovers() {
    let (cache, whole, _) = two("leftovers");
    let folder = cache.block(&whole[1]).parent().unwrap().to_path_buf();
    fs::rename(cache.block(&whole[1]), folder.join(format!("{}.kv.bad", whole[1]))).unwrap();
    fs::write(folder.join(format!("{}.0123456789abcdef.tmp", whole[1])), b"half").unwrap();
    fs::write(cache.block(&whole[0]), b"short").unwrap();
    fs::write(folder.join("notes"), b"mine").unwrap();
    let text = kv(&cache, "ls").ok();
    assert_eq!(text.matches("(orphan) ids").count(), 2, "{text}");
    for part in ["1 set aside (.bad)", "1 being written (.tmp)", "1 damaged ('kinglet kv fsck' says more)"] {
        assert!(text.contains(part), "{text}");
    }
    let report = report(&cache);
    assert_eq!(report["foreign"], 1);
    assert!(rows(&cache).iter().all(|row| row["orphan"] == true));
}

fn identity_of(bytes: &[u8]) -> Identity {
    let counts = Gguf::counts(bytes).unwrap();
    let (mut metas, mut tensors) = (vec![Meta::EMPTY; counts.metas], vec![TensorInfo::EMPTY; counts.tensors]);
    let gguf = Gguf::parse(bytes, &mut metas, &mut tensors).unwrap();
    let config = kinglet_core::config::Config::from_gguf(&gguf).unwrap();
    Identity::of(&gguf, bytes, &config, KvType::F32)
}

/// The ids of a text, by the binary itself.
fn encode(model: &str, text: &str) -> Vec<u32> {
    let line = serde_json::to_string(text).unwrap();
    let out = common::run_with(&["tokenize", "-m", model, "--jsonl"], line.as_bytes()).ok();
    serde_json::from_str(&out).unwrap()
}

#[test]
fn ls_shows_the_users_first_words() {
    let model = common::qwen3();
    let identity = identity_of(&fs::read(&model).unwrap());
    let cache = Cache::of(&directory("words"), identity);
    let system =
        "<|im_start|>system\nYou are a bird. You sing, and you answer in songs, as birds do.<|im_end|>\n";
    let chat = format!(
        "{system}<|im_start|>user\nWhy \u{1b}[31m is the sky blue?<|im_end|>\n<|im_start|>assistant\n"
    );
    let plain = "Once upon a time, in a land far away, there lived a queen who could not sleep at all";
    cache.chat(&encode(&model, &chat), ago(1, 0));
    cache.chat(&encode(&model, plain), ago(2, 0));
    let check = |text: &str| {
        assert!(text.contains("  Why \\u{1b}[31m is the sky blue?\n"), "{text}");
        assert!(text.contains("  Once upon a time, in a land far away,...\n"), "{text}");
    };
    check(&kv(&cache, &format!("ls -m {model}")).ok());
    assert!(kv(&cache, "ls").ok().contains("  ids "));
    // Without -m, by what stands beside the blocks.
    let about = |file: &str| {
        fs::write(cache.folder().join("about"), format!("model: Tiny\nfile: {file}\n")).unwrap();
    };
    about(&model);
    let text = kv(&cache, "ls").ok();
    check(&text);
    assert!(text.starts_with("Tiny, kv f32, "), "{text}");
    // The file that is named there is another one by now, or none.
    let mut bytes = fs::read(&model).unwrap();
    let key = b"tokenizer.ggml.padding_token_id";
    let at = bytes.windows(key.len()).position(|window| window == key).unwrap() + key.len() + 4;
    bytes[at] ^= 1;
    let other = write("other-tokenizer.gguf", &bytes);
    for file in [&other, "no/such/file"] {
        about(file);
        let text = kv(&cache, "ls").ok();
        assert!(!text.contains("sky") && text.contains("  ids "), "{text}");
    }
    let ran = kv(&cache, &format!("ls -m {other}"));
    assert!(ran.err.contains("no cache here has its tokenizer"), "{}", ran.err);
    assert!(ran.ok().contains("  ids "));
    // Other weights, same words.
    check(&kv(&cache, &format!("ls -m {}", common::qwen2())).ok());
}

/// Runs fsck on `cache`, which has one thing that is wrong; then again, to put it right.
#[track_caller]
fn one_wrong(cache: &Cache, part: &str, count: usize) {
    let before = files(&cache.dir);
    let ran = kv(cache, "fsck");
    assert_eq!(ran.code, 1, "{}{}", ran.out, ran.err);
    assert!(ran.err.contains(&format!(": {count} wrong; run it again with --fix")), "{}", ran.err);
    assert!(ran.out.contains(part), "{}", ran.out);
    assert_eq!(ran.out.lines().count(), count + 1, "{}", ran.out);
    assert!(files(&cache.dir) == before, "nothing was changed");
    let fixed = kv(cache, "fsck --fix").ok();
    assert!(fixed.contains(&format!("{count} wrong, {count} put right")), "{fixed}");
    assert!(kv(cache, "fsck").ok().contains(" 0 wrong"));
}

fn flip(path: &Path, at: usize) {
    let mut bytes = fs::read(path).unwrap();
    bytes[at] ^= 1;
    fs::write(path, bytes).unwrap();
}

#[test]
fn fsck_finds_every_kind_of_damage() {
    let (cache, ..) = two("sound");
    assert_eq!(kv(&cache, "fsck").ok(), "5 files, 26 kB, checked: 0 wrong\n");

    let damage = |name: &str, part: &str, spoil: &dyn Fn(&Path)| {
        let (cache, whole, _) = two(name);
        let last = cache.block(&whole[2]);
        spoil(&last);
        one_wrong(&cache, part, 1);
        assert!(last.with_extension("kv.bad").exists() && !last.exists());
        assert_eq!(rows(&cache).len(), 1);
    };
    damage("magic", "magic", &|path| flip(path, 0));
    damage("header", "header checksum does not match", &|path| flip(path, 200));
    damage("payload", "payload checksum does not match", &|path| flip(path, 4096 + 700));
    damage("cut", "has 5375 bytes, by its header 5376", &|path| {
        let bytes = fs::read(path).unwrap();
        fs::write(path, &bytes[..bytes.len() - 1]).unwrap();
    });
    damage("cut-header", "ends after 100 of 4096 bytes", &|path| {
        let bytes = fs::read(path).unwrap();
        fs::write(path, &bytes[..100]).unwrap();
    });
    damage("empty", "ends after 0 of 4096 bytes", &|path| fs::write(path, b"").unwrap());
    damage("longer", "has 5377 bytes, by its header 5376", &|path| {
        let mut bytes = fs::read(path).unwrap();
        bytes.push(0);
        fs::write(path, bytes).unwrap();
    });
}

#[test]
fn fsck_finds_files_that_are_not_what_their_names_say() {
    let (cache, whole, _) = two("names");
    let contents: Vec<ContentId> = (900..932).map(ContentId::token).collect();
    let path = cache.block(&whole[2]);
    fs::write(&path, cache.encoded(&whole[1], 2, &contents)).unwrap();
    one_wrong(&cache, "its name is not its id", 1);
    fs::write(&path, cache.encoded(&whole[1], 2, &contents[..5])).unwrap();
    one_wrong(&cache, "its name is not its id", 1);

    let tail = cache.tail(&whole[0]);
    fs::create_dir_all(tail.parent().unwrap()).unwrap();
    fs::write(&tail, cache.encoded(&whole[0], 1, &contents)).unwrap();
    one_wrong(&cache, "has 32 positions; its name says otherwise", 1);

    // Of another model, and of this one with another position.
    let other =
        Cache { fingerprint: identity(9).fingerprint(), identity: identity(9), dir: cache.dir.clone() };
    let id = whole[1].child(&contents);
    fs::create_dir_all(cache.block(&id).parent().unwrap()).unwrap();
    fs::write(cache.block(&id), other.encoded(&whole[1], 2, &contents)).unwrap();
    one_wrong(&cache, "another fingerprint than its folder's", 1);
    fs::write(cache.block(&id), cache.encoded(&whole[1], 7, &contents)).unwrap();
    one_wrong(&cache, "position 7 does not follow that of the block before it", 1);
    fs::write(cache.block(&id), cache.encoded(&whole[1], 0, &contents)).unwrap();
    one_wrong(&cache, "position 0 does not follow that of the block before it", 1);
}

#[test]
fn fsck_removes_what_cannot_be_reached() {
    let (cache, whole, with_tail) = two("orphans");
    // After a damaged block, and after one that is not there.
    flip(&cache.block(&whole[1]), 5000);
    one_wrong(&cache, &format!("orphan: the block before it, {}, is missing or of no use", whole[1]), 4);
    assert!(!cache.block(&whole[2]).exists() && !cache.tail(&with_tail[2]).exists());
    assert_eq!(rows(&cache).len(), 1);
    let last = cache.chat(&tokens(2000..2096), ago(9, 0));
    fs::remove_file(cache.block(&last[0])).unwrap();
    one_wrong(&cache, "orphan", 2);
}

#[test]
fn fsck_sees_to_what_stands_beside_blocks() {
    let (cache, whole, _) = two("beside");
    let path = cache.folder().join("identity");
    let sound = fs::read(&path).unwrap();
    flip(&path, 50);
    one_wrong(&cache, "identity: header checksum does not match", 1);
    assert!(!path.exists());
    fs::write(&path, kinglet_core::kv::file::encode_identity(&identity(1))).unwrap();
    one_wrong(&cache, "identity: stands for", 1);
    fs::write(&path, sound).unwrap();
    let fresh = cache.block(&whole[0]).with_extension("0123456789abcdef.tmp");
    fs::write(&fresh, b"half").unwrap();
    assert!(kv(&cache, "fsck").ok().contains(" 0 wrong"));
    set_time(&fresh, ago(4000, 0));
    one_wrong(&cache, "was never finished; its writer is gone", 1);
    assert!(!fresh.exists());
}

#[test]
fn what_is_not_ours_is_neither_opened_nor_touched() {
    let (cache, whole, _) = two("foreign");
    let outside = write("outside.kv", b"of somebody else");
    let folder = cache.block(&whole[0]).parent().unwrap().to_path_buf();
    let first = whole[0].to_string()[..2].to_string();
    let named = |end: &str| folder.join(format!("{first}{}{end}", "0".repeat(30)));
    symlink(&outside, named(".kv")).unwrap();
    symlink(&outside, named(".tail.bad")).unwrap();
    symlink(&outside, named(".0123456789abcdef.tmp")).unwrap();
    fs::create_dir(named(".tail")).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(named(".kv.bad")).status().unwrap().success());
    symlink(&outside, cache.dir.join("0".repeat(32))).unwrap();
    let free =
        (0..=255).map(|i| format!("{i:02x}")).find(|name| !cache.folder().join(name).exists()).unwrap();
    symlink(&folder, cache.folder().join(&free)).unwrap();
    fs::write(cache.dir.join("README"), b"x").unwrap();
    fs::write(folder.join("x.kv"), b"x").unwrap();
    fs::write(cache.dir.join("written"), b"1 2").unwrap();
    let report = report(&cache);
    assert_eq!((report["files"].as_u64(), report["damaged"].as_u64()), (Some(5), Some(0)), "{report}");
    assert_eq!(report["foreign"], 9, "{report}");
    assert!(kv(&cache, "fsck --fix").ok().contains(", 9 not ours, left alone"));
    assert!(kv(&cache, "rm --all").ok().starts_with("removed 2 conversations: 5 files"));
    assert_eq!(fs::read(&outside).unwrap(), b"of somebody else");
    for end in [".kv", ".tail.bad", ".0123456789abcdef.tmp", ".tail", ".kv.bad"] {
        assert!(fs::symlink_metadata(named(end)).is_ok(), "{end}");
    }
    assert!(folder.join("x.kv").exists() && cache.dir.join("README").exists());
}

#[test]
fn rm_keeps_what_others_need() {
    let (cache, whole, with_tail) = two("rm");
    let id = &whole[2].to_string()[..10];
    let before = files(&cache.dir);
    assert_eq!(kv(&cache, &format!("rm {id} --dry-run")).ok(), "would remove 1 conversation: 1 file, 6 kB\n");
    assert!(files(&cache.dir) == before);
    assert_eq!(kv(&cache, &format!("rm {id}")).ok(), "removed 1 conversation: 1 file, 6 kB\n");
    assert_eq!(rows(&cache)[0]["id"], with_tail[3].to_string());
    assert!(kv(&cache, "fsck").ok().contains("4 files, "));
    let upper = with_tail[3].to_string().to_uppercase();
    assert_eq!(kv(&cache, &format!("rm {upper} {upper}")).ok(), "removed 1 conversation: 4 files, 21 kB\n");
    assert!(files(&cache.folder()).len() == 1, "the identity alone");
    assert!(kv(&cache, "ls").ok().contains("no conversations"));
}

#[test]
fn rm_of_all_of_a_head_takes_the_head() {
    let (cache, whole, with_tail) = two("heads");
    let third = cache.chat(&tokens(7000..7032), ago(5, 0));
    let out = kv(&cache, &format!("rm {} {}", whole[2], with_tail[3])).ok();
    assert_eq!(out, "removed 2 conversations: 5 files, 26 kB\n");
    assert_eq!(rows(&cache)[0]["id"], third[0].to_string());
}

#[test]
fn rm_by_age_by_model_and_of_bad_files() {
    let (cache, ..) = two("kinds");
    let other = Cache::of(&cache.dir, identity(1));
    other.chat(&tokens(0..40), ago(1_000_000, 0));
    let bad = cache.folder().join("00").join(format!("{}.kv.bad", "0".repeat(32)));
    fs::create_dir_all(bad.parent().unwrap()).unwrap();
    fs::write(&bad, b"bad").unwrap();
    assert_eq!(
        kv(&cache, "rm --older-than 7d --dry-run").ok(),
        "would remove 1 conversation: 2 files, 10 kB\n"
    );
    let digits = &cache.fingerprint.to_string()[..8];
    let line = format!("rm --older-than 15min --model {digits}");
    assert_eq!(kv(&cache, &line).ok(), "removed 1 conversation: 1 file, 6 kB\n");
    assert_eq!(kv(&cache, &line).ok(), "removed 0 conversations: 0 files, 0\n");
    assert_eq!(kv(&cache, "rm --bad").ok(), "removed 1 file, 1 kB\n");
    assert!(!bad.exists());
    let line = format!("rm --model {}", other.fingerprint);
    assert_eq!(kv(&cache, &line).ok(), "removed 1 conversation: 2 files, 10 kB\n");
    assert_eq!(kv(&cache, "rm --all").ok(), "removed 1 conversation: 4 files, 21 kB\n");
}

#[test]
fn ids_that_fit_several_or_none_are_refused() {
    let cache = Cache::new("ids");
    let ids: Vec<String> =
        (0..40).map(|i| cache.chat(&tokens(i..i + 32), ago(9, 0))[0].to_string()).collect();
    let first = |id: &String| id.as_bytes()[0];
    let twice =
        ids.iter().find(|id| ids.iter().filter(|other| first(other) == first(id)).count() > 1).unwrap();
    let said = kv(&cache, &format!("rm {}", &twice[..1])).line(1);
    assert!(said.contains("is the beginning of several ids; write more digits:"), "{said}");
    assert!(said.contains(&twice[..8]), "{said}");
    let said = kv(&cache, "rm xyz").line(1);
    assert!(said.contains("no conversation has an id that begins with 'xyz'"), "{said}");
    assert!(kv(&cache, "rm --model f00d").line(1).contains("no fingerprint begins so"));
    let head = cache.chat(&tokens(5000..5064), ago(9, 0));
    let said = kv(&cache, &format!("rm {}", head[0])).line(1);
    assert!(said.contains("is a block inside a conversation"), "{said}");
    assert_eq!(rows(&cache).len(), 41);
}

#[test]
fn an_exported_conversation_is_whole_and_can_be_used() {
    let (cache, _, with_tail) = two("from");
    fs::write(cache.folder().join("about"), "model: Two\n").unwrap();
    let other = Cache { dir: directory("to").join("new"), ..Cache::of(&cache.dir, cache.identity) };
    let line = format!("export {} -o {}", &with_tail[3].to_string()[..12], other.arg());
    let said = kv(&cache, &line).ok();
    assert!(said.ends_with("new: 4 files, 21 kB; 0 were there\n"), "{said}");
    assert!(kv(&other, "fsck").ok().starts_with("4 files, 21 kB, checked: 0 wrong"));
    // Byte for byte what it was.
    for (path, bytes) in files(&other.folder()) {
        let from = cache.folder().join(path.strip_prefix(other.folder()).unwrap());
        assert!(fs::read(&from).unwrap() == bytes, "{}", from.display());
    }
    assert!(kv(&other, "ls").ok().starts_with("Two, kv q8, "));
    assert!(kv(&cache, &line).ok().ends_with("0 files, 0; 4 were there\n"));
    // As an engine reads it.
    let options = Options { lines: Lines::Quiet, ..Options::new(other.dir.clone()) };
    let store = Store::on_disk(options, other.identity, String::new(), 1).unwrap();
    let all = [tokens(0..64), tokens(500..537)].concat();
    let contents: Vec<ContentId> = all.iter().map(|token| ContentId::token(*token)).collect();
    let (mut parent, mut block) = (other.root(), vec![0; 1280]);
    for (position, (contents, id)) in (0..).zip(contents.chunks(32).zip(&with_tail)) {
        assert_eq!(store.find(&parent, position, contents, &mut block), Found::Hit);
        assert!(contents.len() < 32 || block == other.memory(id));
        parent = *id;
    }
}

#[test]
fn what_a_run_has_saved_is_listed_checked_copied_and_used() {
    let model = common::qwen3();
    let [dir, copy] = ["run", "run-copy"].map(directory);
    let chat = |dir: &Path| {
        let prompt =
            "Why is the sky blue, and why is it red in the evening, and what colour has it at night?";
        let args = [
            "run",
            "-m",
            &model,
            "-p",
            prompt,
            "-n",
            "40",
            "--temp",
            "0",
            "--disk-kv",
            dir.to_str().unwrap(),
        ];
        let ran = run(&args);
        assert_eq!(ran.code, 0, "{}", ran.err);
        ran
    };
    let first = chat(&dir);
    let on = |dir: &Path, line: &str| run(&words(&format!("kv {line} --disk-kv {}", dir.display()))).ok();
    let text = on(&dir, "ls");
    let name = Path::new(&model).file_stem().unwrap().to_str().unwrap();
    assert!(text.starts_with("Qwen3 Tiny, kv q8, ") || text.starts_with(name), "{text}");
    assert!(text.contains("  Why is the sky blue, and why is it re...\n"), "{text}");
    assert!(on(&dir, "fsck").contains(", checked: 0 wrong"));
    let report: Value = serde_json::from_str(&on(&dir, "ls --json")).unwrap();
    let id = report["models"][0]["conversations"][0]["id"].as_str().unwrap().to_string();
    assert!(on(&dir, &format!("export {id} -o {}", copy.display())).ends_with("; 0 were there\n"));
    let again = chat(&copy);
    assert!(again.err.contains("[KV-DISK] loaded "), "{}", again.err);
    assert_eq!(first.out, again.out);
    // A hit is counted.
    let report: Value = serde_json::from_str(&on(&copy, "ls --json")).unwrap();
    let hits: Vec<u64> = (report["models"][0]["conversations"].as_array().unwrap().iter())
        .map(|row| row["hits"].as_u64().unwrap())
        .collect();
    assert!(hits.contains(&1), "{report}");
}

#[test]
fn an_export_copies_no_damage() {
    let (cache, whole, _) = two("spoilt");
    flip(&cache.block(&whole[2]), 5000);
    let out = directory("spoilt-to");
    let said = kv(&cache, &format!("export {} -o {}", whole[2], out.display())).line(1);
    assert!(said.contains("payload checksum does not match; 'kinglet kv fsck' says more"), "{said}");
    let said = kv(&cache, &format!("export {} -o {}", whole[2], cache.arg())).line(1);
    assert!(said.contains("is the directory itself"), "{said}");
    fs::remove_file(cache.folder().join("identity")).unwrap();
    let said = kv(&cache, &format!("export {} -o {}", whole[2], out.display())).line(1);
    assert!(said.contains("run its model once with this --disk-kv"), "{said}");
}

#[test]
fn ten_thousand_files_are_no_trouble() {
    let cache = Cache::new("many");
    // A long conversation, and thousands that share its first block.
    cache.chat(&tokens(0..32 * 2000), ago(100, 0));
    for i in 0..8000 {
        let mut own = tokens(0..64);
        own[40] = 100_000 + i;
        cache.chat(&own, ago(200, 1));
    }
    let report = report(&cache);
    assert_eq!(report["files"], 10_000);
    assert_eq!(report["models"][0]["conversations"].as_array().unwrap().len(), 8001);
    assert!(kv(&cache, "fsck").ok().starts_with("10000 files, 54 MB, checked: 0 wrong"));
    assert!(kv(&cache, "rm --older-than 150s").ok().starts_with("removed 8000 conversations: 8000 files"));
    assert_eq!(rows(&cache)[0]["blocks"], 2000);
    fs::remove_dir_all(&cache.dir).unwrap();
}

#[test]
fn wrong_words_and_directories_get_a_line_that_says_what_to_do() {
    let usage = |line: &str, part: &str| {
        let said = run(&words(line)).line(2);
        assert!(said.contains(part), "{line}: {said}");
    };
    usage("kv", "say what to do: ls, fsck, rm or export");
    usage("kv fsk", "did you mean fsck?");
    usage("kv ls", "--disk-kv DIR is missing");
    usage("kv ls x", "unexpected 'x'");
    usage("kv ls --fix", "--fix does not go with 'ls'");
    usage("kv fsck --jsn", "did you mean --json?");
    usage("kv rm --disk-kv x", "say what to remove");
    usage("kv rm abc --all --disk-kv x", "only one of");
    usage("kv rm --older-than 7 --disk-kv x", "'7' is no age");
    usage("kv export abc --disk-kv x", "-o DIR2 is missing");
    usage("kv export -o y --disk-kv x", "ID is missing");
    let failure = |dir: &str, part: &str| {
        for action in ["ls", "fsck", "rm --all", "export a -o b"] {
            let said = run(&words(&format!("kv {action} --disk-kv {dir}"))).line(1);
            assert!(said.contains(part), "{action}: {said}");
        }
    };
    failure("no/such/directory", "name the directory given to --disk-kv");
    failure(&write("a-file", b"x"), "is no directory");
    let dir = directory("nothing");
    failure(dir.to_str().unwrap(), "is empty; a run with --disk-kv fills it");
    fs::write(dir.join("x"), b"x").unwrap();
    failure(dir.to_str().unwrap(), "holds no KV cache");
    assert_eq!(fs::read_dir(&dir).unwrap().count(), 1);
}
