//! One side of a comparison by `labels diff` or `labels evaluate`: a label set, the model, and their labels.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::rescoring::Rescoring;
use super::{NamedSet, WhichModel, find_stored_model, named_model, settings_json, short_hash};
use crate::cli::CliError;
use crate::cli::app::{App, ModelFlags, run_blocking};
use crate::telemetry::Progress;
use topicmill_core::reddit::thing_text;
use topicmill_core::{Fullname, LabelSet};
use topicmill_review::compare::LabelSource;
use topicmill_review::rescore::{Rescorer, prediction};
use topicmill_score::folder::ModelFolder;
use topicmill_store::{
    LabelSetId, LabelState, ModelId, ModelRow, PostLabel, Prediction, Store, StoredText, Target,
};

/// Posts read and scored per batch.
const WINDOW: usize = 1_000;

/// One side of a comparison: a label set and a model.
#[derive(Clone)]
pub(super) struct Side {
    pub set: LabelSet,
    /// The label set, if it is stored.
    stored: Option<LabelSetId>,
    /// The stored model, if it has labelled posts in this database.
    model: Option<(ModelId, ModelRow)>,
    /// The model folder, if it is available to compute labels.
    pub folder: Option<ModelFolder>,
    /// The path of the folder, if it was given.
    path: Option<PathBuf>,
}

impl Side {
    /// Resolves a label set and a model, which is named by its folder, or by a stored model's name or hash. The default
    /// is the model of `current` if it has labels of the label set, else the model from the settings.
    pub async fn find(
        app: &App,
        store: &Store,
        (set, model): (&str, Option<&str>),
        current: Option<Target>,
    ) -> Result<Self, CliError> {
        let path = model.map(PathBuf::from).filter(|path| path.is_dir());
        let which = WhichModel {
            model: path.clone(),
            mode: None,
        };
        let NamedSet { set, stored } = NamedSet::find(app, &which, store, set).await?;
        let labels = store.labels();
        let models = labels.models().await?;
        let named = match (model, current, stored) {
            _ if path.is_some() => None,
            (Some(word), ..) => Some(named_model(&models, word)?.clone()),
            (None, Some(Target { model, .. }), Some(set))
                if labels.models_with_labels(set).await?.contains(&model) =>
            {
                models.iter().find(|(id, _)| *id == model).cloned()
            }
            (None, ..) => None,
        };
        let mut side = Self {
            set,
            stored,
            model: named,
            folder: None,
            path,
        };
        let folder = which.folder(app);
        if let Some((model, _)) = &side.model {
            // Stored labels can be compared without the model folder.
            if let Ok(folder) = folder
                && find_stored_model(store, &folder).await? == Some(*model)
            {
                side.folder = Some(folder);
            }
        } else {
            let folder = folder?;
            let id = find_stored_model(store, &folder).await?;
            side.model = models.into_iter().find(|(known, _)| Some(*known) == id);
            side.folder = Some(folder);
        }
        Ok(side)
    }

    fn flags(&self) -> ModelFlags {
        ModelFlags::new(self.path.clone(), None)
    }

    /// Returns the side with the label set that its label set was fitted from; `None` if it is not fitted, or the
    /// other is not stored.
    pub async fn before_fit(&self, store: &Store) -> Result<Option<Self>, CliError> {
        let Some(fitted) = &self.set.fitted else {
            return Ok(None);
        };
        let rows = store.labels().label_sets().await?;
        let Some(row) = rows.iter().find(|row| row.hash == fitted.base) else {
            return Ok(None);
        };
        Ok(Some(Self {
            set: store.labels().label_set(row.id).await?,
            stored: Some(row.id),
            ..self.clone()
        }))
    }

    /// Returns the target of the stored labels, if the model and the label set are stored.
    pub fn target(&self) -> Option<Target> {
        let (model, label_set) = (self.model.as_ref()?.0, self.stored?);
        Some(Target { model, label_set })
    }

    /// Returns the stored labels, and the stored logits and vectors that yield labels without inference.
    pub async fn labels(&self, app: &App, store: &Store) -> Result<LabelSource<'_>, CliError> {
        Ok(LabelSource {
            stored: self.target(),
            rescorer: self.rescorer(app, store).await?,
        })
    }

    /// Returns the stored logits and vectors that yield labels without inference.
    async fn rescorer(&self, app: &App, store: &Store) -> Result<Option<Rescorer<'_>>, CliError> {
        let Some(folder) = &self.folder else {
            return Ok(None);
        };
        let rescoring = Rescoring {
            app,
            store,
            flags: &self.flags(),
            folder,
            model: self.model.as_ref().map(|(id, _)| *id),
            set: &self.set,
        };
        rescoring.rescorer().await
    }

    /// Returns those of the posts that have no stored label of their current text.
    async fn unlabelled(
        &self,
        store: &Store,
        posts: &[Fullname],
    ) -> Result<Vec<PostLabel>, CliError> {
        let mut states = store.labels().label_states(self.target(), posts).await?;
        states.retain(|post| !matches!(post.state, LabelState::Labelled(_)));
        Ok(states)
    }

    /// Computes labels from stored logits for those `posts` that have no stored label for their current text. Returns
    /// `None` without a model that computed logits.
    pub async fn rescored(
        &self,
        app: &App,
        store: &Store,
        posts: &[Fullname],
    ) -> Result<Option<HashMap<Fullname, Prediction>>, CliError> {
        let unlabelled = self.unlabelled(store, posts).await?.into_iter();
        let wanted: Vec<Fullname> = unlabelled.map(|post| post.fullname).collect();
        if wanted.is_empty() && self.target().is_some() {
            return Ok(Some(HashMap::new()));
        }
        let Some(rescorer) = self.rescorer(app, store).await? else {
            return Ok(None);
        };
        Ok(Some(rescorer.labels_of_posts(store, &wanted).await?))
    }

    /// Computes labels for those `posts` that have no stored label for their current text. Stores nothing. Returns an
    /// empty map if the model folder is unknown, and `None` if stopped by a signal.
    pub async fn computed(
        &self,
        app: &App,
        store: &Store,
        posts: &[Fullname],
    ) -> Result<Option<HashMap<Fullname, Prediction>>, CliError> {
        if self.folder.is_none() {
            return Ok(Some(HashMap::new()));
        }
        let mut labels = self.rescored(app, store, posts).await?.unwrap_or_default();
        let unlabelled = self.unlabelled(store, posts).await?.into_iter();
        let wanted: Vec<Fullname> = unlabelled
            .filter(|post| matches!(post.state, LabelState::Unlabelled | LabelState::Outdated))
            .map(|post| post.fullname)
            .filter(|name| !labels.contains_key(name))
            .collect();
        if wanted.is_empty() {
            return Ok(Some(labels));
        }
        let bar = Progress::start("gold", "posts", wanted.len() as u64);
        let mut labeler = app.models(&self.flags())?.large;
        for names in wanted.chunks(WINDOW) {
            let names: Vec<&Fullname> = names.iter().collect();
            let posts = store.posts().post_texts(&names).await?;
            let text = |post: &StoredText| thing_text(&post.fullname, &post.title, &post.body);
            let texts: Vec<String> = posts.iter().map(text).collect();
            let (set, stop) = (self.set.clone(), app.stop.clone());
            // Inference blocks its thread, and must not block the signal handler.
            let scored = run_blocking(move || {
                let prepared = labeler.prepare(&set)?;
                let stop = || stop.is_cancelled();
                let scored = labeler.score_all(&prepared, &texts, &[], &stop)?;
                Ok((labeler, scored))
            });
            let (returned, Some(results)) = scored.await? else {
                return Ok(None);
            };
            labeler = returned;
            bar.add(names.len() as u64);
            for (post, result) in posts.into_iter().zip(results) {
                // A text that cannot be scored has no label.
                if let Ok(result) = result {
                    labels.insert(post.fullname, prediction(&self.set, &result.scores));
                }
            }
        }
        Ok(Some(labels))
    }

    /// Returns the labels of the posts that the label set was fitted to, each by a fit without the post's answer. They
    /// are compared only with answers in the database.
    pub async fn cross_fitted(
        &self,
        store: &Store,
        gold: &str,
    ) -> Result<HashMap<Fullname, Prediction>, CliError> {
        match self.stored {
            Some(id) if gold == "db" => Ok(store.labels().cross_fitted(id).await?),
            _ => Ok(HashMap::new()),
        }
    }

    /// Formats the model as name and abbreviated hash.
    pub fn model(&self) -> Option<String> {
        let (name, hash) = self.name_and_hash()?;
        Some(format!("{name} ({})", short_hash(hash)))
    }

    fn name_and_hash(&self) -> Option<(&str, &str)> {
        match (&self.model, &self.folder) {
            (Some((_, row)), _) => Some((&row.name, &row.manifest_hash)),
            (None, Some(folder)) => Some((&folder.name, &folder.manifest_hash)),
            (None, None) => None,
        }
    }

    /// Formats the label set and the model.
    pub fn line(&self) -> String {
        let (name, hash) = (&self.set.name, self.set.hash());
        let model = self.model().unwrap_or_default();
        format!("{name} ({}), by {model}", short_hash(&hash))
    }

    pub fn json(&self) -> Value {
        let model = self.name_and_hash();
        json!({
            "label_set": settings_json(&self.set),
            "model": model.map(|(name, hash)| json!({ "name": name, "manifest_hash": hash })),
        })
    }
}

/// Splits `SET@MODEL`. An existing file with an `@` in its name is not split.
pub(super) fn split_model(word: &str) -> (&str, Option<&str>) {
    match word.split_once('@') {
        Some((set, model)) if !Path::new(word).is_file() => (set, Some(model)),
        _ => (word, None),
    }
}
