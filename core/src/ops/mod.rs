//! Safe entry points of the kernels: they check the lengths of the slices in hand and
//! choose the instruction set. Nothing above this module asks what CPU it runs on.

pub mod act;
pub mod attention;
pub mod elementwise;
pub mod isa;
pub mod matmul;

pub use act::{BlockQ32, BlockQ256, Forms, Input, Precision};
pub use isa::Isa;
pub use matmul::{embed, matmul, quantize_q32, quantize_q256};
