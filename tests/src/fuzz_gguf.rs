//! Fuzzing of the GGUF parser: arbitrary bytes, and mutations of a valid file.
//!
//! `cargo test` calls it on seeded inputs, `cargo xtask fuzz gguf` under libFuzzer.

use crate::gguf_writer;
use kinglet_core::gguf::{Array, Gguf, GgufError, GgufFault, Meta, StrArray, TensorInfo, Value};

/// Strings read one by one through the slow accessors, so that the walk stays linear.
const SLOW_GETS: usize = 16;

/// Parses `data` as a file, then a valid file changed as `data` says.
///
/// # Panics
/// The parser panics or breaks one of its promises.
pub fn fuzz_gguf(data: &[u8]) {
    parse_and_walk(data);
    let mut file = gguf_writer::small().finish();
    mutate(&mut file, data);
    parse_and_walk(&file);
}

/// Changes `file` by the commands in `data`: 4 bytes each, operation, place (2), value.
pub fn mutate(file: &mut Vec<u8>, data: &[u8]) {
    for command in data.chunks_exact(4).take(16) {
        if file.is_empty() {
            return;
        }
        let at = usize::from(u16::from_le_bytes([command[1], command[2]])) % file.len();
        let value = command[3];
        match command[0] % 8 {
            0 => file[at] ^= 1 << (value % 8),
            1 => file[at] = value,
            2 => overwrite(file, at, &extreme(value).to_le_bytes()),
            3 => overwrite(file, at, &(extreme(value) as u32).to_le_bytes()),
            4 => file.truncate(at),
            5 => file.insert(at, value),
            6 => drop(file.drain(at..(at + usize::from(value)).min(file.len()))),
            _ => {
                // A copied piece makes duplicates and overlaps.
                let piece = file[at..(at + usize::from(value)).min(file.len())].to_vec();
                file.splice(at..at, piece);
            }
        }
    }
}

/// Numbers near which arithmetic goes wrong.
fn extreme(value: u8) -> u64 {
    let offset = u64::from(value >> 4);
    match value & 7 {
        0 => offset,
        1 => u64::MAX - offset,
        2 => (1 << 63) + offset,
        3 => (1 << 32) - 8 + offset,
        4 => (1 << 31) - 8 + offset,
        5 => u64::MAX / (offset + 1),
        6 => 1 << (value >> 3),
        _ => 8 * offset,
    }
}

fn overwrite(file: &mut [u8], at: usize, bytes: &[u8]) {
    file[at..].iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
}

/// Parses a file in tables of the exact size and reads all there is to read in it.
///
/// # Errors
/// Those of the parser.
///
/// # Panics
/// The parser panics or breaks one of its promises.
pub fn parse_and_walk(bytes: &[u8]) -> Option<GgufError> {
    let counts = match Gguf::counts(bytes) {
        Ok(counts) => counts,
        Err(error) => return Some(shown(error)),
    };
    let mut metas = vec![Meta::EMPTY; counts.metas];
    let mut tensors = vec![TensorInfo::EMPTY; counts.tensors];
    if counts.metas > 0 {
        let fault = GgufFault::TableTooSmall { needed: counts.metas, got: counts.metas - 1 };
        let short = Gguf::parse(bytes, &mut metas[1..], &mut tensors).unwrap_err();
        assert_eq!(short.fault, fault);
    }
    let gguf = match Gguf::parse(bytes, &mut metas, &mut tensors) {
        Ok(gguf) => gguf,
        Err(error) => return Some(shown(error)),
    };
    assert_eq!((gguf.metas().len(), gguf.tensors().len()), (counts.metas, counts.tensors));
    assert!(gguf.alignment().is_power_of_two());
    gguf.metas().iter().for_each(|meta| walk_meta(&gguf, meta));
    walk_tensors(&gguf, bytes);
    assert!(gguf.require("no such key").is_err());
    None
}

/// Every error can be shown, and shows nothing that could drive a terminal.
fn shown(error: GgufError) -> GgufError {
    let text = error.to_string();
    assert!(!text.is_empty() && !text.chars().any(char::is_control), "{text:?}");
    error
}

fn walk_meta(gguf: &Gguf<'_, '_>, meta: &Meta<'_>) {
    let key = meta.key();
    assert!(gguf.get(key).is_some() && gguf.require(key).is_ok());
    // Typed accessors agree with the value's kind.
    let value = meta.value();
    assert_eq!(gguf.str(key).is_ok(), matches!(value, Value::Str(_)));
    assert_eq!(gguf.f32(key).is_ok(), matches!(value, Value::F64(_)));
    assert_eq!(gguf.strings(key).is_ok(), matches!(value, Value::Array(Array::Str(_))));
    let small = match value {
        Value::U64(v) => u32::try_from(v).ok(),
        Value::I64(v) => u32::try_from(v).ok(),
        _ => None,
    };
    assert_eq!(gguf.u32(key).ok(), small);
    if let Value::Array(array) = value {
        walk_array(array);
    }
}

fn walk_array(array: Array<'_>) {
    let len = array.len();
    assert_eq!(array.is_empty(), len == 0);
    assert!(array.get(len).is_none() && array.get(usize::MAX).is_none());
    let slow = len.min(SLOW_GETS);
    assert!((0..slow).chain(len - slow..len).all(|i| array.get(i).is_some()));
    match array {
        Array::Fixed(ty, bytes) => assert_eq!(bytes.len(), len * ty.bytes()),
        Array::Str(strings) => walk_strings(strings),
    }
}

fn walk_strings(strings: StrArray<'_>) {
    assert_eq!(strings.is_empty(), strings.iter().next().is_none());
    assert_eq!(strings.iter().len(), strings.len());
    assert_eq!(strings.iter().count(), strings.len());
    assert_eq!(strings.offsets().count(), strings.len());
    for (string, (offset, again)) in strings.iter().zip(strings.offsets()) {
        assert_eq!(string, again);
        assert_eq!(strings.at(offset), string);
        // Any offset is harmless.
        let _ = (strings.at(offset + 1), strings.at(offset.wrapping_mul(0x9e37_79b9)));
    }
    assert_eq!(strings.at(usize::MAX), "");
}

fn walk_tensors(gguf: &Gguf<'_, '_>, bytes: &[u8]) {
    let mut free_from = 0;
    for tensor in gguf.tensors() {
        let dims = tensor.dims();
        assert!((1..=4).contains(&dims.len()) && dims.iter().all(|&d| d > 0));
        let (block_len, block_bytes) = (tensor.ty().block_len() as u128, tensor.ty().block_bytes() as u128);
        assert_eq!(u128::from(dims[0]) % block_len, 0);
        let blocks = dims[1..].iter().fold(u128::from(dims[0]) / block_len, |n, &d| n * u128::from(d));
        assert_eq!(tensor.data().len() as u128, blocks * block_bytes);
        // The data lies within the file, at the offset given, after the tensor before it.
        let file = bytes.as_ptr_range();
        let data = tensor.data().as_ptr_range();
        assert!(file.start <= data.start && data.end <= file.end);
        let begin = data.start as usize - file.start as usize;
        assert!(begin >= free_from && (begin as u64).is_multiple_of(gguf.alignment()));
        assert!(begin as u64 >= tensor.offset() && tensor.offset().is_multiple_of(gguf.alignment()));
        free_from = begin + tensor.data().len();
        let found = gguf.tensor(tensor.name()).map(|t| t.data().as_ptr());
        assert_eq!(found, Some(tensor.data().as_ptr()));
    }
}
