//! Small models of random F32 weights, in memory. Memory is leaked: a test process is short.
//!
//! It must not know what a model computes.

use crate::model::region;
use kinglet_core::config::Arch;
use kinglet_core::quant::WeightType;
use kinglet_core::weights::{Ffn, Layer, Matrix, Vector};
use kinglet_core::{Config, Engine, Isa, KvType, Limits, Memory, Requirements, Weights};

/// Dimensions that compute fast; to be varied.
pub const SMALL: Config = Config {
    arch: Arch::Qwen2,
    n_layers: 2,
    dim: 24,
    n_heads: 4,
    n_kv_heads: 2,
    head_dim: 16,
    ffn_dim: 20,
    vocab: 37,
    train_ctx: 64,
    rope_theta: 1e4,
    rms_eps: 1e-6,
};

/// Limits that go with [`SMALL`]: three sequences of at most 100 tokens, 10 blocks for all of them.
pub fn small_limits(kv_type: KvType) -> Limits {
    Limits { max_seq: 100, kv_tokens: 300, max_batch: 128, max_seqs: 3, max_logits: 5, kv_type }
}

/// A linear congruential generator.
pub struct Rng(pub u64);

impl Rng {
    /// A number of 31 bits.
    pub fn number(&mut self) -> u32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as u32
    }

    /// A number from -1 to 1.
    pub fn signed(&mut self) -> f32 {
        (self.number() % 20_001) as f32 / 1e4 - 1.0
    }

    /// Token ids of a vocabulary.
    pub fn tokens(&mut self, n: usize, vocab: usize) -> Vec<u32> {
        (0..n).map(|_| self.number() % vocab as u32).collect()
    }
}

/// A tensor by the middle of its name in a file (`attn_q` or `attn_q.bias`).
#[derive(Clone, Debug)]
pub struct Tensor {
    /// The name.
    pub name: &'static str,
    /// The layer, 0 for tensors of the whole model.
    pub layer: usize,
    /// Elements of a row.
    pub cols: usize,
    /// The elements, row by row.
    pub values: Vec<f32>,
}

/// A model whose tensors can be looked at and changed.
#[derive(Clone, Debug)]
pub struct RandomModel {
    /// Dimensions.
    pub config: Config,
    /// Every tensor of the model.
    pub tensors: Vec<Tensor>,
}

impl RandomModel {
    /// Draws all tensors. Biases of keys are large, as those of real models are.
    pub fn new(config: Config, rng: &mut Rng) -> Self {
        let c = config;
        let mut model = RandomModel { config, tensors: Vec::new() };
        let mut add = |name, layer, rows: usize, cols: usize, scale: f32| {
            let values = (0..rows * cols).map(|_| rng.signed() * scale).collect();
            model.tensors.push(Tensor { name, layer, cols, values });
        };
        let scale = 1.7 / (c.dim as f32).sqrt();
        add("token_embd", 0, c.vocab, c.dim, 1.0);
        add("output", 0, c.vocab, c.dim, scale);
        add("output_norm", 0, 1, c.dim, 1.0);
        for layer in 0..c.n_layers {
            add("attn_norm", layer, 1, c.dim, 1.0);
            add("attn_q", layer, c.q_dim(), c.dim, scale);
            add("attn_k", layer, c.kv_dim(), c.dim, scale);
            add("attn_v", layer, c.kv_dim(), c.dim, scale);
            add("attn_output", layer, c.dim, c.q_dim(), scale);
            add("ffn_norm", layer, 1, c.dim, 1.0);
            add("ffn_gate", layer, c.ffn_dim, c.dim, scale);
            add("ffn_up", layer, c.ffn_dim, c.dim, scale);
            add("ffn_down", layer, c.dim, c.ffn_dim, scale);
            if c.arch.has_qkv_bias() {
                add("attn_q.bias", layer, 1, c.q_dim(), 1.0);
                add("attn_k.bias", layer, 1, c.kv_dim(), 8.0);
                add("attn_v.bias", layer, 1, c.kv_dim(), 1.0);
            } else {
                add("attn_q_norm", layer, 1, c.head_dim, 1.5);
                add("attn_k_norm", layer, 1, c.head_dim, 1.5);
            }
        }
        model
    }

    fn find(&self, name: &str, layer: usize) -> Option<&Tensor> {
        self.tensors.iter().find(|t| t.name == name && t.layer == layer)
    }

    /// The elements of a tensor.
    ///
    /// # Panics
    /// If the model has no such tensor.
    pub fn get(&self, name: &str, layer: usize) -> &[f32] {
        &self.find(name, layer).unwrap_or_else(|| panic!("no tensor {name} in layer {layer}")).values
    }

    fn matrix(&self, name: &str, layer: usize) -> Matrix<'static> {
        let values = self.get(name, layer);
        let cols = self.find(name, layer).map_or(0, |t| t.cols);
        Matrix::new(WeightType::F32, values.len() / cols, cols, bytes(values)).unwrap()
    }

    fn vector(&self, name: &str, layer: usize) -> Vector<'static> {
        self.find(name, layer).map_or(Vector::EMPTY, |t| Vector::new(bytes(&t.values)))
    }

    fn layer(&self, i: usize) -> Layer<'static> {
        let (matrix, vector) = (|name| self.matrix(name, i), |name| self.vector(name, i));
        Layer {
            attn_norm: vector("attn_norm"),
            wq: matrix("attn_q"),
            wk: matrix("attn_k"),
            wv: matrix("attn_v"),
            bq: vector("attn_q.bias"),
            bk: vector("attn_k.bias"),
            bv: vector("attn_v.bias"),
            q_norm: vector("attn_q_norm"),
            k_norm: vector("attn_k_norm"),
            wo: matrix("attn_output"),
            ffn_norm: vector("ffn_norm"),
            ffn: Ffn::Dense { gate: matrix("ffn_gate"), up: matrix("ffn_up"), down: matrix("ffn_down") },
        }
    }

    /// The weights as they are now, copied.
    pub fn weights(&self) -> Weights<'static, 'static> {
        let layers: Vec<Layer<'static>> = (0..self.config.n_layers).map(|i| self.layer(i)).collect();
        Weights {
            token_embd: self.matrix("token_embd", 0),
            output_norm: self.vector("output_norm", 0),
            output: self.matrix("output", 0),
            layers: layers.leak(),
        }
    }

    /// An engine over the weights as they are now.
    ///
    /// # Panics
    /// If the limits or the dimensions are out of range.
    pub fn engine(&self, limits: Limits, isa: Isa) -> Engine<'static> {
        let r = Requirements::of(&self.config, &limits).unwrap();
        let memory = Memory { kv: region(r.kv), scratch: region(r.scratch), index: region(r.index) };
        Engine::new(self.config, self.weights(), limits, memory, isa).unwrap()
    }
}

fn bytes(values: &[f32]) -> &'static [u8] {
    values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>().leak()
}
