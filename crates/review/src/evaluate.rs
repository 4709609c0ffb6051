//! Evaluates predicted labels against gold labels.
//!
//! The input is each post's gold labels and prediction. The output is precision, recall and F1 with 95 % confidence
//! intervals, a confusion matrix and the calibration error. Two label runs on the same posts are compared with paired
//! tests.
//!
//! A post is *in scope* if one of the labels fits it. Otherwise it is *out of scope*, and the correct outcome is no
//! label. `tools/evaluate_reference.py` computes the same figures with scikit-learn.

mod confusion;
mod difference;
mod frame;
pub(crate) mod intervals;
mod mix;
mod posts;
pub(crate) mod proportion;
mod reliability;
mod sample;
mod strata;

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Value, json};

pub use self::confusion::Confusion;
use self::confusion::{Cell, LabelWeights, confusion};
pub use self::difference::{Difference, difference};
pub use self::frame::{
    Counted, ENOUGH_ANSWERS, Frame, FrameSize, GroupDifference, GroupShare, GroupShares,
    LabelShare, NO_LABEL, group_differences,
};
use self::intervals::bootstrap;
pub use self::mix::{Mix, UNLIKELY, mixes};
pub use self::posts::{DifferingPost, RightRun, WrongPost};
pub use self::proportion::Proportion;
pub(crate) use self::reliability::Reliability;
pub use self::reliability::ReliabilityBin;
pub use self::sample::{RandomSample, groups_of};
pub use self::strata::{SampledPart, Stratum, estimate_shares, stratified_share};
use topicmill_core::LabelSet;

/// A bound of a proportion that is open because annotators disagree about some posts and none decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bound {
    /// A post counts if all of its answers say so.
    Lower,
    /// A post counts if one of its answers says so.
    Upper,
}

/// A post's gold labels and prediction.
#[derive(Debug, Clone, PartialEq)]
pub struct EvaluatedPost {
    /// Positions of the gold labels in the label set; empty if the post is out of scope.
    pub right: Vec<usize>,
    /// The other answers if annotators disagree and none decides, each like `right`.
    pub ties: Vec<Vec<usize>>,
    /// Position of the best label.
    pub best: usize,
    /// Score of the best label.
    pub score: f64,
    /// True if the post gets no label.
    pub abstained: bool,
    /// The number of posts that this one stands for, relative to the others.
    pub weight: f64,
}

impl EvaluatedPost {
    /// Returns the position of the assigned label, or `None` for an abstention.
    pub fn given(&self) -> Option<usize> {
        (!self.abstained).then_some(self.best)
    }

    /// Returns true if the outcome is correct: one of the gold labels for an in-scope post, no label for an
    /// out-of-scope post. If annotators disagree and none decides, all answers must agree with the outcome.
    pub fn is_right(&self) -> bool {
        self.answers().all(|answer| self.agrees(answer))
    }

    /// Returns true if the outcome is correct by all answers or, for the upper bound, by any.
    pub(crate) fn is_right_at(&self, bound: Bound) -> bool {
        match bound {
            Bound::Lower => self.is_right(),
            Bound::Upper => self.answers().any(|answer| self.agrees(answer)),
        }
    }

    fn answers(&self) -> impl Iterator<Item = &Vec<usize>> {
        std::iter::once(&self.right).chain(&self.ties)
    }

    fn agrees(&self, answer: &[usize]) -> bool {
        match self.given() {
            Some(given) => answer.contains(&given),
            None => answer.is_empty(),
        }
    }

    /// Returns true if a label is right, by at least one answer.
    pub(crate) fn is_in_scope(&self) -> bool {
        self.answers().any(|answer| !answer.is_empty())
    }

    /// Returns true if the post gets a label.
    pub(crate) fn is_labelled(&self) -> bool {
        !self.abstained
    }

    /// Returns the post with one of its answers. For the lower bound of accuracy, this is the first that contradicts
    /// the outcome, and for the upper bound, the first that agrees with it, if there is such an answer.
    fn decided(&self, bound: Bound) -> Self {
        let is_wanted = |answer: &&Vec<usize>| self.agrees(answer) == (bound == Bound::Upper);
        let decisive = self.answers().find(is_wanted);
        Self {
            right: decisive.unwrap_or(&self.right).clone(),
            ties: Vec::new(),
            ..*self
        }
    }

    /// Returns the cell of the confusion matrix. Of several gold labels, the predicted one counts, or the first if none
    /// was predicted.
    fn cell(&self, labels: usize) -> Cell {
        let given = self.given();
        let gold = given.filter(|given| self.right.contains(given));
        let gold = gold.or_else(|| self.right.first().copied());
        Cell {
            gold: gold.unwrap_or(labels),
            given: given.unwrap_or(labels),
            weight: self.weight,
        }
    }
}

/// An estimate with its 95 % confidence interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Estimate {
    /// The point estimate; `None` if undefined.
    pub value: Option<f64>,
    /// Lower bound of the interval.
    pub low: f64,
    /// Upper bound of the interval.
    pub high: f64,
}

/// Precision, recall and F1 of one label.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct LabelQuality {
    /// Share of correct predictions among posts predicted as this label.
    pub precision: Proportion,
    /// Share of correct predictions among posts with this gold label.
    pub recall: Proportion,
    /// Harmonic mean of precision and recall; `None` for a label that is never gold and never predicted.
    pub f1: Option<f64>,
}

impl LabelQuality {
    /// Returns the number of posts with this gold label.
    pub fn support(&self) -> usize {
        self.recall.all
    }

    /// Returns the number of posts predicted as this label.
    pub fn given(&self) -> usize {
        self.precision.all
    }
}

/// The quality of a label run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Evaluation {
    /// Accuracy: the share of posts with the correct outcome. If annotators disagree about some posts and none
    /// decides, each proportion has [bounds](Proportion::between); all other figures take such a post as wrong.
    pub outcome: Proportion,
    /// Recall in scope: the share of in-scope posts with a correct label.
    pub in_scope: Proportion,
    /// The share of in-scope posts with any label.
    pub in_scope_labelled: Proportion,
    /// Coverage: the share of posts with any label.
    pub coverage: Proportion,
    /// The share of out-of-scope posts without a label.
    pub out_of_scope: Proportion,
    /// Precision of assigned labels, over all posts.
    pub precision: Proportion,
    /// Precision of assigned labels, over in-scope posts.
    pub precision_in_scope: Proportion,
    /// Macro F1: the mean F1 of labels with at least one gold post.
    pub macro_f1: Estimate,
    /// Expected calibration error of assigned labels; `None` if there are none.
    pub calibration_error: Option<f64>,
    /// Reliability bins of assigned labels.
    pub reliability: Vec<ReliabilityBin>,
    /// Quality of each label, in the order of the label set.
    pub labels: Vec<LabelQuality>,
    /// Nonzero cells of the confusion matrix, sorted by gold label.
    pub confusion: Vec<Confusion>,
}

impl Evaluation {
    /// Returns the figures as JSON, with the slugs of the labels.
    pub fn to_json(&self, set: &LabelSet) -> Value {
        let slug = |label: usize| set.labels.get(label).map(|label| &label.slug);
        let mut all = json!(self);
        let labels = self.labels.iter().enumerate().map(|(label, figures)| {
            let mut json = json!(figures);
            json["slug"] = json!(slug(label));
            json["gold"] = json!(figures.support());
            json["given"] = json!(figures.given());
            json
        });
        all["labels"] = labels.collect();
        let cells = self.confusion.iter().map(|cell| {
            json!({ "gold": slug(cell.gold), "given": slug(cell.given), "posts": cell.posts })
        });
        all["confusion"] = cells.collect();
        all
    }
}

/// Evaluates predictions against gold labels; `labels` is the size of the label set.
pub fn evaluate(rows: &[EvaluatedPost], labels: usize) -> Evaluation {
    let evaluate_bound = |bound| {
        let decided: Vec<EvaluatedPost> = rows.iter().map(|row| row.decided(bound)).collect();
        evaluate_decided(&decided, labels)
    };
    let lower = evaluate_bound(Bound::Lower);
    if rows.iter().all(|row| row.ties.is_empty()) {
        return lower;
    }
    let upper = evaluate_bound(Bound::Upper);
    let pairs = lower.labels.iter().zip(&upper.labels);
    let labels = pairs.map(|(lower, upper)| LabelQuality {
        precision: lower.precision.between(upper.precision),
        recall: lower.recall.between(upper.recall),
        ..*lower
    });
    Evaluation {
        outcome: lower.outcome.between(upper.outcome),
        in_scope: lower.in_scope.between(upper.in_scope),
        in_scope_labelled: lower.in_scope_labelled.between(upper.in_scope_labelled),
        out_of_scope: lower.out_of_scope.between(upper.out_of_scope),
        precision: lower.precision.between(upper.precision),
        precision_in_scope: lower.precision_in_scope.between(upper.precision_in_scope),
        labels: labels.collect(),
        ..lower
    }
}

/// The shares of posts and of labels that are right.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Accuracies {
    /// Accuracy: the share of posts with the correct outcome.
    pub outcome: Proportion,
    /// Precision: the share of assigned labels that are correct.
    pub precision: Proportion,
}

impl Accuracies {
    /// Measures posts, with bounds if annotators disagree.
    pub(crate) fn of<'r>(rows: impl Iterator<Item = &'r EvaluatedPost> + Clone) -> Self {
        let labelled = rows.clone().filter(|row| row.is_labelled());
        let (outcome, precision) = (share_right(rows), share_right(labelled));
        Self { outcome, precision }
    }
}

/// Returns the weighted share of posts with the correct outcome, with bounds if annotators disagree.
fn share_right<'r>(rows: impl Iterator<Item = &'r EvaluatedPost> + Clone) -> Proportion {
    let lower = share(rows.clone(), |row| row.is_right_at(Bound::Lower));
    lower.between(share(rows, |row| row.is_right_at(Bound::Upper)))
}

/// Evaluates posts with one answer each.
fn evaluate_decided(rows: &[EvaluatedPost], labels: usize) -> Evaluation {
    let in_scope = || rows.iter().filter(|row| row.is_in_scope());
    let out_of_scope = rows.iter().filter(|row| !row.is_in_scope());
    let labelled = || rows.iter().filter(|row| row.is_labelled());
    let labelled_in_scope = labelled().filter(|row| row.is_in_scope());
    let cells: Vec<Cell> = rows.iter().map(|row| row.cell(labels)).collect();
    let macro_f1 = |positions: &[usize]| LabelWeights::of(&cells, positions, labels).macro_f1();
    let reliability = Reliability::of(labelled());
    Evaluation {
        outcome: share(rows.iter(), EvaluatedPost::is_right),
        in_scope: share(in_scope(), |row| row.is_labelled() && row.is_right()),
        in_scope_labelled: share(in_scope(), EvaluatedPost::is_labelled),
        coverage: share(rows.iter(), EvaluatedPost::is_labelled),
        out_of_scope: share(out_of_scope, |row| row.abstained),
        precision: share(labelled(), EvaluatedPost::is_right),
        precision_in_scope: share(labelled_in_scope, EvaluatedPost::is_right),
        macro_f1: bootstrap(&waves(rows), &macro_f1),
        calibration_error: labelled().next().map(|_| reliability.calibration_error),
        reliability: reliability.bins,
        labels: label_qualities(&cells, labels),
        confusion: confusion(&cells),
    }
}

/// Returns the weighted share of posts with a property.
pub(crate) fn share<'r>(
    rows: impl Iterator<Item = &'r EvaluatedPost>,
    has_property: impl Fn(&EvaluatedPost) -> bool,
) -> Proportion {
    Proportion::weighted(rows.map(|row| (has_property(row), row.weight)))
}

fn label_qualities(cells: &[Cell], labels: usize) -> Vec<LabelQuality> {
    let all: Vec<usize> = (0..cells.len()).collect();
    let weights = LabelWeights::of(cells, &all, labels);
    let quality = |label: usize| LabelQuality {
        precision: share_of_matches(cells.iter().filter(|cell| cell.given == label)),
        recall: share_of_matches(cells.iter().filter(|cell| cell.gold == label)),
        f1: weights.f1(label),
    };
    (0..labels).map(quality).collect()
}

/// Returns the share of the predictions that match the gold label.
fn share_of_matches<'c>(cells: impl Iterator<Item = &'c Cell>) -> Proportion {
    Proportion::weighted(cells.map(|cell| (cell.gold == cell.given, cell.weight)))
}

/// Returns the positions of the posts of each wave, which stand for equally many posts each.
fn waves(rows: &[EvaluatedPost]) -> Vec<Vec<usize>> {
    let mut waves: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
    for (position, row) in rows.iter().enumerate() {
        let wave = waves.entry(row.weight.to_bits()).or_default();
        wave.push(position);
    }
    waves.into_values().collect()
}

#[cfg(test)]
mod tests;
