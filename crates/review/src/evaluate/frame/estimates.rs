//! Estimates accuracy, precision and the shares of labels for the posts of a frame.

use serde::Serialize;

use super::{Frame, share};
use crate::evaluate::{
    Accuracies, Bound, Estimate, EvaluatedPost, Proportion, SampledPart, Stratum, estimate_shares,
    stratified_share,
};
use topicmill_core::{Fullname, LabelSet};
use topicmill_store::FrameCell;

/// The name of the outcome without a label, in figures.
pub const NO_LABEL: &str = "(none of these)";

/// The shares of a label in the posts of a frame.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LabelShare {
    /// Slug of the label, or [`NO_LABEL`].
    pub label: String,
    /// The assigned share: that of the posts with the label.
    pub assigned: f64,
    /// The estimated share: that of the posts whose right label it is.
    pub estimated: Estimate,
}

/// A sampled post.
#[derive(Clone, Copy)]
pub(crate) struct SampledPost<'a> {
    /// Fullname of the post.
    pub fullname: &'a Fullname,
    /// Its gold labels and its prediction.
    pub row: &'a EvaluatedPost,
}

impl Frame {
    /// Estimates accuracy, and the precision of the assigned labels, from the sampled posts in the frame: from the
    /// sample as it is or, if there are several waves, weighted by wave.
    pub(crate) fn accuracies(&self, sample: &[SampledPost<'_>]) -> Accuracies {
        let plain = Accuracies::of(sample.iter().map(|post| post.row));
        if self.waves_with_posts().count() < 2 {
            return plain;
        }
        let mut labelled = sample.to_vec();
        labelled.retain(|post| post.row.given().is_some());
        let has_label = |cell: &FrameCell| cell.label.is_some();
        Accuracies {
            outcome: self.weighted_by_wave(plain.outcome, sample, |_| true),
            precision: self.weighted_by_wave(plain.precision, &labelled, has_label),
        }
    }

    /// Weights the share of correct outcomes by wave. `plain` is the share in the sample as it is; `is_counted` selects
    /// the posts whose number is the weight of a wave.
    fn weighted_by_wave(
        &self,
        plain: Proportion,
        sample: &[SampledPost<'_>],
        is_counted: fn(&FrameCell) -> bool,
    ) -> Proportion {
        let weighted = |bound: Bound| {
            let stratum = |wave: usize| {
                let rows = self.rows_of(wave, sample);
                let right = rows.iter().filter(|row| row.is_right_at(bound)).count();
                Stratum {
                    weight: self.share_of(wave, is_counted),
                    sampled: rows.len(),
                    least: right,
                    most: right,
                    assumed: plain.share.unwrap_or(0.0),
                }
            };
            let strata: Vec<Stratum> = self.waves().map(stratum).collect();
            let Estimate { value, low, high } = stratified_share(&strata);
            Proportion {
                share: value,
                share_if_right: None,
                low,
                high,
                ..plain
            }
        };
        weighted(Bound::Lower).between(weighted(Bound::Upper))
    }

    /// Returns the sampled posts of a wave.
    fn rows_of<'a>(&self, wave: usize, sample: &[SampledPost<'a>]) -> Vec<&'a EvaluatedPost> {
        let is_of_wave = |post: &&SampledPost<'a>| self.wave_of(post.fullname) == Some(wave);
        let posts = sample.iter().filter(is_of_wave);
        posts.map(|post| post.row).collect()
    }

    /// Returns a covered wave's share of the covered posts that `is_counted` selects.
    fn share_of(&self, wave: usize, is_counted: fn(&FrameCell) -> bool) -> f64 {
        let is_covered = |cell: &&FrameCell| self.covered[cell.wave] && is_counted(cell);
        let cells = self.cells.iter().filter(is_covered);
        let of_wave = cells.clone().filter(|cell| cell.wave == wave);
        share(
            of_wave.map(|cell| cell.posts).sum(),
            cells.map(|cell| cell.posts).sum(),
        )
    }

    /// Returns the assigned and the estimated share, among the covered posts, of each label and of no label.
    pub(crate) fn label_shares(
        &self,
        set: &LabelSet,
        sample: &[SampledPost<'_>],
    ) -> Vec<LabelShare> {
        let parts = self.waves().map(|wave| self.part(wave, set, sample));
        let parts: Vec<SampledPart<'_>> = parts.collect();
        let slugs = set.labels.iter().map(|label| label.slug.as_str());
        let labels = slugs.chain([NO_LABEL]).zip(estimate_shares(&parts));
        let assigned = |label: usize| -> f64 {
            let parts = parts.iter();
            parts.map(|part| part.share * part.assigned[label]).sum()
        };
        labels
            .enumerate()
            .map(|(position, (label, estimated))| LabelShare {
                label: label.to_owned(),
                assigned: assigned(position),
                estimated,
            })
            .collect()
    }

    /// Returns a covered wave with its sample.
    fn part<'a>(&self, wave: usize, set: &LabelSet, sample: &[SampledPost<'a>]) -> SampledPart<'a> {
        let no_label = set.labels.len();
        let mut posts = vec![0; no_label + 1];
        for cell in self.cells.iter().filter(|cell| cell.wave == wave) {
            let slug = cell.label.as_ref();
            let mut labels = set.labels.iter();
            let label = labels.position(|label| Some(&label.slug) == slug);
            posts[label.unwrap_or(no_label)] += cell.posts;
        }
        let posts_in_wave: u64 = posts.iter().sum();
        let assigned = posts.iter().map(|posts| share(*posts, posts_in_wave));
        SampledPart {
            share: self.share_of(wave, |_| true),
            assigned: assigned.collect(),
            rows: self.rows_of(wave, sample),
        }
    }
}
