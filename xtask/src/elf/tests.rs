//! The reader against files made here byte by byte, whole and damaged.

use super::*;

/// A program of two sections with the symbol `main`, and extra program headers of the given kinds.
fn program(extra_segments: &[u32]) -> Vec<u8> {
    let mut out = vec![0x7F, b'E', b'L', b'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let put16 = |out: &mut Vec<u8>, v: u16| out.extend_from_slice(&v.to_le_bytes());
    let put32 = |out: &mut Vec<u8>, v: u32| out.extend_from_slice(&v.to_le_bytes());
    let put64 = |out: &mut Vec<u8>, v: u64| out.extend_from_slice(&v.to_le_bytes());
    let segments = 1 + extra_segments.len();
    let text_at = (64 + SEGMENT_BYTES * segments) as u64;
    let symbols_at = text_at + 8;
    let strings_at = symbols_at + 2 * SYMBOL_BYTES as u64;
    let strings = b"\0main\0.text\0.bss\0.symtab\0.strtab\0";
    let sections_at = strings_at + strings.len() as u64;
    [ET_EXEC, AARCH64].iter().for_each(|v| put16(&mut out, *v));
    put32(&mut out, 1);
    [0x1000, 64, sections_at].iter().for_each(|v| put64(&mut out, *v));
    put32(&mut out, 0);
    [64, SEGMENT_BYTES as u16, segments as u16, SECTION_BYTES as u16, 5, 4]
        .iter()
        .for_each(|v| put16(&mut out, *v));
    for kind in core::iter::once(&PT_LOAD).chain(extra_segments) {
        [*kind, 5].iter().for_each(|v| put32(&mut out, *v));
        [0, 0x1000, 0x1000, symbols_at, symbols_at, 0x1000].iter().for_each(|v| put64(&mut out, *v));
    }
    out.extend_from_slice(&[1, 2, 3, 4, 5, 6, 7, 8]);
    out.extend_from_slice(&[0; SYMBOL_BYTES]);
    put32(&mut out, 1);
    [2, 0].iter().for_each(|v| out.push(*v));
    put16(&mut out, 1);
    [0x1000 + text_at, 8].iter().for_each(|v| put64(&mut out, *v));
    out.extend_from_slice(strings);
    // Name, type, flags, address, offset, length, link.
    for (name, kind, flags, address, offset, len, link) in [
        (0, 0, 0, 0, 0, 0, 0),
        (6, 1, 6, 0x1000 + text_at, text_at, 8, 0),
        (12, SHT_NOBITS, 3, 0x2000, symbols_at, 1 << 40, 0),
        (17, SHT_SYMTAB, 0, 0, symbols_at, 2 * SYMBOL_BYTES as u64, 4),
        (25, 3, 0, 0, strings_at, strings.len() as u64, 0),
    ] {
        [name, kind].iter().for_each(|v| put32(&mut out, *v));
        [flags, address, offset, len].iter().for_each(|v| put64(&mut out, *v));
        [link, 0].iter().for_each(|v| put32(&mut out, *v));
        [1, 0].iter().for_each(|v| put64(&mut out, *v));
    }
    out
}

#[test]
fn sections_and_symbols_are_read() {
    let bytes = program(&[]);
    let elf = Elf::parse(&bytes).unwrap();
    let names: Vec<&str> = elf.sections.iter().map(|s| s.name.as_str()).collect();
    assert_eq!(names, ["", ".text", ".bss", ".symtab", ".strtab"]);
    assert_eq!(elf.section_bytes(&elf.sections[1]).unwrap(), [1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(elf.section_bytes(&elf.sections[2]).unwrap(), [0; 0]);
    assert!(elf.sections[2].is_loaded() && !elf.sections[3].is_loaded());
    let symbols = elf.symbols().unwrap();
    let address = elf.sections[1].address;
    assert_eq!(symbols, [Symbol { name: "main", address, len: 8, section: 1 }]);
}

#[test]
fn only_a_static_program_of_the_right_machine_passes() {
    let check = |bytes: &[u8], machine| Elf::parse(bytes).unwrap().check_static(machine);
    assert_eq!(check(&program(&[]), AARCH64), Ok(()));
    let why = |bytes: &[u8], machine| check(bytes, machine).unwrap_err();
    assert!(why(&program(&[]), X86_64).contains("machine 183, not 62"));
    assert!(why(&program(&[PT_INTERP]), AARCH64).contains("interpreter"));
    assert!(why(&program(&[PT_DYNAMIC]), AARCH64).contains("dynamic"));
    let mut library = program(&[]);
    library[16] = 3;
    assert!(why(&library, AARCH64).contains("type 3"));
    // A dynamic section that no segment tells of.
    let mut hidden = program(&[]);
    let at = hidden.len() - 4 * SECTION_BYTES + 4;
    hidden[at] = SHT_DYNAMIC as u8;
    assert!(why(&hidden, AARCH64).contains("dynamic"));
}

#[test]
fn stripping_keeps_what_is_loaded_and_nothing_else() {
    let bytes = program(&[]);
    let stripped = strip(&bytes).unwrap();
    let (before, after) = (Elf::parse(&bytes).unwrap(), Elf::parse(&stripped).unwrap());
    assert_eq!(after.symbols().unwrap(), []);
    assert_eq!(after.check_static(AARCH64), Ok(()));
    let names: Vec<&str> = after.sections.iter().map(|s| s.name.as_str()).collect();
    assert_eq!(names, ["", ".text", ".bss", ".shstrtab"]);
    assert_eq!(after.sections[1].address, before.sections[1].address);
    assert_eq!(
        after.section_bytes(&after.sections[1]).unwrap(),
        before.section_bytes(&before.sections[1]).unwrap()
    );
    // The loaded bytes are the same but for the place of the section table.
    let loaded = 64..usize::try_from(before.segments[0].len).unwrap();
    assert_eq!(stripped[loaded.clone()], bytes[loaded]);
    assert_eq!(strip(&stripped).unwrap(), stripped);
}

#[test]
fn damage_is_an_error_and_never_a_panic() {
    let bytes = program(&[]);
    for len in 0..bytes.len() {
        // The section table comes last, so that every shorter file lacks a part of it.
        assert!(Elf::parse(&bytes[..len]).is_err(), "{len} bytes");
        assert!(strip(&bytes[..len]).is_err(), "{len} bytes");
    }
    let mut damaged = bytes.clone();
    for at in 0..bytes.len() {
        for bit in 0..8 {
            damaged[at] ^= 1 << bit;
            if let Ok(elf) = Elf::parse(&damaged) {
                let _ = elf.symbols();
                let _ = elf.check_static(AARCH64);
                let _ = strip(&damaged);
            }
            damaged[at] ^= 1 << bit;
        }
    }
}
