//! The kernels for AVX2 with FMA and F16C, bit for bit those of `scalar`.
//!
//! Functions here are safe: each takes the token that proves the CPU. Below them, functions with
//! `#[target_feature]` call each other safely, and pointers are in `vec.rs` only.
#![allow(unsafe_code)]

mod block256;
mod block32;
mod dot;
mod float;
mod panel;
mod unpack256;
mod unpack32;
mod vec;

use crate::ops::Input;
use crate::ops::isa::Avx2;
use crate::par::Tile;
use crate::quant::WeightType;
use crate::weights::Matrix;

/// `out[token][row] = w[row] . x[token]` for the rectangle of `out`.
pub(crate) fn matmul(_: Avx2, w: &Matrix<'_>, input: &Input<'_>, out: &mut Tile<'_, f32>) {
    // SAFETY: the token: this CPU has AVX2, FMA and F16C.
    unsafe { by_type(w, input, out) }
}

#[target_feature(enable = "avx2,fma,f16c")]
fn by_type(w: &Matrix<'_>, input: &Input<'_>, out: &mut Tile<'_, f32>) {
    use {unpack32::*, unpack256::*};
    let many = out.rows().len() >= panel::MANY;
    match w.ty() {
        WeightType::F32 => float::matmul::<{ float::F32 }, 4>(w, input, out),
        WeightType::F16 => float::matmul::<{ float::F16 }, 2>(w, input, out),
        WeightType::Bf16 => float::matmul::<{ float::BF16 }, 2>(w, input, out),
        ty if many && ty.block_len() == 32 => block32::many(w, input, out),
        _ if many => block256::many(w, input, out),
        WeightType::Q4_0 => block32::few::<Q4_0, 18>(w, input, out),
        WeightType::Q4_1 => block32::few::<Q4_1, 20>(w, input, out),
        WeightType::Q5_0 => block32::few::<Q5_0, 22>(w, input, out),
        WeightType::Q5_1 => block32::few::<Q5_1, 24>(w, input, out),
        WeightType::Q8_0 => block32::few::<Q8_0, 34>(w, input, out),
        WeightType::Iq4Nl => block32::few::<IQ4_NL, 18>(w, input, out),
        WeightType::Q2K => block256::few::<Q2_K, 84>(w, input, out),
        WeightType::Q3K => block256::few::<Q3_K, 110>(w, input, out),
        WeightType::Q4K => block256::few::<Q4_K, 144>(w, input, out),
        WeightType::Q5K => block256::few::<Q5_K, 176>(w, input, out),
        WeightType::Q6K => block256::few::<Q6_K, 210>(w, input, out),
        WeightType::Iq4Xs => block256::few::<IQ4_XS, 136>(w, input, out),
    }
}
