//! Kernels, one module per instruction set; `ops` chooses among them.
//!
//! Every module has the same files and functions, so that an instruction set can replace one
//! operation and borrow the others from `scalar`. Must not know threads or models.

#[cfg(target_arch = "x86_64")]
pub(crate) mod avx2;
#[cfg(target_arch = "x86_64")]
pub(crate) mod avx512;
#[cfg(all(target_arch = "aarch64", target_feature = "neon"))]
pub(crate) mod neon;
pub(crate) mod scalar;
