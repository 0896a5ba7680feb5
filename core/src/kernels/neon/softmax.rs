//! The online softmax of a query over a KV block, and the weights that V is multiplied with.
//! Must not know K and V.

use super::float::{fold16, no_lanes};
use super::vec::*;
use crate::kernels::scalar::attention::Softmax;
use crate::kv::BLOCK_TOKENS;
use crate::math::{self, Scale};
use core::array;

/// What the tokens of a block are for a query, in registers of four.
pub(super) type Row = [[f32; 4]; BLOCK_TOKENS / 4];

/// `Softmax::absorb`: the scores of a block become probabilities, relative to the new maximum; those
/// past the first `seen` tokens, which may be anything, become 0. Returns what earlier values shrink by.
#[inline(never)]
pub(super) fn absorb(softmax: &mut Softmax, scores: &mut Row, seen: usize) -> f32 {
    // The probability 0 changes no sum: none holds a -0.0.
    scores.as_flattened_mut()[seen..].fill(f32::NEG_INFINITY);
    // The instruction takes the number where the other is a NaN, and `m` is none. It also takes +0.0
    // before -0.0, which no difference below can tell.
    let most = scores.iter().fold(vdupq_n_f32(softmax.m), |m, s| vmaxnmq_f32(m, load_f32(s)));
    let m = vmaxnmvq_f32(most);
    let drop = softmax.m - m;
    // Mostly the maximum stays: exp(0) is 1.
    let shrink = if drop == 0.0 { 1.0 } else { vgetq_lane_f32::<0>(exp_of_negative(vdupq_n_f32(drop))) };
    let mut sums = no_lanes();
    for half in scores.as_chunks_mut::<4>().0 {
        for (sum, s) in sums.iter_mut().zip(half) {
            let p = exp_of_negative(vsubq_f32(load_f32(s), vdupq_n_f32(m)));
            *sum = vaddq_f32(*sum, p);
            store_f32(s, p);
        }
    }
    let sum = vdupq_n_f32(fold16(sums));
    softmax.l = vgetq_lane_f32::<0>(vfmaq_n_f32(sum, vdupq_n_f32(softmax.l), shrink));
    softmax.m = m;
    shrink
}

/// `math::exp` of four values that are not above 0, or NaN: what a maximum leaves.
#[inline(always)]
fn exp_of_negative(x: float32x4_t) -> float32x4_t {
    let round = vdupq_n_f32(math::ROUND);
    let below = vcgtq_f32(vdupq_n_f32(math::EXP_MIN), x);
    let t = vfmaq_f32(round, x, vdupq_n_f32(math::LOG2_E));
    let n = vsubq_f32(t, round);
    let r = vfmaq_f32(x, n, vdupq_n_f32(-math::LN2_HI));
    let r = vfmaq_f32(r, n, vdupq_n_f32(-math::LN2_LO));
    let mut p = vdupq_n_f32(math::EXP_COEFFICIENTS[0]);
    for &c in &math::EXP_COEFFICIENTS[1..] {
        p = vfmaq_f32(vdupq_n_f32(c), p, r);
    }
    let y = vaddq_f32(vfmaq_f32(r, p, vmulq_f32(r, r)), vdupq_n_f32(1.0));
    // From -126 to 0, n is the exponent of a normal number: one exact factor does what two do for
    // any n. The bits of `round` are shifted out. A NaN goes through all of it and stays one.
    let power = vaddq_s32(vshlq_n_s32::<23>(vreinterpretq_s32_f32(t)), vdupq_n_s32(127 << 23));
    let y = vmulq_f32(y, vreinterpretq_f32_s32(power));
    // What is below ran through the same steps and came out as anything.
    vreinterpretq_f32_u32(vbicq_u32(vreinterpretq_u32_f32(y), below))
}

/// What a query adds up of a block's V.
#[derive(Clone, Copy)]
pub(super) struct Weights {
    /// Of each token, in steps of `scale`.
    pub(super) w: [[u8; 16]; BLOCK_TOKENS / 16],
    pub(super) scale: f32,
    /// Factor of what was added up before.
    pub(super) shrink: f32,
}

impl Weights {
    /// Leaves what was added up before as it is: it is never -0.0, which adding 0 would change.
    pub(super) const NONE: Weights = Weights { w: [[0; 16]; BLOCK_TOKENS / 16], scale: 0.0, shrink: 1.0 };

    /// The probabilities `p` times the scales of V, quantised; only the first `seen` count.
    #[inline(never)]
    pub(super) fn new(p: &mut Row, dv: &[f32; BLOCK_TOKENS], seen: usize, shrink: f32) -> Weights {
        for (p, dv) in p.iter_mut().zip(dv.as_chunks().0) {
            let w = vmulq_f32(load_f32(p), load_f32(dv));
            store_f32(p, w);
        }
        // A scale of a token that is not seen may be anything, NaN too.
        p.as_flattened_mut()[seen..].fill(0.0);
        let magnitude = vdupq_n_u32(0x7FFF_FFFF);
        let mut most = [vdupq_n_u32(0); 2];
        for w in p.as_chunks::<2>().0 {
            for (most, w) in most.iter_mut().zip(w) {
                *most = vmaxq_u32(*most, vandq_u32(vreinterpretq_u32_f32(load_f32(w)), magnitude));
            }
        }
        let Scale { d, inv } = Scale::of_amax(vmaxvq_u32(vmaxq_u32(most[0], most[1])), 255.0);
        if inv == 0.0 {
            return Weights { scale: d, shrink, ..Weights::NONE };
        }
        let mut w = [[0; 16]; BLOCK_TOKENS / 16];
        for (out, p) in w.iter_mut().zip(p.as_chunks::<4>().0) {
            // The sum's low byte is the product, rounded.
            let four = |i: usize| {
                let rounded = vaddq_f32(vmulq_n_f32(load_f32(&p[i]), inv), vdupq_n_f32(math::ROUND));
                vreinterpretq_u16_u32(vreinterpretq_u32_f32(rounded))
            };
            let eight = |i: usize| vreinterpretq_u8_u16(vuzp1q_u16(four(2 * i), four(2 * i + 1)));
            store_u8(out, vuzp1q_u8(eight(0), eight(1)));
        }
        Weights { w, scale: d, shrink }
    }

    /// The weights in registers.
    #[inline(always)]
    pub(super) fn load(&self) -> [uint8x16_t; BLOCK_TOKENS / 16] {
        array::from_fn(|i| load_u8(&self.w[i]))
    }
}
