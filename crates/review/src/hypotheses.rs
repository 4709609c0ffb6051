//! Finds the stored hypotheses that only one label set uses, so that they can be deleted along with it.

use std::collections::BTreeSet;
use std::sync::Arc;

use topicmill_core::labels::hypothesis;
use topicmill_core::model_kind::{
    ClassifierHead, EmbeddingHead, GliclassHead, HeadFunction, NliClasses,
};
use topicmill_core::{LabelSet, ModelKind};

use topicmill_store::{HypothesisId, LabelSetId, Store, StoreError};

/// Returns the keys of the stored hypotheses that `label_set` uses with some model and no other stored label set uses.
///
/// # Errors
/// Returns [`StoreError`] if the database cannot be read.
pub async fn used_only_by(
    store: &Store,
    label_set: LabelSetId,
) -> Result<Vec<HypothesisId>, StoreError> {
    let mut own = keys(&store.labels().unfitted_label_set(label_set).await?);
    for row in store.labels().label_sets().await? {
        if row.id != label_set {
            let others = keys(&store.labels().unfitted_label_set(row.id).await?);
            own.retain(|key| !others.contains(key));
        }
    }
    let own: Vec<String> = own.into_iter().collect();
    let hypotheses = store.labels().find_hypotheses(&own).await?;
    Ok(hypotheses.into_iter().flatten().collect())
}

/// Returns a label set's hypothesis keys for every kind of model, including keys of learned label vectors. Keys depend
/// only on the kind, so the other values are placeholders.
fn keys(set: &LabelSet) -> BTreeSet<String> {
    let nli = ModelKind::Nli(NliClasses {
        count: 2,
        entailment: 0,
        contradiction: 1,
        neutral: None,
    });
    let embedding = ModelKind::Embedding(EmbeddingHead {
        output: String::new(),
        softmax_scale: 1.0,
        sigmoid_scale: 1.0,
        sigmoid_bias: 0.0,
        learned: Arc::default(),
    });
    let classifier = ModelKind::Classifier(ClassifierHead {
        labels: Vec::new(),
        function: HeadFunction::Softmax,
    });
    let gliclass = ModelKind::Gliclass(GliclassHead {
        label_id: 0,
        separator_id: 0,
        prompt_first: true,
        max_labels: None,
        task_prompt: String::new(),
    });
    let learned = |label| hypothesis::learned_key(&hypothesis::texts(&embedding, set, label));
    let mut keys: BTreeSet<String> = set.labels.iter().map(learned).collect();
    for kind in [&nli, &embedding, &classifier, &gliclass] {
        keys.extend(hypothesis::keys(kind, set));
    }
    keys
}
