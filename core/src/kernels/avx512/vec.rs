//! Loads, stores and shuffles of vectors of 512 bits, as those of `avx2`: every load and store takes an array
//! of the vector's very size, so that none can leave it.
#![allow(unsafe_code)]

use crate::kernels::avx2::vec::load_half_i8;
use core::arch::x86_64::*;

macro_rules! loads {
    ($($(#[$doc:meta])* $name:ident: $from:ty => $to:ty, $load:expr;)+) => {$(
        $(#[$doc])*
        #[target_feature(enable = "avx512f")]
        #[inline]
        pub(super) fn $name(from: &$from) -> $to {
            // SAFETY: the reference is to an array of exactly the bytes that are read.
            unsafe { $load(core::ptr::from_ref(from).cast()) }
        }
    )+};
}

loads! {
    /// 64 bytes.
    load_u8_64: [[u8; 16]; 4] => __m512i, _mm512_loadu_si512;
    /// 64 signed bytes.
    load_i8_64: [[i8; 16]; 4] => __m512i, _mm512_loadu_si512;
    /// 16 floats.
    load_f32_16: [f32; 16] => __m512, _mm512_loadu_ps;
}

/// 16 floats.
#[target_feature(enable = "avx512f")]
#[inline]
pub(super) fn store_f32_16(to: &mut [f32; 16], v: __m512) {
    // SAFETY: the reference is to an array of exactly the bytes that are written.
    unsafe { _mm512_storeu_ps(core::ptr::from_mut(to).cast(), v) }
}

/// Four bytes four times each, of half `half` (0 or 1) of `x`.
#[target_feature(enable = "avx2,avx512f")]
#[inline]
pub(super) fn each_four(x: &[i8; 32], half: usize) -> __m512i {
    let which = _mm512_set_epi32(3, 3, 3, 3, 2, 2, 2, 2, 1, 1, 1, 1, 0, 0, 0, 0);
    let sixteen = load_half_i8(&x.as_chunks().0[half]);
    _mm512_permutexvar_epi32(which, _mm512_castsi128_si512(sixteen))
}

/// The sums of the four lanes of 128 bits of each vector, one after the other.
#[target_feature(enable = "avx512f")]
#[inline]
pub(super) fn fold_lanes(v: &[__m512i; 4]) -> __m512i {
    let half = |a: __m512i, b: __m512i| {
        let (low, high) = (_mm512_shuffle_i32x4::<0x44>(a, b), _mm512_shuffle_i32x4::<0xEE>(a, b));
        _mm512_add_epi32(low, high)
    };
    let (a, b) = (half(v[0], v[1]), half(v[2], v[3]));
    _mm512_add_epi32(_mm512_shuffle_i32x4::<0x88>(a, b), _mm512_shuffle_i32x4::<0xDD>(a, b))
}
