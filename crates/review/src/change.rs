//! Compares shares between two periods or two groups. Many changes are shown at once, so their p-values are corrected by
//! [`holm`].

use statrs::function::erf::erfc;

use crate::calibrate::Z95;
use crate::evaluate::Estimate;

/// Differences with a corrected p-value below this are significant.
pub const SIGNIFICANCE: f64 = 0.05;

/// Returns the second of two independent estimates minus the first, and its p-value; `None` if one is undefined.
///
/// The interval combines the two intervals without assuming that they are symmetric (Zou and Donner, Statistics in
/// Medicine 27, 2008). The p-value is that of the nearer half of this interval as 1.96 standard errors, so it is below
/// 0.05 exactly if the interval excludes zero.
pub fn difference_of_estimates(first: &Estimate, second: &Estimate) -> Option<(Estimate, f64)> {
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
    let difference = Estimate {
        value: Some(value),
        low: value - below,
        high: value + above,
    };
    Some((difference, erfc(z / std::f64::consts::SQRT_2)))
}

/// Corrects p-values for their number (Holm, Scandinavian Journal of Statistics 6, 1979). The order is kept.
pub fn holm(p_values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..p_values.len()).collect();
    order.sort_by(|a, b| p_values[*a].total_cmp(&p_values[*b]));
    let mut corrected = vec![0.0; p_values.len()];
    let mut largest = 0.0_f64;
    for (rank, place) in order.iter().enumerate() {
        #[expect(clippy::cast_precision_loss, reason = "a number of tests")]
        let left = (p_values.len() - rank) as f64;
        largest = largest.max((left * p_values[*place]).min(1.0));
        corrected[*place] = largest;
    }
    corrected
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calibrate::Proportion;

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
            let (found, p) = difference_of_estimates(&share(first), &share(second)).unwrap();
            assert!((found.low - expected.0).abs() < 5e-5, "{found:?}");
            assert!((found.high.min(1.0) - expected.1).abs() < 5e-5, "{found:?}");
            assert_eq!(p < 0.05, found.low > 0.0 || found.high < 0.0, "{found:?}");
        }
    }

    #[test]
    fn holm_corrects_in_order() {
        // R: p.adjust(c(0.01, 0.04, 0.03, 0.005), "holm").
        let found = holm(&[0.01, 0.04, 0.03, 0.005]);
        for (found, expected) in found.iter().zip([0.03, 0.06, 0.06, 0.02]) {
            assert!((found - expected).abs() < 1e-12, "{found}");
        }
        assert_eq!(holm(&[0.9, 0.8]), [1.0, 1.0]);
    }
}
