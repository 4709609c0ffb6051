//! Measures how far the distribution of labels has moved between two periods, and how far chance alone would move it.
//!
//! The inputs are post counts for each outcome; the output is a population stability index.

use crate::as_f64;

/// Added to each count, so that a label without posts in one period does not make the index infinite.
const HALF: f64 = 0.5;
/// The 95th percentile of the standard normal distribution.
const NORMAL_95: f64 = 1.6449;

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
        let chi = degrees * (1.0 - ninth + NORMAL_95 * ninth.sqrt()).powi(3);
        Some(Self {
            index: index.sum(),
            chance: chi * (1.0 / as_f64(before) + 1.0 / as_f64(after)),
            before,
            after,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_index_matches_worked_examples() {
        // 50/50 to 60/40: 0.1·ln(1.2) + (−0.1)·ln(0.8).
        let drift = Drift::of(&[(500_000, 600_000), (500_000, 400_000)]).unwrap();
        assert!((drift.index - 0.040_547).abs() < 1e-5, "{drift:?}");
        // The critical value of χ² with one degree of freedom is 3.84.
        let expected = 3.841 * (2.0 / 1_000_000.0);
        assert!((drift.chance / expected - 1.0).abs() < 0.03, "{drift:?}");
    }

    #[test]
    fn undefined_comparisons_give_none() {
        assert_eq!(Drift::of(&[]), None);
        assert_eq!(Drift::of(&[(5, 5)]), None, "one outcome");
        assert_eq!(Drift::of(&[(0, 5), (0, 9)]), None);
        // A new label does not make the index infinite.
        assert!(Drift::of(&[(0, 50), (100, 50)]).unwrap().index.is_finite());
    }
}
