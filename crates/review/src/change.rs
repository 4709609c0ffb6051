//! Compares shares between two periods or two groups.
//!
//! A share may change only because the mix of subreddits changed. [`standardised_change`] therefore compares within
//! subreddits and combines the differences with constant weights, as Mantel and Haenszel do. Many changes are shown at
//! once, so their p-values are corrected by [`holm`].

use serde::Serialize;
use statrs::function::erf::erfc;

use crate::as_f64;
use crate::evaluate::Estimate;
use crate::evaluate::proportion::Z95;

/// A difference with a p-value below this is significant.
pub const SIGNIFICANCE: f64 = 0.05;

/// The posts of a stratum, such as a subreddit, in the first and in the second period.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PeriodCounts {
    /// Posts with the property.
    pub with: [u64; 2],
    /// All posts.
    pub posts: [u64; 2],
}

/// The change of a share between two periods, from 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct ShareChange {
    /// Share in the first period, in a mix of strata that is the same for both.
    pub from: f64,
    /// Share in the second period, in the same mix.
    pub to: f64,
    /// Difference between these shares, with its 95 % interval.
    pub difference: Estimate,
    /// Two-sided p-value of the difference.
    pub p: f64,
    /// Share in the first period, as it is.
    pub raw_from: f64,
    /// Share in the second period, as it is.
    pub raw_to: f64,
}

impl ShareChange {
    /// Returns the difference between the standardised shares.
    pub fn difference(&self) -> f64 {
        self.to - self.from
    }

    /// Returns the difference between the shares as they are.
    pub fn raw_difference(&self) -> f64 {
        self.raw_to - self.raw_from
    }
}

/// Compares a share between two periods with the mix of strata held constant. `None` if no stratum has posts in both.
///
/// The weight of a stratum is `ab / (a + b)`, where `a` and `b` are its posts in the two periods: the weight of Mantel
/// and Haenszel, which is the pooled mix if all strata have the same ratio of posts. The interval has Sato's variance
/// (Biometrics 45, 1989), which is valid for few large and for many small strata. The p-value is that of the
/// Cochran-Mantel-Haenszel test with a continuity correction.
pub fn standardised_change(strata: &[PeriodCounts]) -> Option<ShareChange> {
    let [mut weights, mut from, mut to] = [0.0; 3];
    // Sato's sums of P and Q, and the test's sums of observed minus expected posts and of their variance.
    let [mut p, mut q, mut excess, mut variance] = [0.0; 4];
    for stratum in strata {
        let [x0, x1] = stratum.with.map(as_f64);
        let [n0, n1] = stratum.posts.map(as_f64);
        if n0 == 0.0 || n1 == 0.0 {
            continue;
        }
        let n = n0 + n1;
        let weight = n0 * n1 / n;
        weights += weight;
        from += weight * x0 / n0;
        to += weight * x1 / n1;
        p += (n1 * n1 * x0 - n0 * n0 * x1 + n1 * n0 * (n0 - n1) / 2.0) / (n * n);
        q += (x1 * (n0 - x0) + x0 * (n1 - x1)) / (2.0 * n);
        excess += x1 - n1 * (x0 + x1) / n;
        variance += n0 * n1 * (x0 + x1) * (n - x0 - x1) / (n * n * (n - 1.0));
    }
    if weights == 0.0 {
        return None;
    }
    let (from, to) = (from / weights, to / weights);
    let difference = to - from;
    let half = Z95 * (difference * p + q).max(0.0).sqrt() / weights;
    let z = if variance > 0.0 {
        (excess.abs() - 0.5).max(0.0) / variance.sqrt()
    } else {
        0.0
    };
    let raw = |period: usize| {
        let with = strata.iter().map(|stratum| stratum.with[period]).sum();
        let posts = strata.iter().map(|stratum| stratum.posts[period]).sum();
        as_f64(with) / as_f64(posts).max(1.0)
    };
    Some(ShareChange {
        from,
        to,
        difference: Estimate {
            value: Some(difference),
            low: (difference - half).max(-1.0),
            high: (difference + half).min(1.0),
        },
        p: both_tails(z),
        raw_from: raw(0),
        raw_to: raw(1),
    })
}

/// The difference of two independent estimates.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct EstimateDifference {
    /// The second estimate minus the first.
    pub difference: Estimate,
    /// Two-sided p-value.
    pub p: f64,
}

/// Returns the second of two independent estimates minus the first, and its p-value; `None` if one is undefined.
///
/// The interval combines the two intervals without assuming that they are symmetric (Zou and Donner, Statistics in
/// Medicine 27, 2008). The p-value is that of the nearer half of this interval as 1.96 standard errors, so it is below
/// 0.05 exactly if the interval excludes zero.
pub fn difference_of_estimates(first: &Estimate, second: &Estimate) -> Option<EstimateDifference> {
    let (a, b) = (first.value?, second.value?);
    let value = b - a;
    let below = (b - second.low).hypot(first.high - a);
    let above = (second.high - b).hypot(a - first.low);
    let half = if value > 0.0 { below } else { above };
    let z = if half > 0.0 {
        Z95 * value.abs() / half
    } else {
        0.0
    };
    Some(EstimateDifference {
        difference: Estimate {
            value: Some(value),
            low: value - below,
            high: value + above,
        },
        p: both_tails(z),
    })
}

/// Corrects p-values for their number (Holm, Scandinavian Journal of Statistics 6, 1979). The order is kept.
pub fn holm(p_values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..p_values.len()).collect();
    order.sort_by(|a, b| p_values[*a].total_cmp(&p_values[*b]));
    let mut corrected = vec![0.0; p_values.len()];
    let mut largest = 0.0_f64;
    for (rank, place) in order.iter().enumerate() {
        let left = as_f64((p_values.len() - rank) as u64);
        largest = largest.max((left * p_values[*place]).min(1.0));
        corrected[*place] = largest;
    }
    corrected
}

/// Returns true if the count `first` is significantly larger than `second`, with a Bonferroni correction for `labels`
/// counts.
pub fn is_significantly_larger(first: u64, second: u64, labels: usize) -> bool {
    // Both counts are from one sample, so the variance of their difference is about their sum.
    let z = as_f64(first.saturating_sub(second)) / as_f64(first + second).max(1.0).sqrt();
    both_tails(z) * as_f64(labels.max(1) as u64) < SIGNIFICANCE
}

/// Returns the two-sided p-value of a standard normal value.
fn both_tails(z: f64) -> f64 {
    erfc(z.abs() / std::f64::consts::SQRT_2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evaluate::Proportion;

    fn counts(rows: &[[u64; 4]]) -> Vec<PeriodCounts> {
        let one = |[x0, n0, x1, n1]: &[u64; 4]| PeriodCounts {
            with: [*x0, *x1],
            posts: [*n0, *n1],
        };
        rows.iter().map(one).collect()
    }

    #[test]
    fn a_change_of_the_mix_alone_is_no_change() {
        // Admissions to Berkeley in 1973: men, then women, in six departments (R's `UCBAdmissions`). R's
        // `mantelhaen.test` gives 1.4269, p = 0.2323.
        let found = standardised_change(&counts(&[
            [512, 825, 89, 108],
            [353, 560, 17, 25],
            [120, 325, 202, 593],
            [138, 417, 131, 375],
            [53, 191, 94, 393],
            [22, 373, 24, 341],
        ]))
        .unwrap();
        assert!((found.p - 0.2323).abs() < 5e-5, "{found:?}");
        assert!((found.raw_difference() + 0.1416).abs() < 5e-5, "{found:?}");
        assert!(found.difference() > 0.0, "{found:?}");
        assert!(found.difference.low < 0.0 && found.difference.high > 0.0);
        // A single stratum has the usual variance: 0.3 ± 1.96 √(0.2·0.8/100 + 0.5·0.5/50).
        let one = standardised_change(&counts(&[[20, 100, 25, 50]])).unwrap();
        let half = 1.96 * (0.16_f64 / 100.0 + 0.25 / 50.0).sqrt();
        assert!((one.difference.high - 0.3 - half).abs() < 1e-5, "{one:?}");
        assert!(one.p < 0.001);
        assert_eq!(
            standardised_change(&counts(&[[2, 5, 0, 0], [0, 0, 1, 4]])),
            None
        );
        let none = standardised_change(&counts(&[[0, 5, 0, 5], [3, 3, 2, 2]])).unwrap();
        assert!((none.p - 1.0).abs() < 1e-12);
    }

    /// Simulates periods in which only the mix of three subreddits changes, for labels with these shares.
    #[test]
    fn intervals_cover_and_tests_err_as_promised_if_only_the_mix_changes() {
        let mut random = fastrand::Rng::with_seed(7);
        let mut draw = |posts: u64, share: f64| -> u64 {
            (0..posts).map(|_| u64::from(random.f64() < share)).sum()
        };
        let (mut covered, mut wrong, mut raw_wrong) = (0, 0, 0);
        let runs = 2_000;
        for _ in 0..runs {
            let strata = [(120, 40, 0.05), (60, 60, 0.3), (10, 90, 0.5)].map(|(n0, n1, share)| {
                PeriodCounts {
                    with: [draw(n0, share), draw(n1, share + 0.1)],
                    posts: [n0, n1],
                }
            });
            let found = standardised_change(&strata).unwrap();
            covered += u32::from(found.difference.low <= 0.1 && 0.1 <= found.difference.high);
            let strata = [(120, 40, 0.05), (60, 60, 0.3), (10, 90, 0.5)].map(|(n0, n1, share)| {
                PeriodCounts {
                    with: [draw(n0, share), draw(n1, share)],
                    posts: [n0, n1],
                }
            });
            wrong += u32::from(standardised_change(&strata).unwrap().p < SIGNIFICANCE);
            let mut sum = PeriodCounts::default();
            for one in strata {
                for period in 0..2 {
                    sum.with[period] += one.with[period];
                    sum.posts[period] += one.posts[period];
                }
            }
            raw_wrong += u32::from(standardised_change(&[sum]).unwrap().p < SIGNIFICANCE);
        }
        let share = |count: u32| f64::from(count) / f64::from(runs);
        assert!((0.93..0.97).contains(&share(covered)), "{covered}");
        assert!(share(wrong) < 0.055, "{wrong}");
        assert!(share(raw_wrong) > 0.9, "{raw_wrong}");
    }

    #[test]
    fn the_interval_of_a_difference_matches_newcombe() {
        let share = |(of, all)| {
            let found = Proportion::new(of, all);
            Estimate {
                value: found.share,
                low: found.low,
                high: found.high,
            }
        };
        // Newcombe (Statistics in Medicine 17, 1998), table II, method 10.
        for (first, second, expected) in [
            ((48, 80), (56, 70), (0.052_4, 0.333_9)),
            ((3, 10), (9, 10), (0.170_5, 0.809_0)),
            ((0, 20), (10, 10), (0.679_1, 1.0)),
            ((0, 10), (0, 20), (-0.277_5, 0.161_1)),
        ] {
            let tested = difference_of_estimates(&share(first), &share(second)).unwrap();
            let (found, p) = (tested.difference, tested.p);
            assert!((found.low - expected.0).abs() < 5e-5, "{found:?}");
            assert!((found.high.min(1.0) - expected.1).abs() < 5e-5, "{found:?}");
            assert_eq!(p < 0.05, found.low > 0.0 || found.high < 0.0, "{found:?}");
        }
    }

    #[test]
    fn holm_corrects_in_order() {
        let found = holm(&[0.01, 0.04, 0.03, 0.005]);
        for (found, expected) in found.iter().zip([0.03, 0.06, 0.06, 0.02]) {
            assert!((found - expected).abs() < 1e-12, "{found}");
        }
        assert_eq!(holm(&[0.9, 0.8]), [1.0, 1.0]);
        assert!(is_significantly_larger(120, 60, 16) && !is_significantly_larger(120, 110, 16));
        assert!((both_tails(-1.959_964) - 0.05).abs() < 1e-6);
    }
}
