//! Model dimensions, read from GGUF metadata and checked once.
//!
//! After [`Config::from_gguf`] every dimension lies in a range in which the sizes derived from it can be
//! computed without overflow. Knows keys and limits, not tensors' bytes.

use crate::gguf::{Gguf, GgufError, GgufFault, Value};
use crate::name::Name;
use core::fmt;

/// Model families of one forward pass each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Arch {
    /// Qwen2, Qwen2.5: biases on q, k and v.
    Qwen2,
    /// Qwen3: RMS norms on q and k, head_dim apart from dim / heads.
    Qwen3,
    /// Qwen3-VL, its text side: as Qwen3. For text its multi-axis rope equals the plain one.
    Qwen3Vl,
}

impl Arch {
    /// The value of `general.architecture` and prefix of the keys.
    pub const fn name(self) -> &'static str {
        match self {
            Arch::Qwen2 => "qwen2",
            Arch::Qwen3 => "qwen3",
            Arch::Qwen3Vl => "qwen3vl",
        }
    }

    fn from_name(name: &str) -> Option<Self> {
        [Arch::Qwen2, Arch::Qwen3, Arch::Qwen3Vl].into_iter().find(|a| a.name() == name)
    }

    /// Whether q, k and v have biases.
    pub const fn has_qkv_bias(self) -> bool {
        matches!(self, Arch::Qwen2)
    }

    /// Whether q and k are normalised per head.
    pub const fn has_qk_norm(self) -> bool {
        !self.has_qkv_bias()
    }
}

/// Dimensions of a model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Config {
    /// Family.
    pub arch: Arch,
    /// Decoder blocks.
    pub n_layers: usize,
    /// Width of the residual stream.
    pub dim: usize,
    /// Query heads.
    pub n_heads: usize,
    /// Key/value heads; divides `n_heads`.
    pub n_kv_heads: usize,
    /// Elements of a head; a multiple of 16.
    pub head_dim: usize,
    /// Width of the feed-forward layer.
    pub ffn_dim: usize,
    /// Rows of the embedding and output matrices.
    pub vocab: usize,
    /// Context length the model was trained for, in tokens.
    pub train_ctx: usize,
    /// Base of the rotary frequencies.
    pub rope_theta: f32,
    /// Epsilon of every RMS norm.
    pub rms_eps: f32,
}

/// Largest accepted values: far above any model, far below any overflow.
pub(crate) const MAX_LAYERS: u32 = 1024;
const MAX_WIDTH: u32 = 1 << 20;
pub(crate) const MAX_HEADS: u32 = 4096;
pub(crate) const MAX_HEAD_DIM: u32 = crate::ops::attention::MAX_HEAD_DIM as u32;
const MAX_VOCAB: u64 = 1 << 22;

/// Why a GGUF file is no model for this engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModelError {
    /// What is wrong.
    pub fault: ModelFault,
    /// Key or tensor; [`Name::NONE`] where there is none.
    pub name: Name,
}

/// The kinds of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ModelFault {
    /// A metadata fault found by the parser.
    Gguf(GgufFault),
    /// An architecture that is not built in; its name is the error's name.
    Arch,
    /// A dimension is zero, too large, or does not divide what it must.
    Dimension {
        /// The value in the file.
        found: u64,
    },
    /// Rope scaling or another variant of positions that would give wrong answers if ignored.
    Rope,
    /// A tensor that the model needs is not there.
    MissingTensor,
    /// A tensor has another shape than the dimensions say.
    Shape {
        /// Elements of a row (innermost).
        cols: u64,
        /// Number of rows.
        rows: u64,
        /// Expected elements of a row.
        want_cols: u64,
        /// Expected number of rows.
        want_rows: u64,
    },
    /// A norm or bias is not stored as F32.
    VectorType,
    /// The vocabulary has another length than the embedding matrix.
    Vocabulary {
        /// Tokens listed.
        tokens: u64,
        /// Rows of the matrix.
        rows: u64,
    },
    /// The caller's layer table has too few slots.
    TableTooSmall {
        /// Slots needed.
        needed: usize,
        /// Slots given.
        got: usize,
    },
}

impl From<GgufError> for ModelError {
    fn from(e: GgufError) -> Self {
        ModelError { fault: ModelFault::Gguf(e.fault), name: e.name }
    }
}

impl fmt::Display for ModelFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Gguf(fault) => fault.fmt(f),
            Self::Arch => {
                write!(f, "this architecture is not supported; qwen2, qwen3 and qwen3vl (text) are")
            }
            Self::Dimension { found } => write!(f, "the value {found} is out of range"),
            Self::Rope => write!(f, "this kind of rope scaling is not supported"),
            Self::MissingTensor => write!(f, "tensor is missing; is this a complete language model?"),
            Self::Shape { cols, rows, want_cols, want_rows } => {
                write!(f, "shape is {cols} x {rows}, expected {want_cols} x {want_rows}")
            }
            Self::VectorType => write!(f, "must be stored as F32"),
            Self::Vocabulary { tokens, rows } => {
                write!(f, "{tokens} tokens are listed, the embedding matrix has {rows} rows")
            }
            Self::TableTooSmall { needed, got } => write!(f, "needs {needed} layer slots, got {got}"),
        }
    }
}

impl fmt::Display for ModelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.name != Name::NONE {
            write!(f, "'{}': ", self.name)?;
        }
        self.fault.fmt(f)
    }
}

impl core::error::Error for ModelError {}

/// A metadata key `<arch>.<rest>`, put together without allocation.
#[derive(Clone, Copy)]
struct Key {
    bytes: [u8; 64],
    len: usize,
}

impl Key {
    /// `rest` is one of this file's literals: arch and rest together stay below 64 bytes.
    #[inline(never)]
    fn new(arch: Arch, rest: &str) -> Self {
        let mut key = Key { bytes: [0; 64], len: 0 };
        for part in [arch.name(), ".", rest] {
            let end = key.len + part.len();
            key.bytes[key.len..end].copy_from_slice(part.as_bytes());
            key.len = end;
        }
        key
    }

    fn as_str(&self) -> &str {
        core::str::from_utf8(&self.bytes[..self.len]).unwrap_or("")
    }
}

impl Config {
    /// Reads and checks the dimensions.
    ///
    /// # Errors
    /// An unknown architecture, a missing key, or a value out of range, with its key.
    #[cfg_attr(kinglet_small, optimize(size))]
    pub fn from_gguf(gguf: &Gguf<'_, '_>) -> Result<Self, ModelError> {
        let name = gguf.str("general.architecture")?;
        let arch =
            Arch::from_name(name).ok_or(ModelError { fault: ModelFault::Arch, name: Name::new(name) })?;
        let read = |rest: &str, most: u32| -> Result<usize, ModelError> {
            let key = Key::new(arch, rest);
            let found = gguf.u32(key.as_str())?;
            if found == 0 || found > most {
                return Err(dimension(key.as_str(), u64::from(found)));
            }
            Ok(found as usize)
        };
        let has = |rest: &str| gguf.get(Key::new(arch, rest).as_str()).is_some();
        let float = |rest: &str| gguf.f32(Key::new(arch, rest).as_str());

        let dim = read("embedding_length", MAX_WIDTH)?;
        let n_heads = read("attention.head_count", MAX_HEADS)?;
        let n_kv_heads = if has("attention.head_count_kv") {
            read("attention.head_count_kv", MAX_HEADS)?
        } else {
            n_heads
        };
        let head_dim = if has("attention.key_length") {
            read("attention.key_length", MAX_HEAD_DIM)?
        } else {
            dim / n_heads
        };
        let bad = |rest: &str, found: usize| dimension(Key::new(arch, rest).as_str(), found as u64);
        for same in ["attention.value_length", "rope.dimension_count"] {
            if has(same) {
                let found = read(same, MAX_HEAD_DIM)?;
                if found != head_dim {
                    return Err(bad(same, found));
                }
            }
        }
        Self::check_rope(gguf, arch)?;
        let positive = |rest: &str| -> Result<f32, ModelError> {
            let value = float(rest)?;
            if value.is_finite() && value > 0.0 {
                return Ok(value);
            }
            let key = Key::new(arch, rest);
            Err(GgufError { fault: GgufFault::ValueType, name: Name::new(key.as_str()) }.into())
        };

        let config = Config {
            arch,
            n_layers: read("block_count", MAX_LAYERS)?,
            dim,
            n_heads,
            n_kv_heads,
            head_dim,
            ffn_dim: read("feed_forward_length", MAX_WIDTH)?,
            vocab: Self::vocab(gguf)?,
            train_ctx: read("context_length", u32::MAX)?,
            rope_theta: if has("rope.freq_base") { positive("rope.freq_base")? } else { 10_000.0 },
            rms_eps: positive("attention.layer_norm_rms_epsilon")?,
        };
        match config.check() {
            None => Ok(config),
            // Without a key of its own the head's length follows from the number of heads.
            Some(("attention.key_length", _)) if !has("attention.key_length") => {
                Err(bad("attention.head_count", n_heads))
            }
            Some((rest, found)) => Err(bad(rest, found)),
        }
    }

    /// The first dimension out of range, as the rest of its key and its value.
    ///
    /// Sizes derived from dimensions that pass can be computed without overflow.
    #[cfg_attr(kinglet_small, optimize(size))]
    pub fn check(&self) -> Option<(&'static str, usize)> {
        let ranges = [
            ("block_count", self.n_layers, MAX_LAYERS as usize),
            ("embedding_length", self.dim, MAX_WIDTH as usize),
            ("attention.head_count", self.n_heads, MAX_HEADS as usize),
            ("attention.head_count_kv", self.n_kv_heads, MAX_HEADS as usize),
            ("attention.key_length", self.head_dim, MAX_HEAD_DIM as usize),
            ("feed_forward_length", self.ffn_dim, MAX_WIDTH as usize),
            ("vocab_size", self.vocab, MAX_VOCAB as usize),
        ];
        if let Some((rest, found, _)) = ranges.into_iter().find(|(_, n, most)| *n == 0 || n > most) {
            return Some((rest, found));
        }
        if !self.n_heads.is_multiple_of(self.n_kv_heads) {
            return Some(("attention.head_count_kv", self.n_kv_heads));
        }
        if !self.head_dim.is_multiple_of(16) {
            return Some(("attention.key_length", self.head_dim));
        }
        if self.q_dim() > MAX_WIDTH as usize {
            return Some(("attention.head_count", self.n_heads));
        }
        None
    }

    /// Anything that bends positions and is not implemented would give wrong answers silently.
    #[inline(never)]
    #[cfg_attr(kinglet_small, optimize(size))]
    fn check_rope(gguf: &Gguf<'_, '_>, arch: Arch) -> Result<(), ModelError> {
        let refuse = |key: Key| Err(ModelError { fault: ModelFault::Rope, name: Name::new(key.as_str()) });
        let key = Key::new(arch, "rope.scaling.type");
        match gguf.get(key.as_str()) {
            Some(Value::Str("none")) => {}
            Some(_) => return refuse(key),
            // llama.cpp takes a missing type for "linear"; the second key is the factor's old name.
            None => {
                for rest in ["rope.scaling.factor", "rope.scale_linear"] {
                    let key = Key::new(arch, rest);
                    match gguf.get(key.as_str()) {
                        None => {}
                        Some(Value::F64(factor)) if factor == 0.0 || factor == 1.0 => {}
                        Some(_) => return refuse(key),
                    }
                }
            }
        }
        match gguf.tensor("rope_freqs.weight") {
            None => Ok(()),
            Some(t) => Err(ModelError { fault: ModelFault::Rope, name: Name::new(t.name()) }),
        }
    }

    /// The vocabulary is as long as the embedding matrix; a list of tokens must agree.
    #[inline(never)]
    #[cfg_attr(kinglet_small, optimize(size))]
    fn vocab(gguf: &Gguf<'_, '_>) -> Result<usize, ModelError> {
        let name = Name::new(crate::weights::TOKEN_EMBD);
        let embedding = gguf
            .tensor(crate::weights::TOKEN_EMBD)
            .ok_or(ModelError { fault: ModelFault::MissingTensor, name })?;
        let rows = embedding.dims().get(1).copied().unwrap_or(1);
        if rows > MAX_VOCAB {
            return Err(ModelError { fault: ModelFault::Dimension { found: rows }, name });
        }
        let key = "tokenizer.ggml.tokens";
        if gguf.get(key).is_some() {
            let tokens = gguf.strings(key)?.len() as u64;
            if tokens != rows {
                let fault = ModelFault::Vocabulary { tokens, rows };
                return Err(ModelError { fault, name: Name::new(key) });
            }
        }
        Ok(rows as usize)
    }

    /// Elements of all query heads of a token.
    pub const fn q_dim(&self) -> usize {
        self.n_heads * self.head_dim
    }

    /// Elements of all key (or value) heads of a token.
    pub const fn kv_dim(&self) -> usize {
        self.n_kv_heads * self.head_dim
    }

    /// Query heads that share a key/value head.
    pub const fn group(&self) -> usize {
        self.n_heads / self.n_kv_heads
    }
}

#[inline(never)]
fn dimension(key: &str, found: u64) -> ModelError {
    ModelError { fault: ModelFault::Dimension { found }, name: Name::new(key) }
}
