//! Integer dot products of 32 bytes with 32 signed bytes. Must not know blocks.

use crate::kernels::avx2::panel::GROUP;
use crate::kernels::avx2::vec::*;
use core::arch::x86_64::*;

/// `sums[i] + sum over j < 4 of w[4i + j] * x[4i + j]`, wrapping; `w` has no sign.
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512vnni")]
#[inline]
pub(super) fn dot(sums: __m256i, w: __m256i, x: __m256i) -> __m256i {
    _mm256_dpbusd_epi32(sums, w, x)
}

/// Adds to `sums` the products of 16 elements of eight rows with those of each token.
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512vnni")]
#[inline]
pub(super) fn quad(w: &[Aligned<[u8; 32]>; 4], x: [&[[i8; 4]; 4]; GROUP], sums: &mut [__m256i; GROUP]) {
    for (j, w) in w.iter().enumerate() {
        let w = load_u8(&w.0);
        for t in 0..GROUP {
            sums[t] = dot(sums[t], w, splat_4(&x[t][j]));
        }
    }
}
