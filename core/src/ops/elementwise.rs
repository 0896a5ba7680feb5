//! Entry points for norms, rope, feed-forward activation and the conditioning transform.

use super::Isa;
#[cfg(target_arch = "x86_64")]
use crate::kernels::avx2;
#[cfg(all(target_arch = "aarch64", target_feature = "neon"))]
use crate::kernels::neon;
use crate::kernels::scalar;
use crate::weights::Vector;

/// `out = x / rms(x) * w`. All `[n]`.
///
/// # Panics
/// If the lengths differ.
pub fn rmsnorm(isa: Isa, x: &[f32], w: &Vector<'_>, eps: f32, out: &mut [f32]) {
    assert!(x.len() == w.len() && x.len() == out.len());
    match isa.without_dot() {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2(token) => avx2::rmsnorm(token, x, w, eps, out),
        #[cfg(all(target_arch = "aarch64", target_feature = "neon"))]
        Isa::Neon(_) | Isa::DotProd(_) => neon::elementwise::rmsnorm(x, w, eps, out),
        _ => scalar::elementwise::rmsnorm(x, w, eps, out),
    }
}

/// [`rmsnorm`] in place.
///
/// # Panics
/// If the lengths differ.
pub fn rmsnorm_in_place(isa: Isa, x: &mut [f32], w: &Vector<'_>, eps: f32) {
    assert!(x.len() == w.len());
    match isa.without_dot() {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2(token) => avx2::rmsnorm_in_place(token, x, w, eps),
        #[cfg(all(target_arch = "aarch64", target_feature = "neon"))]
        Isa::Neon(_) | Isa::DotProd(_) => neon::elementwise::rmsnorm_in_place(x, w, eps),
        _ => scalar::elementwise::rmsnorm_in_place(x, w, eps),
    }
}

/// Rotary position embedding of a head (NeoX pairs). `x`: `[n]`; `cos`, `sin`: `[n/2]`.
///
/// # Panics
/// If the lengths do not fit together.
pub fn rope(isa: Isa, x: &mut [f32], cos: &[f32], sin: &[f32]) {
    assert!(cos.len() == sin.len() && x.len() == 2 * cos.len());
    match isa.without_dot() {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2(token) => avx2::rope(token, x, cos, sin),
        #[cfg(all(target_arch = "aarch64", target_feature = "neon"))]
        Isa::Neon(_) | Isa::DotProd(_) => neon::elementwise::rope(x, cos, sin),
        _ => scalar::elementwise::rope(x, cos, sin),
    }
}

/// `gate = silu(gate) * up`. Both `[n]`.
///
/// # Panics
/// If the lengths differ.
pub fn swiglu(isa: Isa, gate: &mut [f32], up: &[f32]) {
    assert!(gate.len() == up.len());
    match isa.without_dot() {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2(token) => avx2::swiglu(token, gate, up),
        #[cfg(all(target_arch = "aarch64", target_feature = "neon"))]
        Isa::Neon(_) | Isa::DotProd(_) => neon::elementwise::swiglu(gate, up),
        _ => scalar::elementwise::swiglu(gate, up),
    }
}

/// `x += y`. Both `[n]`.
///
/// # Panics
/// If the lengths differ.
pub fn add(isa: Isa, x: &mut [f32], y: &[f32]) {
    assert!(x.len() == y.len());
    match isa.without_dot() {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2(token) => avx2::add(token, x, y),
        #[cfg(all(target_arch = "aarch64", target_feature = "neon"))]
        Isa::Neon(_) | Isa::DotProd(_) => neon::elementwise::add(x, y),
        _ => scalar::elementwise::add(x, y),
    }
}

/// `x -= y`. Both `[n]`. One form serves every instruction set.
///
/// # Panics
/// If the lengths differ.
pub fn subtract(x: &mut [f32], y: &[f32]) {
    assert!(x.len() == y.len());
    scalar::elementwise::subtract(x, y);
}

/// Conditions a head before it is quantised: `x * factor`, then the Walsh-Hadamard transform over
/// runs of [`hadamard_run`]. Both `[head_dim]`.
///
/// # Panics
/// If the lengths differ.
pub fn condition(isa: Isa, x: &mut [f32], factor: &[f32]) {
    assert!(x.len() == factor.len());
    match isa.without_dot() {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2(token) => {
            avx2::multiply(token, x, factor);
            avx2::hadamard(token, x, hadamard_run(x.len()));
        }
        #[cfg(all(target_arch = "aarch64", target_feature = "neon"))]
        Isa::Neon(_) | Isa::DotProd(_) => {
            neon::elementwise::multiply(x, factor);
            neon::elementwise::hadamard(x, hadamard_run(x.len()));
        }
        _ => {
            scalar::elementwise::multiply(x, factor);
            scalar::elementwise::hadamard(x, hadamard_run(x.len()));
        }
    }
}

/// Largest power of two that divides `head_dim`.
pub const fn hadamard_run(head_dim: usize) -> usize {
    1 << head_dim.trailing_zeros()
}
