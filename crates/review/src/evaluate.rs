//! How good labels are, held against gold. Pure: in goes for each post what is right and what it is labelled as; out
//! come shares with their intervals, figures for each label, the confusions, and how far scores can be believed. Two
//! labellings of the same posts are compared post by post.
//!
//! A post whose right label is one of the set is *in scope*; one that none of the labels fits is *out of scope*, and
//! its right outcome is no label. `tools/evaluate_reference.py` computes the same with scikit-learn.

mod intervals;

use std::collections::BTreeMap;

use serde::Serialize;

use self::intervals::{mcnemar, paired_difference, resampled};
use super::calibrate::{Proportion, ReliabilityBin, reliability};

/// What is right for a post, and what it is labelled as.
#[derive(Debug, Clone, PartialEq)]
pub struct EvaluatedPost {
    /// Positions of the right labels; empty where the post is out of scope.
    pub right: Vec<usize>,
    pub best: usize,
    pub score: f64,
    pub abstained: bool,
}

impl EvaluatedPost {
    pub fn given(&self) -> Option<usize> {
        (!self.abstained).then_some(self.best)
    }

    /// Whether the outcome is right: a right label in scope, no label out of scope.
    pub fn is_right(&self) -> bool {
        match self.given() {
            Some(given) => self.right.contains(&given),
            None => self.right.is_empty(),
        }
    }

    /// The cell of the confusions: what is right and what was given, each a label or, as the number of labels, none.
    /// Of several right labels the given one counts, or else the first.
    fn cell(&self, labels: usize) -> Cell {
        let given = self.given();
        let right = given.filter(|given| self.right.contains(given));
        let right = right.or_else(|| self.right.first().copied());
        (right.unwrap_or(labels), given.unwrap_or(labels))
    }
}

type Cell = (usize, usize);

/// A figure and where it lies with 95 % certainty.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Estimate {
    /// `None` where it is not defined.
    pub value: Option<f64>,
    pub low: f64,
    pub high: f64,
}

/// How good one label is.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct LabelQuality {
    /// Of the posts with this label those for which it is right.
    pub precision: Proportion,
    /// Of the posts for which it is right those with this label.
    pub recall: Proportion,
    /// Harmonic mean of the two; `None` for a label that is neither right nor given anywhere.
    pub f1: Option<f64>,
}

impl LabelQuality {
    pub fn support(&self) -> usize {
        self.recall.all
    }

    pub fn given(&self) -> usize {
        self.precision.all
    }
}

/// How many posts have this right label and got that one; as the number of labels, none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Confusion {
    pub gold: usize,
    pub given: usize,
    pub posts: usize,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Evaluation {
    /// Posts with the right outcome, among all.
    pub outcome: Proportion,
    /// Posts with a right label, among those in scope.
    pub in_scope: Proportion,
    /// Posts with any label, among those in scope.
    pub in_scope_labelled: Proportion,
    /// Posts with any label, among all.
    pub coverage: Proportion,
    /// Posts that got no label, among those out of scope.
    pub out_of_scope: Proportion,
    /// Right labels, among those that were given, out of scope too.
    pub precision: Proportion,
    /// Right labels, among those that were given in scope.
    pub precision_in_scope: Proportion,
    /// Mean F1 of the labels that are right for at least one post.
    pub macro_f1: Estimate,
    /// By how much score and share of right labels differ, on average, among the labels that were given.
    pub calibration_error: Option<f64>,
    pub reliability: Vec<ReliabilityBin>,
    pub labels: Vec<LabelQuality>,
    /// All that are not zero, by what is right.
    pub confusion: Vec<Confusion>,
}

/// Holds labels against gold; `labels` is how many the set has.
pub fn evaluate(rows: &[EvaluatedPost], labels: usize) -> Evaluation {
    let count = |of: &dyn Fn(&EvaluatedPost) -> bool| rows.iter().filter(|row| of(row)).count();
    let (in_scope, out) = (
        count(&|row| !row.right.is_empty()),
        count(&|row| row.right.is_empty()),
    );
    let given = count(&|row| !row.abstained);
    let covered = count(&|row| !row.abstained && !row.right.is_empty());
    let right = count(&|row| !row.abstained && row.is_right());
    let left = count(&|row| row.abstained && row.right.is_empty());
    let cells: Vec<Cell> = rows.iter().map(|row| row.cell(labels)).collect();
    let scores = rows.iter().filter(|row| !row.abstained);
    let (error, bins) = reliability(scores.map(|row| (row.score, row.is_right())));
    let of_places = |places: &[usize]| Tally::of(&cells, places, labels).macro_f1();
    let all: Vec<usize> = (0..cells.len()).collect();
    let tally = Tally::of(&cells, &all, labels);
    let (low, high) = resampled(cells.len(), &of_places);
    Evaluation {
        outcome: Proportion::new(right + left, rows.len()),
        in_scope: Proportion::new(right, in_scope),
        in_scope_labelled: Proportion::new(covered, in_scope),
        coverage: Proportion::new(given, rows.len()),
        out_of_scope: Proportion::new(left, out),
        precision: Proportion::new(right, given),
        precision_in_scope: Proportion::new(right, covered),
        macro_f1: Estimate {
            value: tally.macro_f1(),
            low,
            high,
        },
        calibration_error: (given > 0).then_some(error),
        reliability: bins,
        labels: (0..labels).map(|label| tally.label(label)).collect(),
        confusion: confusion(&cells),
    }
}

/// A difference that chance alone makes more often than this is none: the usual bound.
const CHANCE: f64 = 0.05;

/// What differs between two labellings of the same posts.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Difference {
    pub differ: usize,
    pub only_first: usize,
    pub only_second: usize,
    /// Right outcomes of the second less those of the first, as a share of the posts.
    pub outcome: Estimate,
    pub macro_f1: Estimate,
    /// How likely it is that chance alone makes right outcomes differ so much, or more: McNemar's exact test.
    pub p: f64,
}

impl Difference {
    /// Whether more outcomes are right in the second, and chance alone hardly makes it so.
    pub fn is_better(&self) -> bool {
        self.only_second > self.only_first && self.p < CHANCE
    }
}

/// Compares two labellings of the same posts, in the same order; each may have label sets of its own. `same` says of
/// a place whether the outcomes are the same.
///
/// # Panics
/// If one of them has more posts.
pub fn difference(
    first: (&[EvaluatedPost], usize),
    second: (&[EvaluatedPost], usize),
    same: &dyn Fn(usize) -> bool,
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
        rows.iter().map(|row| row.cell(labels)).collect()
    };
    let (a, b) = (cells(first), cells(second));
    let gain = |places: &[usize]| {
        let before = Tally::of(&a, places, first.1).macro_f1()?;
        let after = Tally::of(&b, places, second.1).macro_f1()?;
        Some(after - before)
    };
    let all: Vec<usize> = (0..posts).collect();
    let (low, high) = resampled(posts, &gain);
    Difference {
        differ: all.iter().filter(|place| !same(**place)).count(),
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

struct Tally {
    right: Vec<usize>,
    given: Vec<usize>,
    both: Vec<usize>,
}

impl Tally {
    /// Of the cells at some places, each as often as it is named.
    fn of(cells: &[Cell], places: &[usize], labels: usize) -> Self {
        // The last place is for none of the labels.
        let zeros = || vec![0; labels + 1];
        let (mut right, mut given, mut both) = (zeros(), zeros(), zeros());
        for place in places {
            let (gold, got) = cells[*place];
            right[gold] += 1;
            given[got] += 1;
            both[gold] += usize::from(gold == got);
        }
        Self { right, given, both }
    }

    fn label(&self, label: usize) -> LabelQuality {
        let (both, right, given) = (self.both[label], self.right[label], self.given[label]);
        LabelQuality {
            precision: Proportion::new(both, given),
            recall: Proportion::new(both, right),
            f1: self.f1(label),
        }
    }

    fn f1(&self, label: usize) -> Option<f64> {
        let all = self.right[label] + self.given[label];
        (all > 0).then(|| 2.0 * float(self.both[label]) / float(all))
    }

    /// Of the labels that are right for at least one post.
    fn macro_f1(&self) -> Option<f64> {
        let labels = self.right.len() - 1;
        // A label that no gold post has cannot be found, and would count as 0.
        let some = (0..labels).filter(|label| self.right[*label] > 0);
        let (sum, n) = some
            .filter_map(|label| self.f1(label))
            .fold((0.0, 0), |(sum, n), f1| (sum + f1, n + 1));
        (n > 0).then(|| sum / float(n))
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts of posts")]
fn float(n: usize) -> f64 {
    n as f64
}

#[cfg(test)]
mod tests;
