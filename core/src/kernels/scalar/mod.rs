//! Portable kernels: the specification that every other kernel equals bit for bit.

pub mod attention;
pub mod elementwise;
