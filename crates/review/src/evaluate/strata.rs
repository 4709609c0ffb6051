//! Estimates a share of all posts from a random sample that is divided into strata of known size, such as the posts
//! with and without an assigned label.
//!
//! Within a stratum, the posterior distribution of the share under Jeffreys' prior is a beta distribution (Brown, Cai
//! and `DasGupta`, Interval Estimation for a Binomial Proportion, 2001). The interval contains the central 95 % of the
//! weighted sum. Unlike intervals from a variance, it stays honest if a stratum has few posts or no errors: the
//! benchmark `shares` compares its coverage and width with other intervals (`benches/results/shares.md`).
//!
//! [`estimate_shares`] applies this to the share of each label.

use statrs::function::beta::inv_beta_reg;

use super::intervals::interpolated;
use super::{Bound, Estimate, EvaluatedPost};
use crate::float;

/// Number of equally likely values that stand for a distribution. 0.025 and 0.975 are the levels of two of them. Tests
/// compare the intervals with ten million random draws.
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

impl Stratum {
    /// Returns the number of sampled posts with the property.
    fn count(&self, bound: Bound) -> f64 {
        float(match bound {
            Bound::Lower => self.least,
            Bound::Upper => self.most,
        })
    }
}

/// Estimates the share of all posts with a property. Without disagreements, the value is the weighted mean of the
/// strata's shares in the sample; with disagreements, it is the middle of the two means, and the interval covers both.
pub fn stratified_share(strata: &[Stratum]) -> Estimate {
    if strata.iter().all(|stratum| stratum.sampled == 0) {
        let (value, low, high) = (None, 0.0, 1.0);
        return Estimate { value, low, high };
    }
    let (least, most) = (mean(strata, Bound::Lower), mean(strata, Bound::Upper));
    let value = f64::midpoint(least, most).clamp(0.0, 1.0);
    let (low, mut high) = interval(strata, Bound::Lower);
    if strata.iter().any(|stratum| stratum.least < stratum.most) {
        (_, high) = interval(strata, Bound::Upper);
    }
    // A sample without the property cannot exclude that no post has it.
    let is_none = strata.iter().all(|stratum| stratum.least == 0);
    let is_all = strata.iter().all(|stratum| stratum.most == stratum.sampled);
    Estimate {
        value: Some(value),
        low: if is_none { 0.0 } else { low.clamp(0.0, value) },
        high: if is_all { 1.0 } else { high.clamp(value, 1.0) },
    }
}

/// Returns the weighted mean of the strata's shares in the sample.
fn mean(strata: &[Stratum], bound: Bound) -> f64 {
    let share = |stratum: &Stratum| match stratum.sampled {
        0 => stratum.assumed,
        sampled => stratum.count(bound) / float(sampled),
    };
    let weighted = |stratum: &Stratum| stratum.weight * share(stratum);
    strata.iter().map(weighted).sum()
}

/// Returns the bounds of the central 95 % of the weighted sum.
fn interval(strata: &[Stratum], bound: Bound) -> (f64, f64) {
    let mut sums = vec![0.0];
    for stratum in strata.iter().filter(|stratum| stratum.weight > 0.0) {
        let with = stratum.count(bound);
        let without = float(stratum.sampled) - with;
        let share = |level| inv_beta_reg(with + PRIOR, without + PRIOR, level);
        let shares: Vec<f64> = levels(VALUES).map(share).collect();
        // Fewer values of the sum before are enough, and keep the product small.
        if sums.len() > KEPT {
            sums = levels(KEPT).map(|level| quantile(&sums, level)).collect();
        }
        let added = |sum: f64| shares.iter().map(move |share| sum + stratum.weight * share);
        sums = sums.into_iter().flat_map(added).collect();
        sums.sort_by(f64::total_cmp);
    }
    (quantile(&sums, 0.025), quantile(&sums, 0.975))
}

/// Returns the levels of `n` quantiles that stand for equally likely parts of a distribution.
fn levels(n: usize) -> impl Iterator<Item = f64> {
    (0..n).map(move |part| (float(part) + 0.5) / float(n))
}

/// Returns the quantile of sorted values at [`levels`], with linear interpolation.
fn quantile(sorted: &[f64], level: f64) -> f64 {
    let last = sorted.len() - 1;
    let position = (level * float(sorted.len()) - 0.5).clamp(0.0, float(last));
    interpolated(sorted, position)
}

/// A part of the posts, and the random sample from it.
#[derive(Debug, Clone)]
pub struct SampledPart<'r> {
    /// The part's share of all posts.
    pub share: f64,
    /// The shares of the part's posts with each assigned label, then without one.
    pub assigned: Vec<f64>,
    /// The sampled posts.
    pub rows: Vec<&'r EvaluatedPost>,
}

impl SampledPart<'_> {
    /// Returns the strata of the posts with an assigned label and of the others, in which the property is that the
    /// label is right. `accuracy` is the share that is assumed if none of the posts with the label is sampled.
    fn strata(&self, label: usize, accuracy: f64) -> [Stratum; 2] {
        let no_label = self.assigned.len() - 1;
        let has_label = |row: &&EvaluatedPost| row.given().unwrap_or(no_label) == label;
        let names_label = |answer: &Vec<usize>| {
            answer.contains(&label) || (label == no_label && answer.is_empty())
        };
        let (with_label, others): (Vec<&EvaluatedPost>, Vec<&EvaluatedPost>) =
            self.rows.iter().copied().partition(has_label);
        let stratum = |rows: &[&EvaluatedPost], weight: f64, assumed: f64| {
            let least = rows.iter().filter(|row| row.answers().all(names_label));
            let most = rows.iter().filter(|row| row.answers().any(names_label));
            Stratum {
                weight,
                sampled: rows.len(),
                least: least.count(),
                most: most.count(),
                assumed,
            }
        };
        let assigned = self.assigned[label];
        [
            stratum(&with_label, self.share * assigned, accuracy),
            stratum(&others, self.share * (1.0 - assigned), 0.0),
        ]
    }
}

/// Estimates the share of each gold label among all posts, then the share that is out of scope, from a random sample of
/// each part of the posts.
///
/// For each label, the posts that it is assigned to and the other posts are strata of known size (post-stratification),
/// which is more precise than the share in the sample if labels are often right.
pub fn estimate_shares(parts: &[SampledPart<'_>]) -> Vec<Estimate> {
    let outcomes = parts.first().map_or(0, |part| part.assigned.len());
    let rows = parts.iter().flat_map(|part| &part.rows);
    let right = rows.clone().filter(|row| row.is_right()).count();
    let accuracy = float(right) / float(rows.count()).max(1.0);
    let estimate = |label| {
        let strata = parts.iter().flat_map(|part| part.strata(label, accuracy));
        stratified_share(&strata.collect::<Vec<_>>())
    };
    (0..outcomes).map(estimate).collect()
}
