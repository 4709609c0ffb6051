//! The small model picks labels for the posts of a window, before these are tokenised for the large one.

use std::sync::Arc;

use super::{Shared, Window, blocking};
use crate::classify::BacklogError;
use topicmill_core::TextHash;
use topicmill_review::rescore::vector_logits;
use topicmill_score::labeler::{PairState, Pairs, PreparedLabels};
use topicmill_score::{PairLogits, Shortlist};

impl Shared<'_> {
    /// Leaves out of a window's pairs what the small model does not pick, whatever is stored of it. False if it was stopped
    /// on the way.
    pub(super) async fn ask_small(
        &self,
        slot: &mut Option<Shortlist>,
        window: &mut Window,
    ) -> Result<bool, BacklogError> {
        // Taken out, because the thread that blocks must own the small model; it is put back below.
        let (Some(prepared), Some(mut small)) = (&self.picking, slot.take()) else {
            return Ok(true);
        };
        let known = self.known_to_small(prepared, window).await?;
        let (prepared, halt) = (Arc::clone(prepared), self.halt.clone());
        let texts = window.posts.iter();
        let texts: Vec<String> = texts.map(|same| same[0].text.clone()).collect();
        let looked = blocking(move || {
            let orders = small.order(&prepared, &texts, &known, &|| halt.is_cancelled());
            orders.map(|orders| (small, orders))
        });
        let (small, orders) = looked.await??;
        let small = slot.insert(small);
        let Some(orders) = orders else {
            return Ok(false);
        };
        let posts = std::mem::take(&mut window.posts);
        let stored = std::mem::take(&mut window.stored);
        for ((same, mut pairs), order) in posts.into_iter().zip(stored).zip(orders) {
            match order {
                Ok(order) => {
                    small.leave_out(&mut pairs, &order, self.set.labels.len());
                    window.posts.push(same);
                    window.stored.push(pairs);
                }
                Err(error) => window.unread.push((same, error)),
            }
        }
        Ok(true)
    }

    /// The small model's pairs of the texts of a window, as far as they follow from vectors that are stored.
    async fn known_to_small(
        &self,
        prepared: &PreparedLabels,
        window: &Window,
    ) -> Result<Vec<Pairs>, BacklogError> {
        let (Some(model), Some(labels)) = (self.small_vectors, prepared.label_vectors()) else {
            return Ok(Vec::new());
        };
        let hashes: Vec<TextHash> = window.posts.iter().map(|same| same[0].text_hash).collect();
        let stored = self
            .patience
            .wait_in_hand(async || vector_logits(self.worker.store, model, labels, &hashes).await);
        let pairs = |logits: Option<Vec<PairLogits>>| {
            let logits = logits.into_iter().flatten();
            logits.map(PairState::Known).collect()
        };
        Ok(stored.await?.into_iter().map(pairs).collect())
    }
}
