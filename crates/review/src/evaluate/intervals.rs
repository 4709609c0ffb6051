//! Where a figure lies with 95 % certainty, and how likely chance makes a difference. Pure and the same each time: the
//! random numbers come from a fixed seed.

use super::{Estimate, float};
use crate::calibrate::Z95;

/// Resamples of a bootstrap: percentiles of fewer are coarse, more change the second digit no more (Efron and
/// Tibshirani, An Introduction to the Bootstrap, 1993, ask for 1,000).
const RESAMPLES: usize = 1_000;
/// Fewest of them, where posts are many and the interval is narrow.
const FEWEST: usize = 200;
/// Most posts that are drawn in all, so that a million of gold posts take seconds.
const MOST_DRAWS: usize = 100_000_000;
/// Any number does; this one is `tools/evaluate_reference.py`'s, too.
const SEED: u64 = 13;

/// The middle 95 % of a statistic over resamples of as many places, drawn with replacement (percentile bootstrap);
/// resamples in which it is not defined are left out.
pub(super) fn resampled(posts: usize, statistic: &dyn Fn(&[usize]) -> Option<f64>) -> (f64, f64) {
    if posts == 0 {
        return (0.0, 1.0);
    }
    let mut random = SplitMix(SEED);
    let resamples = (MOST_DRAWS / posts).clamp(FEWEST, RESAMPLES);
    let mut places = vec![0; posts];
    let mut values: Vec<f64> = (0..resamples)
        .filter_map(|_| {
            places.fill_with(|| random.below(posts));
            statistic(&places)
        })
        .collect();
    values.sort_by(f64::total_cmp);
    (quantile(&values, 0.025), quantile(&values, 0.975))
}

/// Linear between the two nearest, as NumPy's default.
fn quantile(sorted: &[f64], share: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else {
        return 0.0;
    };
    let place = share * float(last);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a place in a list"
    )]
    let below = place.floor() as usize;
    let above = (below + 1).min(last);
    sorted[below] + (sorted[above] - sorted[below]) * (place - float(below))
}

/// `SplitMix64` (Steele, Lea and Flood, Fast Splittable Pseudorandom Number Generators, 2014): seven lines, the same on
/// every machine.
struct SplitMix(u64);

impl SplitMix {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let x = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        x ^ (x >> 31)
    }

    /// A number from 0 to `n` - 1.
    #[expect(clippy::cast_possible_truncation, reason = "less than `n`")]
    fn below(&mut self, n: usize) -> usize {
        // The high half of a product: a remainder would favour small numbers.
        ((u128::from(self.next()) * n as u128) >> 64) as usize
    }
}

/// The share of posts that only the second has right less that which only the first has right, with the adjusted Wald
/// interval for paired proportions (Bonett and Price, Journal of Educational and Behavioral Statistics, 2012).
pub(super) fn paired_difference(only_first: usize, only_second: usize, posts: usize) -> Estimate {
    if posts == 0 {
        let (value, low, high) = (None, -1.0, 1.0);
        return Estimate { value, low, high };
    }
    // One answer is added to each side (Agresti and Min), so that an interval without differences has a width, too.
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

/// McNemar's exact test, two-sided: how likely heads and tails of a fair coin come out as uneven as this, or more so.
pub(super) fn mcnemar(only_first: usize, only_second: usize) -> f64 {
    let (n, fewer) = (only_first + only_second, only_first.min(only_second));
    // In logarithms: 0.5 to the power of the differences is 0 in floats where there are over a thousand.
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
    fn the_random_numbers_are_those_of_splitmix64() {
        // The first of seed 1234567, by the reference implementation (https://prng.di.unimi.it/splitmix64.c).
        let mut random = SplitMix(1_234_567);
        assert_eq!(random.next(), 6_457_827_717_110_365_317);
        assert_eq!(random.next(), 3_203_168_211_198_807_973);
    }

    #[test]
    fn mcnemar_is_the_sign_test() {
        // 2 × (1 + 10 + 45) / 1024.
        assert!((mcnemar(2, 8) - 0.109_375).abs() < 1e-12);
        assert!((mcnemar(8, 2) - 0.109_375).abs() < 1e-12);
        assert!((mcnemar(0, 0) - 1.0).abs() < 1e-12);
        assert!((mcnemar(5, 5) - 1.0).abs() < 1e-12);
        let many = mcnemar(40_000, 40_600);
        assert!(many > 0.03 && many < 0.04, "{many}");
    }

    #[test]
    fn a_quantile_lies_between_its_neighbours() {
        let sorted = [0.0, 1.0, 2.0, 4.0];
        for (share, expected) in [(0.0, 0.0), (0.5, 1.5), (1.0, 4.0), (0.9, 3.4)] {
            assert!((quantile(&sorted, share) - expected).abs() < 1e-12);
        }
    }
}
