//! Tests whether the distribution of labels changed between two periods by more than chance.
//!
//! The inputs are post counts for each outcome; the outputs are a population stability index and significance tests.

/// A population stability index of at least this value is a moderate shift, and an index of at least [`LARGE`] is a
/// large one. This is the usual rule of thumb in credit scoring (Siddiqi, Credit Risk Scorecards, 2006).
pub const MODERATE: f64 = 0.1;
/// See [`MODERATE`].
pub const LARGE: f64 = 0.25;
/// The significance level for all labels combined.
const ERROR: f64 = 0.05;
/// Added to each count, so that a label without posts in one period does not make the index infinite.
const HALF: f64 = 0.5;

/// The difference between two distributions of labels.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Drift {
    /// The population stability index: the sum over outcomes of the difference between the shares times the logarithm
    /// of their ratio.
    pub index: f64,
    /// The 95th percentile of the index for two samples of these sizes from the same distribution.
    pub chance: f64,
    /// Posts in the earlier period.
    pub before: u64,
    /// Posts in the later period.
    pub after: u64,
}

/// The size of a drift.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DriftVerdict {
    /// Within chance.
    Chance,
    /// Significant, but less than [`MODERATE`].
    Small,
    /// From [`MODERATE`] to [`LARGE`].
    Moderate,
    /// [`LARGE`] or more.
    Large,
}

impl Drift {
    /// Compares pairs of counts (before, after), one pair per outcome; `None` if a period has no posts or there is only
    /// one outcome.
    pub fn of(pairs: &[(u64, u64)]) -> Option<Self> {
        let pairs: Vec<_> = pairs.iter().filter(|(a, b)| a + b > 0).collect();
        let before: u64 = pairs.iter().map(|(a, _)| a).sum();
        let after: u64 = pairs.iter().map(|(_, b)| b).sum();
        if before == 0 || after == 0 || pairs.len() < 2 {
            return None;
        }
        let kinds = as_f64(pairs.len() as u64);
        let share = |n: u64, all: u64| (as_f64(n) + HALF) / (as_f64(all) + HALF * kinds);
        let index = pairs.iter().map(|(a, b)| {
            let (a, b) = (share(*a, before), share(*b, after));
            (b - a) * (b / a).ln()
        });
        // For two samples from the same population, the index divided by the sum of the inverse sample sizes has a
        // chi-square distribution with one degree of freedom less than the number of outcomes (Yurdakul & Naranjo 2020,
        // <https://doi.org/10.21314/JRMV.2020.227>). Wilson and Hilferty's formula approximates its 95th percentile.
        let degrees = kinds - 1.0;
        let ninth = 2.0 / (9.0 * degrees);
        let chi = degrees * (1.0 - ninth + 1.6449 * ninth.sqrt()).powi(3);
        Some(Self {
            index: index.sum(),
            chance: chi * (1.0 / as_f64(before) + 1.0 / as_f64(after)),
            before,
            after,
        })
    }

    /// Classifies the drift.
    pub fn verdict(&self) -> DriftVerdict {
        match self.index {
            index if index <= self.chance => DriftVerdict::Chance,
            index if index < MODERATE => DriftVerdict::Small,
            index if index < LARGE => DriftVerdict::Moderate,
            _ => DriftVerdict::Large,
        }
    }
}

/// Returns true if a share changed significantly: a two-proportion z-test with a Bonferroni correction for `labels`
/// shares. Each argument is (posts with the outcome, all posts).
pub fn is_significant_change(before: (u64, u64), after: (u64, u64), labels: usize) -> bool {
    let (a, all_a, b, all_b) = (before.0, before.1, after.0, after.1);
    if all_a == 0 || all_b == 0 {
        return false;
    }
    let pooled = as_f64(a + b) / as_f64(all_a + all_b);
    let spread = (pooled * (1.0 - pooled) * (1.0 / as_f64(all_a) + 1.0 / as_f64(all_b))).sqrt();
    if spread == 0.0 {
        return false;
    }
    let z = (as_f64(b) / as_f64(all_b) - as_f64(a) / as_f64(all_a)) / spread;
    both_tails(z) * as_f64(labels.max(1) as u64) < ERROR
}

/// Returns true if the count `first` is significantly larger than `second`, with a Bonferroni correction for `labels`
/// counts.
pub fn is_significantly_larger(first: u64, second: u64, labels: usize) -> bool {
    // Both counts are from one sample, so the variance of their difference is about their sum.
    let z = as_f64(first.saturating_sub(second)) / as_f64(first + second).max(1.0).sqrt();
    both_tails(z) * as_f64(labels.max(1) as u64) < ERROR
}

/// Returns the two-sided p-value of `z` (Abramowitz and Stegun 7.1.26, accurate to 2e-7).
fn both_tails(z: f64) -> f64 {
    let x = z.abs() / std::f64::consts::SQRT_2;
    let t = 1.0 / (1.0 + 0.327_591_1 * x);
    let factors = [
        1.061_405_429,
        -1.453_152_027,
        1.421_413_741,
        -0.284_496_736,
        0.254_829_592,
    ];
    let sum = factors.iter().fold(0.0, |sum, factor| sum * t + factor);
    sum * t * (-x * x).exp()
}

/// Converts a count to a float.
#[expect(clippy::cast_precision_loss, reason = "posts are fewer than 2^52")]
pub fn as_f64(n: u64) -> f64 {
    n as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_index_matches_worked_examples() {
        // 50/50 to 60/40: 0.1·ln(1.2) + (−0.1)·ln(0.8).
        let drift = Drift::of(&[(500_000, 600_000), (500_000, 400_000)]).unwrap();
        assert!((drift.index - 0.040_547).abs() < 1e-5, "{drift:?}");
        assert_eq!(drift.verdict(), DriftVerdict::Small);
        // The critical value of χ² with one degree of freedom is 3.84.
        let expected = 3.841 * (2.0 / 1_000_000.0);
        assert!((drift.chance / expected - 1.0).abs() < 0.03, "{drift:?}");
        let large = Drift::of(&[(500, 800), (500, 200)]).unwrap();
        assert_eq!(large.verdict(), DriftVerdict::Large);
        assert_eq!(
            Drift::of(&[(6, 5), (4, 5)]).unwrap().verdict(),
            DriftVerdict::Chance
        );
    }

    #[test]
    fn undefined_comparisons_give_none_or_false() {
        assert_eq!(Drift::of(&[]), None);
        assert_eq!(Drift::of(&[(5, 5)]), None, "one outcome");
        assert_eq!(Drift::of(&[(0, 5), (0, 9)]), None);
        // A new label does not make the index infinite.
        assert!(Drift::of(&[(0, 50), (100, 50)]).unwrap().index.is_finite());
        assert!(!is_significant_change((0, 0), (5, 10), 3));
        assert!(!is_significant_change((10, 10), (10, 10), 3));
    }

    #[test]
    fn significance_depends_on_sample_size_and_number_of_labels() {
        assert!(is_significant_change((100, 1000), (150, 1000), 16));
        assert!(!is_significant_change((100, 1000), (120, 1000), 16));
        assert!(is_significant_change(
            (100_000, 1_000_000),
            (102_000, 1_000_000),
            16
        ));
        assert!(is_significantly_larger(120, 60, 16));
        assert!(!is_significantly_larger(120, 110, 16));
        for (z, p) in [(0.0, 1.0), (1.96, 0.05), (2.5758, 0.01), (-3.2905, 0.001)] {
            assert!((both_tails(z) - p).abs() < 1e-5, "{z}");
        }
    }
}
