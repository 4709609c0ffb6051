//! Evaluates predicted labels against gold labels.
//!
//! The input is each post's gold labels and prediction. The output is precision, recall and F1 with 95 % confidence
//! intervals, a confusion matrix and the calibration error. Two label runs on the same posts are compared with paired
//! tests.
//!
//! A post is *in scope* if one of the labels fits it. Otherwise it is *out of scope*, and the correct outcome is no
//! label. `tools/evaluate_reference.py` computes the same figures with scikit-learn.

mod frame;
pub(crate) mod intervals;
mod mix;
mod posts;
mod sample;
mod strata;

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Value, json};

pub use self::frame::{
    Counted, ENOUGH_ANSWERS, Frame, FrameSize, GroupDifference, GroupShares, group_differences,
};
use self::intervals::{mcnemar, paired_difference, resampled};
pub use self::mix::{Mix, UNLIKELY, mixes};
pub use self::posts::{DifferingPost, RightRun, WrongPost};
pub use self::sample::{LabelShare, NO_LABEL, RandomSample, groups_of};
pub use self::strata::{Stratum, stratified_share};
use super::calibrate::{Proportion, ReliabilityBin, reliability};
use crate::float;
use topicmill_core::LabelSet;

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

    fn answers(&self) -> impl Iterator<Item = &Vec<usize>> {
        std::iter::once(&self.right).chain(&self.ties)
    }

    fn agrees(&self, answer: &[usize]) -> bool {
        match self.given() {
            Some(given) => answer.contains(&given),
            None => answer.is_empty(),
        }
    }

    /// Returns the post with one answer: the first that agrees with the outcome or, if not `is_best`, that does not.
    fn decided(&self, is_best: bool) -> Self {
        let wanted = self.answers().find(|answer| self.agrees(answer) == is_best);
        Self {
            right: wanted.unwrap_or(&self.right).clone(),
            ties: Vec::new(),
            ..*self
        }
    }

    /// Returns the cell of the confusion matrix (gold, predicted); an index equal to the number of labels means no
    /// label. Of several gold labels, the predicted one counts, or the first if none was predicted.
    fn cell(&self, labels: usize) -> Cell {
        let given = self.given();
        let right = given.filter(|given| self.right.contains(given));
        let right = right.or_else(|| self.right.first().copied());
        (right.unwrap_or(labels), given.unwrap_or(labels))
    }
}

/// A cell of the confusion matrix: (gold, predicted).
type Cell = (usize, usize);

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

/// A nonzero cell of the confusion matrix. A position equal to the number of labels means no label.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Confusion {
    /// Position of the gold label.
    pub gold: usize,
    /// Position of the predicted label.
    pub given: usize,
    /// Number of posts.
    pub posts: usize,
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
    let decided =
        |is_best| -> Vec<EvaluatedPost> { rows.iter().map(|row| row.decided(is_best)).collect() };
    let found = evaluate_decided(&decided(false), labels);
    if rows.iter().all(|row| row.ties.is_empty()) {
        return found;
    }
    let upper = evaluate_decided(&decided(true), labels);
    let each = found.labels.iter().zip(&upper.labels);
    let each = each.map(|(label, upper)| LabelQuality {
        precision: label.precision.between(upper.precision),
        recall: label.recall.between(upper.recall),
        ..*label
    });
    Evaluation {
        outcome: found.outcome.between(upper.outcome),
        in_scope: found.in_scope.between(upper.in_scope),
        in_scope_labelled: found.in_scope_labelled.between(upper.in_scope_labelled),
        out_of_scope: found.out_of_scope.between(upper.out_of_scope),
        precision: found.precision.between(upper.precision),
        precision_in_scope: found.precision_in_scope.between(upper.precision_in_scope),
        labels: each.collect(),
        ..found
    }
}

/// Returns the share of posts with the correct outcome, and the precision of the assigned labels.
pub(crate) fn accuracy(rows: &[EvaluatedPost]) -> (Proportion, Proportion) {
    let of = |rows: &[&EvaluatedPost]| {
        let least = rows.iter().filter(|row| row.is_right()).count();
        let most = rows.iter().filter(|row| row.decided(true).is_right());
        let bound = |right| Proportion::new(right, rows.len());
        bound(least).between(bound(most.count()))
    };
    let given = rows.iter().filter(|row| row.given().is_some());
    let given: Vec<&EvaluatedPost> = given.collect();
    (of(&rows.iter().collect::<Vec<_>>()), of(&given))
}

fn evaluate_decided(rows: &[EvaluatedPost], labels: usize) -> Evaluation {
    type Is = fn(&EvaluatedPost) -> bool;
    let share = |of: Is, all: Is| {
        let rows = rows.iter().filter(|row| all(row));
        Proportion::weighted(rows.map(|row| (of(row), row.weight)))
    };
    let is_given: Is = |row| !row.abstained;
    let is_in_scope: Is = |row| !row.right.is_empty();
    let cells: Vec<Cell> = rows.iter().map(|row| row.cell(labels)).collect();
    let given = rows.iter().filter(|row| is_given(row));
    let (error, bins) = reliability(given.map(|row| (row.score, row.is_right(), row.weight)));
    let macro_f1 = |places: &[usize]| Tally::of(&cells, rows, places, labels).macro_f1();
    let all: Vec<usize> = (0..cells.len()).collect();
    let (low, high) = resampled(&waves(rows), &macro_f1);
    let tally = Tally::of(&cells, rows, &all, labels);
    let label = |label: usize| {
        let share = |is_of: &dyn Fn(&Cell) -> bool| {
            let rows = cells.iter().zip(rows).filter(|(cell, _)| is_of(cell));
            Proportion::weighted(rows.map(|(cell, row)| (cell.0 == cell.1, row.weight)))
        };
        LabelQuality {
            precision: share(&|cell| cell.1 == label),
            recall: share(&|cell| cell.0 == label),
            f1: tally.f1(label),
        }
    };
    Evaluation {
        outcome: share(EvaluatedPost::is_right, |_| true),
        in_scope: share(|row| !row.abstained && row.is_right(), is_in_scope),
        in_scope_labelled: share(is_given, is_in_scope),
        coverage: share(is_given, |_| true),
        out_of_scope: share(|row| row.abstained, |row| row.right.is_empty()),
        precision: share(EvaluatedPost::is_right, is_given),
        precision_in_scope: share(EvaluatedPost::is_right, |row| {
            !row.abstained && !row.right.is_empty()
        }),
        macro_f1: Estimate {
            value: tally.macro_f1(),
            low,
            high,
        },
        calibration_error: rows.iter().any(is_given).then_some(error),
        reliability: bins,
        labels: (0..labels).map(label).collect(),
        confusion: confusion(&cells),
    }
}

/// Returns the positions of the posts of each wave, which stand for equally many posts each.
fn waves(rows: &[EvaluatedPost]) -> Vec<Vec<usize>> {
    let mut waves: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
    for (place, row) in rows.iter().enumerate() {
        waves.entry(row.weight.to_bits()).or_default().push(place);
    }
    waves.into_values().collect()
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
    /// Returns the stratum of the posts with a label or, unless `is_given`, of the others. `accuracy` is assumed if none
    /// of the posts with the label is sampled.
    fn stratum(&self, label: usize, is_given: bool, accuracy: f64) -> Stratum {
        let no_label = self.assigned.len() - 1;
        let has_label = |row: &EvaluatedPost| row.given().unwrap_or(no_label) == label;
        let rows = self.rows.iter().filter(|row| has_label(row) == is_given);
        let names_label = |answer: &Vec<usize>| {
            answer.contains(&label) || (label == no_label && answer.is_empty())
        };
        let least = rows.clone().filter(|row| row.answers().all(names_label));
        let most = rows.clone().filter(|row| row.answers().any(names_label));
        let assigned = self.assigned[label];
        Stratum {
            weight: self.share * if is_given { assigned } else { 1.0 - assigned },
            sampled: rows.count(),
            least: least.count(),
            most: most.count(),
            assumed: if is_given { accuracy } else { 0.0 },
        }
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
        let strata = parts
            .iter()
            .flat_map(|part| [true, false].map(|is_given| part.stratum(label, is_given, accuracy)));
        stratified_share(&strata.collect::<Vec<_>>())
    };
    (0..outcomes).map(estimate).collect()
}

/// Significance level of the comparison.
const SIGNIFICANCE: f64 = 0.05;

/// The difference between two label runs on the same posts.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Difference {
    /// Posts with different outcomes.
    pub differ: usize,
    /// Posts that are correct only in the first run.
    pub only_first: usize,
    /// Posts that are correct only in the second run.
    pub only_second: usize,
    /// Accuracy of the second run minus accuracy of the first.
    pub outcome: Estimate,
    /// Macro F1 of the second run minus macro F1 of the first.
    pub macro_f1: Estimate,
    /// p-value of McNemar's exact test.
    pub p: f64,
}

impl Difference {
    /// Returns true if the second run is significantly more accurate.
    pub fn is_better(&self) -> bool {
        self.only_second > self.only_first && self.p < SIGNIFICANCE
    }
}

/// Compares two label runs on the same posts, in the same order. Each run is passed with the size of its label set; the
/// sets may differ. `differ` is the number of posts with different outcomes.
///
/// # Panics
/// Panics if the runs have different numbers of posts.
pub fn difference(
    first: (&[EvaluatedPost], usize),
    second: (&[EvaluatedPost], usize),
    differ: usize,
) -> Difference {
    assert_eq!(first.0.len(), second.0.len(), "the same posts");
    let posts = first.0.len();
    let pairs = || first.0.iter().zip(second.0);
    let only = |a: bool, b: bool| {
        pairs()
            .filter(|(x, y)| x.is_right() == a && y.is_right() == b)
            .count()
    };
    let (only_first, only_second) = (only(true, false), only(false, true));
    let cells = |(rows, labels): (&[EvaluatedPost], usize)| -> Vec<Cell> {
        let rows = rows.iter().map(|row| row.decided(false));
        rows.map(|row| row.cell(labels)).collect()
    };
    let (a, b) = (cells(first), cells(second));
    let gain = |places: &[usize]| {
        let before = Tally::of(&a, first.0, places, first.1).macro_f1()?;
        let after = Tally::of(&b, second.0, places, second.1).macro_f1()?;
        Some(after - before)
    };
    let all: Vec<usize> = (0..posts).collect();
    // Each answer counts once, as in the other figures of a comparison.
    let (low, high) = resampled(std::slice::from_ref(&all), &gain);
    Difference {
        differ,
        only_first,
        only_second,
        outcome: paired_difference(only_first, only_second, posts),
        macro_f1: Estimate {
            value: gain(&all),
            low,
            high,
        },
        p: mcnemar(only_first, only_second),
    }
}

fn confusion(cells: &[Cell]) -> Vec<Confusion> {
    let mut counts: BTreeMap<Cell, usize> = BTreeMap::new();
    for cell in cells {
        *counts.entry(*cell).or_default() += 1;
    }
    let rows = counts.into_iter();
    rows.map(|((gold, given), posts)| Confusion { gold, given, posts })
        .collect()
}

/// The weights of posts by gold label, by assigned label, and where these are the same.
struct Tally {
    right: Vec<f64>,
    given: Vec<f64>,
    both: Vec<f64>,
}

impl Tally {
    /// Adds the cells at these positions, with repetition.
    fn of(cells: &[Cell], rows: &[EvaluatedPost], places: &[usize], labels: usize) -> Self {
        // The last position means no label.
        let zeros = || vec![0.0; labels + 1];
        let (mut right, mut given, mut both) = (zeros(), zeros(), zeros());
        for place in places {
            let ((gold, got), weight) = (cells[*place], rows[*place].weight);
            right[gold] += weight;
            given[got] += weight;
            both[gold] += if gold == got { weight } else { 0.0 };
        }
        Self { right, given, both }
    }

    fn f1(&self, label: usize) -> Option<f64> {
        let all = self.right[label] + self.given[label];
        (all > 0.0).then(|| 2.0 * self.both[label] / all)
    }

    /// Returns the mean F1 of labels with at least one gold post.
    fn macro_f1(&self) -> Option<f64> {
        let labels = self.right.len() - 1;
        // The recall of a label without gold posts is undefined.
        let some = (0..labels).filter(|label| self.right[*label] > 0.0);
        let (sum, n) = some
            .filter_map(|label| self.f1(label))
            .fold((0.0, 0), |(sum, n), f1| (sum + f1, n + 1));
        (n > 0).then(|| sum / float(n))
    }
}

#[cfg(test)]
mod tests;
