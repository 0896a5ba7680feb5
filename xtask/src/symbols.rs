//! The functions of a program by address, under names that can be read.
//!
//! Demangling is left to LLVM's `llvm-cxxfilt`, which comes with the other tools of its package.

use crate::elf::Elf;
use crate::sh::{Context, Failure, Outcome};
use core::ops::Range;
use std::io::Write;
use std::process::{Command, Stdio};

/// Names of the demangler, the preferred one first.
const CXXFILT: [&str; 2] = ["llvm-cxxfilt-22", "llvm-cxxfilt"];
/// Debian's package of LLVM's tools.
pub const LLVM_PACKAGE: &str = "llvm-22";

/// A function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// Its code.
    pub addresses: Range<u64>,
    /// Its name, shortened; further names of the same code follow after ` = `.
    pub name: String,
}

/// All functions of a program, by address.
#[derive(Debug)]
pub struct Functions(Vec<Function>);

impl Functions {
    /// Reads the symbol table.
    ///
    /// # Errors
    /// The table is damaged or empty, or there is no demangler.
    pub fn of(elf: &Elf<'_>) -> Outcome<Self> {
        let code = elf.sections.iter().position(|s| s.name == ".text");
        let mut symbols = elf.symbols().context("symbol table")?;
        symbols.retain(|s| Some(s.section) == code && s.len > 0);
        if symbols.is_empty() {
            return Err(Failure::new("the program has no symbols of functions; was it stripped?"));
        }
        symbols.sort_by_key(|s| (s.address, s.name));
        let names = demangled(&symbols.iter().map(|s| s.name).collect::<Vec<_>>())?;
        let mut list: Vec<Function> = Vec::new();
        for (symbol, name) in symbols.iter().zip(names) {
            let name = short(&name);
            match list.last_mut() {
                // Equal functions that the linker has made one.
                Some(last) if last.addresses.start == symbol.address => {
                    if !last.name.split(" = ").any(|known| known == name) {
                        last.name.push_str(" = ");
                        last.name.push_str(&name);
                    }
                }
                _ => {
                    let end = symbol.address.saturating_add(symbol.len);
                    list.push(Function { addresses: symbol.address..end, name });
                }
            }
        }
        Ok(Functions(list))
    }

    /// The function that an address lies in.
    pub fn at(&self, address: u64) -> Option<&Function> {
        let after = self.0.partition_point(|f| f.addresses.start <= address);
        let function = &self.0[after.checked_sub(1)?];
        function.addresses.contains(&address).then_some(function)
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Function> {
        self.0.iter()
    }
}

/// Names as LLVM writes them, in order.
fn demangled(names: &[&str]) -> Outcome<Vec<String>> {
    let child = CXXFILT.iter().find_map(|program| {
        let mut command = Command::new(program);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().ok()
    });
    let mut child = child.ok_or_else(|| {
        Failure::new(format!(
            "no {}: install Debian's package {LLVM_PACKAGE} (`cargo xtask setup`)",
            CXXFILT[0]
        ))
    })?;
    let mut input = child.stdin.take().ok_or_else(|| Failure::new("no pipe to the demangler"))?;
    let text = names.join("\n");
    // It answers while it reads: whoever only writes would wait for it in vain.
    let writer = std::thread::spawn(move || input.write_all(text.as_bytes()));
    let output = child.wait_with_output().context("demangler")?;
    writer.join().map_err(|_| Failure::new("the demangler's writer failed"))?.context("demangler")?;
    let lines: Vec<String> = String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect();
    if !output.status.success() || lines.len() != names.len() {
        return Err(Failure::new(format!("{} names became {} lines", names.len(), lines.len())));
    }
    Ok(lines)
}

/// A demangled name without crate hashes, without `kinglet_core::` in front, and with types in angle
/// brackets cut to their last part: `kernels::neon::block32::few::<Q8_0, DotProd, false>`.
pub fn short(name: &str) -> String {
    let mut out = String::new();
    let mut depth = 0usize;
    let mut rest = name;
    while let Some(c) = rest.chars().next() {
        let is_path = |c: char| c.is_alphanumeric() || "_:".contains(c);
        if c == '[' && is_hash(rest) {
            rest = &rest[rest.find(']').map_or(rest.len(), |end| end + 1)..];
            continue;
        }
        if !is_path(c) {
            depth = match c {
                '<' => depth + 1,
                '>' => depth.saturating_sub(1),
                _ => depth,
            };
            out.push(c);
            rest = &rest[c.len_utf8()..];
            continue;
        }
        let mut path = String::new();
        while let Some(c) = rest.chars().next() {
            if c == '[' && is_hash(rest) {
                rest = &rest[rest.find(']').map_or(rest.len(), |end| end + 1)..];
            } else if is_path(c) {
                path.push(c);
                rest = &rest[c.len_utf8()..];
            } else {
                break;
            }
        }
        match depth {
            0 => out.push_str(path.strip_prefix("kinglet_core::").unwrap_or(&path)),
            // `::` before a bracket belongs to what is cut off.
            _ => {
                let (path, end) = path.strip_suffix("::").map_or((&path[..], ""), |p| (p, "::"));
                out.push_str(path.rsplit("::").next().unwrap_or(path));
                out.push_str(end);
            }
        }
    }
    out
}

/// Whether a crate's hash in brackets stands at the beginning.
fn is_hash(text: &str) -> bool {
    let inside = text.strip_prefix('[').and_then(|t| t.split_once(']')).map_or("", |(hash, _)| hash);
    inside.len() >= 8 && inside.bytes().all(|b| b.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_cut_to_what_tells_functions_apart() {
        for (name, expected) in [
            (
                "kinglet_core[1d1f8c2b]::kernels::neon::block32::few::<kinglet_core[1d1f8c2b]::quant::\
                 block32::Q8_0, kinglet_core[1d1f8c2b]::ops::isa::DotProd, false>",
                "kernels::neon::block32::few::<Q8_0, DotProd, false>",
            ),
            ("memcpy", "memcpy"),
            (
                "<kinglet[01234567]::pool::Pool as kinglet_core[0123456789abcdef]::par::Workers>::run",
                "<Pool as Workers>::run",
            ),
            ("core[0123456789abcdef]::slice::sort::<[u8; 4]>", "core::slice::sort::<[u8; 4]>"),
        ] {
            assert_eq!(short(name), expected);
        }
    }

    #[test]
    fn addresses_find_their_function() {
        let function = |start, end, name: &str| Function { addresses: start..end, name: name.into() };
        let functions = Functions(vec![function(16, 32, "a"), function(32, 40, "b"), function(64, 68, "c")]);
        let at = |address| functions.at(address).map(|f| f.name.as_str());
        assert_eq!([at(15), at(16), at(31)], [None, Some("a"), Some("a")]);
        assert_eq!([at(32), at(40), at(64), at(68)], [Some("b"), None, Some("c"), None]);
    }
}
