//! One step through all decoder blocks.

use super::scratch::Scratch;
use super::trace::{Point, Trace};
use super::{Chunk, Engine, ForwardError, LogitRow, Logits, tables};
use crate::log::log;
use crate::ops::{self, BlockQ32, BlockQ256, Forms, Input, Isa, Precision};
use crate::par::{Rows, Workers, for_each_rows, for_each_tile_of, for_each_tile_pair};
use crate::weights::{Ffn, Layer, Matrix, Vector};

/// Forms to quantise activations to, and how finely.
pub(super) type Quantized = (Forms, Precision);

/// What all stages of a step share.
#[derive(Clone, Copy)]
pub(super) struct Ctx<'w> {
    pub workers: &'w dyn Workers,
    pub isa: Isa,
    /// Rows (tokens) of the batch.
    pub n: usize,
}

impl Engine<'_> {
    /// Runs the batch. The pool has been extended; every check of the input is done.
    pub(super) fn step(
        &mut self,
        workers: &dyn Workers,
        chunks: &[Chunk<'_>],
        sink: &mut dyn FnMut(LogitRow, &[f32]),
        trace: &mut dyn Trace,
    ) -> Result<(), ForwardError> {
        let n = chunks.iter().map(|c| c.tokens.len()).sum();
        let ctx = Ctx { workers, isa: self.isa, n };
        let wanted = self.place_rows(chunks)?;
        self.prepare(&ctx, trace);
        for i in 0..self.config.n_layers {
            log!(trace, "layer {=usize}", i);
            let layer = self.weights.layers[i];
            self.attention(&ctx, i, &layer, chunks, trace)?;
            self.feed_forward(&ctx, i, &layer, trace);
        }
        // The last half's output is still apart.
        let s = &mut self.scratch;
        let dim = self.config.dim;
        ops::elementwise::add(ctx.isa, &mut s.x[..n * dim], &s.proj[..n * dim]);
        trace.see(Point::Out, self.config.n_layers - 1, &s.x[..n * dim]);
        if let Some(row) = s.x[..n * dim].chunks_exact(dim).position(|x| !x.iter().all(|v| v.is_finite())) {
            return Err(ForwardError::NonFinite { position: s.position[row] as usize });
        }
        self.logits(workers, wanted, sink, trace)
    }

    /// Writes down position and chunk of each row, and which rows give logits; returns their number.
    fn place_rows(&mut self, chunks: &[Chunk<'_>]) -> Result<usize, ForwardError> {
        let s = &mut self.scratch;
        let (mut row, mut wanted) = (0, 0);
        for (c, chunk) in chunks.iter().enumerate() {
            let count = chunk.tokens.len();
            let start = self.pool.len(chunk.seq)? - count;
            for i in 0..count {
                s.position[row] = (start + i) as u32;
                s.chunk[row] = c as u32;
                s.token[row] = chunk.tokens[i];
                if chunk.logits == Logits::All || (chunk.logits == Logits::Last && i + 1 == count) {
                    s.wanted[wanted] = row as u32;
                    wanted += 1;
                }
                row += 1;
            }
        }
        Ok(wanted)
    }

    /// Embeds the tokens and computes the rotary angles.
    fn prepare(&mut self, ctx: &Ctx<'_>, trace: &mut dyn Trace) {
        let s = &mut self.scratch;
        let (dim, half) = (self.config.dim, self.config.head_dim / 2);
        let embedding = &self.weights.token_embd;
        let (position, token, freq) = (&*s.position, &*s.token, &*s.inv_freq);
        let rows = (Rows::new(s.x, dim), Rows::new(s.cos, half), Rows::new(s.sin, half), Rows::none());
        for_each_rows(ctx.workers, ctx.n, rows, |range, x, cos, sin, _| {
            let each =
                x.chunks_exact_mut(dim).zip(cos.chunks_exact_mut(half)).zip(sin.chunks_exact_mut(half));
            for (row, ((x, cos), sin)) in range.zip(each) {
                ops::embed(embedding, token[row] as usize, x);
                tables::rotary_angles(position[row] as f32, freq, cos, sin);
            }
        });
        trace.see(Point::Embed, 0, &s.x[..ctx.n * dim]);
        trace.see(Point::RopeCos, 0, &s.cos[..ctx.n * half]);
        trace.see(Point::RopeSin, 0, &s.sin[..ctx.n * half]);
    }

    fn attention(
        &mut self,
        ctx: &Ctx<'_>,
        i: usize,
        layer: &Layer<'_>,
        chunks: &[Chunk<'_>],
        trace: &mut dyn Trace,
    ) -> Result<(), ForwardError> {
        let c = self.config;
        let (n, dim) = (ctx.n, c.dim);
        let forms = Forms::of(layer.wq.ty()).and(Forms::of(layer.wk.ty())).and(Forms::of(layer.wv.ty()));
        let forms = (forms, Precision::Coarse);
        let s = &mut self.scratch;
        // The first block has nothing to add from a block before it.
        let before = (i > 0).then_some(&s.proj[..n * dim]);
        normalize(
            ctx,
            (&mut *s.x, before),
            &layer.attn_norm,
            c.rms_eps,
            forms,
            (&mut *s.xn, &mut *s.q32, &mut *s.q256),
        );
        if i > 0 {
            trace.see(Point::Out, i - 1, &s.x[..n * dim]);
        }
        trace.see(Point::AttnNorm, i, &s.xn[..n * dim]);
        let input = Input::of(n, dim, forms, s.xn, s.q32, s.q256);
        let parts = [
            (&layer.wq, &layer.bq, &mut *s.q),
            (&layer.wk, &layer.bk, &mut *s.k),
            (&layer.wv, &layer.bv, &mut *s.v),
        ];
        linear(ctx, &input, parts);
        trace.see(Point::Q, i, &s.q[..n * c.q_dim()]);
        trace.see(Point::K, i, &s.k[..n * c.kv_dim()]);
        trace.see(Point::V, i, &s.v[..n * c.kv_dim()]);
        if !layer.q_norm.is_empty() {
            let heads = |x: &mut [f32], w: &Vector<'_>| {
                for head in x.chunks_exact_mut(c.head_dim) {
                    ops::elementwise::rmsnorm_in_place(ctx.isa, head, w, c.rms_eps);
                }
            };
            let rows = (
                Rows::new(&mut *s.q, c.q_dim()),
                Rows::new(&mut *s.k, c.kv_dim()),
                Rows::none(),
                Rows::none(),
            );
            for_each_rows(ctx.workers, n, rows, |_, q, k, _, _| {
                heads(q, &layer.q_norm);
                heads(k, &layer.k_norm);
            });
            trace.see(Point::QNorm, i, &s.q[..n * c.q_dim()]);
            trace.see(Point::KNorm, i, &s.k[..n * c.kv_dim()]);
        }
        self.rotate(ctx);
        self.store(ctx, i, chunks)?;
        self.attend(ctx, i, chunks)?;
        let s = &mut self.scratch;
        trace.see(Point::Heads, i, &s.attn[..n * c.q_dim()]);
        let forms = (Forms::of(layer.wo.ty()), Precision::Coarse);
        quantize(ctx, s.attn, c.q_dim(), forms, s.q32, s.q256);
        let input = Input::of(n, c.q_dim(), forms, s.attn, s.q32, s.q256);
        linear(ctx, &input, [(&layer.wo, &Vector::EMPTY, &mut *s.proj)]);
        trace.see(Point::AttnOut, i, &s.proj[..n * dim]);
        Ok(())
    }

    /// Rotates every head of q and k.
    fn rotate(&mut self, ctx: &Ctx<'_>) {
        let c = &self.config;
        let half = c.head_dim / 2;
        let s = &mut self.scratch;
        let (cos, sin) = (&*s.cos, &*s.sin);
        let rows =
            (Rows::new(&mut *s.q, c.q_dim()), Rows::new(&mut *s.k, c.kv_dim()), Rows::none(), Rows::none());
        for_each_rows(ctx.workers, ctx.n, rows, |range, q, k, _, _| {
            let each = q.chunks_exact_mut(c.q_dim()).zip(k.chunks_exact_mut(c.kv_dim()));
            for (row, (q, k)) in range.zip(each) {
                let at = row * half..(row + 1) * half;
                for head in q.chunks_exact_mut(c.head_dim).chain(k.chunks_exact_mut(c.head_dim)) {
                    ops::elementwise::rope(ctx.isa, head, &cos[at.clone()], &sin[at.clone()]);
                }
            }
        });
    }

    fn feed_forward(&mut self, ctx: &Ctx<'_>, i: usize, layer: &Layer<'_>, trace: &mut dyn Trace) {
        let c = &self.config;
        let (n, dim, ffn) = (ctx.n, c.dim, c.ffn_dim);
        let Scratch { x, xn, q32, q256, gate, up, proj, .. } = &mut self.scratch;
        let Ffn::Dense { gate: w_gate, up: w_up, down: w_down } = &layer.ffn;
        let forms = (Forms::of(w_gate.ty()).and(Forms::of(w_up.ty())), Precision::Coarse);
        let added = Some(&proj[..n * dim]);
        normalize(
            ctx,
            (&mut **x, added),
            &layer.ffn_norm,
            c.rms_eps,
            forms,
            (&mut **xn, &mut **q32, &mut **q256),
        );
        trace.see(Point::FfnNorm, i, &xn[..n * dim]);
        let input = Input::of(n, dim, forms, xn, q32, q256);
        gated(ctx, &input, (w_gate, &mut **gate), (w_up, &mut **up));
        let forms = (Forms::of(w_down.ty()), Precision::Fine);
        quantize(ctx, gate, ffn, forms, q32, q256);
        let input = Input::of(n, ffn, forms, gate, q32, q256);
        linear(ctx, &input, [(w_down, &Vector::EMPTY, &mut **proj)]);
        trace.see(Point::FfnOut, i, &proj[..n * dim]);
    }
}

/// `x += added` if there is something to add, then `xn = norm(x)`, quantised as asked.
pub(super) fn normalize(
    ctx: &Ctx<'_>,
    (x, added): (&mut [f32], Option<&[f32]>),
    w: &Vector<'_>,
    eps: f32,
    quantized: Quantized,
    (xn, q32, q256): (&mut [f32], &mut [BlockQ32], &mut [BlockQ256]),
) {
    let dim = w.len();
    let (w32, w256) = widths(quantized.0, dim);
    let rows = (Rows::new(x, dim), Rows::new(xn, dim), Rows::new(q32, w32), Rows::new(q256, w256));
    for_each_rows(ctx.workers, ctx.n, rows, |range, x, xn, q32, q256| {
        if let Some(added) = added {
            ops::elementwise::add(ctx.isa, x, &added[range.start * dim..range.end * dim]);
        }
        for (x, xn) in x.chunks_exact(dim).zip(xn.chunks_exact_mut(dim)) {
            ops::elementwise::rmsnorm(ctx.isa, x, w, eps, xn);
        }
        quantize_slice(ctx.isa, quantized, xn, q32, q256);
    });
}

/// Quantises `n` rows of `k` values as asked.
pub(super) fn quantize(
    ctx: &Ctx<'_>,
    x: &[f32],
    k: usize,
    quantized: Quantized,
    q32: &mut [BlockQ32],
    q256: &mut [BlockQ256],
) {
    let forms = quantized.0;
    if forms == Forms::default() {
        return;
    }
    let (w32, w256) = widths(forms, k);
    let rows = (Rows::new(q32, w32), Rows::new(q256, w256), Rows::none(), Rows::none());
    for_each_rows(ctx.workers, ctx.n, rows, |range, q32, q256, _, _| {
        quantize_slice(ctx.isa, quantized, &x[range.start * k..range.end * k], q32, q256);
    });
}

/// Blocks of a row of `k` values in each form; 0 in a form that is not needed.
fn widths(forms: Forms, k: usize) -> (usize, usize) {
    (if forms.q32 { k / 32 } else { 0 }, if forms.q256 { k / 256 } else { 0 })
}

/// Whole rows are whole blocks, so that rows need not be told apart.
fn quantize_slice(
    isa: Isa,
    (forms, precision): Quantized,
    x: &[f32],
    q32: &mut [BlockQ32],
    q256: &mut [BlockQ256],
) {
    if forms.q32 {
        ops::quantize_q32(isa, precision, x, q32);
    }
    if forms.q256 {
        ops::quantize_q256(isa, precision, x, q256);
    }
}

/// A product to be computed: matrix, bias (or empty), and where the result goes.
type Product<'p, 'w, 'o> = (&'p Matrix<'w>, &'p Vector<'w>, &'o mut [f32]);

/// `out = W input + bias` for several matrices with one input, in one run of the workers.
pub(super) fn linear<const N: usize>(ctx: &Ctx<'_>, input: &Input<'_>, parts: [Product<'_, '_, '_>; N]) {
    let weights: [(&Matrix<'_>, &Vector<'_>); N] = core::array::from_fn(|i| (parts[i].0, parts[i].1));
    let n = input.tokens;
    let outs = parts.map(|(w, _, out)| Rows::new(&mut out[..n * w.rows()], w.rows()));
    for_each_tile_of(ctx.workers, outs, |which, mut tile| {
        let (w, bias) = weights[which];
        let (tokens, cols) = (tile.rows(), tile.cols());
        ops::matmul(ctx.isa, w, input, tile.reborrow());
        if !bias.is_empty() {
            let bias = bias.slice(cols);
            for token in tokens {
                for (out, b) in tile.row_mut(token).iter_mut().zip(bias.iter()) {
                    *out += b;
                }
            }
        }
    });
}

/// `gate = silu(W_gate input) * (W_up input)`, element by element, in one run of the workers; `up` is
/// room for the other product. Both: `[tokens, ffn_dim]`.
fn gated(
    ctx: &Ctx<'_>,
    input: &Input<'_>,
    (w_gate, gate): (&Matrix<'_>, &mut [f32]),
    (w_up, up): (&Matrix<'_>, &mut [f32]),
) {
    let len = input.tokens * w_gate.rows();
    let outs = [Rows::new(&mut gate[..len], w_gate.rows()), Rows::new(&mut up[..len], w_up.rows())];
    for_each_tile_pair(ctx.workers, outs, |mut gate, mut up| {
        ops::matmul(ctx.isa, w_gate, input, gate.reborrow());
        ops::matmul(ctx.isa, w_up, input, up.reborrow());
        for token in gate.rows() {
            ops::elementwise::swiglu(ctx.isa, gate.row_mut(token), up.row_mut(token));
        }
    });
}
