//! Computes bootstrap intervals, and the interval and the test of a difference between paired proportions. Results are
//! deterministic, because random numbers come from a fixed seed.

use super::Estimate;
use super::proportion::Z95;
use crate::{float, floor};

/// Number of bootstrap resamples (Efron and Tibshirani, An Introduction to the Bootstrap, 1993, recommend 1,000).
const RESAMPLES: usize = 1_000;
/// Minimum number of resamples, used for gold labels of many posts, whose intervals are narrow anyway.
const FEWEST: usize = 200;
/// Number of posts drawn in all resamples above which fewer resamples are drawn, so that a million gold posts take
/// seconds.
const MOST_DRAWS: usize = 100_000_000;
/// An arbitrary seed, shared with `tools/evaluate_reference.py`.
const SEED: u64 = 13;

/// Estimates a statistic with its percentile bootstrap interval. `statistic` is called with the positions of the sample
/// and of each resample, which has as many posts from each of the `strata` as the sample; resamples for which it is
/// undefined are ignored.
pub(crate) fn bootstrap(
    strata: &[Vec<usize>],
    statistic: &dyn Fn(&[usize]) -> Option<f64>,
) -> Estimate {
    let mut positions = strata.concat();
    let Some(value) = statistic(&positions) else {
        let (value, low, high) = (None, 0.0, 1.0);
        return Estimate { value, low, high };
    };
    let mut random = SplitMix(SEED);
    let resamples = (MOST_DRAWS / positions.len().max(1)).clamp(FEWEST, RESAMPLES);
    let mut values: Vec<f64> = Vec::with_capacity(resamples);
    for _ in 0..resamples {
        positions.clear();
        for stratum in strata {
            positions.extend(stratum.iter().map(|_| stratum[random.below(stratum.len())]));
        }
        values.extend(statistic(&positions));
    }
    values.sort_by(f64::total_cmp);
    Estimate {
        value: Some(value),
        low: quantile(&values, 0.025).unwrap_or(0.0),
        high: quantile(&values, 0.975).unwrap_or(1.0),
    }
}

/// Returns a quantile with linear interpolation, like NumPy; `None` without values.
fn quantile(sorted: &[f64], level: f64) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    Some(interpolated(sorted, level * float(last)))
}

/// Returns the value at a position between two indices of a list, by linear interpolation.
pub(super) fn interpolated(sorted: &[f64], position: f64) -> f64 {
    let below = floor(position);
    let above = (below + 1).min(sorted.len() - 1);
    sorted[below] + (sorted[above] - sorted[below]) * (position - float(below))
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
    // One count is added to each side, so that the interval has a width even without differences.
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
