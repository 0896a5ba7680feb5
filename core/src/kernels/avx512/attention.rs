//! What V adds to the result of a query: weights are bytes without a sign, as dot products want them.

use super::dot::dot;
use crate::kernels::avx2::attention::GROUPS;
use crate::kernels::avx2::vec::*;
use core::arch::x86_64::*;

/// `a_j = fma(dw, sum_t w_t v_tj, a_j * shrink)`.
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512vnni")]
pub(super) fn weighted(w: &[[i16; 4]; GROUPS], (dw, shrink): (f32, f32), v: &[u8], a: &mut [f32]) {
    let (dw, shrink) = (_mm256_set1_ps(dw), _mm256_set1_ps(shrink));
    let sign = _mm256_set1_epi8(-128);
    // Two groups of tokens to a vector, as V has them.
    let mut tokens = [_mm256_setzero_si256(); GROUPS / 2];
    for (tokens, [even, odd]) in tokens.iter_mut().zip(w.as_chunks::<2>().0) {
        let [even, odd] = [even, odd].map(|w| w.map(|w| w as i8));
        *tokens = _mm256_blend_epi32::<0xF0>(splat_4(&even), splat_4(&odd));
    }
    // Four dims to a vector. Heads are multiples of 16: no dim is left over.
    let tiles = v.as_chunks::<32>().0.as_chunks::<{ GROUPS / 2 }>().0.as_chunks::<2>().0;
    for (a, dims) in a.as_chunks_mut::<8>().0.iter_mut().zip(tiles) {
        let mut sums = [_mm256_setzero_si256(); 2];
        for (sum, dims) in sums.iter_mut().zip(dims) {
            for (v, w) in dims.iter().zip(tokens) {
                // 128 was added to V when it was stored.
                *sum = dot(*sum, w, _mm256_xor_si256(load_u8(v), sign));
            }
        }
        // Even groups of tokens are in the lower halves, odd ones in the upper.
        let even = _mm256_permute2x128_si256::<0x20>(sums[0], sums[1]);
        let odd = _mm256_permute2x128_si256::<0x31>(sums[0], sums[1]);
        let sum = _mm256_cvtepi32_ps(_mm256_add_epi32(even, odd));
        store(a, _mm256_fmadd_ps(dw, sum, _mm256_mul_ps(load(a), shrink)));
    }
}
