//! Safe entry points of the kernels: they check the lengths of the slices in hand and
//! choose the instruction set. Nothing above this module asks what CPU it runs on.

pub mod act;
pub mod attention;
pub mod elementwise;
pub mod matmul;

pub use act::{BlockQ32, BlockQ256, Forms, Input, Precision};
pub use matmul::{embed, matmul, quantize_q32, quantize_q256};

/// Instruction set of the kernels. All give the same bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Isa {
    /// Portable Rust: the specification.
    #[default]
    Scalar,
}
