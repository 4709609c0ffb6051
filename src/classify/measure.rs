//! Measures, on a sample of the texts, how long labelling will take. In: a store, models and a label set. Out: the
//! number of posts and pairs to label, and an estimate of the time. Writes nothing.

use super::targets::{models_row, prepare};
use super::{StageError, blocking};
use crate::engines::estimate::{self, EstimatedCost};
use tokio_util::sync::CancellationToken;
use topicmill_core::clock::SharedClock;
use topicmill_core::{LabelSet, TextHash};
use topicmill_review::rescore::{stored_logits, vector_logits};
use topicmill_score::Models;
use topicmill_score::labeler::{PairState, Pairs, PreparedLabels};
use topicmill_store::{ExistingTarget, HypothesisId, Store, StoreError, WorkEstimate};

/// Number of texts in the sample.
const SAMPLE: u32 = 2_000;

/// Estimates the cost of labelling without a shortlist. Writes nothing. Returns `None` if `stop` is cancelled first.
///
/// # Errors
/// See [`StageError`].
pub async fn dry_run(
    store: &Store,
    clock: &SharedClock,
    mut models: Models,
    set: &LabelSet,
    stop: &CancellationToken,
) -> Result<Option<(WorkEstimate, EstimatedCost)>, StageError> {
    let prepared = prepare(store, &mut models, set).await?;
    let model = models_row(&models);
    let existing = store
        .labels()
        .find_existing(&model, &set.hash(), prepared.keys())
        .await?;
    let work = store.labels().estimate_work(&existing, SAMPLE).await?;
    let hashes: Vec<TextHash> = work.sample.iter().map(|(hash, _)| *hash).collect();
    let pairs = known_pairs(store, &existing, &prepared, &hashes).await?;
    let texts = work.sample.iter().map(|(_, text)| text.clone());
    let texts: Vec<String> = texts.collect();
    let (clock, stop, count) = (clock.clone(), stop.clone(), work.cost.texts);
    let cost = blocking(move || {
        let labeler = &mut models.large;
        estimate::cost(labeler, &prepared, &clock, &texts, &pairs, count, &stop)
    });
    Ok(cost.await?.map(|cost| (work, cost)))
}

/// Returns the pairs of texts. Stored ones cost nothing, which matters for a label set with a few new labels.
async fn known_pairs(
    store: &Store,
    existing: &ExistingTarget,
    prepared: &PreparedLabels,
    texts: &[TextHash],
) -> Result<Vec<Pairs>, StoreError> {
    let mut pairs = vec![vec![PairState::Wanted; prepared.keys().len()]; texts.len()];
    let Some(model) = existing.model else {
        return Ok(pairs);
    };
    if let Some(vectors) = prepared.label_vectors() {
        let stored = vector_logits(store, model, vectors, texts).await?;
        for (pairs, stored) in pairs.iter_mut().zip(stored) {
            if let Some(logits) = stored {
                *pairs = logits.into_iter().map(PairState::Known).collect();
            }
        }
    }
    let stored_hypotheses = (0..).zip(&existing.hypotheses);
    let (labels, ids): (Vec<usize>, Vec<HypothesisId>) = stored_hypotheses
        .filter_map(|(label, id)| Some((label, (*id)?)))
        .unzip();
    let stored = stored_logits(store, model, &ids, texts).await?;
    for (pairs, stored) in pairs.iter_mut().zip(stored) {
        for (label, logits) in labels.iter().zip(stored) {
            if let (PairState::Wanted, Some(logits)) = (pairs[*label], logits) {
                pairs[*label] = PairState::Known(logits);
            }
        }
    }
    Ok(pairs)
}
