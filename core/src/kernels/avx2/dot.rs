//! Integer dot products of 32 bytes with 32 signed bytes. Must not know blocks.

use core::arch::x86_64::*;

/// Sums of neighbours `w * x` in i16.
///
/// Two products never reach 32768, so that the saturating instruction is exact: `w` has a sign and `x` is of
/// magnitude up to 127 (128 * 127 * 2 = 32,512), or `w` has none and is up to 63 with such an `x`, or up to
/// 255 with an `x` of magnitude up to 64 (255 * 64 * 2 = 32,640), as both planes of fine ones are.
#[target_feature(enable = "avx2")]
#[inline]
pub(crate) fn pairs<const SIGNED: bool>(w: __m256i, x: __m256i) -> __m256i {
    if SIGNED {
        // The magnitude of -128 is 128 as an unsigned byte.
        _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w))
    } else {
        _mm256_maddubs_epi16(w, x)
    }
}

/// Sums of neighbours times `scale`, to i32.
#[target_feature(enable = "avx2")]
#[inline]
pub(crate) fn widen(pairs: __m256i, scale: __m256i) -> __m256i {
    _mm256_madd_epi16(pairs, scale)
}

/// `a + b` of i32.
#[target_feature(enable = "avx2")]
#[inline]
pub(crate) fn plus(a: __m256i, b: __m256i) -> __m256i {
    _mm256_add_epi32(a, b)
}

/// Eight sums over the elements of `x`, partly: their total is the sum of all.
#[target_feature(enable = "avx2")]
#[inline]
pub(crate) fn partial_sums(x: __m256i) -> __m256i {
    widen(_mm256_maddubs_epi16(_mm256_set1_epi8(1), x), _mm256_set1_epi16(1))
}
