//! The confusion matrix, and the F1 of each label.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::float;

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

/// A post's cell of the confusion matrix. A position equal to the number of labels means no label.
#[derive(Clone, Copy)]
pub(super) struct Cell {
    pub gold: usize,
    pub given: usize,
    /// The number of posts that the post stands for, relative to the others.
    pub weight: f64,
}

/// Counts posts by their cells.
pub(super) fn confusion(posts: &[Cell]) -> Vec<Confusion> {
    let mut counts: BTreeMap<(usize, usize), usize> = BTreeMap::new();
    for cell in posts {
        *counts.entry((cell.gold, cell.given)).or_default() += 1;
    }
    let cell = |((gold, given), posts)| Confusion { gold, given, posts };
    counts.into_iter().map(cell).collect()
}

/// The weights of posts by gold label, by predicted label, and where these are the same.
pub(super) struct LabelWeights {
    gold: Vec<f64>,
    given: Vec<f64>,
    both: Vec<f64>,
}

impl LabelWeights {
    /// Adds the weights of the posts at these positions, with repetition. `labels` is the size of the label set.
    pub(super) fn of(posts: &[Cell], positions: &[usize], labels: usize) -> Self {
        // The last position means no label.
        let zeros = || vec![0.0; labels + 1];
        let (mut gold, mut given, mut both) = (zeros(), zeros(), zeros());
        for cell in positions.iter().map(|position| posts[*position]) {
            gold[cell.gold] += cell.weight;
            given[cell.given] += cell.weight;
            if cell.gold == cell.given {
                both[cell.gold] += cell.weight;
            }
        }
        Self { gold, given, both }
    }

    /// Returns a label's F1; `None` for a label that is never gold and never predicted.
    pub(super) fn f1(&self, label: usize) -> Option<f64> {
        let sum = self.gold[label] + self.given[label];
        (sum > 0.0).then(|| 2.0 * self.both[label] / sum)
    }

    /// Returns the mean F1 of the labels with at least one gold post. The recall of the others is undefined.
    pub(super) fn macro_f1(&self) -> Option<f64> {
        let labels = 0..self.gold.len() - 1;
        let with_gold = labels.filter(|label| self.gold[*label] > 0.0);
        let f1: Vec<f64> = with_gold.filter_map(|label| self.f1(label)).collect();
        (!f1.is_empty()).then(|| f1.iter().sum::<f64>() / float(f1.len()))
    }
}
