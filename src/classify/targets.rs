//! Prepares a label set for the models of a run, and finds or inserts the rows of `models`, `label_sets` and
//! `hypotheses` that its results refer to.

use std::sync::Arc;

use super::StageError;
use crate::run::Run;
use topicmill_core::labels::hypothesis;
use topicmill_core::{LabelSet, ModelKind};
use topicmill_score::labeler::PreparedLabels;
use topicmill_score::{ModelFolder, Models};
use topicmill_store::{HypothesisId, ModelId, ModelRow, Store, StoreError, Target};

/// A label set, prepared for the models of a run, and the rows that its labels and logits belong to.
pub(super) struct Targets {
    pub target: Target,
    /// With a shortlist: the target of the labels that the large model assigns without a shortlist.
    pub large_target: Option<Target>,
    /// Id in `models` for the logits.
    pub logits_model: ModelId,
    /// Ids in `hypotheses`, one per key of `prepared`.
    pub hypotheses: Vec<HypothesisId>,
    /// The label set, prepared for the large model.
    pub prepared: PreparedLabels,
    /// Number of labels, without the background.
    pub labels: usize,
    pub small: Option<SmallTargets>,
}

/// A label set, prepared for the small model.
pub(super) struct SmallTargets {
    pub prepared: Arc<PreparedLabels>,
    /// Id in `models` for the small model's stored vectors, if there are any.
    pub vectors: Option<ModelId>,
}

impl Targets {
    /// Prepares a label set, and returns it with the ids of its rows, after inserting missing rows.
    pub(super) async fn new(
        run: &Run<'_>,
        models: &mut Models,
        set: &LabelSet,
    ) -> Result<Self, StageError> {
        let Run { store, clock, .. } = *run;
        let prepared = prepare(store, models, set).await?;
        let small = models.small.as_mut();
        let small = small.map(|small| small.prepare(set)).transpose()?;
        let now = clock.now().into();
        let label_set = store.labels().ensure_label_set(set, now).await?;
        let target = async |model: &ModelRow| {
            let model = store.labels().ensure_model(model).await?;
            Ok::<_, StoreError>(Target { model, label_set })
        };
        let large = target(&model_row(models.large.folder())).await?;
        let (target, large_target, logits_model) = if small.is_some() {
            let target = target(&models_row(models)).await?;
            let logits_model = store.labels().ensure_model(&logits_row(models)).await?;
            (target, Some(large), logits_model)
        } else {
            (large, None, large.model)
        };
        let hypotheses = store.labels().ensure_hypotheses(prepared.keys()).await?;
        if let Some(vectors) = prepared.label_vectors() {
            store
                .computed()
                .save_label_vectors(logits_model, &hypotheses, vectors)
                .await?;
        }
        let vectors = vectors_of_small(store, models).await?;
        Ok(Self {
            target,
            large_target,
            logits_model,
            hypotheses,
            prepared,
            labels: set.labels.len(),
            small: small.map(|prepared| SmallTargets {
                prepared: Arc::new(prepared),
                vectors,
            }),
        })
    }
}

/// Returns the `models` row for the large model's stored logits and vectors.
fn logits_row(models: &Models) -> ModelRow {
    let folder = models.large.folder();
    // A shortlist changes the logits of a pair only if they depend on the other pairs in the batch.
    if folder.depends_on_batch() {
        models_row(models)
    } else {
        model_row(folder)
    }
}

/// Returns the id in `models` for the small model's stored vectors; `None` if it has stored none.
async fn vectors_of_small(store: &Store, models: &Models) -> Result<Option<ModelId>, StoreError> {
    let folder = models.small.as_ref().map(|small| small.labeler().folder());
    let embeds = |folder: &&ModelFolder| matches!(folder.kind, ModelKind::Embedding(_));
    let Some(folder) = folder.filter(embeds) else {
        return Ok(None);
    };
    // No label set has an empty hash, so only the model is looked up.
    let (labels, row) = (store.labels(), model_row(folder));
    Ok(labels.find_existing(&row, "", &[]).await?.model)
}

/// Prepares a label set for the large model, using stored label vectors.
pub(super) async fn prepare(
    store: &Store,
    models: &mut Models,
    set: &LabelSet,
) -> Result<PreparedLabels, StageError> {
    let kind = &models.large.folder().kind;
    let mut known = Vec::new();
    if matches!(kind, ModelKind::Embedding(_)) {
        let keys = hypothesis::keys(kind, set);
        // No label set has an empty hash, so only the model and the hypotheses are looked up.
        let (labels, row) = (store.labels(), logits_row(models));
        let existing = labels.find_existing(&row, "", &keys).await?;
        if let Some(model) = existing.model {
            let or_none = |id: Option<HypothesisId>| id.unwrap_or(HypothesisId::NONE);
            let ids: Vec<_> = existing.hypotheses.into_iter().map(or_none).collect();
            known = store.computed().label_vectors(model, &ids).await?;
        }
    }
    Ok(models.large.prepare_with_known(set, &known)?)
}

/// Returns the `models` row for a model folder.
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

/// Returns the `models` row for the labels. A large model has one row with a shortlist and one without, so that the two
/// kinds of labels are stored separately.
pub(super) fn models_row(models: &Models) -> ModelRow {
    ModelRow {
        name: models.name(),
        manifest_hash: models.hash(),
        ..model_row(models.large.folder())
    }
}
