//! The kernels for AVX2 with FMA and F16C, bit for bit those of `scalar`.
//!
//! Functions here are safe: each takes the token that proves the CPU. Below them, functions with
//! `#[target_feature]` call each other safely, and pointers are in `vec.rs` only.
#![allow(unsafe_code)]

pub(super) mod attention;
pub(super) mod block256;
pub(super) mod block32;
pub(super) mod dot;
mod elementwise;
mod float;
pub(crate) mod four32;
pub(super) mod inner;
pub(super) mod panel;
mod quantize;
pub(super) mod unpack256;
pub(super) mod unpack32;
pub(super) mod vec;

use crate::kv::{HeadF32, HeadQ8};
use crate::ops::attention::{Group, QUERIES};
use crate::ops::isa::Avx2;
use crate::ops::{BlockQ32, BlockQ256, Input, Precision};
use crate::par::Tile;
use crate::quant::WeightType;
use crate::weights::{Matrix, Vector};
use inner::Inner;

/// The product by the form that suits the type and the number of tokens.
#[target_feature(enable = "avx2,fma,f16c")]
fn by_type<K: Inner>(k: K, w: &Matrix<'_>, input: &Input<'_>, out: &mut Tile<'_, f32>) {
    let many = out.rows().len() >= panel::MANY;
    match w.ty() {
        WeightType::F32 => float::matmul::<{ float::F32 }, 4>(w, input, out),
        WeightType::F16 => float::matmul::<{ float::F16 }, 2>(w, input, out),
        WeightType::Bf16 => float::matmul::<{ float::BF16 }, 2>(w, input, out),
        ty if ty.block_len() == 32 && many && out.rows().len() <= panel::GROUP => {
            four32::four(k, w, input, out);
        }
        ty if ty.block_len() == 32 && many => block32::many(k, w, input, out),
        ty if ty.block_len() == 32 => block32::few(k, w, input, out),
        _ if many => block256::many(k, w, input, out),
        _ => block256::few(k, w, input, out),
    }
}

/// `out[token][row] = w[row] . x[token]` for the rectangle of `out`.
pub(crate) fn matmul<K: Inner>(k: K, w: &Matrix<'_>, input: &Input<'_>, out: &mut Tile<'_, f32>) {
    let _: Avx2 = k.into();
    // SAFETY: the token: this CPU has AVX2, FMA and F16C.
    unsafe { by_type(k, w, input, out) }
}

/// Declares safe functions that take the token and call the function of the same operation.
macro_rules! with_token {
    ($($(#[$doc:meta])* $name:ident = $inner:path, ($($arg:ident: $ty:ty),+ $(,)?);)+) => {$(
        $(#[$doc])*
        pub(crate) fn $name(_: Avx2, $($arg: $ty),+) {
            // SAFETY: the token: this CPU has AVX2, FMA and F16C.
            unsafe { $inner($($arg),+) }
        }
    )+};
}

with_token! {
    /// Adds a KV block of type `q8` to the attention of a group's queries.
    attend_q8 = attention::block_q8, (
        group: &mut Group, seen: &[usize; QUERIES], reference: &[f32], head: &HeadQ8<'_>
    );
    /// The same for type `f32`.
    attend_f32 = attention::block_f32, (group: &mut Group, seen: &[usize; QUERIES], head: &HeadF32<'_>);
    /// One block of 32, section 4 of the contract.
    quantize_q32 = quantize::q32, (x: &[f32; 32], precision: Precision, out: &mut BlockQ32);
    /// One block of 256, section 4 of the contract.
    quantize_q256 = quantize::q256, (x: &[f32; 256], precision: Precision, out: &mut BlockQ256);
    /// `out = x / rms(x) * w`. All `[n]`.
    rmsnorm = elementwise::rmsnorm, (x: &[f32], w: &Vector<'_>, eps: f32, out: &mut [f32]);
    /// [`rmsnorm`] in place.
    rmsnorm_in_place = elementwise::rmsnorm_in_place, (x: &mut [f32], w: &Vector<'_>, eps: f32);
    /// Rotary position embedding of a head. `x`: `[n]`; `cos`, `sin`: `[n/2]`.
    rope = elementwise::rope, (x: &mut [f32], cos: &[f32], sin: &[f32]);
    /// `gate = silu(gate) * up`. Both `[n]`.
    swiglu = elementwise::swiglu, (gate: &mut [f32], up: &[f32]);
    /// `x += y`. Both `[n]`.
    add = elementwise::add, (x: &mut [f32], y: &[f32]);
    /// `x *= y`. Both `[n]`.
    multiply = elementwise::multiply, (x: &mut [f32], y: &[f32]);
    /// Walsh-Hadamard transform of every run of `run` elements.
    hadamard = elementwise::hadamard, (x: &mut [f32], run: usize);
}
