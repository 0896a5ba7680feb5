//! Drops from a program what is not loaded: symbols, debug information, comments.
//!
//! Done here rather than by the linker, so that one link gives both files: the one that is
//! shipped and the one with symbols that sizes are counted in.

use super::{Elf, PT_LOAD, SECTION_BYTES, Wrong};

/// The program with nothing but its segments and a table of the sections in them.
///
/// # Errors
/// The file is damaged.
pub fn strip(bytes: &[u8]) -> Result<Vec<u8>, Wrong> {
    let elf = Elf::parse(bytes)?;
    let loads = elf.segments.iter().filter(|s| s.kind == PT_LOAD);
    let end = loads.map(|s| s.offset.saturating_add(s.len)).max().ok_or("nothing to load")?;
    let end = usize::try_from(end).map_err(|_| "a segment beyond the end")?;
    let mut out = bytes.get(..end).ok_or("a segment beyond the end")?.to_vec();

    // Section names, the empty one first.
    let names_at = out.len();
    out.push(0);
    let mut headers = vec![0; SECTION_BYTES];
    for section in elf.sections.iter().filter(|s| s.is_loaded()) {
        let name = out.len() - names_at;
        out.extend_from_slice(section.name.as_bytes());
        out.push(0);
        // `link` and `info` point at other sections by number; none of a static program's needs them.
        header(
            &mut headers,
            name,
            section.kind,
            [section.flags, section.address, section.offset, section.len],
            [section.align, section.entry_len],
        );
    }
    let name = out.len() - names_at;
    out.extend_from_slice(b".shstrtab\0");
    let names_len = out.len() - names_at;
    header(&mut headers, name, 3, [0, 0, names_at as u64, names_len as u64], [1, 0]);

    out.resize(out.len().next_multiple_of(8), 0);
    let headers_at = out.len() as u64;
    let count = u16::try_from(headers.len() / SECTION_BYTES).map_err(|_| "too many sections")?;
    out.extend_from_slice(&headers);
    out[40..48].copy_from_slice(&headers_at.to_le_bytes());
    out[60..62].copy_from_slice(&count.to_le_bytes());
    out[62..64].copy_from_slice(&(count - 1).to_le_bytes());
    Ok(out)
}

/// Appends a section header: flags, address, offset, length; then alignment and entry size.
fn header(out: &mut Vec<u8>, name: usize, kind: u32, place: [u64; 4], shape: [u64; 2]) {
    out.extend_from_slice(&u32::try_from(name).unwrap_or(0).to_le_bytes());
    out.extend_from_slice(&kind.to_le_bytes());
    place.iter().for_each(|value| out.extend_from_slice(&value.to_le_bytes()));
    out.extend_from_slice(&[0; 8]);
    shape.iter().for_each(|value| out.extend_from_slice(&value.to_le_bytes()));
}
