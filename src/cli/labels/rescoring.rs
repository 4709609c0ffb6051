//! Reads the stored output of a model, from which labels are computed without inference.

use std::collections::BTreeSet;

use crate::cli::CliError;
use crate::cli::app::{App, ModelFlags};
use crate::run::StageError;
use topicmill_core::labels::hypothesis;
use topicmill_core::{Fullname, LabelSet, LabelVector, ModelKind};
use topicmill_review::REVIEW_COMMAND;
use topicmill_review::gold::ResolvedGold;
use topicmill_review::join::{self, GoldText, GoldTexts};
use topicmill_review::rescore::Rescorer;
use topicmill_score::folder::ModelFolder;
use topicmill_store::{HypothesisId, LabelState, ModelId, PostLabel, Store};

/// A stored model and a label set, whose labels can be computed without inference.
pub(super) struct Rescoring<'s, 'a> {
    pub app: &'s App,
    pub store: &'s Store,
    pub flags: &'s ModelFlags,
    pub folder: &'a ModelFolder,
    /// The model, if it is stored.
    pub model: Option<ModelId>,
    pub set: &'a LabelSet,
}

/// The output of an embedding model that gold posts must have.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum NeededOutput {
    /// Scores or vectors.
    Any,
    /// Vectors, which retention deletes unless `retention.keep_vectors` is set.
    Vectors,
}

impl<'a> Rescoring<'_, 'a> {
    /// Returns the stored logits and vectors of the model; `None` if it is not stored.
    pub async fn rescorer(&self) -> Result<Option<Rescorer<'a>>, CliError> {
        let Some(model) = self.model else {
            return Ok(None);
        };
        let vectors = self.label_vectors(model).await?;
        let (kind, set) = (&self.folder.kind, self.set);
        let rescorer = Rescorer::new(self.store, (kind, model), set, vectors).await?;
        Ok(Some(rescorer))
    }

    /// Computes the vectors of the labels, if an embedding model is used and not all of them are stored. Posts with
    /// stored vectors can then be scored without inference. Returns `None` if nothing needs to be computed.
    async fn label_vectors(&self, model: ModelId) -> Result<Option<Vec<LabelVector>>, CliError> {
        let (kind, store) = (&self.folder.kind, self.store);
        if !matches!(kind, ModelKind::Embedding(_)) {
            return Ok(None);
        }
        let keys = hypothesis::keys(kind, self.set);
        let ids = store.labels().find_hypotheses(&keys).await?;
        let stored_ids: Vec<HypothesisId> = ids.iter().flatten().copied().collect();
        let stored = store.computed().label_vectors(model, &stored_ids).await?;
        // `stored` has no entry for a hypothesis without an id.
        let mut stored = stored.into_iter();
        let known: Vec<Option<LabelVector>> = ids
            .iter()
            .map(|id| id.and_then(|_| stored.next().flatten()))
            .collect();
        // If all are stored, or no post has a vector, the model need not be loaded.
        if known.iter().all(Option::is_some) || !store.computed().has_vectors(model).await? {
            return Ok(None);
        }
        let mut models = self.app.models(self.flags)?;
        let prepared = models.large.prepare_with_known(self.set, &known);
        let vectors = prepared.map_err(StageError::from)?;
        Ok(vectors.label_vectors().map(<[LabelVector]>::to_vec))
    }

    /// Returns the gold posts with their stored output. Warns about posts that are left out; returns an error if fewer
    /// than `fewest` are left.
    pub async fn gold_texts(
        &self,
        gold: ResolvedGold,
        random: Option<&BTreeSet<Fullname>>,
        fewest: usize,
        needs: NeededOutput,
    ) -> Result<Vec<GoldText>, CliError> {
        let names: Vec<Fullname> = gold.posts.iter().map(|post| post.id.clone()).collect();
        let rescorer = self.rescorer().await?;
        let mut joined =
            join::gold_texts(self.store, rescorer.as_ref(), gold.posts, random).await?;
        let scored = joined.texts.len();
        if needs == NeededOutput::Vectors && matches!(self.folder.kind, ModelKind::Embedding(_)) {
            joined.texts.retain(|text| text.vector.is_some());
        }
        let (unscored, without_vector) = (joined.unscored, scored - joined.texts.len());
        joined.unscored += without_vector;
        if joined.texts.len() < fewest {
            return Err(self.too_few(names, &joined, fewest, needs).await?);
        }
        let unknown = joined.unknown;
        if unknown + unscored > 0 {
            tracing::warn!(
                unknown,
                unscored,
                "gold posts that are not in the database or have no stored results from this model are left out"
            );
        }
        if without_vector > 0 {
            tracing::warn!(
                posts = without_vector,
                "gold posts whose vectors retention deleted are left out: a fit learns from vectors, which \
                 `retention.keep_vectors` keeps"
            );
        }
        Ok(joined.texts)
    }

    /// Returns the error for too few usable posts among all gold posts, with the reason and what to do.
    async fn too_few(
        &self,
        mut names: Vec<Fullname>,
        joined: &GoldTexts,
        fewest: usize,
        needs: NeededOutput,
    ) -> Result<CliError, CliError> {
        let (all, usable, unscored) = (names.len(), joined.texts.len(), joined.unscored);
        let shortage = match usable {
            0 => format!("none of the {all} gold posts can be used"),
            _ => format!("only {usable} of {all} gold posts can be used, and {fewest} are needed"),
        };
        let used: BTreeSet<&Fullname> = joined.texts.iter().map(|text| &text.post).collect();
        names.retain(|name| !used.contains(name));
        let labels = self.store.labels();
        let states = labels.label_states(None, &names).await?;
        let is_textless = |post: &&PostLabel| post.state == LabelState::WithoutText;
        let without_text = states.iter().filter(is_textless).count();
        let current = labels.current_target().await?.map(|target| target.model);
        let mut models = labels.models().await?;
        // The model of the current labels, if it is another one.
        models.retain(|(id, _)| Some(*id) == current && current != self.model);
        let remedy = if usable == all {
            format!("label more with `{REVIEW_COMMAND}`, or try `topicmill labels fit`")
        } else if unscored == 0 {
            format!("import these posts, or answer stored ones with `{REVIEW_COMMAND}`")
        } else if let Some((_, other)) = models.first() {
            format!(
                "the current labels come from the model `{}`: set its folder with --model, or in the setting \
                 `classify.model`",
                other.name
            )
        } else if unscored > without_text {
            "run `topicmill classify` with this model and label set first".to_owned()
        } else if needs == NeededOutput::Vectors {
            format!(
                "answer posts that still have their text with `{REVIEW_COMMAND}`; `retention.keep_vectors` keeps what \
                 a fit reads"
            )
        } else {
            format!("answer posts that still have their text with `{REVIEW_COMMAND}`")
        };
        Ok(CliError::Usage(format!(
            "{shortage}: {} are not in the database, and {unscored} have no stored results of the model `{}` \
             ({without_text} of these no longer have text); {remedy}",
            joined.unknown, self.folder.name
        )))
    }
}
