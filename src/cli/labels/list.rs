//! `topicmill labels list` and `topicmill labels use`: lists the stored label sets, and changes the current one.

use std::path::Path;

use clap::Args;
use serde_json::{Value, json};

use super::new::shell_path;
use super::{NamedSet, WhichModel, join_or_none, model_display_name, named_model, short_hash};
use crate::classify::check_no_label_is_lost;
use crate::cli::{App, CliError, Exit, OutputFormat, output};
use topicmill_core::{LabelSet, Mode};
use topicmill_store::{Access, LabelSetId, LabelSetRow, ModelId, ModelRow, Store, Target};

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  topicmill labels list
  topicmill labels list --format json")]
pub struct List {
    /// Set the output format
    #[arg(long, value_enum, default_value_t)]
    format: OutputFormat,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  topicmill labels use trial
  topicmill labels use my-labels.toml --model minilm-reddit-topics")]
pub struct Use {
    /// Make SET the current label set: its name, version prefix, or pipeline file
    #[arg(value_name = "SET")]
    set: String,
    /// Use the labels of the model M: its name or hash prefix
    #[arg(long, value_name = "M")]
    model: Option<String>,
    /// With a pipeline file, use MODE: single or multi
    #[arg(long, value_name = "MODE")]
    mode: Option<Mode>,
    /// Make it current even if posts whose text was deleted lose their label
    #[arg(long)]
    yes: bool,
}

const COLUMNS: &str =
    "label_set, version, model, model_hash, number_format, posts, current, created_at";

impl List {
    pub async fn run(self, app: &App) -> Result<Exit, CliError> {
        let store = app.store(Access::ReadOnly).await?;
        let rows = self.rows(&store).await?;
        store.close().await?;
        output::print_table(&output::table_from_objects(COLUMNS, &rows), self.format)?;
        if rows.is_empty() {
            tracing::info!(
                "no label set is stored yet: `topicmill classify` labels posts and stores one"
            );
        }
        Ok(Exit::Done)
    }

    /// Lists the stored label sets, latest first, with a row for each model that has labels of it.
    async fn rows(&self, store: &Store) -> Result<Vec<Value>, CliError> {
        let labels = store.labels();
        let (models, current) = (labels.models().await?, labels.current_target().await?);
        let mut rows = Vec::new();
        for set in labels.label_sets().await? {
            let mut ids = labels.models_with_labels(set.id).await?;
            // The current model may not have stored a label yet.
            if let Some(Target { model, label_set }) = current
                && label_set == set.id
                && !ids.contains(&model)
            {
                ids.insert(0, model);
            }
            if ids.is_empty() {
                rows.push(self.row(&set, None, 0, false));
            }
            for id in ids {
                let target = Target {
                    model: id,
                    label_set: set.id,
                };
                let posts = labels.count_labelled(target).await?;
                let model = models.iter().find(|(known, _)| *known == id);
                let model = model.map(|(_, model)| model);
                rows.push(self.row(&set, model, posts, current == Some(target)));
            }
        }
        Ok(rows)
    }

    fn row(
        &self,
        set: &LabelSetRow,
        model: Option<&ModelRow>,
        posts: u64,
        is_current: bool,
    ) -> Value {
        let current = match self.format {
            OutputFormat::Table => json!(if is_current { "yes" } else { "" }),
            _ => json!(is_current),
        };
        json!({
            "label_set": set.name, "version": short_hash(&set.hash),
            "model": model.map(|model| &model.name),
            "model_hash": model.map(|model| short_hash(&model.manifest_hash)),
            "number_format": model.map(|model| &model.precision),
            "posts": posts, "current": current, "created_at": set.created_at,
        })
    }
}

impl Use {
    pub async fn run(self, app: &App) -> Result<Exit, CliError> {
        let store = app.store(Access::Existing).await?;
        let which = WhichModel {
            model: None,
            mode: self.mode,
        };
        let named = NamedSet::find(app, &which, &store, &self.set).await?;
        let version = short_hash(&named.set.hash()).to_owned();
        let set = format!("`{}` (version {version})", named.set.name);
        let no_labels = || no_such_labels(&set, &self.set, &version);
        let label_set = named.stored.ok_or_else(no_labels)?;
        let labels = store.labels();
        let current = labels.current_target().await?;
        let word = self.model.as_deref();
        let model = model_with_labels(&store, label_set, current, word, &set).await?;
        let (model, row) = model.ok_or_else(no_labels)?;
        let target = Target { model, label_set };
        let by = model_display_name(&row);
        if current == Some(target) {
            tracing::info!("the views already show the labels of {set} by the model {by}");
            return Ok(Exit::Done);
        }
        let cost = labels.cost(Some(model), Some(label_set), &[]).await?;
        // The count is zero if every labelled post has been edited since.
        if cost.labelled == 0 {
            return Err(no_labels());
        }
        if !self.yes {
            check_no_label_is_lost(&store, target).await?;
        }
        labels.set_current(target).await?;
        store.close().await?;
        tracing::info!(
            posts = cost.labelled,
            "the views now show the labels of {set} by the model {by}"
        );
        if cost.posts > 0 {
            tracing::warn!(
                posts = cost.posts,
                "some posts have no label of this label set yet: `topicmill classify` with it and this model labels \
                 them"
            );
        }
        Ok(Exit::Done)
    }
}

/// Returns the model to use for a label set's labels: the named one, the only one with labels, or the current one.
/// Returns `None` if no model has labels of this label set. `set` is its name in an error.
async fn model_with_labels(
    store: &Store,
    label_set: LabelSetId,
    current: Option<Target>,
    named: Option<&str>,
    set: &str,
) -> Result<Option<(ModelId, ModelRow)>, CliError> {
    let with_labels = store.labels().models_with_labels(label_set).await?;
    let mut models = store.labels().models().await?;
    models.retain(|(id, _)| with_labels.contains(id));
    if models.is_empty() {
        return Ok(None);
    }
    if let Some(word) = named {
        return named_model(&models, word).cloned().map(Some);
    }
    if let [only] = &models[..] {
        return Ok(Some(only.clone()));
    }
    let current = current.map(|target| target.model);
    match models.iter().find(|(id, _)| Some(*id) == current) {
        Some(model) => Ok(Some(model.clone())),
        None => Err(CliError::Usage(format!(
            "several models have labels of {set}: choose one with --model: {}",
            join_or_none(models.iter().map(|(_, model)| model_display_name(model)))
        ))),
    }
}

/// Flags of `export` and `report`, which use the current labels by default.
#[derive(Debug, Args)]
#[command(next_help_heading = "Label set")]
pub(in crate::cli) struct LabelsFlags {
    /// Use the labels of a label set other than the current one
    ///
    /// NAME is its name or version, or a pipeline file.
    #[arg(long, value_name = "NAME")]
    label_set: Option<String>,
    /// Use the labels that MODEL assigned
    ///
    /// MODEL is its name or the first letters of its hash [default: the only model with labels of this label set, else
    /// the current one].
    #[arg(long, value_name = "MODEL", requires = "label_set")]
    model: Option<String>,
}

impl LabelsFlags {
    /// Returns the labels of the named label set, or else the current ones, if any.
    pub async fn selected(
        &self,
        app: &App,
        store: &Store,
    ) -> Result<Option<(Target, LabelSet)>, CliError> {
        let Some(word) = &self.label_set else {
            return Ok(store.labels().current().await?);
        };
        let current = store.labels().current_target().await?;
        let named = NamedSet::stored(app, store, word).await?;
        let no_labels = || {
            CliError::Usage(format!(
                "no post has a label of `{word}`: label posts with `topicmill classify --pipeline FILE` and its \
                 pipeline file"
            ))
        };
        let label_set = named.stored.ok_or_else(no_labels)?;
        let (set, model) = (format!("`{word}`"), self.model.as_deref());
        let model = model_with_labels(store, label_set, current, model, &set).await?;
        let (model, _) = model.ok_or_else(no_labels)?;
        Ok(Some((Target { model, label_set }, named.set)))
    }
}

/// Returns the error for a label set without labels, which would leave the views empty. `word` is a pipeline file, or
/// names the stored label set.
fn no_such_labels(set: &str, word: &str, version: &str) -> CliError {
    let path = Path::new(word);
    let (export, file) = if path.is_file() {
        (String::new(), shell_path(path))
    } else {
        let export = format!("topicmill labels export --label-set {version} > FILE && ");
        (export, "FILE".to_owned())
    };
    CliError::Usage(format!(
        "no post has a label of {set}, so the views would be empty: `{export}topicmill classify --pipeline {file} \
         --make-current` labels the posts that have text or a kept vector, and makes it the current label set"
    ))
}
