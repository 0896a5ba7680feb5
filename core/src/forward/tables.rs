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
pub(super) fn conditioning(config: &Config, layer: &Layer<'_>, q_factor: &mut [f32], k_factor: &mut [f32]) {
    let head_dim = config.head_dim;
    let heads = q_factor.chunks_exact_mut(head_dim).zip(k_factor.chunks_exact_mut(head_dim));
    for (h, (q_factor, k_factor)) in heads.enumerate() {
        if !layer.bk.is_empty() {
            let bias = layer.bk.slice(h * head_dim..(h + 1) * head_dim);
            factors(&bias, 1.0, q_factor, k_factor);
        } else if !layer.k_norm.is_empty() {
            // k_factor serves to sort in, before it is filled.
            let median = median_magnitude(&layer.k_norm, k_factor);
            factors(&layer.k_norm, median, q_factor, k_factor);
        } else {
            q_factor.fill(1.0);
            k_factor.fill(1.0);
        }
    }
}

fn factors(outliers: &Vector<'_>, unit: f32, q_factor: &mut [f32], k_factor: &mut [f32]) {
    let half = q_factor.len() / 2;
    for j in 0..half {
        let (a, b) = (outliers.get(j).abs(), outliers.get(j + half).abs());
        let m = math::max(a, b) / unit;
        let c = if m.is_finite() { math::sqrt(math::max(1.0, m)) } else { 1.0 };
        for i in [j, j + half] {
            q_factor[i] = c;
            k_factor[i] = 1.0 / c;
        }
    }
}

/// Median of the magnitudes; of an even count the mean of the two middle ones.
fn median_magnitude(x: &Vector<'_>, sorted: &mut [f32]) -> f32 {
    for (s, v) in sorted.iter_mut().zip(x.iter()) {
        *s = v.abs();
    }
    sorted.sort_unstable_by(f32::total_cmp);
    let n = sorted.len();
    (sorted[(n - 1) / 2] + sorted[n / 2]) / 2.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_share_the_larger_outlier() {
        let bias: [f32; 4] = [0.5, -9.0, 16.0, f32::NAN];
        let mut bytes = [0u8; 16];
        for (b, v) in bytes.as_chunks_mut::<4>().0.iter_mut().zip(bias) {
            *b = v.to_le_bytes();
        }
        let (mut q, mut k) = ([0.0; 4], [0.0; 4]);
        factors(&Vector::new(&bytes), 1.0, &mut q, &mut k);
        assert_eq!((q, k), ([4.0, 3.0, 4.0, 3.0], [0.25, 1.0 / 3.0, 0.25, 1.0 / 3.0]));
        let mut sorted = [0.0; 4];
        bytes[12..].copy_from_slice(&2f32.to_le_bytes());
        assert_eq!(median_magnitude(&Vector::new(&bytes), &mut sorted), 5.5);
    }
}
