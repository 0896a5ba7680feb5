//! Borrowed views of a model's tensors, shape-checked once against the [`Config`].
//!
//! Nothing is copied: a [`Matrix`] is a type, a shape and the bytes in the mapped file.

use crate::config::{Config, ModelError, ModelFault};
use crate::gguf::{Gguf, TensorInfo};
use crate::name::Name;
use crate::quant::WeightType;
use core::fmt::Write;

/// Name of the embedding matrix.
pub(crate) const TOKEN_EMBD: &str = "token_embd.weight";

/// A weight matrix, `[rows, cols]` row-major, in blocks along a row.
#[derive(Clone, Copy, Debug)]
pub struct Matrix<'a> {
    ty: WeightType,
    rows: usize,
    cols: usize,
    data: &'a [u8],
}

impl<'a> Matrix<'a> {
    /// A matrix of no rows.
    pub const EMPTY: Matrix<'static> = Matrix { ty: WeightType::F32, rows: 0, cols: 0, data: &[] };

    /// A view over `data`, or `None` if its length is not what type and shape say.
    pub fn new(ty: WeightType, rows: usize, cols: usize, data: &'a [u8]) -> Option<Self> {
        let whole = cols.is_multiple_of(ty.block_len());
        let bytes = (cols / ty.block_len()).checked_mul(ty.block_bytes())?.checked_mul(rows)?;
        (whole && bytes == data.len()).then_some(Matrix { ty, rows, cols, data })
    }

    /// Element type.
    pub fn ty(&self) -> WeightType {
        self.ty
    }

    /// Number of rows (outputs).
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Elements of a row (inputs).
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// The bytes of all rows.
    pub fn data(&self) -> &'a [u8] {
        self.data
    }

    /// Bytes of one row.
    pub fn row_bytes(&self) -> usize {
        self.ty.row_bytes(self.cols)
    }

    /// The bytes of rows `range`.
    ///
    /// # Panics
    /// If the range reaches past the last row.
    pub fn rows_data(&self, range: core::ops::Range<usize>) -> &'a [u8] {
        let row = self.row_bytes();
        &self.data[range.start * row..range.end * row]
    }
}

/// A vector of f32 in the file's bytes (no alignment is assumed).
#[derive(Clone, Copy, Debug)]
pub struct Vector<'a> {
    data: &'a [[u8; 4]],
}

impl<'a> Vector<'a> {
    /// A vector of no elements.
    pub const EMPTY: Vector<'static> = Vector { data: &[] };

    /// A view over little-endian f32 bytes; a rest of under 4 bytes is left out.
    pub fn new(bytes: &'a [u8]) -> Self {
        Vector { data: bytes.as_chunks().0 }
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.data.len()
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.data.is_empty()
    }

    /// Element `i`.
    ///
    /// # Panics
    /// If `i` is out of range.
    #[inline]
    pub fn get(&self, i: usize) -> f32 {
        f32::from_le_bytes(self.data[i])
    }

    /// The elements in order.
    #[inline]
    pub fn iter(&self) -> impl ExactSizeIterator<Item = f32> + use<'a> {
        self.data.iter().map(|b| f32::from_le_bytes(*b))
    }

    /// The elements' bytes, for kernels that load several at once.
    pub fn bytes(&self) -> &'a [[u8; 4]] {
        self.data
    }

    /// Elements `range`.
    ///
    /// # Panics
    /// If the range is out of bounds.
    pub fn slice(&self, range: core::ops::Range<usize>) -> Vector<'a> {
        Vector { data: &self.data[range] }
    }
}

/// Weights of one decoder block. Empty where the architecture has none.
#[derive(Clone, Copy, Debug)]
pub struct Layer<'a> {
    /// `[dim]`
    pub attn_norm: Vector<'a>,
    /// `[q_dim, dim]`
    pub wq: Matrix<'a>,
    /// `[kv_dim, dim]`
    pub wk: Matrix<'a>,
    /// `[kv_dim, dim]`
    pub wv: Matrix<'a>,
    /// `[q_dim]` or empty
    pub bq: Vector<'a>,
    /// `[kv_dim]` or empty
    pub bk: Vector<'a>,
    /// `[kv_dim]` or empty
    pub bv: Vector<'a>,
    /// `[head_dim]` or empty
    pub q_norm: Vector<'a>,
    /// `[head_dim]` or empty
    pub k_norm: Vector<'a>,
    /// `[dim, q_dim]`
    pub wo: Matrix<'a>,
    /// `[dim]`
    pub ffn_norm: Vector<'a>,
    /// Feed-forward part.
    pub ffn: Ffn<'a>,
}

/// The feed-forward part of a block. A mixture of experts will be a second variant.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Ffn<'a> {
    /// `down(silu(gate(x)) * up(x))`
    Dense {
        /// `[ffn_dim, dim]`
        gate: Matrix<'a>,
        /// `[ffn_dim, dim]`
        up: Matrix<'a>,
        /// `[dim, ffn_dim]`
        down: Matrix<'a>,
    },
}

impl Layer<'_> {
    /// An unused table slot.
    pub const EMPTY: Layer<'static> = Layer {
        attn_norm: Vector::EMPTY,
        wq: Matrix::EMPTY,
        wk: Matrix::EMPTY,
        wv: Matrix::EMPTY,
        bq: Vector::EMPTY,
        bk: Vector::EMPTY,
        bv: Vector::EMPTY,
        q_norm: Vector::EMPTY,
        k_norm: Vector::EMPTY,
        wo: Matrix::EMPTY,
        ffn_norm: Vector::EMPTY,
        ffn: Ffn::Dense { gate: Matrix::EMPTY, up: Matrix::EMPTY, down: Matrix::EMPTY },
    };
}

/// All weights of a model. `'a` is the file, `'t` the caller's layer table.
#[derive(Clone, Copy, Debug)]
pub struct Weights<'a, 't> {
    /// `[vocab, dim]`
    pub token_embd: Matrix<'a>,
    /// `[dim]`
    pub output_norm: Vector<'a>,
    /// `[vocab, dim]`; the embedding matrix again where the model is tied.
    pub output: Matrix<'a>,
    /// One per decoder block.
    pub layers: &'t [Layer<'a>],
}

impl<'a, 't> Weights<'a, 't> {
    /// Finds and checks every tensor that the model needs. `layers` needs `config.n_layers` slots.
    ///
    /// # Errors
    /// A tensor that is missing or has another shape or type, with its name.
    pub fn load(
        gguf: &Gguf<'a, '_>,
        config: &Config,
        layers: &'t mut [Layer<'a>],
    ) -> Result<Self, ModelError> {
        let got = layers.len();
        let needed = config.n_layers;
        let layers = layers
            .get_mut(..needed)
            .ok_or(ModelError { fault: ModelFault::TableTooSmall { needed, got }, name: Name::NONE })?;
        let (dim, vocab) = (config.dim, config.vocab);
        let whole = Finder { gguf, layer: None };
        let token_embd = whole.matrix(TOKEN_EMBD, vocab, dim)?;
        let output_norm = whole.vector("output_norm.weight", dim)?;
        let output = match gguf.tensor("output.weight") {
            Some(_) => whole.matrix("output.weight", vocab, dim)?,
            None => token_embd,
        };
        for (i, slot) in layers.iter_mut().enumerate() {
            *slot = load_layer(&Finder { gguf, layer: Some(i) }, config)?;
        }
        Ok(Weights { token_embd, output_norm, output, layers })
    }

    /// Whether every tensor has the shape that `config` says.
    #[inline(never)]
    #[cfg_attr(kinglet_small, optimize(size))]
    pub(crate) fn fits(&self, c: &Config) -> bool {
        let is = |m: &Matrix<'_>, rows, cols| m.rows == rows && m.cols == cols;
        let bias = |v: &Vector<'_>, len| v.is_empty() || v.len() == len;
        let layer = |l: &Layer<'_>| {
            let Ffn::Dense { gate, up, down } = &l.ffn;
            l.attn_norm.len() == c.dim
                && l.ffn_norm.len() == c.dim
                && is(&l.wq, c.q_dim(), c.dim)
                && is(&l.wk, c.kv_dim(), c.dim)
                && is(&l.wv, c.kv_dim(), c.dim)
                && is(&l.wo, c.dim, c.q_dim())
                && is(gate, c.ffn_dim, c.dim)
                && is(up, c.ffn_dim, c.dim)
                && is(down, c.dim, c.ffn_dim)
                && bias(&l.bq, c.q_dim())
                && bias(&l.bk, c.kv_dim())
                && bias(&l.bv, c.kv_dim())
                && bias(&l.q_norm, c.head_dim)
                && bias(&l.k_norm, c.head_dim)
                && l.q_norm.is_empty() == l.k_norm.is_empty()
        };
        is(&self.token_embd, c.vocab, c.dim)
            && is(&self.output, c.vocab, c.dim)
            && self.output_norm.len() == c.dim
            && self.layers.len() == c.n_layers
            && self.layers.iter().all(layer)
    }

    /// Whether the output matrix is the embedding matrix.
    pub fn is_tied(&self) -> bool {
        core::ptr::eq(self.output.data, self.token_embd.data)
    }
}

#[inline(never)]
#[cfg_attr(kinglet_small, optimize(size))]
fn load_layer<'a>(find: &Finder<'_, 'a, '_>, c: &Config) -> Result<Layer<'a>, ModelError> {
    let bias = |name: &str, len: usize| {
        if c.arch.has_qkv_bias() { find.vector(name, len) } else { Ok(Vector::EMPTY) }
    };
    let norm = |name: &str| {
        if c.arch.has_qk_norm() { find.vector(name, c.head_dim) } else { Ok(Vector::EMPTY) }
    };
    Ok(Layer {
        attn_norm: find.vector("attn_norm.weight", c.dim)?,
        wq: find.matrix("attn_q.weight", c.q_dim(), c.dim)?,
        wk: find.matrix("attn_k.weight", c.kv_dim(), c.dim)?,
        wv: find.matrix("attn_v.weight", c.kv_dim(), c.dim)?,
        bq: bias("attn_q.bias", c.q_dim())?,
        bk: bias("attn_k.bias", c.kv_dim())?,
        bv: bias("attn_v.bias", c.kv_dim())?,
        q_norm: norm("attn_q_norm.weight")?,
        k_norm: norm("attn_k_norm.weight")?,
        wo: find.matrix("attn_output.weight", c.dim, c.q_dim())?,
        ffn_norm: find.vector("ffn_norm.weight", c.dim)?,
        ffn: Ffn::Dense {
            gate: find.matrix("ffn_gate.weight", c.ffn_dim, c.dim)?,
            up: find.matrix("ffn_up.weight", c.ffn_dim, c.dim)?,
            down: find.matrix("ffn_down.weight", c.dim, c.ffn_dim)?,
        },
    })
}

/// Looks up tensors of the whole model or of one block, and checks them.
struct Finder<'g, 'a, 't> {
    gguf: &'g Gguf<'a, 't>,
    layer: Option<usize>,
}

impl<'a, 't> Finder<'_, 'a, 't> {
    fn tensor(&self, rest: &str) -> Result<&'t TensorInfo<'a>, ModelError> {
        let mut name = Text { bytes: [0; 64], len: 0 };
        // Names of this file's literals fit; a cut name would be found missing, not misread.
        let _ = match self.layer {
            Some(i) => write!(name, "blk.{i}.{rest}"),
            None => write!(name, "{rest}"),
        };
        let name = core::str::from_utf8(&name.bytes[..name.len]).unwrap_or("");
        self.gguf.tensor(name).ok_or(ModelError { fault: ModelFault::MissingTensor, name: Name::new(name) })
    }

    #[cfg_attr(kinglet_small, optimize(size))]
    fn checked(&self, rest: &str, rows: usize, cols: usize) -> Result<&'t TensorInfo<'a>, ModelError> {
        let tensor = self.tensor(rest)?;
        let dim = |i: usize| tensor.dims().get(i).copied().unwrap_or(1);
        let found_rows = dim(1).saturating_mul(dim(2)).saturating_mul(dim(3));
        if (dim(0), found_rows) != (cols as u64, rows as u64) {
            let fault = ModelFault::Shape {
                cols: dim(0),
                rows: found_rows,
                want_cols: cols as u64,
                want_rows: rows as u64,
            };
            return Err(ModelError { fault, name: Name::new(tensor.name()) });
        }
        Ok(tensor)
    }

    #[inline(never)]
    fn matrix(&self, rest: &str, rows: usize, cols: usize) -> Result<Matrix<'a>, ModelError> {
        let t = self.checked(rest, rows, cols)?;
        // The parser computed the data's length from the same shape.
        Ok(Matrix { ty: t.ty(), rows, cols, data: t.data() })
    }

    #[inline(never)]
    fn vector(&self, rest: &str, len: usize) -> Result<Vector<'a>, ModelError> {
        let t = self.checked(rest, 1, len)?;
        if t.ty() != WeightType::F32 {
            return Err(ModelError { fault: ModelFault::VectorType, name: Name::new(t.name()) });
        }
        Ok(Vector::new(t.data()))
    }
}

/// A tensor name being put together.
struct Text {
    bytes: [u8; 64],
    len: usize,
}

impl Write for Text {
    fn write_str(&mut self, s: &str) -> core::fmt::Result {
        let end = self.len + s.len();
        let room = self.bytes.get_mut(self.len..end).ok_or(core::fmt::Error)?;
        room.copy_from_slice(s.as_bytes());
        self.len = end;
        Ok(())
    }
}
