//! One step through all decoder blocks.

use super::operators::{Ctx, gated, linear, normalize, quantize, widths};
use super::scratch::Scratch;
use super::trace::{Point, Trace};
use super::{Chunk, Engine, ForwardError, LogitRow, Logits, tables};
use crate::log::log;
use crate::ops::{self, Forms, Input, Precision};
use crate::par::{Rows, Workers, for_each_rows};
use crate::weights::{Ffn, Layer, Vector};

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
        let mut left = ctx;
        for i in 0..self.config.n_layers {
            log!(trace, "layer {=usize}", i);
            let layer = self.weights.layers[i];
            left = self.attention(&ctx, i, &layer, chunks, wanted, trace)?;
            if left.n == 0 {
                return Ok(());
            }
            self.feed_forward(&left, i, &layer, trace);
        }
        // The last half's output is still apart.
        let (s, n) = (&mut self.scratch, left.n);
        let dim = self.config.dim;
        ops::elementwise::add(ctx.isa, &mut s.x[..n * dim], &s.proj[..n * dim]);
        trace.see(Point::Out, self.config.n_layers - 1, &s.x[..n * dim]);
        all_finite(&s.x[..n * dim], dim, s.position)?;
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

    /// The first half of block `i`. Of the last block only the rows of the list are wanted, so that all
    /// others end with their keys and values. Returns what is left to compute.
    fn attention<'w>(
        &mut self,
        ctx: &Ctx<'w>,
        i: usize,
        layer: &Layer<'_>,
        chunks: &[Chunk<'_>],
        wanted: usize,
        trace: &mut dyn Trace,
    ) -> Result<Ctx<'w>, ForwardError> {
        let c = self.config;
        let (n, dim) = (ctx.n, c.dim);
        let narrow = i + 1 == c.n_layers && wanted < n;
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
        let k = (&layer.wk, &layer.bk, &mut *s.k);
        let v = (&layer.wv, &layer.bv, &mut *s.v);
        if narrow {
            linear(ctx, &input, [k, v]);
        } else {
            linear(ctx, &input, [(&layer.wq, &layer.bq, &mut *s.q), k, v]);
        }
        trace.see(Point::V, i, &s.v[..n * c.kv_dim()]);
        self.finish_heads(ctx, i, layer, (!narrow, true), trace);
        self.store(ctx, i, chunks)?;
        let mut left = *ctx;
        if narrow {
            self.keep_wanted(n, wanted, forms.0)?;
            left.n = wanted;
            if wanted == 0 {
                return Ok(left);
            }
            let s = &mut self.scratch;
            let input = Input::of(wanted, dim, forms, s.xn, s.q32, s.q256);
            linear(&left, &input, [(&layer.wq, &layer.bq, &mut *s.q)]);
            self.finish_heads(&left, i, layer, (true, false), trace);
        }
        let (ctx, n) = (&left, left.n);
        self.attend(ctx, i, chunks)?;
        let s = &mut self.scratch;
        trace.see(Point::Heads, i, &s.attn[..n * c.q_dim()]);
        let forms = (Forms::of(layer.wo.ty()), Precision::Coarse);
        quantize(ctx, s.attn, c.q_dim(), forms, s.q32, s.q256);
        let input = Input::of(n, c.q_dim(), forms, s.attn, s.q32, s.q256);
        linear(ctx, &input, [(&layer.wo, &Vector::EMPTY, &mut *s.proj)]);
        trace.see(Point::AttnOut, i, &s.proj[..n * dim]);
        Ok(left)
    }

    /// Norms of the heads, where the model has them, and rope, of q, of k or of both.
    fn finish_heads(
        &mut self,
        ctx: &Ctx<'_>,
        i: usize,
        layer: &Layer<'_>,
        (with_q, with_k): (bool, bool),
        trace: &mut dyn Trace,
    ) {
        let c = &self.config;
        let s = &mut self.scratch;
        let (q_dim, kv_dim) = (c.q_dim() * usize::from(with_q), c.kv_dim() * usize::from(with_k));
        let mut see = |q: Point, k: Point, s: &Scratch<'_>| {
            for (point, x) in [(q, &s.q[..ctx.n * q_dim]), (k, &s.k[..ctx.n * kv_dim])] {
                if !x.is_empty() {
                    trace.see(point, i, x);
                }
            }
        };
        see(Point::Q, Point::K, s);
        if !layer.q_norm.is_empty() {
            let heads = |x: &mut [f32], w: &Vector<'_>| {
                for head in x.chunks_exact_mut(c.head_dim) {
                    ops::elementwise::rmsnorm_in_place(ctx.isa, head, w, c.rms_eps);
                }
            };
            let rows =
                (Rows::new(&mut *s.q, q_dim), Rows::new(&mut *s.k, kv_dim), Rows::none(), Rows::none());
            for_each_rows(ctx.workers, ctx.n, rows, |_, q, k, _, _| {
                heads(q, &layer.q_norm);
                heads(k, &layer.k_norm);
            });
            see(Point::QNorm, Point::KNorm, s);
        }
        let half = c.head_dim / 2;
        let (cos, sin) = (&*s.cos, &*s.sin);
        let rotate = |x: &mut [f32], heads: usize, first: usize| {
            for (j, head) in x.chunks_exact_mut(c.head_dim).enumerate() {
                let row = first + j / heads;
                let at = row * half..(row + 1) * half;
                ops::elementwise::rope(ctx.isa, head, &cos[at.clone()], &sin[at]);
            }
        };
        let rows = (Rows::new(&mut *s.q, q_dim), Rows::new(&mut *s.k, kv_dim), Rows::none(), Rows::none());
        for_each_rows(ctx.workers, ctx.n, rows, |range, q, k, _, _| {
            rotate(q, c.n_heads, range.start);
            rotate(k, c.n_kv_heads, range.start);
        });
    }

    /// Before the last block's attention, which only the `wanted` rows of the list go through: checks the
    /// input of all `n` rows of that block, since nothing behind it would tell of a row that is left out,
    /// and moves what is still needed of the wanted ones to the front of its array.
    fn keep_wanted(&mut self, n: usize, wanted: usize, forms: Forms) -> Result<(), ForwardError> {
        let c = &self.config;
        let (dim, half) = (c.dim, c.head_dim / 2);
        let (w32, w256) = widths(forms, dim);
        let s = &mut self.scratch;
        all_finite(&s.x[..n * dim], dim, s.position)?;
        for to in 0..wanted {
            // Rows are listed in order, so a row only ever moves to a place whose own row is done with.
            let from = s.wanted[to] as usize;
            for (x, width) in [(&mut *s.x, dim), (&mut *s.xn, dim), (&mut *s.cos, half), (&mut *s.sin, half)]
            {
                x.copy_within(from * width..(from + 1) * width, to * width);
            }
            s.q32.copy_within(from * w32..(from + 1) * w32, to * w32);
            s.q256.copy_within(from * w256..(from + 1) * w256, to * w256);
            (s.position[to], s.chunk[to], s.wanted[to]) = (s.position[from], s.chunk[from], to as u32);
        }
        Ok(())
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

/// That all elements of rows of `width` are numbers; `position`: of each row in its sequence.
fn all_finite(x: &[f32], width: usize, position: &[u32]) -> Result<(), ForwardError> {
    match x.iter().position(|v| !v.is_finite()) {
        Some(i) => Err(ForwardError::NonFinite { position: position[i / width] as usize }),
        None => Ok(()),
    }
}
