//! Tables computed once at load: rotary frequencies and the conditioning vectors of KV `q8`.

use crate::config::Config;
use crate::kv::BLOCK_TOKENS;
use crate::math;
use crate::weights::{Layer, Vector};

/// `theta^(-2j / head_dim)` for j < head_dim / 2, in f64, rounded once.
#[inline(never)]
#[cfg_attr(kinglet_small, optimize(size))]
pub(super) fn rotary_frequencies(config: &Config, out: &mut [f32]) {
    for (j, f) in out.iter_mut().enumerate() {
        let exponent = -2.0 * j as f64 / config.head_dim as f64;
        *f = libm::pow(f64::from(config.rope_theta), exponent) as f32;
    }
}

/// Cosine and sine of `position * f` for every frequency.
#[inline(never)]
pub(super) fn rotary_angles(position: f32, frequencies: &[f32], cos: &mut [f32], sin: &mut [f32]) {
    for ((f, c), s) in frequencies.iter().zip(cos).zip(sin) {
        let angle = f64::from(position * f);
        *c = libm::cos(angle) as f32;
        *s = libm::sin(angle) as f32;
    }
}

/// The middle of block `i` of a sequence, as a position.
pub(super) fn block_middle(i: usize) -> f32 {
    (i * BLOCK_TOKENS) as f32 + 0.5 * (BLOCK_TOKENS - 1) as f32
}

/// What [`conditioning`] computes, `[n_kv_heads, head_dim]` each.
pub(super) struct Conditioning<'t> {
    /// What Q is multiplied with.
    pub q_factor: &'t mut [f32],
    /// What K is multiplied with: the inverse.
    pub k_factor: &'t mut [f32],
    /// The constant part of K before rope, damped.
    pub k_constant: &'t mut [f32],
}

/// How K of one layer is conditioned before it is quantised (section 7 of the contract).
///
/// K's bias, turned by rope, is the same for every token at a position, and nearly the same within
/// a block where frequencies are low: what stays of it when the turning is averaged is taken off.
///
/// K's rounding error, spread evenly by the Hadamard transform, costs about |Q|^2 |K|^2. Scaling K down
/// and Q up by sqrt(size of K / size of Q) in every dimension makes that product smallest
/// (Cauchy-Schwarz). What the file tells about sizes: biases, or the weights of the head norms.
#[inline(never)]
#[cfg_attr(kinglet_small, optimize(size))]
pub(super) fn conditioning(config: &Config, layer: &Layer<'_>, frequencies: &[f32], out: Conditioning<'_>) {
    let (d, half, group) = (config.head_dim, config.head_dim / 2, config.group());
    for h in 0..config.n_kv_heads {
        for (j, frequency) in frequencies.iter().enumerate() {
            let at = h * d + j;
            let mut damping = 0.0;
            let (k, q) = if !layer.bk.is_empty() && !layer.bq.is_empty() {
                let q = |g: usize| mean_square(&layer.bq, (h * group + g) * d + j, half);
                let q = (0..group).map(q).fold(0.0, |sum, q| sum + q) / group as f32;
                damping = mean_turn(*frequency);
                let left = mean_square(&layer.bk, at, half) * (1.0 - damping * damping);
                (left + UNBIASED, q + UNBIASED)
            } else if !layer.k_norm.is_empty() && !layer.q_norm.is_empty() {
                (mean_square(&layer.k_norm, j, half), mean_square(&layer.q_norm, j, half))
            } else {
                (1.0, 1.0)
            };
            let c = math::sqrt(math::sqrt(k / q));
            let c = if (LEAST_FACTOR..=1.0 / LEAST_FACTOR).contains(&c) { c } else { 1.0 };
            for i in [at, at + half] {
                out.q_factor[i] = c;
                out.k_factor[i] = 1.0 / c;
                let constant = if damping == 0.0 { 0.0 } else { layer.bk.get(i) * damping };
                out.k_constant[i] = constant;
            }
        }
    }
}

/// Mean of the cosine of the angles from a block's middle to its tokens.
#[inline(never)]
fn mean_turn(frequency: f32) -> f32 {
    let angle = |t: usize| f64::from(frequency) * (t as f64 - 0.5 * (BLOCK_TOKENS - 1) as f64);
    let sum = (0..BLOCK_TOKENS).fold(0.0, |sum, t| sum + libm::cos(angle(t)));
    (sum / BLOCK_TOKENS as f64) as f32
}

/// Mean square of what a token adds to q and k besides the bias, roughly.
const UNBIASED: f32 = 4.0;
/// Factors beyond this (or its inverse) come of no trained model.
const LEAST_FACTOR: f32 = 1.0 / 256.0;

/// Mean square of the rope pair (`at`, `at + half`): both must be scaled alike, or scaling would
/// not commute with rope.
#[inline(never)]
fn mean_square(x: &Vector<'_>, at: usize, half: usize) -> f32 {
    let (a, b) = (x.get(at), x.get(at + half));
    (a * a + b * b) * 0.5
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Arch;
    extern crate std;

    fn bytes<const N: usize>(values: [f32; N]) -> [[u8; 4]; N] {
        values.map(f32::to_le_bytes)
    }

    fn config(n_heads: usize) -> Config {
        Config {
            arch: Arch::Qwen2,
            n_layers: 1,
            dim: 4,
            n_heads,
            n_kv_heads: 1,
            head_dim: 4,
            ffn_dim: 4,
            vocab: 4,
            train_ctx: 8,
            rope_theta: 1e4,
            rms_eps: 1e-6,
        }
    }

    fn run(config: &Config, layer: &Layer<'_>, frequencies: [f32; 2]) -> [[f32; 4]; 3] {
        let [mut q, mut k, mut constant] = [[9.0; 4]; 3];
        let out = Conditioning { q_factor: &mut q, k_factor: &mut k, k_constant: &mut constant };
        conditioning(config, layer, &frequencies, out);
        [q, k, constant]
    }

    #[test]
    fn pairs_share_a_factor_made_of_both_biases() {
        let bk = bytes([14.0, f32::NAN, 14.0, 1.0]);
        // Mean squares of pair 0 of two query heads: 0 and 64.
        let bq = bytes([0.0, 0.0, 0.0, 0.0, 8.0, 0.0, 8.0, 0.0]);
        let layer =
            Layer { bk: Vector::new(bk.as_flattened()), bq: Vector::new(bq.as_flattened()), ..Layer::EMPTY };
        // Full turns between neighbours and half of one: the mean over 32 tokens is 0.
        let turn = core::f32::consts::PI;
        let [q, k, constant] = run(&config(2), &layer, [turn, turn]);
        let c = (200.0f32 / 36.0).sqrt().sqrt();
        assert!((q[0] - c).abs() < 1e-6 && q[0] == q[2], "{q:?}");
        assert_eq!((q[1], q[3]), (1.0, 1.0));
        assert_eq!(k, q.map(|q| 1.0 / q));
        assert!(constant[0].abs() < 1e-5, "{constant:?}");
        // No turning: all of the bias is constant, and K has the size of what tokens add.
        let [q, _, constant] = run(&config(2), &layer, [0.0, 0.0]);
        assert_eq!(q[0], (4.0f32 / 36.0).sqrt().sqrt());
        assert_eq!((constant[0], constant[2], constant[3]), (14.0, 14.0, 1.0));
    }

    #[test]
    fn norms_give_the_factor_where_there_are_no_biases() {
        let (kn, qn) = (bytes([16.0, 0.0, 16.0, 0.0]), bytes([1.0, 1.0, 1.0, 1.0]));
        let layer = Layer {
            k_norm: Vector::new(kn.as_flattened()),
            q_norm: Vector::new(qn.as_flattened()),
            ..Layer::EMPTY
        };
        let [q, k, constant] = run(&config(1), &layer, [0.1, 0.2]);
        assert_eq!((q, k), ([4.0, 1.0, 4.0, 1.0], [0.25, 1.0, 0.25, 1.0]));
        assert_eq!(constant, [0.0; 4]);
    }
}
