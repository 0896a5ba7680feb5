//! Attention by sections 5 to 7 of the numerics contract, written down a second time and compared bit
//! for bit: rope, conditioning, scores, softmax over blocks, both kinds of KV, every instruction set.
//!
//! Nothing here uses code of the core; plain arithmetic is in `kinglet_tests::naive`.

use core::iter::zip;
use kinglet_core::config::Arch;
use kinglet_core::forward::{Point, Trace};
use kinglet_core::par::Single;
use kinglet_core::{Chunk, Config, Isa, KvType, Logits};
use kinglet_tests::isas::all_isas;
use kinglet_tests::naive::{self, dot16, quantize, sum16};
use kinglet_tests::random_model::{RandomModel, Rng, SMALL, small_limits};
use std::collections::HashMap;

/// Query heads, KV heads, elements of a head.
const SHAPES: [(usize, usize, usize); 7] =
    [(4, 2, 16), (3, 1, 48), (9, 1, 64), (2, 2, 128), (10, 5, 80), (2, 1, 256), (1, 1, 144)];

/// Positions of a block.
const BLOCK: usize = 32;

/// Two whole blocks and a part of the third.
const TOKENS: usize = 71;

/// All activations of a sequence, over all its steps.
#[derive(Default, PartialEq)]
struct Seen(HashMap<(Point, usize), Vec<f32>>);

impl Trace for Seen {
    fn see(&mut self, point: Point, layer: usize, activations: &[f32]) {
        self.0.entry((point, layer)).or_default().extend_from_slice(activations);
    }
}

impl Seen {
    /// What the engine computes for `tokens`, given in steps of `batch`.
    fn of(model: &RandomModel, kv_type: KvType, isa: Isa, tokens: &[u32], batch: usize) -> Seen {
        let mut engine = model.engine(small_limits(kv_type), isa);
        let (seq, mut seen) = (engine.open().unwrap(), Seen::default());
        for tokens in tokens.chunks(batch) {
            let chunk = Chunk { seq, tokens, logits: Logits::All };
            engine.forward_traced(&Single, &[chunk], &mut |_, _| {}, &mut seen).unwrap();
        }
        seen
    }

    fn get(&self, point: Point, layer: usize) -> &[f32] {
        &self.0[&(point, layer)]
    }
}

/// Section 5: the rotary frequencies.
fn frequencies(config: &Config) -> Vec<f32> {
    let n = config.head_dim as f64;
    (0..config.head_dim / 2)
        .map(|j| libm::pow(f64::from(config.rope_theta), -2.0 * j as f64 / n) as f32)
        .collect()
}

/// Section 5: a head turned by rope to a position.
fn turned(head: &[f32], position: f32, freq: &[f32]) -> Vec<f32> {
    let angles: Vec<f64> = freq.iter().map(|f| f64::from(position * f)).collect();
    let cos: Vec<f32> = angles.iter().map(|a| libm::cos(*a) as f32).collect();
    let sin: Vec<f32> = angles.iter().map(|a| libm::sin(*a) as f32).collect();
    naive::rope(head, &cos, &sin)
}

/// The heads of all tokens at their positions: `[token][head]`.
fn turned_heads(rows: &[f32], width: usize, freq: &[f32]) -> Vec<Vec<Vec<f32>>> {
    let head_dim = 2 * freq.len();
    let row =
        |(p, row): (usize, &[f32])| row.chunks(head_dim).map(|head| turned(head, p as f32, freq)).collect();
    rows.chunks(width).enumerate().map(row).collect()
}

/// Section 7: the two vectors of a KV head.
struct Conditioning {
    b: Vec<f32>,
    c: Vec<f32>,
}

/// Section 7: the mean square of a rope pair.
fn pair_size(v: &[f32], j: usize) -> f32 {
    let k = j + v.len() / 2;
    (v[j] * v[j] + v[k] * v[k]) * 0.5
}

/// Section 7: what of a vector turned by frequency `freq` is left in the mean over a block.
fn left_in_the_mean(freq: f32) -> f32 {
    let sum = (0..BLOCK).fold(0.0, |sum, t| sum + libm::cos(f64::from(freq) * (t as f64 - 15.5)));
    (sum / 32.0) as f32
}

impl Conditioning {
    fn of(model: &RandomModel, layer: usize, kv_head: usize, freq: &[f32]) -> Self {
        let (n, half) = (2 * freq.len(), freq.len());
        let (mut b, mut c) = (vec![0.0; n], vec![1.0; n]);
        for j in 0..half {
            let (k_size, q_size) = match model.config.arch {
                Arch::Qwen2 => {
                    let bias = &model.get("attn_k.bias", layer)[kv_head * n..][..n];
                    let g = left_in_the_mean(freq[j]);
                    (b[j], b[j + half]) = (bias[j] * g, bias[j + half] * g);
                    let q_size = mean_q_bias_size(model, layer, kv_head, j);
                    (pair_size(bias, j) * (1.0 - g * g) + 4.0, q_size + 4.0)
                }
                _ => {
                    let norm = |name| pair_size(model.get(name, layer), j);
                    (norm("attn_k_norm"), norm("attn_q_norm"))
                }
            };
            let factor = (k_size / q_size).sqrt().sqrt();
            let usable = (1.0 / 256.0..=256.0).contains(&factor);
            c[j] = if usable { factor } else { 1.0 };
            c[j + half] = c[j];
        }
        Conditioning { b, c }
    }
}

/// Section 7, qwen2: the size of pair `j` in the biases of the query heads that share a KV head.
fn mean_q_bias_size(model: &RandomModel, layer: usize, kv_head: usize, j: usize) -> f32 {
    let (n, group) = (model.config.head_dim, model.config.group());
    let bias = model.get("attn_q.bias", layer);
    let heads = kv_head * group..(kv_head + 1) * group;
    heads.fold(0.0, |sum, head| sum + pair_size(&bias[head * n..][..n], j)) / group as f32
}

/// Section 6: how one query head stands after some blocks.
struct State {
    m: f32,
    l: f32,
    a: Vec<f32>,
}

impl State {
    /// Takes in the scores of a block; gives `corr` and the `p` of each token.
    fn take(&mut self, scores: &[f32]) -> (f32, Vec<f32>) {
        let m = scores.iter().fold(self.m, |m, s| if *s > m { *s } else { m });
        let corr = naive::exp(self.m - m);
        let p: Vec<f32> = scores.iter().map(|s| naive::exp(s - m)).collect();
        self.l = self.l.mul_add(corr, sum16(&p));
        self.m = m;
        (corr, p)
    }
}

/// A quantised run: scale and integers.
type Quantised = (f32, Vec<i64>);

/// The keys and values of one KV head.
struct KvHead<'a> {
    kv_type: KvType,
    conditioning: Conditioning,
    /// `R` of each block.
    middles: Vec<Vec<f32>>,
    /// After rope.
    keys: Vec<&'a [f32]>,
    values: Vec<&'a [f32]>,
    /// Conditioned and quantised.
    keys_q8: Vec<Quantised>,
    values_q8: Vec<Quantised>,
}

impl<'a> KvHead<'a> {
    fn new(
        kv_type: KvType,
        conditioning: Conditioning,
        freq: &[f32],
        keys: Vec<&'a [f32]>,
        values: Vec<&'a [f32]>,
    ) -> Self {
        let middle = |i| turned(&conditioning.b, (i * BLOCK) as f32 + 15.5, freq);
        let middles: Vec<Vec<f32>> = (0..keys.len().div_ceil(BLOCK)).map(middle).collect();
        let inverse: Vec<f32> = conditioning.c.iter().map(|c| 1.0 / c).collect();
        let key = |(p, key): (usize, &&[f32])| {
            let shifted: Vec<f32> = zip(*key, &middles[p / BLOCK]).map(|(k, r)| k - r).collect();
            quantize(&naive::condition(&shifted, &inverse), 127.0)
        };
        let keys_q8 = keys.iter().enumerate().map(key).collect();
        let values_q8 = values.iter().map(|v| quantize(v, 127.0)).collect();
        KvHead { kv_type, conditioning, middles, keys, values, keys_q8, values_q8 }
    }

    /// Section 6: what the head gives for the query `q`, after rope, of a position.
    fn attend(&self, q: &[f32], position: usize) -> Vec<f32> {
        let mut state = State { m: f32::NEG_INFINITY, l: 0.0, a: vec![0.0; q.len()] };
        for block in 0..=position / BLOCK {
            let visible = block * BLOCK..((block + 1) * BLOCK).min(position + 1);
            match self.kv_type {
                KvType::Q8 => {
                    let (corr, p) = state.take(&self.scores_q8(q, block, visible.clone()));
                    self.add_q8(&mut state.a, corr, &p, visible);
                }
                _ => {
                    let (corr, p) = state.take(&self.scores_f32(q, visible.clone()));
                    self.add_f32(&mut state.a, corr, &p, visible);
                }
            }
        }
        state.a.iter().map(|a| a / state.l).collect()
    }

    fn scores_f32(&self, q: &[f32], visible: core::ops::Range<usize>) -> Vec<f32> {
        let scale = 1.0 / (q.len() as f32).sqrt();
        self.keys[visible].iter().map(|k| dot16(q, k) * scale).collect()
    }

    fn scores_q8(&self, q: &[f32], block: usize, visible: core::ops::Range<usize>) -> Vec<f32> {
        let root = 1.0 / (q.len() as f32).sqrt();
        let run = 1 << q.len().trailing_zeros();
        let (dq, query) = quantize(&naive::condition(q, &self.conditioning.c), 16256.0);
        let taken_off = dot16(q, &self.middles[block]) * root;
        let score = |(dk, key): &Quantised| {
            let product: i64 = zip(&query, key).map(|(q, k)| q * k).sum();
            (product as f32).mul_add((dq * (root / run as f32)) * dk, taken_off)
        };
        self.keys_q8[visible].iter().map(score).collect()
    }

    fn add_f32(&self, a: &mut [f32], corr: f32, p: &[f32], visible: core::ops::Range<usize>) {
        for (j, a) in a.iter_mut().enumerate() {
            let before = *a * corr;
            *a = zip(p, &self.values[visible.clone()]).fold(before, |a, (p, v)| p.mul_add(v[j], a));
        }
    }

    fn add_q8(&self, a: &mut [f32], corr: f32, p: &[f32], visible: core::ops::Range<usize>) {
        let values = &self.values_q8[visible];
        let weights: Vec<f32> = zip(p, values).map(|(p, (dv, _))| p * dv).collect();
        let (dw, weights) = quantize(&weights, 255.0);
        for (j, a) in a.iter_mut().enumerate() {
            let sum: i64 = zip(&weights, values).map(|(w, (_, v))| w * v[j]).sum();
            *a = dw.mul_add(sum as f32, *a * corr);
        }
    }
}

/// The heads of all tokens in one layer, from q, k and v as the engine had them.
fn heads_by_contract(model: &RandomModel, kv_type: KvType, layer: usize, seen: &Seen) -> Vec<f32> {
    let (c, freq) = (&model.config, frequencies(&model.config));
    let (q, k) = match c.arch {
        Arch::Qwen2 => (Point::Q, Point::K),
        _ => (Point::QNorm, Point::KNorm),
    };
    let queries = turned_heads(seen.get(q, layer), c.q_dim(), &freq);
    let keys = turned_heads(seen.get(k, layer), c.kv_dim(), &freq);
    let values = seen.get(Point::V, layer);
    let kv_heads: Vec<KvHead<'_>> = (0..c.n_kv_heads)
        .map(|i| {
            let keys = keys.iter().map(|heads| &heads[i][..]).collect();
            let values =
                values.chunks(c.kv_dim()).map(|heads| &heads[i * c.head_dim..][..c.head_dim]).collect();
            KvHead::new(kv_type, Conditioning::of(model, layer, i, &freq), &freq, keys, values)
        })
        .collect();
    let mut out = Vec::new();
    for (position, heads) in queries.iter().enumerate() {
        for (head, q) in heads.iter().enumerate() {
            out.extend(kv_heads[head / c.group()].attend(q, position));
        }
    }
    out
}

/// Fails unless all bits are the same.
fn assert_same(got: &[f32], want: &[f32], what: &dyn core::fmt::Debug) {
    assert_eq!(got.len(), want.len(), "{what:?}");
    let differ = zip(got, want).filter(|(a, b)| a.to_bits() != b.to_bits()).count();
    assert_eq!(differ, 0, "{what:?}: {differ} of {} differ", want.len());
}

/// One model, one kind of KV: every instruction set, and steps of several lengths.
fn check(model: &RandomModel, kv_type: KvType, tokens: &[u32], what: &dyn core::fmt::Debug) {
    let first = Seen::of(model, kv_type, Isa::Scalar, tokens, TOKENS);
    let layers = 0..model.config.n_layers;
    let want: Vec<Vec<f32>> = layers.map(|i| heads_by_contract(model, kv_type, i, &first)).collect();
    for isa in all_isas() {
        for batch in [TOKENS, 9, 1] {
            let seen = Seen::of(model, kv_type, isa, tokens, batch);
            for (layer, want) in want.iter().enumerate() {
                let case = (what, kv_type, isa.name(), "batch", batch, "layer", layer);
                for point in [Point::Q, Point::K, Point::V] {
                    assert_same(seen.get(point, layer), first.get(point, layer), &(point, &case));
                }
                assert_same(seen.get(Point::Heads, layer), want, &(Point::Heads, &case));
            }
        }
    }
}

#[test]
fn attention_is_that_of_the_contract() {
    let mut rng = Rng(17);
    for shape @ (n_heads, n_kv_heads, head_dim) in SHAPES {
        for arch in [Arch::Qwen2, Arch::Qwen3] {
            let config = Config { arch, n_heads, n_kv_heads, head_dim, ffn_dim: 8, ..SMALL };
            let model = RandomModel::new(config, &mut rng);
            let tokens = rng.tokens(TOKENS, config.vocab);
            for kv_type in [KvType::Q8, KvType::F32] {
                check(&model, kv_type, &tokens, &(shape, arch));
            }
        }
    }
}
