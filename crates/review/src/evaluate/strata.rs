//! Estimates a share of all posts from a random sample that is divided into strata of known size, such as the posts
//! with and without an assigned label.
//!
//! Within a stratum, the posterior distribution of the share under Jeffreys' prior is a beta distribution (Brown, Cai
//! and `DasGupta`, Interval Estimation for a Binomial Proportion, 2001). The interval contains the central 95 % of the
//! weighted sum. Unlike intervals from a variance, it stays honest if a stratum has few posts or no errors: the
//! benchmark `shares` compares its coverage and width with other intervals (`benches/results/shares.md`).

use statrs::function::beta::inv_beta_reg;

use super::Estimate;
use super::intervals::interpolated;
use crate::float;

/// Number of equally likely values that stand for a distribution. 0.025 and 0.975 are the levels of two of them.
const VALUES: usize = 100;
/// Number of values that stand for a sum before a further stratum is added.
const KEPT: usize = 500;
/// Parameter of Jeffreys' prior.
const PRIOR: f64 = 0.5;

/// The sampled posts of a stratum.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Stratum {
    /// The stratum's share of all posts.
    pub weight: f64,
    /// Number of sampled posts.
    pub sampled: usize,
    /// The least number of sampled posts with the property.
    pub least: usize,
    /// The greatest number, which is larger if annotators disagree about posts.
    pub most: usize,
    /// The share of posts with the property that is assumed in a stratum without sampled posts.
    pub assumed: f64,
}

/// Estimates the share of all posts with a property. Without disagreements, the value is the weighted mean of the
/// strata's shares in the sample; with disagreements, it is the middle of the two means, and the interval covers both.
pub fn stratified_share(strata: &[Stratum]) -> Estimate {
    let sampled: usize = strata.iter().map(|stratum| stratum.sampled).sum();
    if sampled == 0 {
        let (value, low, high) = (None, 0.0, 1.0);
        return Estimate { value, low, high };
    }
    let [fewest, greatest]: [fn(&Stratum) -> usize; 2] = [|one| one.least, |one| one.most];
    let least = bounds(strata, fewest);
    let is_disputed = strata.iter().any(|stratum| stratum.least < stratum.most);
    let most = if is_disputed {
        bounds(strata, greatest)
    } else {
        least
    };
    let mean = |count: fn(&Stratum) -> usize| -> f64 {
        let share = |stratum: &Stratum| match stratum.sampled {
            0 => stratum.assumed,
            all => float(count(stratum)) / float(all),
        };
        let weighted = |stratum: &Stratum| stratum.weight * share(stratum);
        strata.iter().map(weighted).sum()
    };
    let value = f64::midpoint(mean(fewest), mean(greatest)).clamp(0.0, 1.0);
    // A sample without the property cannot exclude that no post has it.
    let is_none = strata.iter().all(|stratum| stratum.least == 0);
    let is_all = strata.iter().all(|stratum| stratum.most == stratum.sampled);
    Estimate {
        value: Some(value),
        low: if is_none {
            0.0
        } else {
            least.0.clamp(0.0, value)
        },
        high: if is_all {
            1.0
        } else {
            most.1.clamp(value, 1.0)
        },
    }
}

/// Returns the central 95 % of the weighted sum.
fn bounds(strata: &[Stratum], count: fn(&Stratum) -> usize) -> (f64, f64) {
    let mut sums = vec![0.0];
    for stratum in strata.iter().filter(|stratum| stratum.weight > 0.0) {
        let (yes, all) = (float(count(stratum)), float(stratum.sampled));
        let share = |level| inv_beta_reg(yes + PRIOR, all - yes + PRIOR, level);
        let shares: Vec<f64> = levels(VALUES).map(share).collect();
        // Fewer values of the sum before are enough, and keep the product small.
        let before: Vec<f64> = if sums.len() > KEPT {
            levels(KEPT).map(|level| quantile(&sums, level)).collect()
        } else {
            sums
        };
        sums = (before.iter())
            .flat_map(|sum| shares.iter().map(move |x| sum + stratum.weight * x))
            .collect();
        sums.sort_by(f64::total_cmp);
    }
    (quantile(&sums, 0.025), quantile(&sums, 0.975))
}

/// Returns the levels of `n` quantiles that stand for equally likely parts of a distribution.
fn levels(n: usize) -> impl Iterator<Item = f64> {
    (0..n).map(move |place| (float(place) + 0.5) / float(n))
}

/// Returns the quantile of sorted values at [`levels`], with linear interpolation.
fn quantile(sorted: &[f64], level: f64) -> f64 {
    let last = sorted.len() - 1;
    let place = (level * float(sorted.len()) - 0.5).clamp(0.0, float(last));
    interpolated(sorted, place)
}
