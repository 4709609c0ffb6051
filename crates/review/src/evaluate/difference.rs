//! Compares two label runs on the same gold posts with paired tests.

use serde::Serialize;

use super::confusion::{Cell, LabelWeights};
use super::intervals::{bootstrap, mcnemar, paired_difference};
use super::{Bound, Estimate, EvaluatedPost};
use crate::change::SIGNIFICANCE;

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
    let posts = first.0.len();
    assert_eq!(posts, second.0.len(), "the same posts");
    let (mut only_first, mut only_second) = (0, 0);
    for (a, b) in first.0.iter().zip(second.0) {
        match (a.is_right(), b.is_right()) {
            (true, false) => only_first += 1,
            (false, true) => only_second += 1,
            (true, true) | (false, false) => {}
        }
    }
    let cells = [first, second].map(|(rows, labels)| -> Vec<Cell> {
        let rows = rows.iter().map(|row| row.decided(Bound::Lower));
        rows.map(|row| row.cell(labels)).collect()
    });
    let gain_in_macro_f1 = |positions: &[usize]| {
        let before = LabelWeights::of(&cells[0], positions, first.1).macro_f1()?;
        let after = LabelWeights::of(&cells[1], positions, second.1).macro_f1()?;
        Some(after - before)
    };
    // Waves are not weighted in a comparison, so all posts are one stratum.
    let all: Vec<usize> = (0..posts).collect();
    Difference {
        differ,
        only_first,
        only_second,
        outcome: paired_difference(only_first, only_second, posts),
        macro_f1: bootstrap(&[all], &gain_in_macro_f1),
        p: mcnemar(only_first, only_second),
    }
}
