//! Quantises activations to blocks. Must not know weights.

use crate::math;
use crate::ops::act::planes;
use crate::ops::{BlockQ32, BlockQ256, Precision};

/// One block of 32, section 4 of the contract.
pub(crate) fn quantize_q32(x: &[f32; 32], precision: Precision, out: &mut BlockQ32) {
    let mut q = [0i16; 32];
    out.d = math::quantize_i16(x, precision.most(), &mut q);
    out.s = out.d * q.iter().map(|&q| i32::from(q)).sum::<i32>() as f32;
    split(&q, precision, &mut out.lo, &mut out.hi);
}

/// One block of 256, section 4 of the contract.
pub(crate) fn quantize_q256(x: &[f32; 256], precision: Precision, out: &mut BlockQ256) {
    let mut q = [0i16; 256];
    out.d = math::quantize_i16(x, precision.most(), &mut q);
    for (sum, q) in out.sums.iter_mut().zip(q.as_chunks::<16>().0) {
        *sum = q.iter().sum();
    }
    split(&q, precision, &mut out.lo, &mut out.hi);
    out.summarize(precision);
}

fn split(q: &[i16], precision: Precision, lo: &mut [i8], hi: &mut [i8]) {
    for ((q, lo), hi) in q.iter().zip(lo).zip(hi) {
        (*lo, *hi) = planes(*q, precision);
    }
}
