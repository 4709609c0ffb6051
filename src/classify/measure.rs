//! Measures, on a sample of the texts, how long labelling will take and which batch size is fastest.

use std::time::Duration;

use super::BacklogError;
use super::lane::blocking;
use super::targets::{models_row, prepare};
use crate::engines::autotune::{self, FoundBudget, SearchLimit};
use crate::engines::estimate::{self, EstimatedCost};
use topicmill_core::TextHash;
use topicmill_core::clock::SharedClock;
use topicmill_review::rescore::{stored_logits, vector_logits};
use topicmill_score::labeler::{PairState, PreparedLabels};
use topicmill_score::{LabelSet, LabelerError, Models};
use topicmill_store::{ExistingTarget, Store, StoreError, WorkEstimate};

/// Number of texts in the sample.
const SAMPLE: u32 = 2_000;

/// Estimates the cost of labelling without a shortlist. Writes nothing.
///
/// # Errors
/// See [`BacklogError`].
pub async fn dry_run(
    store: &Store,
    clock: &SharedClock,
    mut models: Models,
    set: &LabelSet,
) -> Result<(WorkEstimate, EstimatedCost), BacklogError> {
    let prepared = prepare(store, &mut models, set).await?;
    let sought = sought(store, &models, set, &prepared).await?;
    let missing = store.labels().estimate_work(&sought, SAMPLE).await?;
    let hashes: Vec<TextHash> = missing.sample.iter().map(|(hash, _)| *hash).collect();
    // Stored pairs cost nothing, which matters for a label set with a few new labels.
    let mut pairs = vec![vec![PairState::Wanted; prepared.keys().len()]; hashes.len()];
    if let (Some(model), Some(vectors)) = (sought.model, prepared.label_vectors()) {
        let stored = vector_logits(store, model, vectors, &hashes).await?;
        for (pairs, stored) in pairs.iter_mut().zip(stored) {
            if let Some(stored) = stored {
                *pairs = stored.into_iter().map(PairState::Known).collect();
            }
        }
    }
    if let Some(model) = sought.model {
        let (labels, ids): (Vec<usize>, Vec<i64>) = (0..)
            .zip(&sought.hypotheses)
            .filter_map(|(label, id)| Some((label, (*id)?)))
            .unzip();
        let stored = stored_logits(store, model, &ids, &hashes).await?;
        for (pairs, stored) in pairs.iter_mut().zip(stored) {
            for (label, logits) in labels.iter().zip(stored) {
                if let (PairState::Wanted, Some(logits)) = (pairs[*label], logits) {
                    pairs[*label] = PairState::Known(logits);
                }
            }
        }
    }
    let texts = sample_texts(&missing);
    let (clock, count) = (clock.clone(), missing.texts);
    let cost = blocking(move || {
        estimate::cost(&mut models.large, &prepared, &clock, &texts, &pairs, count)
    });
    Ok((missing, cost.await??))
}

/// Returns the texts in the sample.
fn sample_texts(missing: &WorkEstimate) -> Vec<String> {
    missing
        .sample
        .iter()
        .map(|(_, text)| text.clone())
        .collect()
}

async fn sought(
    store: &Store,
    models: &Models,
    set: &LabelSet,
    prepared: &PreparedLabels,
) -> Result<ExistingTarget, StoreError> {
    let model = models_row(models);
    store
        .labels()
        .find_existing(&model, &set.hash(), prepared.keys())
        .await
}

/// Minimum number of texts that make a search for the best token budget worthwhile.
const WORTH_TUNING: u64 = 4_000;
/// Time limits for a search: a share of the expected labelling time, and a maximum.
const TUNING: (f64, Duration) = (0.01, Duration::from_mins(1));

/// Searches for the best token budget on unlabelled texts, if there are enough of them within `limit`. The computed
/// scores are not stored.
///
/// # Errors
/// See [`BacklogError`].
pub async fn tune(
    store: &Store,
    clock: &SharedClock,
    mut models: Models,
    set: &LabelSet,
    limit: Option<u64>,
) -> Result<(Models, Option<FoundBudget>), BacklogError> {
    let prepared = prepare(store, &mut models, set).await?;
    let sought = sought(store, &models, set, &prepared).await?;
    let missing = store.labels().estimate_work(&sought, SAMPLE).await?;
    let to_label = missing.texts.min(limit.unwrap_or(u64::MAX));
    if to_label < WORTH_TUNING || missing.sample.is_empty() || missing.missing_pairs == 0 {
        return Ok((models, None));
    }
    let texts = sample_texts(&missing);
    let clock = clock.clone();
    #[expect(clippy::cast_precision_loss, reason = "estimates")]
    let tuned = blocking(move || {
        let texts = models.large.encoder().encode(&texts)?;
        let rows = models.large.rows(&prepared, &texts);
        let tokens: usize = rows.iter().map(|row| row.len).sum();
        let per_text = tokens as f64 / texts.len() as f64;
        // Pairs for a label set's older labels may already be stored, so fewer than texts × labels are computed.
        let share = missing.missing_pairs as f64
            / (missing.missing_pairs + missing.stored_pairs).max(1) as f64;
        let labels = prepared.keys().len();
        let scored = models.scored_labels(labels);
        let share = share * scored as f64 / labels as f64;
        let allowance = SearchLimit::Share {
            share: TUNING.0,
            tokens: per_text * to_label as f64 * share,
            most: TUNING.1,
        };
        let found = autotune::tune(&mut models.large, &prepared, &texts, &clock, allowance)?;
        Ok::<_, LabelerError>((models, Some(found)))
    });
    Ok(tuned.await??)
}
