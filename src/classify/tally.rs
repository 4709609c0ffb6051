//! Counts of a lane, reported as they grow, so that the run record and the metrics show the same numbers.

use super::{LabelStep, OnLabelStep};
use topicmill_core::record::ClassifyCounts;

/// Counts of a lane; [`report`](Self::report) reports each of them once.
pub(super) struct Tally<'a> {
    /// Reported counts.
    sum: ClassifyCounts,
    /// Counts that have not been reported yet. Callers add to these.
    pub new: ClassifyCounts,
    progress: OnLabelStep<'a>,
}

impl<'a> Tally<'a> {
    pub(super) fn new(progress: OnLabelStep<'a>) -> Self {
        Self {
            sum: ClassifyCounts::default(),
            new: ClassifyCounts::default(),
            progress,
        }
    }

    /// Reports the counts since the last call.
    pub(super) fn report(&mut self) {
        let new = std::mem::take(&mut self.new);
        self.sum.add(&new);
        (self.progress)(LabelStep::Counted(Box::new(new)));
    }

    /// Returns the sum of all reported counts.
    pub(super) fn into_sum(self) -> ClassifyCounts {
        self.sum
    }

    /// Returns the number of posts labelled so far.
    pub(super) fn posts(&self) -> u64 {
        self.sum.posts + self.new.posts
    }
}
