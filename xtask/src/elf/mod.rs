//! Reads the ELF files we ship: 64-bit, little-endian. Must not know who built them.
//!
//! Every offset comes from a file and is checked; a damaged one is an error, never a panic.

mod strip;
#[cfg(test)]
mod tests;

pub use strip::strip;

/// `e_machine` of x86-64.
pub const X86_64: u16 = 62;
/// `e_machine` of aarch64.
pub const AARCH64: u16 = 183;

/// Program header types.
pub const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const PT_INTERP: u32 = 3;
/// Section types.
const SHT_SYMTAB: u32 = 2;
const SHT_DYNAMIC: u32 = 6;
const SHT_NOBITS: u32 = 8;
const SHF_ALLOC: u64 = 2;
const ET_EXEC: u16 = 2;

const SECTION_BYTES: usize = 64;
const SEGMENT_BYTES: usize = 56;
const SYMBOL_BYTES: usize = 24;

/// What is wrong with a file.
pub type Wrong = String;

/// A parsed file.
#[derive(Debug)]
pub struct Elf<'a> {
    bytes: &'a [u8],
    /// `e_machine`.
    pub machine: u16,
    /// `e_type`.
    kind: u16,
    /// Program headers.
    pub segments: Vec<Segment>,
    /// Sections, the empty first one too.
    pub sections: Vec<Section>,
}

/// A program header.
#[derive(Clone, Copy, Debug)]
pub struct Segment {
    /// `p_type`.
    pub kind: u32,
    /// Offset of its bytes in the file.
    pub offset: u64,
    /// Bytes in the file.
    pub len: u64,
}

/// A section header.
#[derive(Clone, Debug)]
pub struct Section {
    /// Its name.
    pub name: String,
    kind: u32,
    flags: u64,
    /// Where it lies in memory.
    pub address: u64,
    offset: u64,
    /// Bytes in memory.
    pub len: u64,
    link: u32,
    align: u64,
    entry_len: u64,
}

impl Section {
    /// Whether it is loaded into memory.
    pub fn is_loaded(&self) -> bool {
        self.flags & SHF_ALLOC != 0
    }

    /// Whether it takes bytes in the file.
    pub fn has_bytes(&self) -> bool {
        self.kind != SHT_NOBITS && self.kind != 0
    }
}

/// A function or an object of the symbol table.
#[derive(Debug, PartialEq, Eq)]
pub struct Symbol<'a> {
    /// Its name, as mangled.
    pub name: &'a str,
    /// Where it lies in memory.
    pub address: u64,
    /// Bytes it takes; 0 for those that only mark a place.
    pub len: u64,
    /// Index of its section.
    pub section: usize,
}

impl<'a> Elf<'a> {
    /// Reads headers and section table.
    ///
    /// # Errors
    /// Not such a file, or tables beyond its end.
    pub fn parse(bytes: &'a [u8]) -> Result<Elf<'a>, Wrong> {
        if bytes.get(..6) != Some(&[0x7F, b'E', b'L', b'F', 2, 1]) {
            return Err("not a 64-bit little-endian ELF file".into());
        }
        let mut elf = Elf {
            bytes,
            machine: u16_at(bytes, 18)?,
            kind: u16_at(bytes, 16)?,
            segments: Vec::new(),
            sections: Vec::new(),
        };
        let (phoff, shoff) = (u64_at(bytes, 32)?, u64_at(bytes, 40)?);
        let (phentsize, phnum) = (u16_at(bytes, 54)?, u16_at(bytes, 56)?);
        let (shentsize, shnum, shstrndx) =
            (u16_at(bytes, 58)?, u16_at(bytes, 60)?, usize::from(u16_at(bytes, 62)?));
        if (phnum > 0 && usize::from(phentsize) != SEGMENT_BYTES)
            || (shnum > 0 && usize::from(shentsize) != SECTION_BYTES)
        {
            return Err("headers of a size that is not ELF64's".into());
        }
        for header in table(bytes, phoff, u64::from(phnum) * SEGMENT_BYTES as u64)?.chunks(SEGMENT_BYTES) {
            elf.segments.push(Segment {
                kind: u32_at(header, 0)?,
                offset: u64_at(header, 8)?,
                len: u64_at(header, 32)?,
            });
        }
        let headers = table(bytes, shoff, u64::from(shnum) * SECTION_BYTES as u64)?;
        let mut names = Vec::new();
        for header in headers.chunks(SECTION_BYTES) {
            names.push(u32_at(header, 0)?);
            elf.sections.push(Section {
                name: String::new(),
                kind: u32_at(header, 4)?,
                flags: u64_at(header, 8)?,
                address: u64_at(header, 16)?,
                offset: u64_at(header, 24)?,
                len: u64_at(header, 32)?,
                link: u32_at(header, 40)?,
                align: u64_at(header, 48)?,
                entry_len: u64_at(header, 56)?,
            });
        }
        if shnum > 0 {
            let strings = elf.sections.get(shstrndx).ok_or("no section of names")?.clone();
            let strings = elf.section_bytes(&strings)?;
            for (section, name) in elf.sections.iter_mut().zip(names) {
                section.name = string_at(strings, name)?.to_owned();
            }
        }
        Ok(elf)
    }

    /// A section's bytes in the file; none for those that are only memory.
    ///
    /// # Errors
    /// They lie beyond the end.
    pub fn section_bytes(&self, section: &Section) -> Result<&'a [u8], Wrong> {
        if !section.has_bytes() {
            return Ok(&[]);
        }
        table(self.bytes, section.offset, section.len)
    }

    /// All symbols of the symbol table that lie in a section.
    ///
    /// # Errors
    /// The table is damaged.
    pub fn symbols(&self) -> Result<Vec<Symbol<'a>>, Wrong> {
        let Some(section) = self.sections.iter().find(|s| s.kind == SHT_SYMTAB) else {
            return Ok(Vec::new());
        };
        let strings = self.sections.get(section.link as usize).ok_or("symbols without names")?;
        let strings = self.section_bytes(strings)?;
        let mut symbols = Vec::new();
        for entry in self.section_bytes(section)?.chunks_exact(SYMBOL_BYTES) {
            let section = usize::from(u16_at(entry, 6)?);
            // 0 is undefined; reserved numbers (absolute ones and such) name no section.
            if section == 0 || section >= self.sections.len() {
                continue;
            }
            symbols.push(Symbol {
                name: string_at(strings, u32_at(entry, 0)?)?,
                address: u64_at(entry, 8)?,
                len: u64_at(entry, 16)?,
                section,
            });
        }
        Ok(symbols)
    }

    /// Checks that this program needs no other file to run on `machine`.
    ///
    /// # Errors
    /// Another machine, an interpreter, a dynamic section, or no program at all.
    pub fn check_static(&self, machine: u16) -> Result<(), Wrong> {
        let has = |kind| self.segments.iter().any(|s| s.kind == kind);
        if self.machine != machine {
            return Err(format!("is for machine {}, not {machine}", self.machine));
        }
        if self.kind != ET_EXEC || !has(PT_LOAD) {
            return Err(format!("is not a program at fixed addresses (type {})", self.kind));
        }
        if has(PT_INTERP) {
            return Err("asks for an interpreter".into());
        }
        if has(PT_DYNAMIC) || self.sections.iter().any(|s| s.kind == SHT_DYNAMIC) {
            return Err("has a dynamic section".into());
        }
        Ok(())
    }
}

/// `len` bytes at `offset`.
fn table(bytes: &[u8], offset: u64, len: u64) -> Result<&[u8], Wrong> {
    let end = offset.checked_add(len).and_then(|end| usize::try_from(end).ok());
    let range = usize::try_from(offset).ok().zip(end).map(|(start, end)| start..end);
    let found = range.and_then(|range| bytes.get(range));
    found.ok_or_else(|| format!("{len} bytes at offset {offset} lie beyond the end"))
}

fn array_at<const N: usize>(bytes: &[u8], at: usize) -> Result<[u8; N], Wrong> {
    let found = bytes.get(at..).and_then(|rest| rest.first_chunk());
    found.copied().ok_or_else(|| "ends in the middle of a header".into())
}

fn u16_at(bytes: &[u8], at: usize) -> Result<u16, Wrong> {
    array_at(bytes, at).map(u16::from_le_bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> Result<u32, Wrong> {
    array_at(bytes, at).map(u32::from_le_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> Result<u64, Wrong> {
    array_at(bytes, at).map(u64::from_le_bytes)
}

/// The string that begins at `at` and ends with a zero.
fn string_at(strings: &[u8], at: u32) -> Result<&str, Wrong> {
    let rest = strings.get(at as usize..).ok_or("a name beyond the names")?;
    let len = rest.iter().position(|&b| b == 0).ok_or("a name without an end")?;
    core::str::from_utf8(&rest[..len]).map_err(|_| "a name that is not UTF-8".into())
}
