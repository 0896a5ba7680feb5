//! What a cache's bytes depend on besides the tokens, in parts, so that a cache that does not fit can say
//! which part differs.
//!
//! Two models of one geometry differ in their weights, two quantisations of one model in their types, and so
//! on; none of them may ever read the other's blocks. Must not know where blocks are.

use super::{BlockId, Geometry, KvType};
use crate::NUMERICS_VERSION;
use crate::config::Config;
use crate::gguf::{Array, Gguf, Value};
use blake3::Hasher;

/// Bytes of a page of weights that is hashed.
const PAGE: usize = 4096;

/// Version of the layout of a block in memory (`kv/layout.rs`), which is that of its file.
pub const LAYOUT_VERSION: u32 = 1;

/// The parts, each as a number or as 128 bits of BLAKE3.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Sizes of a block, and how keys and values are stored.
    pub geometry: Geometry,
    /// [`NUMERICS_VERSION`] of whoever computed it.
    pub numerics: u32,
    /// [`LAYOUT_VERSION`] of whoever stored it.
    pub layout: u32,
    /// Architecture, dimensions and epsilon.
    pub dimensions: BlockId,
    /// Rotary base, and all keys about rope.
    pub rope: BlockId,
    /// Vocabulary, merges, special tokens.
    pub tokenizer: BlockId,
    /// Chat templates.
    pub template: BlockId,
    /// Names, types and shapes of all tensors: the quantisation.
    pub types: BlockId,
    /// Size of the file, and the first, middle and last page of every tensor.
    pub weights: BlockId,
}

/// Bytes of [`Identity::encode`].
pub const IDENTITY_BYTES: usize = 6 * 4 + 6 * 16;

impl Identity {
    /// The identity of the caches of a model: `bytes` is its file, `config` its dimensions.
    ///
    /// Of the weights three pages of each tensor are hashed, since reading a file whole would take seconds
    /// at every start: models that were trained or quantised differently differ everywhere. A file in
    /// which somebody changed single bytes elsewhere is not told apart.
    #[cfg_attr(kinglet_small, optimize(size))]
    pub fn of(gguf: &Gguf<'_, '_>, bytes: &[u8], config: &Config, kv_type: KvType) -> Self {
        let (mut rope, mut tokenizer, mut template) = (Hasher::new(), Hasher::new(), Hasher::new());
        rope.update(&config.rope_theta.to_bits().to_le_bytes());
        for meta in gguf.metas() {
            let key = meta.key();
            let part = if key.starts_with("tokenizer.chat_template") {
                &mut template
            } else if key.starts_with("tokenizer.") {
                &mut tokenizer
            } else if key.contains(".rope.") {
                &mut rope
            } else {
                continue;
            };
            text(part, key);
            value(part, meta.value());
        }
        let (mut types, mut weights) = (Hasher::new(), Hasher::new());
        number(&mut weights, bytes.len() as u64);
        for tensor in gguf.tensors() {
            text(&mut types, tensor.name());
            text(&mut types, tensor.ty().name());
            number(&mut types, tensor.dims().len() as u64);
            tensor.dims().iter().for_each(|dim| number(&mut types, *dim));
            pages(&mut weights, tensor.data());
        }
        let mut dimensions = Hasher::new();
        text(&mut dimensions, config.arch.name());
        let c = config;
        for n in [c.n_layers, c.dim, c.n_heads, c.n_kv_heads, c.head_dim, c.ffn_dim, c.vocab] {
            number(&mut dimensions, n as u64);
        }
        dimensions.update(&c.rms_eps.to_bits().to_le_bytes());
        Identity {
            geometry: Geometry::of(config, kv_type),
            numerics: NUMERICS_VERSION,
            layout: LAYOUT_VERSION,
            dimensions: BlockId::from_hash(&dimensions),
            rope: BlockId::from_hash(&rope),
            tokenizer: BlockId::from_hash(&tokenizer),
            template: BlockId::from_hash(&template),
            types: BlockId::from_hash(&types),
            weights: BlockId::from_hash(&weights),
        }
    }

    /// All parts in one: what stands in every block's file, and names the folder of these caches.
    pub fn fingerprint(&self) -> BlockId {
        let mut hasher = Hasher::new();
        hasher.update(b"kinglet kv identity 1").update(&self.encode());
        BlockId::from_hash(&hasher)
    }

    /// As it stands in a file: the numbers, then the hashes; little-endian.
    #[cfg_attr(kinglet_small, optimize(size))]
    pub fn encode(&self) -> [u8; IDENTITY_BYTES] {
        let g = &self.geometry;
        let numbers = [
            self.numerics,
            self.layout,
            g.kv_type.number(),
            g.n_layers as u32,
            g.n_kv_heads as u32,
            g.head_dim as u32,
        ];
        let hashes = [self.dimensions, self.rope, self.tokenizer, self.template, self.types, self.weights];
        let mut out = [0; IDENTITY_BYTES];
        let parts = numbers.iter().flat_map(|n| n.to_le_bytes()).chain(hashes.iter().flat_map(|h| h.0));
        out.iter_mut().zip(parts).for_each(|(out, byte)| *out = byte);
        out
    }

    /// From a file; `None` for a KV type that is not known. All else is taken as it is: an identity is
    /// only ever compared.
    pub fn decode(bytes: &[u8; IDENTITY_BYTES]) -> Option<Self> {
        let word = |i: usize| {
            let at = 4 * i;
            u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let hash = |i: usize| {
            let mut id = BlockId::default();
            id.0.copy_from_slice(&bytes[24 + 16 * i..][..16]);
            id
        };
        Some(Identity {
            numerics: word(0),
            layout: word(1),
            geometry: Geometry {
                kv_type: KvType::from_number(word(2))?,
                n_layers: word(3) as usize,
                n_kv_heads: word(4) as usize,
                head_dim: word(5) as usize,
            },
            dimensions: hash(0),
            rope: hash(1),
            tokenizer: hash(2),
            template: hash(3),
            types: hash(4),
            weights: hash(5),
        })
    }

    /// Calls `f` with the name of every part in which the two differ.
    #[cfg_attr(kinglet_small, optimize(size))]
    pub fn differences(&self, other: &Self, f: &mut dyn FnMut(&'static str)) {
        let (a, b) = (&self.geometry, &other.geometry);
        let parts = [
            ("numerics version", self.numerics != other.numerics),
            ("layout version", self.layout != other.layout),
            ("KV type", a.kv_type != b.kv_type),
            ("geometry", (a.n_layers, a.n_kv_heads, a.head_dim) != (b.n_layers, b.n_kv_heads, b.head_dim)),
            ("dimensions", self.dimensions != other.dimensions),
            ("rope", self.rope != other.rope),
            ("tokenizer", self.tokenizer != other.tokenizer),
            ("chat template", self.template != other.template),
            ("weight types", self.types != other.types),
            ("weights", self.weights != other.weights),
        ];
        parts.iter().filter(|(_, differs)| *differs).for_each(|(name, _)| f(name));
    }
}

/// The first, the middle and the last page, or all of what is not longer.
fn pages(hasher: &mut Hasher, data: &[u8]) {
    number(hasher, data.len() as u64);
    if data.len() <= 3 * PAGE {
        hasher.update(data);
        return;
    }
    for at in [0, data.len() / 2 / PAGE * PAGE, data.len() - PAGE] {
        hasher.update(&data[at..at + PAGE]);
    }
}

fn number(hasher: &mut Hasher, n: u64) {
    hasher.update(&n.to_le_bytes());
}

/// Lengths go first, so that no two lists of texts look alike.
fn text(hasher: &mut Hasher, text: &str) {
    number(hasher, text.len() as u64);
    hasher.update(text.as_bytes());
}

fn value(hasher: &mut Hasher, value: Value<'_>) {
    match value {
        Value::U64(n) => number(hasher, n),
        Value::I64(n) => number(hasher, n as u64),
        Value::F64(n) => number(hasher, n.to_bits()),
        Value::Bool(b) => number(hasher, u64::from(b)),
        Value::Str(s) => text(hasher, s),
        Value::Array(Array::Str(strings)) => {
            number(hasher, strings.len() as u64);
            strings.iter().for_each(|s| text(hasher, s));
        }
        Value::Array(Array::Fixed(_, bytes)) => {
            number(hasher, bytes.len() as u64);
            hasher.update(bytes);
        }
    }
}
