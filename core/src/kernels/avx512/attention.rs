//! The integer products of attention, whose sums take one instruction here.

use crate::kernels::avx2::attention::{GROUPS, define_products, fold_pairs};
use crate::kernels::avx2::vec::*;
use core::arch::x86_64::*;

define_products!("avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512vnni");
