//! Quantises activations to blocks. Must not know weights.

use super::vec::*;
use crate::math::{self, Scale};
use crate::ops::attention::Planes;
use crate::ops::{BlockQ32, BlockQ256, Precision};
use core::array;

/// One block of 32, section 4 of the contract.
pub(crate) fn quantize_q32(x: &[f32; 32], precision: Precision, out: &mut BlockQ32) {
    let scale = scale(x, precision.most());
    let mut sum = vdupq_n_s32(0);
    for (i, x) in x.as_chunks::<16>().0.iter().enumerate() {
        let q = sixteen(x, scale.inv);
        sum = vpadalq_s16(vpadalq_s16(sum, q[0]), q[1]);
        let (lo, hi) = planes(q, precision);
        store_i8(&mut out.lo.as_chunks_mut().0[i], lo);
        store_i8(&mut out.hi.as_chunks_mut().0[i], hi);
    }
    out.d = scale.d;
    out.s = scale.d * vaddvq_s32(sum) as f32;
}

/// One block of 256, section 4 of the contract.
pub(crate) fn quantize_q256(x: &[f32; 256], precision: Precision, out: &mut BlockQ256) {
    let scale = scale(x, precision.most());
    let mut most = 0;
    for (i, x) in x.as_chunks::<16>().0.iter().enumerate() {
        let q = sixteen(x, scale.inv);
        // 16 * 2047 fits an i16.
        out.sums[i] = vaddvq_s16(vaddq_s16(q[0], q[1]));
        let magnitudes = vaddvq_s16(vaddq_s16(vabsq_s16(q[0]), vabsq_s16(q[1])));
        most = most.max(magnitudes);
        let (lo, hi) = planes(q, precision);
        store_i8(&mut out.lo.as_chunks_mut().0[i], lo);
        store_i8(&mut out.hi.as_chunks_mut().0[i], hi);
    }
    out.d = scale.d;
    (out.most_of_16, out.sums_of_32) = (0, [0; 16]);
    if precision == Precision::Coarse {
        out.most_of_16 = most as u32; // not negative
        let sums = out.sums.as_chunks().0;
        let sums = vpaddq_s16(load_i16(&sums[0]), load_i16(&sums[1]));
        let hi = vrshrq_n_s16::<7>(sums);
        let lo = vsubq_s16(sums, vshlq_n_s16::<7>(hi));
        store_i8(&mut out.sums_of_32, vcombine_s8(vmovn_s16(lo), vmovn_s16(hi)));
    }
}

/// `math::quantize_i16` of a query, whose length is a multiple of 16, to its two planes.
pub(crate) fn quantize_query(x: &[f32], out: &mut Planes) -> f32 {
    let scale = scale(x, math::QUERY_MOST);
    let [high, low] = out.each_mut().map(|plane| plane.as_chunks_mut::<16>().0);
    for ((x, high), low) in x.as_chunks::<16>().0.iter().zip(high).zip(low) {
        let (lo, hi) = planes(sixteen(x, scale.inv), Precision::Fine);
        store_i8(low, lo);
        store_i8(high, hi);
    }
    scale.d
}

/// `Scale::of` for whole registers.
#[inline(always)]
fn scale(x: &[f32], most: f32) -> Scale {
    let magnitude = vdupq_n_u32(0x7FFF_FFFF);
    let mut largest = [vdupq_n_u32(0); 2];
    for x in x.as_chunks::<8>().0 {
        for (largest, x) in largest.iter_mut().zip(x.as_chunks().0) {
            *largest = vmaxq_u32(*largest, vandq_u32(vreinterpretq_u32_f32(load_f32(x)), magnitude));
        }
    }
    Scale::of_amax(vmaxvq_u32(vmaxq_u32(largest[0], largest[1])), most)
}

/// Sixteen values in steps, as `Scale::apply` rounds them.
#[inline(always)]
fn sixteen(x: &[f32; 16], inv: f32) -> [int16x8_t; 2] {
    let fours = x.as_chunks().0;
    if inv == 0.0 {
        // Infinite or not a number: times zero it would be anything.
        return [vdupq_n_s16(0); 2];
    }
    let four = |i: usize| vmovn_s32(vcvtnq_s32_f32(vmulq_f32(load_f32(&fours[i]), vdupq_n_f32(inv))));
    array::from_fn(|i| vcombine_s16(four(2 * i), four(2 * i + 1)))
}

/// The low and the high plane of sixteen values, as `ops::act::planes`.
#[inline(always)]
fn planes(q: [int16x8_t; 2], precision: Precision) -> (int8x16_t, int8x16_t) {
    let narrow = |v: [int16x8_t; 2]| vcombine_s8(vmovn_s16(v[0]), vmovn_s16(v[1]));
    match precision {
        Precision::Coarse => (narrow(q), vdupq_n_s8(0)),
        Precision::Fine => {
            let hi = q.map(vrshrq_n_s16::<7>);
            (narrow(array::from_fn(|i| vsubq_s16(q[i], vshlq_n_s16::<7>(hi[i])))), narrow(hi))
        }
    }
}
