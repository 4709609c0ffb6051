//! Under which rows of `models` and `label_sets` a model's work is stored.

use super::BacklogError;
use crate::worker::Worker;
use topicmill_score::hypothesis;
use topicmill_score::labeler::PreparedLabels;
use topicmill_score::{LabelSet, ModelFolder, ModelKind, Models};
use topicmill_store::{ModelRow, Store, StoreError, Target};

/// A key that no row has.
const NO_ROW: i64 = -1;

/// The rows that labels and logits belong to.
pub(super) struct Targets {
    pub target: Target,
    /// With a small model: where the large one's labels go without it.
    pub alone: Option<Target>,
    /// Row of `models`.
    pub logits_model: i64,
}

/// The rows of models and a label set; made where they are not there yet.
pub(super) async fn targets(
    worker: &Worker<'_>,
    models: &Models,
    set: &LabelSet,
) -> Result<Targets, StoreError> {
    let Worker { store, clock, .. } = *worker;
    let label_set = store
        .labels()
        .ensure_label_set(set, clock.now().into())
        .await?;
    let target = async |model: &ModelRow| {
        let model = store.labels().ensure_model(model).await?;
        Ok::<_, StoreError>(Target { model, label_set })
    };
    let whole = target(&model_row(models.large.folder())).await?;
    if models.small.is_none() {
        return Ok(Targets {
            target: whole,
            alone: None,
            logits_model: whole.model,
        });
    }
    let target = target(&row_of(models)).await?;
    Ok(Targets {
        target,
        alone: Some(whole),
        logits_model: store.labels().ensure_model(&logits_row(models)).await?,
    })
}

/// The row under which logits and vectors of the large model are stored.
fn logits_row(models: &Models) -> ModelRow {
    let folder = models.large.folder();
    // A pair says the same with a small model and without, unless it depends on the pairs computed with it.
    if folder.depends_on_batch() {
        row_of(models)
    } else {
        model_row(folder)
    }
}

/// Under which key the vectors of texts by the small model are stored, where it has stored any: alone, or as the
/// model of other labels.
pub(super) async fn vectors_of_small(
    store: &Store,
    models: &Models,
) -> Result<Option<i64>, StoreError> {
    let folder = models.small.as_ref().map(|small| small.labeler().folder());
    let embeds = |folder: &&ModelFolder| matches!(folder.kind, ModelKind::Embedding(_));
    let Some(folder) = folder.filter(embeds) else {
        return Ok(None);
    };
    // No label set has an empty hash.
    Ok(store
        .labels()
        .seek(&model_row(folder), "", &[])
        .await?
        .model)
}

/// A label set made ready for the large model; vectors of labels that are stored are not computed again.
pub(super) async fn prepare(
    store: &Store,
    models: &mut Models,
    set: &LabelSet,
) -> Result<PreparedLabels, BacklogError> {
    let kind = &models.large.folder().kind;
    let mut known = Vec::new();
    if matches!(kind, ModelKind::Embedding(_)) {
        let keys = hypothesis::keys(kind, set);
        // No label set is looked for here, and no label set has an empty hash.
        let sought = store.labels().seek(&logits_row(models), "", &keys).await?;
        if let Some(model) = sought.model {
            let ids: Vec<i64> = sought
                .hypotheses
                .iter()
                .map(|id| id.unwrap_or(NO_ROW))
                .collect();
            known = store.computed().label_vectors(model, &ids).await?;
        }
    }
    Ok(models.large.prepare_with_known(set, &known)?)
}

/// A model folder as `models` has it.
pub fn model_row(folder: &ModelFolder) -> ModelRow {
    ModelRow {
        name: folder.name.clone(),
        kind: folder.kind.as_str().to_owned(),
        manifest_hash: folder.manifest_hash.clone(),
        precision: folder.precision.clone(),
        tokenizer_hash: folder.tokenizer_hash.clone(),
        max_tokens: i64::try_from(folder.max_tokens).unwrap_or(i64::MAX),
    }
}

/// The row of `models`: with a small model it is another model than the large one alone, so that their labels never
/// mix.
pub(super) fn row_of(models: &Models) -> ModelRow {
    let (name, manifest_hash) = models.identity();
    ModelRow {
        name,
        manifest_hash,
        ..model_row(models.large.folder())
    }
}
