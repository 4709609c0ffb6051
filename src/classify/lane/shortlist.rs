//! Shortlists labels for a window's posts with the small model, before the texts are tokenised for the large model.

use std::sync::Arc;

use super::{ClaimedWindow, FailedText, SameText};
use crate::classify::targets::SmallTargets;
use crate::classify::{Labelling, StageError, blocking};
use topicmill_core::{PairLogits, TextHash};
use topicmill_review::rescore::vector_logits;
use topicmill_score::Shortlist;
use topicmill_score::labeler::{Completion, LabelerError, PairState, Pairs};

impl Labelling<'_> {
    /// Marks as skipped the pairs of a window that the small model does not shortlist, even if their logits are stored.
    /// Returns the model.
    pub(super) async fn apply_shortlist(
        &self,
        mut small: Shortlist,
        window: &mut ClaimedWindow,
    ) -> Result<(Shortlist, Completion), StageError> {
        let targets = self.targets.small.as_ref();
        let targets = targets.expect("the label set is prepared for the small model");
        let known = self.known_small_pairs(targets, window).await?;
        let prepared = Arc::clone(&targets.prepared);
        let halt = self.halt.clone();
        let texts = window.posts.iter().map(|same| same.text().to_owned());
        let texts: Vec<String> = texts.collect();
        let ordering = blocking(move || {
            let orders = small.order(&prepared, &texts, &known, &|| halt.is_cancelled())?;
            Ok::<_, LabelerError>((small, orders))
        });
        let (small, orders) = ordering.await?;
        let Some(orders) = orders else {
            return Ok((small, Completion::Cancelled));
        };
        let posts = std::mem::take(&mut window.posts);
        let stored = std::mem::take(&mut window.stored);
        for ((same, mut pairs), order) in posts.into_iter().zip(stored).zip(orders) {
            match order {
                Ok(order) => {
                    small.skip_others(&mut pairs, &order, self.targets.labels);
                    window.posts.push(same);
                    window.stored.push(pairs);
                }
                Err(error) => {
                    let error = format!("scoring with the small model: {error}");
                    window.failed.push(FailedText { same, error });
                }
            }
        }
        Ok((small, Completion::Done))
    }

    /// Returns the pairs of a window's texts that the small model need not compute because their vectors are stored.
    async fn known_small_pairs(
        &self,
        small: &SmallTargets,
        window: &ClaimedWindow,
    ) -> Result<Vec<Pairs>, StageError> {
        let (Some(model), Some(labels)) = (small.vectors, small.prepared.label_vectors()) else {
            return Ok(Vec::new());
        };
        let hashes: Vec<TextHash> = window.posts.iter().map(SameText::hash).collect();
        let stored = self
            .retry
            .run_with_timeout(async || vector_logits(self.run.store, model, labels, &hashes).await);
        let pairs = |logits: Option<Vec<PairLogits>>| {
            let logits = logits.into_iter().flatten();
            logits.map(PairState::Known).collect()
        };
        Ok(stored.await?.into_iter().map(pairs).collect())
    }
}
