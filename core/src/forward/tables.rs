//! Tables computed once at load: rotary frequencies and the conditioning vectors of KV `q8`.

use crate::config::Config;
use crate::math;
use crate::weights::{Layer, Vector};

/// `theta^(-2j / head_dim)` for j < head_dim / 2, in f64, rounded once.
pub(super) fn rotary_frequencies(config: &Config, out: &mut [f32]) {
    for (j, f) in out.iter_mut().enumerate() {
        let exponent = -2.0 * j as f64 / config.head_dim as f64;
        *f = libm::pow(f64::from(config.rope_theta), exponent) as f32;
    }
}

/// Cosine and sine of `position * f` for every frequency.
pub(super) fn rotary_angles(position: u32, frequencies: &[f32], cos: &mut [f32], sin: &mut [f32]) {
    for ((f, c), s) in frequencies.iter().zip(cos).zip(sin) {
        let angle = f64::from(position as f32 * f);
        *c = libm::cos(angle) as f32;
        *s = libm::sin(angle) as f32;
    }
}

/// The conditioning vector of one layer (section 7 of the contract): Q is multiplied with
/// `q_factor`, K with `k_factor` = 1 / `q_factor`. Both `[n_kv_heads, head_dim]`.
///
/// K's rounding error, spread evenly by the Hadamard transform, costs about |Q|^2 |K|^2. Scaling K down
/// and Q up by sqrt(size of K / size of Q) in every dimension makes that product smallest
/// (Cauchy-Schwarz). What the file tells about sizes: biases, or the weights of the head norms.
pub(super) fn conditioning(config: &Config, layer: &Layer<'_>, q_factor: &mut [f32], k_factor: &mut [f32]) {
    let (d, half, group) = (config.head_dim, config.head_dim / 2, config.group());
    let heads = q_factor.chunks_exact_mut(d).zip(k_factor.chunks_exact_mut(d));
    for (h, (q_factor, k_factor)) in heads.enumerate() {
        for j in 0..half {
            let (k, q) = if !layer.bk.is_empty() && !layer.bq.is_empty() {
                let q = |g: usize| mean_square(&layer.bq, (h * group + g) * d + j, half);
                let mean = (0..group).map(q).fold(0.0, |sum, q| sum + q) / group as f32;
                (mean_square(&layer.bk, h * d + j, half) + UNBIASED, mean + UNBIASED)
            } else if !layer.k_norm.is_empty() && !layer.q_norm.is_empty() {
                (mean_square(&layer.k_norm, j, half), mean_square(&layer.q_norm, j, half))
            } else {
                (1.0, 1.0)
            };
            let c = math::sqrt(math::sqrt(k / q));
            let c = if (LEAST_FACTOR..=1.0 / LEAST_FACTOR).contains(&c) { c } else { 1.0 };
            for i in [j, j + half] {
                q_factor[i] = c;
                k_factor[i] = 1.0 / c;
            }
        }
    }
}

/// Mean square of what a token adds to q and k besides the bias, roughly.
const UNBIASED: f32 = 4.0;
/// Factors beyond this (or its inverse) come of no trained model.
const LEAST_FACTOR: f32 = 1.0 / 256.0;

/// Mean square of the rope pair (`at`, `at + half`): both must be scaled alike, or scaling would
/// not commute with rope.
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

    #[test]
    fn pairs_share_a_factor_made_of_both_biases() {
        // Pair 0: K 14, 14 -> 196 + 4 = 200; Q heads (0, 0), (8, 8) -> 32 + 4 = 36... of two heads.
        let bk = bytes([14.0, f32::NAN, 14.0, 1.0]);
        let bq = bytes([0.0, 0.0, 0.0, 0.0, 8.0, 0.0, 8.0, 0.0]);
        let layer =
            Layer { bk: Vector::new(bk.as_flattened()), bq: Vector::new(bq.as_flattened()), ..Layer::EMPTY };
        let (mut q, mut k) = ([0.0; 4], [0.0; 4]);
        conditioning(&config(2), &layer, &mut q, &mut k);
        let c = (200.0f32 / 36.0).sqrt().sqrt();
        assert_eq!(q, [c, 1.0, c, 1.0]);
        assert_eq!(k, [1.0 / c, 1.0, 1.0 / c, 1.0]);
    }

    #[test]
    fn norms_give_the_factor_where_there_are_no_biases() {
        let (kn, qn) = (bytes([16.0, 0.0, 16.0, 0.0]), bytes([1.0, 1.0, 1.0, 1.0]));
        let layer = Layer {
            k_norm: Vector::new(kn.as_flattened()),
            q_norm: Vector::new(qn.as_flattened()),
            ..Layer::EMPTY
        };
        let (mut q, mut k) = ([0.0; 4], [0.0; 4]);
        conditioning(&config(1), &layer, &mut q, &mut k);
        assert_eq!((q, k), ([4.0, 1.0, 4.0, 1.0], [0.25, 1.0, 0.25, 1.0]));
    }
}
