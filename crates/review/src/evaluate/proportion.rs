//! Proportions with 95 % confidence intervals, in samples with and without weights.

use serde::Serialize;

use crate::float;

/// The 97.5th percentile of the standard normal distribution, for 95 % confidence intervals.
pub(crate) const Z95: f64 = 1.959_963_984_540_054;

/// A proportion with its 95 % confidence interval: the score interval of Wilson (1927, *Journal of the American
/// Statistical Association* 22). Unlike the Wald interval, it has a width at 0 and 1, which are common with few
/// answers.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Proportion {
    /// Numerator.
    pub of: usize,
    /// Denominator.
    pub all: usize,
    /// The proportion; `None` if the denominator is 0.
    pub share: Option<f64>,
    /// The proportion if each post on which annotators disagree is counted; `None` if there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub share_if_right: Option<f64>,
    /// Lower bound of the interval.
    pub low: f64,
    /// Upper bound of the interval.
    pub high: f64,
}

impl Proportion {
    /// Returns the proportion `of` / `all`.
    pub fn new(of: usize, all: usize) -> Self {
        let share = (all > 0).then(|| float(of) / float(all));
        let (low, high) = share.map_or((0.0, 1.0), |share| wilson(share, float(all)));
        Self {
            of,
            all,
            share,
            share_if_right: None,
            low,
            high,
        }
    }

    /// Returns the weighted share of the true values. The interval is that of a sample without weights of Kish's
    /// effective size (Kish, *Survey Sampling*, 1965), in which a mean varies as much.
    pub(crate) fn weighted(rows: impl Iterator<Item = (bool, f64)>) -> Self {
        let rows: Vec<(bool, f64)> = rows.collect();
        let of = rows.iter().filter(|(is_of, _)| *is_of).count();
        let unweighted = Self::new(of, rows.len());
        #[expect(clippy::float_cmp, reason = "the same weight, not a similar one")]
        if rows.iter().all(|(_, weight)| *weight == rows[0].1) {
            return unweighted;
        }
        let (mut weight_of, mut weight_of_all, mut squares) = (0.0, 0.0, 0.0);
        for (is_of, weight) in rows {
            weight_of += if is_of { weight } else { 0.0 };
            weight_of_all += weight;
            squares += weight * weight;
        }
        let share = weight_of / weight_of_all;
        let (low, high) = wilson(share, weight_of_all * weight_of_all / squares);
        Self {
            share: Some(share),
            low,
            high,
            ..unweighted
        }
    }

    /// Returns bounds of a proportion that is known to be between two: `self` counts no post on which annotators
    /// disagree, and `upper` counts them. The interval covers both.
    #[must_use]
    pub fn between(self, upper: Self) -> Self {
        Self {
            share_if_right: upper.share.filter(|_| upper.share != self.share),
            low: self.low.min(upper.low),
            high: self.high.max(upper.high),
            ..self
        }
    }
}

/// Returns the bounds of Wilson's interval for a share `p` in a sample of size `n`.
fn wilson(p: f64, n: f64) -> (f64, f64) {
    let z2 = Z95 * Z95;
    let middle = (p + z2 / (2.0 * n)) / (1.0 + z2 / n);
    let half = Z95 * (p * (1.0 - p) / n + z2 / (4.0 * n * n)).sqrt() / (1.0 + z2 / n);
    ((middle - half).max(0.0), (middle + half).min(1.0))
}
