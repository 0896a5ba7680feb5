//! The kernels that are the specification, in portable Rust without `unsafe`.
//!
//! They are written so that a compiler can turn the hot loops into vector code of whatever
//! baseline the target has. Must not know threads or models.

pub(crate) mod attention;
mod block256;
mod block32;
mod dot;
pub(crate) mod elementwise;
pub(super) mod float;
mod fma;
mod panel;
mod quantize;

use crate::ops::Input;
use crate::par::Tile;
use crate::quant::{WeightType, block32 as q, block256 as k};
use crate::weights::Matrix;

pub(crate) use quantize::{quantize_q32, quantize_q256};

/// `out[token][row] = w[row] . x[token]` for the rectangle of `out`, section 3 of the contract.
///
/// `input` holds the form that the type of `w` asks for; `ops` has checked the shapes.
pub(crate) fn matmul(w: &Matrix<'_>, input: &Input<'_>, out: &mut Tile<'_, f32>) {
    match w.ty() {
        WeightType::F32 => float::matmul::<float::F32>(w, input, out),
        WeightType::F16 => float::matmul::<float::F16>(w, input, out),
        WeightType::Bf16 => float::matmul::<float::Bf16>(w, input, out),
        WeightType::Q4_0 => block32::matmul::<q::Q4_0>(w, input, out),
        WeightType::Q4_1 => block32::matmul::<q::Q4_1>(w, input, out),
        WeightType::Q5_0 => block32::matmul::<q::Q5_0>(w, input, out),
        WeightType::Q5_1 => block32::matmul::<q::Q5_1>(w, input, out),
        WeightType::Q8_0 => block32::matmul::<q::Q8_0>(w, input, out),
        WeightType::Iq4Nl => block32::matmul::<q::Iq4Nl>(w, input, out),
        WeightType::Q2K => block256::matmul::<k::Q2K>(w, input, out),
        WeightType::Q3K => block256::matmul::<k::Q3K>(w, input, out),
        WeightType::Q4K => block256::matmul::<k::Q4K>(w, input, out),
        WeightType::Q5K => block256::matmul::<k::Q5K>(w, input, out),
        WeightType::Q6K => block256::matmul::<k::Q6K>(w, input, out),
        WeightType::Iq4Xs => block256::matmul::<k::Iq4Xs>(w, input, out),
    }
}
