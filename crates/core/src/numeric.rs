//! Computes exponentials and their sums without overflow: the largest exponent is subtracted first.

/// Returns the logarithm of the sum of eˣ.
pub fn log_sum_exp(logits: impl Iterator<Item = f64> + Clone) -> f64 {
    let top = logits.clone().fold(f64::NEG_INFINITY, f64::max);
    top + logits.map(|x| (x - top).exp()).sum::<f64>().ln()
}

/// Returns the logarithm of the mean of eˣ.
pub(crate) fn log_mean(logits: impl Iterator<Item = f64> + Clone) -> f64 {
    let top = logits.clone().fold(f64::NEG_INFINITY, f64::max);
    let (sum, count) = logits.fold((0.0, 0.0), |(sum, count), x| {
        (sum + (x - top).exp(), count + 1.0)
    });
    let mean: f64 = sum / count;
    top + mean.ln()
}

/// Returns ln(1 + eˣ) without overflow.
pub(crate) fn softplus(x: f64) -> f64 {
    x.max(0.0) + (-x.abs()).exp().ln_1p()
}

/// Returns the sigmoid, which equals the softmax of two numbers with this difference.
pub(crate) fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// Returns the softmax: the share of each eˣ in their sum.
pub(crate) fn softmax(logits: impl Iterator<Item = f64> + Clone) -> Vec<f64> {
    let top = logits.clone().fold(f64::NEG_INFINITY, f64::max);
    let weights: Vec<f64> = logits.map(|x| (x - top).exp()).collect();
    let sum: f64 = weights.iter().sum();
    weights.into_iter().map(|weight| weight / sum).collect()
}

/// Rounds a logit or a cosine to the precision in which it is stored.
#[expect(
    clippy::cast_possible_truncation,
    reason = "stored as f32, and exact enough"
)]
pub(crate) fn to_f32(x: f64) -> f32 {
    x as f32
}
