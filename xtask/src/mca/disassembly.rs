//! Instructions of a program as llvm-objdump writes them, made fit for llvm-mca.

use crate::sh::{self, Context, Failure, Outcome};
use crate::symbols::LLVM_PACKAGE;
use core::ops::Range;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// Names of the disassembler, the preferred one first.
const OBJDUMP: [&str; 2] = ["llvm-objdump-22", "llvm-objdump"];
/// Bytes of an instruction.
const BYTES: u64 = 4;

/// An instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instruction {
    /// What it is, for example `sdot` or `b.eq`.
    pub mnemonic: String,
    /// The operands, without comments; an address becomes a small offset, which the analyser takes.
    pub operands: String,
    /// Where it may jump to.
    pub target: Option<u64>,
}

impl Instruction {
    /// Reads what follows the address: mnemonic, tab, operands.
    fn parse(text: &str) -> Option<Self> {
        let text = text.split("//").next()?.trim();
        let (mnemonic, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
        let rest = rest.split(" <").next().unwrap_or("").trim();
        let is_jump = ["b", "cbz", "cbnz", "tbz", "tbnz"].contains(&mnemonic) || mnemonic.starts_with("b.");
        // Only addresses have no # before them.
        let (before, last) = rest.rsplit_once(' ').map_or(("", rest), |(a, b)| (a, b));
        let address = last.strip_prefix("0x").and_then(|hex| u64::from_str_radix(hex, 16).ok());
        let operands = match address {
            None => rest.to_owned(),
            Some(_) if mnemonic == "adrp" => format!("{before} #0").trim().to_owned(),
            Some(_) => format!("{before} #4").trim().to_owned(),
        };
        let target = address.filter(|_| is_jump);
        (!mnemonic.is_empty()).then(|| Instruction { mnemonic: mnemonic.to_owned(), operands, target })
    }

    /// Whether it is a dot product of 16 pairs of bytes.
    pub fn is_dot(&self) -> bool {
        matches!(self.mnemonic.as_str(), "sdot" | "udot" | "usdot")
    }
}

/// The instructions of an address range.
#[derive(Debug)]
pub struct Disassembly(BTreeMap<u64, Instruction>);

/// A loop: the first of its instructions in memory and the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loop {
    /// Where it is jumped back to.
    pub start: u64,
    /// The last jump back.
    pub end: u64,
}

impl Disassembly {
    /// Disassembles a part of a program.
    ///
    /// # Errors
    /// There is no llvm-objdump, or it does not give every instruction.
    pub fn of(program: &Path, addresses: &Range<u64>) -> Outcome<Self> {
        let objdump = OBJDUMP.into_iter().find(|name| sh::output(name, &["--version"]).is_some());
        let objdump = objdump.ok_or_else(|| {
            Failure::new(format!(
                "no {}: install Debian's package {LLVM_PACKAGE} (`cargo xtask setup`)",
                OBJDUMP[0]
            ))
        })?;
        let mut command = Command::new(objdump);
        command.args(["-d", "--no-show-raw-insn"]);
        command.arg(format!("--start-address={:#x}", addresses.start));
        command.arg(format!("--stop-address={:#x}", addresses.end));
        let output = command.arg(program).output().context("llvm-objdump")?;
        sh::check(output.status, &sh::shown(&command))?;
        let found = Self::parse(&String::from_utf8_lossy(&output.stdout));
        let len = (addresses.end - addresses.start) / BYTES;
        if found.0.len() as u64 != len {
            return Err(Failure::new(format!("llvm-objdump gives {} of {len} instructions", found.0.len())));
        }
        Ok(found)
    }

    fn parse(text: &str) -> Self {
        let line = |line: &str| {
            let (address, rest) = line.trim_start().split_once(':')?;
            let address = u64::from_str_radix(address, 16).ok()?;
            Some((address, Instruction::parse(rest)?))
        };
        Disassembly(text.lines().filter_map(line).collect())
    }

    /// The instruction at an address.
    pub fn at(&self, address: u64) -> Option<&Instruction> {
        self.0.get(&address)
    }

    /// The outermost loop with the most dot products.
    ///
    /// A loop may be entered in its middle and have several jumps back; those to one place make one
    /// loop, which ends at the last of them.
    pub fn loop_of_dots(&self) -> Option<Loop> {
        let mut ends: BTreeMap<u64, u64> = BTreeMap::new();
        for (&address, instruction) in &self.0 {
            if let Some(target) = instruction.target.filter(|t| *t <= address && self.0.contains_key(t)) {
                let end = ends.entry(target).or_default();
                *end = address.max(*end);
            }
        }
        let loops = ends.into_iter().map(|(start, end)| Loop { start, end });
        let dots = |l: &Loop| self.0.range(l.start..=l.end).filter(|(_, i)| i.is_dot()).count();
        loops.filter(|l| dots(l) > 0).max_by_key(|l| (dots(l), l.end - l.start))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\n\
        0000000000001000 <kernel>:\n\
        \x20   1000:      \tcbz\tx3, 0x1034 <kernel+0x34>\n\
        \x20   1004:      \tadrp\tx9, 0x200000 <getrandom+0x200000>\n\
        \x20   1008:      \tb\t0x1020 <kernel+0x20>\n\
        \x20   100c:      \tmov\tw10, #0x48              // =72\n\
        \x20   1010:      \tsdot\tv30.4s, v5.16b, v15.4b[0]\n\
        \x20   1014:      \tldp\tq1, q0, [x0, #0x20]\n\
        \x20   1018:      \tb.ne\t0x1014 <kernel+0x14>\n\
        \x20   101c:      \tsubs\tx2, x2, x11\n\
        \x20   1020:      \tb.ls\t0x1010 <kernel+0x10>\n\
        \x20   1024:      \ttbz\tw1, #0x0, 0x100c <kernel+0xc>\n\
        \x20   1028:      \tmov\tx1, x2\n\
        \x20   102c:      \tb\t0x100c <kernel+0xc>\n\
        \x20   1030:      \tret\n\
        \x20   1034:      \tbrk\t#0x1\n";

    #[test]
    fn instructions_are_made_fit_for_the_analyser() {
        let code = Disassembly::parse(TEXT);
        assert_eq!(code.0.len(), 14);
        let is = |address, mnemonic: &str, operands: &str, target| {
            let want = Instruction { mnemonic: mnemonic.into(), operands: operands.into(), target };
            assert_eq!(code.at(address), Some(&want));
        };
        is(0x1000, "cbz", "x3, #4", Some(0x1034));
        is(0x1004, "adrp", "x9, #0", None);
        is(0x1008, "b", "#4", Some(0x1020));
        is(0x100c, "mov", "w10, #0x48", None);
        is(0x1010, "sdot", "v30.4s, v5.16b, v15.4b[0]", None);
        is(0x1024, "tbz", "w1, #0x0, #4", Some(0x100c));
        is(0x1030, "ret", "", None);
        assert!(code.at(0x1010).unwrap().is_dot() && !code.at(0x1014).unwrap().is_dot());
    }

    #[test]
    fn the_loop_is_the_outermost_with_all_dot_products() {
        // Jumps back: to 1014 (no dot product), to 1010, and two to 100c, of which the later ends it.
        assert_eq!(Disassembly::parse(TEXT).loop_of_dots(), Some(Loop { start: 0x100c, end: 0x102c }));
        let without: String =
            TEXT.lines().filter(|l| !l.contains("sdot")).map(|l| format!("{l}\n")).collect();
        assert_eq!(Disassembly::parse(&without).loop_of_dots(), None);
    }
}
