//! A look at intermediate activations.

/// Where in the model an activation stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Point {
    /// `[n, dim]` input of block 0.
    Embed,
    /// `[n, head_dim / 2]`
    RopeCos,
    /// `[n, head_dim / 2]`
    RopeSin,
    /// `[n, dim]` normalised input of attention.
    AttnNorm,
    /// `[n, q_dim]` with bias.
    Q,
    /// `[n, kv_dim]` with bias.
    K,
    /// `[n, kv_dim]` with bias.
    V,
    /// `[n, q_dim]` after the head norm, before rope (qwen3).
    QNorm,
    /// `[n, kv_dim]` after the head norm, before rope (qwen3).
    KNorm,
    /// `[n, q_dim]` heads after attention.
    Heads,
    /// `[n, dim]` output of attention, before it is added.
    AttnOut,
    /// `[n, dim]` normalised input of the feed-forward part.
    FfnNorm,
    /// `[n, dim]` output of the feed-forward part, before it is added.
    FfnOut,
    /// `[n, dim]` output of the block.
    Out,
    /// `[n, dim]` after the last norm; only the rows whose logits are wanted.
    FinalNorm,
}

/// Receives activations of a step, `[rows, width]` row-major, as they are computed. Of the last block
/// only the rows whose logits are wanted get further than K and V.
pub trait Trace {
    /// `layer` is 0 where `point` belongs to no layer.
    fn see(&mut self, point: Point, layer: usize, activations: &[f32]);
}

/// Sees nothing.
pub(super) struct Off;

impl Trace for Off {
    fn see(&mut self, _: Point, _: usize, _: &[f32]) {}
}
