//! Weight types with blocks of 256: the functions of the same names in `avx2`.

use super::dot::quad;
use crate::kernels::avx2::block256::{apply, define_one};
use crate::kernels::avx2::dot::{pairs, plus, widen};
use crate::kernels::avx2::panel::{GROUP, PANEL, Panel, fours, next_bytes};
use crate::kernels::avx2::unpack32::halves;
use crate::kernels::avx2::unpack256::*;
use crate::kernels::avx2::vec::*;
use crate::ops::BlockQ256;
use core::arch::x86_64::*;

define_one!("avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512vnni");

/// Adds the products of a panel with four tokens to `results`; `how` as of [`apply`].
///
/// Sums may wrap on the way where an offset is large: what is left without it fits, and so is exact.
/// `FITS`: sums over 16 elements fit 16 bits. With activations of magnitude 127 (15 * 127 * 16 =
/// 30,480) that is so of weights up to 15, with the planes of fine ones (31 * 64 * 16 = 31,744) up
/// to 31.
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512vnni")]
#[inline(never)]
pub(super) fn group<const FITS: bool>(
    panel: &Panel,
    x: [&BlockQ256; GROUP],
    how: (bool, i32, bool),
    results: &mut [[f32; PANEL]; GROUP],
) {
    let (_, _, fine) = how;
    let mut sums = [_mm256_setzero_si256(); GROUP];
    let w = panel.w.as_chunks::<4>().0.iter().zip(&panel.scales);
    if fine {
        for (i, (w, scale)) in w.clone().enumerate() {
            // Not by `map`: it would be called, as it is not compiled for this CPU.
            let [a, b, c, d] = x;
            let x = [fours(&a.hi, i), fours(&b.hi, i), fours(&c.hi, i), fours(&d.hi, i)];
            scaled::<FITS>(w, x, load_i16(&scale.0), &mut sums);
        }
        for sums in &mut sums {
            *sums = _mm256_slli_epi32::<7>(*sums);
        }
    }
    for (i, (w, scale)) in w.enumerate() {
        let [a, b, c, d] = x;
        let x = [fours(&a.lo, i), fours(&b.lo, i), fours(&c.lo, i), fours(&d.lo, i)];
        scaled::<FITS>(w, x, load_i16(&scale.0), &mut sums);
    }
    apply(panel, x, how, sums, results);
}

/// Adds to `sums` the products of 16 elements of eight rows with those of each token, times
/// `scale`, which comes twice.
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512vnni")]
#[inline]
fn scaled<const FITS: bool>(
    w: &[Aligned<[u8; 32]>; 4],
    x: [&[[i8; 4]; 4]; GROUP],
    scale: __m256i,
    sums: &mut [__m256i; GROUP],
) {
    let mut run = [_mm256_setzero_si256(); GROUP];
    quad(w, x, &mut run);
    // The upper half of a sum that fits the lower is only its sign: with a scale of 0 it adds nothing.
    let low = _mm256_and_si256(scale, _mm256_set1_epi32(0xFFFF));
    let wide = _mm256_srai_epi32::<16>(scale);
    for (sum, run) in sums.iter_mut().zip(run) {
        *sum = plus(*sum, if FITS { widen(run, low) } else { _mm256_mullo_epi32(run, wide) });
    }
}
