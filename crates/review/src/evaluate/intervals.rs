//! Computes 95 % confidence intervals and significance tests. Results are deterministic, because random numbers come
//! from a fixed seed.

use super::Estimate;
use crate::calibrate::Z95;
use crate::float;

/// Number of bootstrap resamples (Efron and Tibshirani, An Introduction to the Bootstrap, 1993, recommend 1,000).
const RESAMPLES: usize = 1_000;
/// Minimum number of resamples, used for gold labels of many posts, whose intervals are narrow anyway.
const FEWEST: usize = 200;
/// Number of posts drawn in all resamples above which fewer resamples are drawn, so that a million gold posts take
/// seconds.
const MOST_DRAWS: usize = 100_000_000;
/// An arbitrary seed, shared with `tools/evaluate_reference.py`.
const SEED: u64 = 13;

/// Returns the percentile bootstrap interval of a statistic, which is called with the positions of each resample: as
/// many as in the sample from each of its strata. Resamples with an undefined statistic are ignored.
pub(crate) fn resampled(
    strata: &[Vec<usize>],
    statistic: &dyn Fn(&[usize]) -> Option<f64>,
) -> (f64, f64) {
    let posts: usize = strata.iter().map(Vec::len).sum();
    if posts == 0 {
        return (0.0, 1.0);
    }
    let mut random = SplitMix(SEED);
    let resamples = (MOST_DRAWS / posts).clamp(FEWEST, RESAMPLES);
    let mut places = Vec::with_capacity(posts);
    let mut values: Vec<f64> = (0..resamples)
        .filter_map(|_| {
            places.clear();
            for stratum in strata {
                places.extend(stratum.iter().map(|_| stratum[random.below(stratum.len())]));
            }
            statistic(&places)
        })
        .collect();
    if values.is_empty() {
        return (0.0, 1.0);
    }
    values.sort_by(f64::total_cmp);
    (quantile(&values, 0.025), quantile(&values, 0.975))
}

/// Returns a quantile with linear interpolation, like NumPy.
fn quantile(sorted: &[f64], share: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else {
        return 0.0;
    };
    interpolated(sorted, share * float(last))
}

/// Returns the value at a place between two indices of a list, by linear interpolation.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "an index of the list"
)]
pub(super) fn interpolated(sorted: &[f64], place: f64) -> f64 {
    let below = place.floor() as usize;
    let above = (below + 1).min(sorted.len() - 1);
    sorted[below] + (sorted[above] - sorted[below]) * (place - float(below))
}

/// The `SplitMix64` generator (Steele, Lea and Flood, Fast Splittable Pseudorandom Number Generators, 2014): short, and
/// the same on every machine.
struct SplitMix(u64);

impl SplitMix {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let x = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        x ^ (x >> 31)
    }

    /// Returns a number from 0 to `n` - 1.
    #[expect(clippy::cast_possible_truncation, reason = "less than `n`")]
    fn below(&mut self, n: usize) -> usize {
        // The high half of the product avoids most of a remainder's bias.
        ((u128::from(self.next()) * n as u128) >> 64) as usize
    }
}

/// Returns the difference between two paired proportions, with the adjusted Wald interval (Bonett and Price, Journal of
/// Educational and Behavioral Statistics, 2012).
pub(super) fn paired_difference(only_first: usize, only_second: usize, posts: usize) -> Estimate {
    if posts == 0 {
        let (value, low, high) = (None, -1.0, 1.0);
        return Estimate { value, low, high };
    }
    // One count is added to each side (Agresti and Min), so that the interval has a width even without differences.
    let n = float(posts) + 2.0;
    let (a, b) = (
        (float(only_first) + 1.0) / n,
        (float(only_second) + 1.0) / n,
    );
    let (middle, half) = (b - a, Z95 * ((a + b - (b - a) * (b - a)) / n).sqrt());
    Estimate {
        value: Some((float(only_second) - float(only_first)) / float(posts)),
        low: (middle - half).max(-1.0),
        high: (middle + half).min(1.0),
    }
}

/// Returns the two-sided p-value of McNemar's exact test.
pub(super) fn mcnemar(only_first: usize, only_second: usize) -> f64 {
    let (n, fewer) = (only_first + only_second, only_first.min(only_second));
    // Computed in log space, because 0.5^n underflows if n is over a thousand.
    let mut log = -float(n) * std::f64::consts::LN_2;
    let mut tail = log.exp();
    for k in 0..fewer {
        log += (float(n - k) / float(k + 1)).ln();
        tail += log.exp();
    }
    (2.0 * tail).min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mcnemar_matches_the_binomial_test() {
        // 2 × (1 + 10 + 45) / 1024.
        assert!((mcnemar(2, 8) - 0.109_375).abs() < 1e-12);
        assert!((mcnemar(8, 2) - 0.109_375).abs() < 1e-12);
        assert!((mcnemar(0, 0) - 1.0).abs() < 1e-12);
        assert!((mcnemar(5, 5) - 1.0).abs() < 1e-12);
        let many = mcnemar(40_000, 40_600);
        assert!(many > 0.03 && many < 0.04, "{many}");
    }
}
