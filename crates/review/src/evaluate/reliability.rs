//! Compares the scores of assigned labels with the shares of right labels.

use serde::Serialize;

use super::{EvaluatedPost, Proportion, share};
use crate::{float, floor};

/// Number of reliability bins, all of equal width.
const BINS: usize = 10;

/// Assigned labels with a score in one bin.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct ReliabilityBin {
    /// Lower bound of the bin.
    pub from: f64,
    /// Upper bound of the bin.
    pub to: f64,
    /// Mean score; 0 without labels.
    pub mean_score: f64,
    /// Share of right labels.
    pub right: Proportion,
}

/// The reliability of assigned labels.
pub(crate) struct Reliability {
    /// Expected calibration error (Naeini, Cooper and Hauskrecht, AAAI 2015): the mean absolute difference between mean
    /// score and share of right labels, over bins weighted by their labels. 0 without labels.
    pub calibration_error: f64,
    /// The bins, from low to high scores.
    pub bins: Vec<ReliabilityBin>,
}

impl Reliability {
    /// Measures the reliability of the labels of posts.
    pub fn of<'r>(labelled: impl Iterator<Item = &'r EvaluatedPost>) -> Self {
        let mut binned: [Vec<&EvaluatedPost>; BINS] = [const { Vec::new() }; BINS];
        for post in labelled {
            let bin = floor(post.score * float(BINS)).min(BINS - 1);
            binned[bin].push(post);
        }
        let (mut error, mut weight_of_all) = (0.0, 0.0);
        let mut bins = Vec::with_capacity(BINS);
        for (bin, posts) in binned.into_iter().enumerate() {
            let weight: f64 = posts.iter().map(|post| post.weight).sum();
            let score: f64 = posts.iter().map(|post| post.score * post.weight).sum();
            let right = share(posts.into_iter(), EvaluatedPost::is_right);
            error += (score - right.share.unwrap_or(0.0) * weight).abs();
            weight_of_all += weight;
            bins.push(ReliabilityBin {
                from: float(bin) / float(BINS),
                to: float(bin + 1) / float(BINS),
                // All labels may belong to a wave that has no labelled posts, and thus no weight.
                mean_score: score / weight.max(f64::MIN_POSITIVE),
                right,
            });
        }
        Self {
            calibration_error: error / weight_of_all.max(f64::MIN_POSITIVE),
            bins,
        }
    }
}
