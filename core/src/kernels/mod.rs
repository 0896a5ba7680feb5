//! Kernels, one folder per instruction set. `ops` is their only caller.

pub mod scalar;
