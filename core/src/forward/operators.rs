//! What a step does to all rows of a batch: norms, quantisation, products. Must not know layers or the cache.

use crate::ops::{self, BlockQ32, BlockQ256, Forms, Input, Isa, Precision};
use crate::par::{Rows, Workers, for_each_rows, for_each_tile_of, for_each_tile_pair};
use crate::weights::{Matrix, Vector};

/// Forms to quantise activations to, and how finely.
pub(super) type Quantized = (Forms, Precision);

/// What all stages of a step share.
#[derive(Clone, Copy)]
pub(super) struct Ctx<'w> {
    pub workers: &'w dyn Workers,
    pub isa: Isa,
    /// Rows (tokens) that are left of the batch: in the last block only those whose logits are wanted.
    pub n: usize,
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
pub(super) fn widths(forms: Forms, k: usize) -> (usize, usize) {
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
pub(super) fn gated(
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
