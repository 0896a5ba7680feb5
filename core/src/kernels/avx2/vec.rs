//! Loads, stores and shuffles of AVX2 vectors: the only pointers of these kernels.
//!
//! Every load and store takes an array of the vector's very size, so that none can leave it.
#![allow(unsafe_code)]

use core::arch::x86_64::*;

/// 32 bytes, aligned so that a vector of them is one access.
#[repr(align(32))]
#[derive(Clone, Copy)]
pub(crate) struct Aligned<T>(pub T);

macro_rules! loads {
    ($($(#[$doc:meta])* $name:ident: $from:ty => $to:ty, $load:expr;)+) => {$(
        $(#[$doc])*
        #[target_feature(enable = "avx2")]
        #[inline]
        pub(crate) fn $name(from: &$from) -> $to {
            // SAFETY: the reference is to an array of exactly the bytes that are read.
            unsafe { $load(core::ptr::from_ref(from).cast()) }
        }
    )+};
}

loads! {
    /// 32 bytes.
    load_u8: [u8; 32] => __m256i, _mm256_loadu_si256;
    /// 32 signed bytes.
    load_i8: [i8; 32] => __m256i, _mm256_loadu_si256;
    /// 16 integers of 16 bits.
    load_i16: [i16; 16] => __m256i, _mm256_loadu_si256;
    /// 16 bytes.
    load_half: [u8; 16] => __m128i, _mm_loadu_si128;
    /// 16 signed bytes.
    load_half_i8: [i8; 16] => __m128i, _mm_loadu_si128;
    /// 8 integers of 16 bits.
    load_u16: [u16; 8] => __m128i, _mm_loadu_si128;
    /// 8 floats.
    load: [f32; 8] => __m256, _mm256_loadu_ps;
    /// 4 bytes, eight times.
    splat_4: [i8; 4] => __m256i, splat_dword;
    /// 2 integers of 16 bits, eight times.
    splat_2: [i16; 2] => __m256i, splat_dword;
    /// 4 integers of 16 bits, four times.
    splat_8: [i16; 4] => __m256i, splat_qword;
}

/// # Safety
/// Four bytes can be read at `from`.
#[target_feature(enable = "avx2")]
#[inline]
unsafe fn splat_dword(from: *const i32) -> __m256i {
    // SAFETY: by the caller's promise; any alignment will do.
    _mm256_set1_epi32(unsafe { from.read_unaligned() })
}

/// # Safety
/// Eight bytes can be read at `from`.
#[target_feature(enable = "avx2")]
#[inline]
unsafe fn splat_qword(from: *const i64) -> __m256i {
    // SAFETY: by the caller's promise; any alignment will do.
    _mm256_set1_epi64x(unsafe { from.read_unaligned() })
}

/// Asks for the line of memory `ahead` bytes behind the beginning of `from`, wherever that is: a hint.
#[target_feature(enable = "sse")]
#[inline]
pub(crate) fn prefetch(from: &[u8], ahead: usize) {
    // Reads nothing and never faults, so that the address may be any.
    _mm_prefetch::<_MM_HINT_T0>(from.as_ptr().wrapping_add(ahead).cast())
}

macro_rules! stores {
    ($($(#[$doc:meta])* $name:ident: $from:ty => $to:ty, $store:expr;)+) => {$(
        $(#[$doc])*
        #[target_feature(enable = "avx2")]
        #[inline]
        pub(crate) fn $name(to: &mut $to, v: $from) {
            // SAFETY: the reference is to an array of exactly the bytes that are written.
            unsafe { $store(core::ptr::from_mut(to).cast(), v) }
        }
    )+};
}

stores! {
    /// 32 bytes.
    store_u8: __m256i => [u8; 32], _mm256_storeu_si256;
    /// 16 integers of 16 bits.
    store_i16: __m256i => [i16; 16], _mm256_storeu_si256;
    /// 32 signed bytes.
    store_i8: __m256i => [i8; 32], _mm256_storeu_si256;
    /// 8 integers.
    store_i32: __m256i => [i32; 8], _mm256_storeu_si256;
    /// 8 floats.
    store: __m256 => [f32; 8], _mm256_storeu_ps;
}

/// The sums of the eight integers of each vector, in order.
#[target_feature(enable = "avx2")]
#[inline]
pub(crate) fn sums(v: &[__m256i; 8]) -> __m256i {
    let a = _mm256_hadd_epi32(_mm256_hadd_epi32(v[0], v[1]), _mm256_hadd_epi32(v[2], v[3]));
    let b = _mm256_hadd_epi32(_mm256_hadd_epi32(v[4], v[5]), _mm256_hadd_epi32(v[6], v[7]));
    // Each half of a and b has the sums of four halves.
    _mm256_add_epi32(_mm256_permute2x128_si256::<0x20>(a, b), _mm256_permute2x128_si256::<0x31>(a, b))
}

/// The sum of the eight integers.
#[target_feature(enable = "avx2")]
#[inline]
pub(crate) fn sum(v: __m256i) -> i32 {
    let v = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256::<1>(v));
    let v = _mm_add_epi32(v, _mm_shuffle_epi32::<0x4E>(v));
    _mm_cvtsi128_si32(_mm_add_epi32(v, _mm_shuffle_epi32::<0xB1>(v)))
}

/// Columns to rows of 8 x 8 integers.
#[target_feature(enable = "avx2")]
#[inline]
pub(crate) fn transpose(v: &[__m256i; 8]) -> [__m256i; 8] {
    let mut pairs = [_mm256_setzero_si256(); 8];
    for i in 0..4 {
        pairs[2 * i] = _mm256_unpacklo_epi32(v[2 * i], v[2 * i + 1]);
        pairs[2 * i + 1] = _mm256_unpackhi_epi32(v[2 * i], v[2 * i + 1]);
    }
    let mut fours = [_mm256_setzero_si256(); 8];
    for i in 0..2 {
        for j in 0..2 {
            let (low, high) = (pairs[4 * i + j], pairs[4 * i + 2 + j]);
            fours[4 * i + 2 * j] = _mm256_unpacklo_epi64(low, high);
            fours[4 * i + 2 * j + 1] = _mm256_unpackhi_epi64(low, high);
        }
    }
    let mut out = [_mm256_setzero_si256(); 8];
    for j in 0..4 {
        out[j] = _mm256_permute2x128_si256::<0x20>(fours[j], fours[j + 4]);
        out[j + 4] = _mm256_permute2x128_si256::<0x31>(fours[j], fours[j + 4]);
    }
    out
}

/// Sixteen lanes folded 8-4-2-1, as `math::fold16` does.
#[target_feature(enable = "avx2")]
#[inline]
pub(crate) fn fold16(v: [__m256; 2]) -> f32 {
    let v = _mm256_add_ps(v[0], v[1]);
    let v = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps::<1>(v));
    let v = _mm_add_ps(v, _mm_movehl_ps(v, v));
    _mm_cvtss_f32(_mm_add_ss(v, _mm_shuffle_ps::<1>(v, v)))
}
