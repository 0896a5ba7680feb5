//! The online softmax of queries over a KV block, and the weights that V is multiplied with.
//! Must not know K and V.

use super::float::{fold16, no_lanes};
use super::vec::*;
use crate::kernels::scalar::attention::Softmax;
use crate::kv::BLOCK_TOKENS;
use crate::math::{self, Scale};
use crate::ops::attention::QUERIES;
use core::array;

/// What the tokens of a block are for a query, in registers of four.
pub(super) type Row = [[f32; 4]; BLOCK_TOKENS / 4];

/// `Softmax::absorb` for some queries: the scores of a block become probabilities, relative to the new
/// maximum; those past the first `seen` tokens, which may be anything, become 0. `shrink` gets what
/// earlier values shrink by. All have the same length.
///
/// Step by step for all queries: the CPU has another query to go on with where one waits for its maximum.
#[inline(never)]
pub(super) fn absorb(queries: &mut [Softmax], scores: &mut [Row], seen: &[usize], shrink: &mut [f32]) {
    let mut most = [0.0; QUERIES];
    for (((query, scores), seen), m) in queries.iter().zip(&mut *scores).zip(seen).zip(&mut most) {
        // The probability 0 changes no sum: none holds a -0.0.
        scores.as_flattened_mut()[*seen..].fill(f32::NEG_INFINITY);
        // The instruction takes the number where the other is a NaN, and `m` is none. It also takes
        // +0.0 before -0.0, which no difference below can tell.
        let mut lanes = [vdupq_n_f32(query.m); 2];
        for pair in scores.as_chunks::<2>().0 {
            lanes = array::from_fn(|i| vmaxnmq_f32(lanes[i], load_f32(&pair[i])));
        }
        *m = vmaxnmvq_f32(vmaxnmq_f32(lanes[0], lanes[1]));
    }
    for (((query, scores), m), shrink) in queries.iter_mut().zip(scores).zip(most).zip(shrink) {
        let drop = query.m - m;
        // Mostly the maximum stays: exp(0) is 1.
        *shrink =
            if drop == 0.0 { 1.0 } else { vgetq_lane_f32::<0>(exp_of_negative([vdupq_n_f32(drop)])[0]) };
        let mut sums = no_lanes();
        for half in scores.as_chunks_mut::<4>().0 {
            let p = exp_of_negative(half.each_ref().map(|s| vsubq_f32(load_f32(s), vdupq_n_f32(m))));
            sums = array::from_fn(|i| vaddq_f32(sums[i], p[i]));
            half.iter_mut().zip(p).for_each(|(s, p)| store_f32(s, p));
        }
        let sum = vdupq_n_f32(fold16(sums));
        query.l = vgetq_lane_f32::<0>(vfmaq_n_f32(sum, vdupq_n_f32(query.l), *shrink));
        query.m = m;
    }
}

/// The exponent's bias on top of `math::ROUND`: the bits of x / ln 2, rounded, are then those of a power
/// of two. `ROUND` is even and this is odd, but no product is a tie: half of an odd number up to 255
/// would have to be a multiple of the mantissa of `LOG2_E`, which is odd and larger.
const ROUND_BIASED: f32 = math::ROUND + 127.0;

/// What [`exp_of_negative`] adds to.
static ADDENDS: [[f32; 4]; 6] = {
    let c = math::EXP_COEFFICIENTS;
    [[ROUND_BIASED; 4], [c[1]; 4], [c[2]; 4], [c[3]; 4], [c[4]; 4], [c[5]; 4]]
};

/// `math::exp` of `4 N` values that are not above 0, or NaN: what a maximum leaves.
///
/// Step by step for all: each step waits for the one before.
#[inline(always)]
fn exp_of_negative<const N: usize>(x: [float32x4_t; N]) -> [float32x4_t; N] {
    // What is below gives way to a number so small that its power of two is 0. A NaN stays, and makes
    // NaNs of all that follows.
    let below = |x| vcgtq_f32(vdupq_n_f32(math::EXP_MIN), x);
    let x = x.map(|x| vbslq_f32(below(x), vdupq_n_f32(-88.0), x));
    let t = x.map(|x| vfmaq_f32(reload_f32::<0, 6>(&ADDENDS), x, vdupq_n_f32(math::LOG2_E)));
    let r: [_; N] = array::from_fn(|i| {
        let n = vsubq_f32(t[i], vdupq_n_f32(ROUND_BIASED));
        let r = vfmaq_f32(x[i], n, vdupq_n_f32(-math::LN2_HI));
        vfmaq_f32(r, n, vdupq_n_f32(-math::LN2_LO))
    });
    let p = [vdupq_n_f32(math::EXP_COEFFICIENTS[0]); N];
    let p: [_; N] = array::from_fn(|i| vfmaq_f32(reload_f32::<1, 6>(&ADDENDS), p[i], r[i]));
    let p: [_; N] = array::from_fn(|i| vfmaq_f32(reload_f32::<2, 6>(&ADDENDS), p[i], r[i]));
    let p: [_; N] = array::from_fn(|i| vfmaq_f32(reload_f32::<3, 6>(&ADDENDS), p[i], r[i]));
    let p: [_; N] = array::from_fn(|i| vfmaq_f32(reload_f32::<4, 6>(&ADDENDS), p[i], r[i]));
    let p: [_; N] = array::from_fn(|i| vfmaq_f32(reload_f32::<5, 6>(&ADDENDS), p[i], r[i]));
    array::from_fn(|i| {
        let y = vaddq_f32(vfmaq_f32(r[i], p[i], vmulq_f32(r[i], r[i])), vdupq_n_f32(1.0));
        // From -126 to 0, n is the exponent of a normal number: one exact factor does what two do for
        // any n.
        let power = vshlq_n_s32::<23>(vreinterpretq_s32_f32(t[i]));
        vmulq_f32(y, vreinterpretq_f32_s32(power))
    })
}

/// What a query adds up of a block's V.
#[derive(Clone, Copy)]
pub(super) struct Weights {
    /// Of each token, in steps of `scale`.
    pub(super) w: [[u8; 16]; BLOCK_TOKENS / 16],
    pub(super) scale: f32,
}

impl Weights {
    /// No token weighs anything.
    pub(super) const NONE: Weights = Weights { w: [[0; 16]; BLOCK_TOKENS / 16], scale: 0.0 };

    /// The weights in registers.
    #[inline(always)]
    pub(super) fn load(&self) -> [uint8x16_t; BLOCK_TOKENS / 16] {
        array::from_fn(|i| load_u8(&self.w[i]))
    }
}

/// The probabilities `p` times the scales of V, quantised; only the first `seen` count. `weights` come as
/// `NONE`. All have the same length.
#[inline(never)]
pub(super) fn weigh(p: &mut [Row], dv: &[f32; BLOCK_TOKENS], seen: &[usize], weights: &mut [Weights]) {
    let mut scales = [Scale { d: 0.0, inv: 0.0 }; QUERIES];
    for ((p, seen), scale) in p.iter_mut().zip(seen).zip(&mut scales) {
        for (p, dv) in p.iter_mut().zip(dv.as_chunks().0) {
            let w = vmulq_f32(load_f32(p), load_f32(dv));
            store_f32(p, w);
        }
        // A scale of a token that is not seen may be anything, NaN too.
        p.as_flattened_mut()[*seen..].fill(0.0);
        let magnitude = vdupq_n_u32(0x7FFF_FFFF);
        let mut most = [vdupq_n_u32(0); 2];
        for w in p.as_chunks::<2>().0 {
            for (most, w) in most.iter_mut().zip(w) {
                *most = vmaxq_u32(*most, vandq_u32(vreinterpretq_u32_f32(load_f32(w)), magnitude));
            }
        }
        *scale = Scale::of_amax(vmaxvq_u32(vmaxq_u32(most[0], most[1])), 255.0);
    }
    for ((p, weights), Scale { d, inv }) in p.iter().zip(weights).zip(scales) {
        weights.scale = d;
        if inv == 0.0 {
            continue;
        }
        for (out, p) in weights.w.iter_mut().zip(p.as_chunks::<4>().0) {
            // The sum's low byte is the product, rounded.
            let four = |i: usize| {
                let rounded = vaddq_f32(vmulq_n_f32(load_f32(&p[i]), inv), vdupq_n_f32(math::ROUND));
                vreinterpretq_u16_u32(vreinterpretq_u32_f32(rounded))
            };
            let eight = |i: usize| vreinterpretq_u8_u16(vuzp1q_u16(four(2 * i), four(2 * i + 1)));
            store_u8(out, vuzp1q_u8(eight(0), eight(1)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fails unless the vector form has the bits of the scalar one.
    fn check(x: [f32; 4]) {
        let mut ours = [0.0; 4];
        store_f32(&mut ours, exp_of_negative([load_f32(&x)])[0]);
        for (x, ours) in x.into_iter().zip(ours) {
            let want = math::exp(x);
            assert!(
                ours.to_bits() == want.to_bits() || ours.is_nan() && want.is_nan(),
                "exp({x:e}) = {ours:e}, not {want:e}"
            );
        }
    }

    #[test]
    fn exp_is_that_of_the_contract() {
        // From -0.0 down to minus infinity, and NaNs behind it.
        for bits in (0x8000_0000..=u32::MAX).step_by(4093) {
            check([bits, bits ^ 1, bits ^ 2, bits ^ 3].map(f32::from_bits));
        }
        // Every number around the smallest that is not 0, and where n changes next to it.
        for from in [math::EXP_MIN, -86.989_97, -87.683_1, -88.0] {
            for bits in from.to_bits() - 20_000..from.to_bits() + 20_000 {
                check([f32::from_bits(bits); 4]);
            }
        }
        check([0.0, -0.0, f32::NEG_INFINITY, f32::NAN]);
        check([f32::MIN, -f32::MIN_POSITIVE, -1e-45, -0.346_573_6]);
    }
}
