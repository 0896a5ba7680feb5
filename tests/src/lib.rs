//! Helpers shared by the integration tests: fixtures, models, comparisons.

pub mod block;
pub mod chain;
pub mod fuzz_block;
pub mod fuzz_gguf;
pub mod fuzz_http;
pub mod fuzz_output;
pub mod fuzz_pool;
pub mod fuzz_request;
pub mod fuzz_schema;
pub mod fuzz_tokenizer;
pub mod gguf_writer;
pub mod isas;
pub mod medium;
pub mod model;
pub mod naive;
pub mod pieces_vocab;
pub mod pool_model;
pub mod random_model;
pub mod reference;
pub mod schema_model;
pub mod vocab;

use std::io::Read;
use std::path::Path;

/// The fixture `name`, a path below `tests/fixtures`; unpacked if it is there as `name.gz`.
///
/// # Panics
/// If there is no such fixture.
pub fn fixture(name: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures").join(name);
    let packed = path.with_file_name(format!("{}.gz", path.file_name().unwrap().display()));
    let (path, is_packed) = if packed.exists() { (packed, true) } else { (path, false) };
    let bytes = std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    if !is_packed {
        return bytes;
    }
    let mut out = Vec::new();
    flate2::read::GzDecoder::new(&bytes[..]).read_to_end(&mut out).expect("a gzip fixture");
    out
}
