//! Counts of a lane, reported as they grow: the run's record and the metrics read the same numbers.

use super::{LabelStep, OnLabelStep};
use topicmill_core::record::ClassifyCounts;

/// Counts, each of which [`tell`](Self::tell) tells once.
pub(super) struct Tally<'a> {
    /// Counts that were reported.
    sum: ClassifyCounts,
    /// Counts that were not reported yet; add to these.
    pub new: ClassifyCounts,
    listener: OnLabelStep<'a>,
}

impl<'a> Tally<'a> {
    pub(super) fn new(listener: OnLabelStep<'a>) -> Self {
        Self {
            sum: ClassifyCounts::default(),
            new: ClassifyCounts::default(),
            listener,
        }
    }

    /// Tells what was counted since it was called last.
    pub(super) fn tell(&mut self) {
        let new = std::mem::take(&mut self.new);
        self.sum.add(&new);
        (self.listener)(LabelStep::Counted(Box::new(new)));
    }

    /// All that was told.
    pub(super) fn into_sum(self) -> ClassifyCounts {
        self.sum
    }

    /// Posts that were labelled so far.
    pub(super) fn posts(&self) -> u64 {
        self.sum.posts + self.new.posts
    }
}
