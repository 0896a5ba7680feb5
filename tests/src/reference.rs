//! Reference data: tensors by name, and distances to them.

use safetensors::SafeTensors;
use serde_json::Value;

/// A safetensors fixture.
pub struct Tensors(Vec<u8>);

impl Tensors {
    /// Reads the fixture `name`.
    pub fn fixture(name: &str) -> Self {
        Tensors(crate::fixture(name))
    }

    /// The f32 tensor `name`.
    ///
    /// # Panics
    /// If there is no such tensor.
    pub fn get(&self, name: &str) -> Vec<f32> {
        self.find(name).unwrap_or_else(|| panic!("no tensor {name}"))
    }

    /// The f32 tensor `name`, if it is there.
    ///
    /// # Panics
    /// If the fixture is no safetensors file.
    pub fn find(&self, name: &str) -> Option<Vec<f32>> {
        let all = SafeTensors::deserialize(&self.0).expect("a safetensors fixture");
        let data = all.tensor(name).ok()?.data().to_vec();
        Some(data.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect())
    }
}

/// A JSON fixture.
///
/// # Panics
/// If it is not JSON.
pub fn json(name: &str) -> Value {
    serde_json::from_slice(&crate::fixture(name)).expect("a JSON fixture")
}

/// The token ids in a JSON array.
///
/// # Panics
/// If `value` is something else.
pub fn ids(value: &Value) -> Vec<u32> {
    value.as_array().expect("an array").iter().map(|v| v.as_u64().expect("an id") as u32).collect()
}

/// Largest absolute difference. NaN counts as infinite.
///
/// # Panics
/// If the lengths differ.
pub fn max_difference(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    let gap = |(a, b): (&f32, &f32)| if (a - b).is_nan() { f32::INFINITY } else { (a - b).abs() };
    a.iter().zip(b).map(gap).fold(0.0, f32::max)
}

/// `|a - b| / |b|` in the 2-norm. NaN if `a` holds a NaN.
///
/// # Panics
/// If the lengths differ.
pub fn relative_distance(a: &[f32], b: &[f32]) -> f64 {
    assert_eq!(a.len(), b.len());
    let square = |x: f64| x * x;
    let gap: f64 = a.iter().zip(b).map(|(a, b)| square(f64::from(*a) - f64::from(*b))).sum();
    let size: f64 = b.iter().map(|b| square(f64::from(*b))).sum();
    (gap / size).sqrt()
}

/// `-log softmax(logits)[target]`.
pub fn nll(logits: &[f32], target: u32) -> f64 {
    log_sum_exp(logits) - f64::from(logits[target as usize])
}

/// `log(sum(exp(logits)))`.
pub fn log_sum_exp(logits: &[f32]) -> f64 {
    let m = f64::from(logits.iter().copied().fold(f32::NEG_INFINITY, f32::max));
    m + logits.iter().map(|l| (f64::from(*l) - m).exp()).sum::<f64>().ln()
}

/// Kullback-Leibler divergence of `softmax(q)` from `softmax(p)`.
pub fn kl_divergence(p: &[f32], q: &[f32]) -> f64 {
    let (lp, lq) = (log_sum_exp(p), log_sum_exp(q));
    let term = |(p, q): (&f32, &f32)| {
        let (p, q) = (f64::from(*p) - lp, f64::from(*q) - lq);
        p.exp() * (p - q)
    };
    p.iter().zip(q).map(term).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_measures_notice_wrong_answers() {
        assert_eq!(max_difference(&[0.0, 1.0], &[0.0, 1.5]), 0.5);
        assert_eq!(max_difference(&[f32::NAN], &[0.0]), f32::INFINITY);
        assert_eq!(relative_distance(&[3.0, 0.0], &[3.0, 4.0]), 0.8);
        assert!(relative_distance(&[f32::NAN], &[1.0]).is_nan());
        assert!((nll(&[0.0, 0.0], 1) - 2f64.ln()).abs() < 1e-12);
        assert!(kl_divergence(&[1.0, 0.0], &[1.0, 0.0]).abs() < 1e-12);
        assert!(kl_divergence(&[1.0, 0.0], &[0.0, 1.0]) > 0.1);
    }
}
