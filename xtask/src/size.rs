//! `cargo xtask size`: where the bytes of the static binary go, and whether they fit the budget.
//!
//! Counted in the program before it is stripped. Constants without a name (string literals for
//! the most part) cannot be told apart by crate and have a row of their own.

use crate::cross::{self, Built, Log, Route, Target};
use crate::elf::Elf;
use crate::sh::{self, Context, Failure, Outcome};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;

const HELP: &str = "\
Usage: cargo xtask size [--target aarch64|x86_64] [--route rustup|prebuilt|debian] [--symbols N]

Builds the static binary, prints its bytes by section and crate, and fails above the budget
of xtask/size-budget.txt.

  --symbols N  also the N largest symbols
";

/// Row of the table for what no symbol covers.
const UNNAMED: &str = "(constants without a name)";
/// Row for what is not Rust: musl's libc, start files.
const LIBC: &str = "(libc)";

/// The task.
pub fn main(words: Vec<OsString>) -> Outcome {
    use lexopt::Arg::Long;
    use lexopt::ValueExt;
    let mut args = lexopt::Parser::from_args(words);
    let (mut target, mut route, mut symbols) = (Target::Aarch64, None, 0);
    while let Some(arg) = args.next()? {
        match arg {
            Long("target") => target = Target::named(&args.value()?.string()?)?,
            Long("route") => route = Some(args.value()?.string()?),
            Long("symbols") => symbols = args.value()?.parse()?,
            Long("help") => {
                print!("{HELP}");
                return Ok(());
            }
            other => return Err(other.unexpected().into()),
        }
    }
    check(&cross::build(target, route.as_deref(), Log::Frames)?, symbols)
}

/// Prints the tables of a build and compares it with the budget.
///
/// # Errors
/// The binary or a crate is above its budget, or a file cannot be read.
pub fn check(built: &Built, symbols: usize) -> Outcome {
    let bytes = fs::read(&built.symbols).context(built.symbols.display())?;
    let elf = Elf::parse(&bytes).context(built.symbols.display())?;
    print!("{}", sections(&elf));
    let crates = by_crate(&elf).context(built.symbols.display())?;
    print!("{}", table(&crates));
    largest(&elf, symbols).context(built.symbols.display())?;

    compare(built, &crates)
}

/// Compares a build with the budget, without the tables.
///
/// # Errors
/// As [`check`].
pub fn check_budget(built: &Built) -> Outcome {
    let bytes = fs::read(&built.symbols).context(built.symbols.display())?;
    let elf = Elf::parse(&bytes).context(built.symbols.display())?;
    compare(built, &by_crate(&elf).context(built.symbols.display())?)
}

fn compare(built: &Built, crates: &BTreeMap<String, [u64; 2]>) -> Outcome {
    let path = sh::root().join("xtask").join("size-budget.txt");
    let text = fs::read_to_string(&path).context(path.display())?;
    if built.route != Route::Source {
        println!(
            "{} bytes: NOT COMPARED with the budget, which is for a std built from rustup's source; \
             `cargo xtask setup` gets it where rustup can",
            built.bytes
        );
        return Ok(());
    }
    let over = over(&budget(&text)?, built.bytes, crates);
    if over.is_empty() {
        println!("{} bytes: within the budget", built.bytes);
        return Ok(());
    }
    Err(Failure::new(format!("over xtask/size-budget.txt: {}", over.join("; "))))
}

/// The loaded sections that take bytes in the file.
fn sections(elf: &Elf<'_>) -> String {
    let mut text = String::from("section             bytes\n");
    for section in elf.sections.iter().filter(|s| s.is_loaded() && s.has_bytes()) {
        text.push_str(&format!("{:<14} {:>10}\n", section.name, section.len));
    }
    text
}

/// Bytes of code and of constant or initialised data, for each crate.
fn by_crate(elf: &Elf<'_>) -> Result<BTreeMap<String, [u64; 2]>, String> {
    let mut symbols = elf.symbols()?;
    symbols.retain(|s| s.len > 0);
    // Of several names for one place the longest symbol counts, once.
    symbols.sort_by_key(|s| (s.section, s.address, core::cmp::Reverse(s.len)));
    let mut crates: BTreeMap<String, [u64; 2]> = BTreeMap::new();
    let mut ends: Vec<u64> = elf.sections.iter().map(|s| s.address).collect();
    let mut named = vec![0; elf.sections.len()];
    for symbol in symbols {
        let section = &elf.sections[symbol.section];
        if !section.is_loaded() || !section.has_bytes() {
            continue;
        }
        let end = symbol.address.saturating_add(symbol.len);
        let counted = end.saturating_sub(symbol.address.max(ends[symbol.section]));
        ends[symbol.section] = ends[symbol.section].max(end);
        named[symbol.section] += counted;
        let kind = usize::from(section.name != ".text");
        crates.entry(crate_of(symbol.name)).or_default()[kind] += counted;
    }
    for (section, named) in elf.sections.iter().zip(named) {
        if section.is_loaded() && section.has_bytes() {
            let kind = usize::from(section.name != ".text");
            crates.entry(UNNAMED.into()).or_default()[kind] += section.len.saturating_sub(named);
        }
    }
    Ok(crates)
}

fn table(crates: &BTreeMap<String, [u64; 2]>) -> String {
    let mut rows: Vec<_> = crates.iter().filter(|(_, bytes)| bytes.iter().sum::<u64>() > 0).collect();
    rows.sort_by_key(|(_, bytes)| core::cmp::Reverse(bytes.iter().sum::<u64>()));
    let mut text = format!("\n{:<28} {:>9} {:>9} {:>9}\n", "crate", "code", "data", "sum");
    for (name, [code, data]) in rows {
        text.push_str(&format!("{name:<28} {code:>9} {data:>9} {:>9}\n", code + data));
    }
    text.push('\n');
    text
}

fn largest(elf: &Elf<'_>, count: usize) -> Result<(), String> {
    let mut symbols = elf.symbols()?;
    symbols.sort_by_key(|s| core::cmp::Reverse(s.len));
    for symbol in symbols.iter().take(count) {
        println!("{:>9} {}", symbol.len, path_of(symbol.name));
    }
    Ok(())
}

/// The crate that a v0-mangled symbol was written in.
pub fn crate_of(symbol: &str) -> String {
    match path_of(symbol).split("::").next() {
        Some(name) if symbol.starts_with("_R") && !name.is_empty() => name.to_owned(),
        _ => LIBC.to_owned(),
    }
}

/// The first path in a v0-mangled symbol, as `crate::module::item`; other symbols as they are.
///
/// The grammar is read only as far as that: `C`, a disambiguator, then identifiers, each with
/// its length before it. For a method of a generic or foreign type this is where the type comes from.
fn path_of(symbol: &str) -> String {
    let Some(mangled) = symbol.strip_prefix("_R") else {
        return symbol.to_owned();
    };
    let mut at = 0;
    while let Some(found) = mangled[at..].find('C') {
        at += found + 1;
        let mut rest = &mangled[at..];
        let mut path = Vec::new();
        while let Some((name, after)) = identifier(rest) {
            path.push(name);
            rest = after;
        }
        if !path.is_empty() {
            return path.join("::");
        }
    }
    symbol.to_owned()
}

/// An identifier at the beginning, and what follows it.
fn identifier(mangled: &str) -> Option<(&str, &str)> {
    let mut rest = mangled;
    if let Some(after) = rest.strip_prefix('s') {
        let (disambiguator, after) = after.split_once('_')?;
        if !disambiguator.bytes().all(|b| b.is_ascii_alphanumeric()) {
            return None;
        }
        rest = after;
    }
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    let len: usize = rest[..digits].parse().ok()?;
    let rest = &rest[digits..];
    let rest = rest.strip_prefix('_').unwrap_or(rest);
    Some((rest.get(..len).filter(|name| !name.is_empty())?, &rest[len..]))
}

/// The lines of the budget file: name and bytes.
fn budget(text: &str) -> Outcome<Vec<(&str, u64)>> {
    let lines = text.lines().map(|l| l.split('#').next().unwrap_or("").trim()).filter(|l| !l.is_empty());
    lines
        .map(|line| {
            let (name, bytes) = line.rsplit_once(' ').unwrap_or((line, ""));
            let bytes = bytes.replace('_', "").parse();
            Ok((name.trim(), bytes.context(format_args!("size-budget.txt: '{line}'"))?))
        })
        .collect()
}

/// What exceeds its budget.
fn over(budget: &[(&str, u64)], total: u64, crates: &BTreeMap<String, [u64; 2]>) -> Vec<String> {
    let size = |name: &str| match name {
        "total" => total,
        name => crates.get(name).map_or(0, |bytes| bytes.iter().sum()),
    };
    let is_over = |(name, most): &&(&str, u64)| size(name) > *most;
    let over = budget.iter().filter(is_over);
    over.map(|(name, most)| format!("{name} has {} bytes, {most} at most", size(name))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crates_are_read_off_mangled_names() {
        for (symbol, path) in [
            ("_RNvCs6YH57nCfGGK_7kinglet4main", "kinglet::main"),
            ("_RNvNtNtNtCsls96TQJG5Gm_4core3num7dec2flt5parse", "core::num::dec2flt::parse"),
            ("_RNvMNtCs1G3R6M8CcbD_7kinglet7sessionNtB2_7Session5start", "kinglet::session"),
            ("_RINvNtNtCs6wMKQugvDv1_12kinglet_core3par8for_eachfE", "kinglet_core::par::for_each"),
            ("memcpy", "memcpy"),
        ] {
            assert_eq!(path_of(symbol), path);
        }
        assert_eq!(crate_of("_RNvCs6YH57nCfGGK_7kinglet4main"), "kinglet");
        assert_eq!(crate_of("memcpy"), LIBC);
        for damaged in ["_R", "_RC", "_RNvCs6_99999kin", "_RNvC7kingl\u{e9}"] {
            path_of(damaged);
        }
    }

    #[test]
    fn a_budget_is_kept_or_named() {
        let text = "# comment\ntotal 400_000\nkinglet_core 10 # note\n(constants without a name) 5\n";
        let budget = budget(text).unwrap();
        assert_eq!(budget, [("total", 400_000), ("kinglet_core", 10), (UNNAMED, 5)]);
        let crates = |core| BTreeMap::from([("kinglet_core".to_owned(), [core, 1])]);
        assert_eq!(over(&budget, 400_000, &crates(9)), [""; 0]);
        let found = over(&budget, 400_001, &crates(10));
        assert_eq!(
            found,
            ["total has 400001 bytes, 400000 at most", "kinglet_core has 11 bytes, 10 at most"]
        );
        assert!(super::budget("total many").is_err());
    }
}
