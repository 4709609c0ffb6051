//! Shortlists labels: a small model ranks the labels for each text, and a large model scores only the best of them.
//!
//! Skipped labels get a score of 0. The result differs from the large model's alone, so the pair has its own name and
//! hash for storage.

use sha2::{Digest, Sha256};

use crate::labeler::{
    Labeler, LabelerError, PairState, Pairs, PreparedLabels, TextError, TextResult,
};
use topicmill_core::score::Evidence;
use topicmill_core::{LabelSet, hex};

/// A model with an optional small model that shortlists labels for it. Both may run concurrently, on their own threads.
pub struct Models {
    /// The model that scores.
    pub large: Labeler,
    /// The model that shortlists labels.
    pub small: Option<Shortlist>,
}

impl From<Labeler> for Models {
    fn from(large: Labeler) -> Self {
        Self { large, small: None }
    }
}

impl Models {
    /// Returns the display name.
    pub fn name(&self) -> String {
        let large = &self.large.folder().name;
        match &self.small {
            Some(Shortlist { labeler, labels }) => {
                format!("{large}+shortlist-{labels}-{}", labeler.folder().name)
            }
            None => large.clone(),
        }
    }

    /// Returns a hash of everything that affects the scores.
    pub fn hash(&self) -> String {
        let large = &self.large.folder().manifest_hash;
        let Some(Shortlist { labeler, labels }) = &self.small else {
            return large.clone();
        };
        let small = &labeler.folder().manifest_hash;
        let parts = format!("shortlist\n{large}\n{small}\n{labels}\n");
        hex(&Sha256::digest(parts))
    }

    /// Returns the maximum number of rows per text of the large model, for a set of `labels` labels. A shortlist leaves
    /// out labels, but not the background.
    pub fn rows_per_text(&self, large: &PreparedLabels, labels: usize) -> usize {
        match (large.rows_per_text(), &self.small) {
            (rows @ 2.., Some(small)) => small.labels.min(labels) + rows.saturating_sub(labels),
            (rows, _) => rows,
        }
    }
}

/// Indices of labels from best to worst; the background has the index after the last label.
pub type LabelOrder = Vec<usize>;

/// A small model, and the number of labels that it keeps.
pub struct Shortlist {
    labeler: Labeler,
    labels: usize,
}

impl Shortlist {
    /// Creates a shortlist of this many labels, at least 1.
    pub fn new(labeler: Labeler, labels: usize) -> Self {
        let labels = labels.max(1);
        Self { labeler, labels }
    }

    /// Returns the small model.
    pub fn labeler(&self) -> &Labeler {
        &self.labeler
    }

    /// Returns the number of labels that the shortlist keeps.
    pub fn labels(&self) -> usize {
        self.labels
    }

    /// Prepares a label set for [`order`](Self::order).
    ///
    /// # Errors
    /// See [`LabelerError`].
    pub fn prepare(&mut self, set: &LabelSet) -> Result<PreparedLabels, LabelerError> {
        self.labeler.prepare(set)
    }

    /// Ranks the labels for each text; `None` if `stop` cancelled the ranking. `known` contains the known pairs of each
    /// text, or is empty.
    ///
    /// # Errors
    /// See [`LabelerError`].
    pub fn order(
        &mut self,
        prepared: &PreparedLabels,
        texts: &[String],
        known: &[Pairs],
        stop: &dyn Fn() -> bool,
    ) -> Result<Option<Vec<Result<LabelOrder, TextError>>>, LabelerError> {
        let Some(results) = self.labeler.score_all(prepared, texts, known, stop)? else {
            return Ok(None);
        };
        let kind = &self.labeler.folder().kind;
        let order = |result: TextResult| {
            let logits: Vec<_> = result.logits.into_iter().flatten().collect();
            Evidence::new(kind, prepared.mode(), &logits, prepared.prior()).order()
        };
        let orders = results.into_iter().map(|result| result.map(order));
        Ok(Some(orders.collect()))
    }

    /// Returns the pairs of a text without known logits, for a set of `labels` labels.
    pub fn pairs(&self, order: &[usize], labels: usize, large: &PreparedLabels) -> Pairs {
        let mut pairs = vec![PairState::Wanted; large.keys().len()];
        self.skip_others(&mut pairs, order, labels);
        pairs
    }

    /// Marks all but the best labels in a ranking as skipped, and also the background if it ranks below all of them.
    pub fn skip_others(&self, pairs: &mut Pairs, order: &[usize], labels: usize) {
        let mut better_labels = 0;
        let mut keeps_background = false;
        for index in order {
            if *index >= labels {
                keeps_background = better_labels < self.labels;
                continue;
            }
            if better_labels >= self.labels {
                pairs[*index] = PairState::Skipped;
            }
            better_labels += 1;
        }
        // The two models may use different background topics, or none.
        if let Some(pair) = pairs.get_mut(labels)
            && order.len() > labels
            && !keeps_background
        {
            *pair = PairState::Skipped;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_engine::{ScriptedEngine, nli_folder};
    use topicmill_core::test_examples::set;

    #[test]
    fn only_the_first_labels_of_a_ranking_are_scored() {
        let labeler =
            Labeler::load(nli_folder(), Box::new(ScriptedEngine::default()), 4096).unwrap();
        let mut small = Shortlist::new(labeler, 2);
        let prepared = small.prepare(&set(&["a", "b", "c", "d"])).unwrap();
        let pairs = small.pairs(&[3, 1, 0, 2], 4, &prepared);
        let out = PairState::Skipped;
        assert_eq!(pairs, [out, PairState::Wanted, out, PairState::Wanted]);
        // The background is scored along with the shortlisted labels, unless all of them rank above it.
        for (order, is_scored) in [
            ([4, 3, 1, 0, 2], true),
            ([3, 4, 1, 0, 2], true),
            ([3, 1, 4, 0, 2], false),
        ] {
            let mut pairs = vec![PairState::Wanted; 5];
            small.skip_others(&mut pairs, &order, 4);
            let background = if is_scored { PairState::Wanted } else { out };
            assert_eq!(
                pairs,
                [out, PairState::Wanted, out, PairState::Wanted, background]
            );
        }
    }
}
