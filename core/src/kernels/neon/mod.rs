//! Kernels for aarch64 with NEON, with and without the dot-product instructions.
//!
//! Compiled where every CPU of the target has NEON, so that only the dot product needs proof at run
//! time: a token of `ops::isa`. Must not know threads or models.

pub(crate) mod attention;
pub(crate) mod attention_f32;
mod block256;
mod block32;
mod dot;
pub(crate) mod elementwise;
mod few256;
mod few32;
mod float;
mod often256;
mod panel;
mod panel256;
mod quantize;
mod softmax;
mod unpack256;
mod unpack32;
mod vec;
mod walk;

use self::dot::Dot;
use crate::kernels::scalar::float::{Bf16, F16, F32};
use crate::ops::Input;
use crate::par::Tile;
use crate::quant::{WeightType, block32 as q, block256 as k};
use crate::weights::Matrix;

pub(crate) use quantize::{quantize_q32, quantize_q256, quantize_query};

/// `out[token][row] = w[row] . x[token]` for the rectangle of `out`, section 3 of the contract.
///
/// `input` holds the form that the type of `w` asks for; `ops` has checked the shapes.
#[allow(private_bounds, reason = "the tokens are public, what the kernels do with them is not")]
pub(crate) fn matmul<D: Dot>(d: D, w: &Matrix<'_>, input: &Input<'_>, out: &mut Tile<'_, f32>) {
    match w.ty() {
        WeightType::F32 => float::matmul::<F32>(w, input, out),
        WeightType::F16 => float::matmul::<F16>(w, input, out),
        WeightType::Bf16 => float::matmul::<Bf16>(w, input, out),
        WeightType::Q4_0 => block32::matmul::<q::Q4_0, D>(d, few32::kernels::<q::Q4_0, D>(), w, input, out),
        WeightType::Q4_1 => block32::matmul::<q::Q4_1, D>(d, None, w, input, out),
        WeightType::Q5_0 => block32::matmul::<q::Q5_0, D>(d, few32::kernels::<q::Q5_0, D>(), w, input, out),
        WeightType::Q5_1 => block32::matmul::<q::Q5_1, D>(d, None, w, input, out),
        WeightType::Q8_0 => block32::matmul::<q::Q8_0, D>(d, few32::kernels::<q::Q8_0, D>(), w, input, out),
        WeightType::Iq4Nl => block32::matmul::<q::Iq4Nl, D>(d, None, w, input, out),
        WeightType::Q2K => block256::matmul::<k::Q2K, D>(d, w, input, out),
        WeightType::Q3K => block256::matmul::<k::Q3K, D>(d, w, input, out),
        WeightType::Q4K => block256::matmul_wide::<k::Q4K, D, _>(d, w, input, out),
        WeightType::Q5K => block256::matmul_wide::<k::Q5K, D, _>(d, w, input, out),
        WeightType::Q6K => block256::matmul_narrow::<k::Q6K, D>(d, w, input, out),
        WeightType::Iq4Xs => block256::matmul::<k::Iq4Xs, D>(d, w, input, out),
    }
}
