//! Resolves the names of label sets and models on the command line to what is stored.

use std::path::Path;

use super::WhichModel;
use crate::classify::model_row;
use crate::cli::{App, CliError};
use topicmill_core::{LabelSet, short_hash};
use topicmill_score::ModelFolder;
use topicmill_store::{LabelSetId, LabelSetRow, ModelId, ModelRow, Store};

/// The word for the current label set.
const CURRENT: &str = "current";
/// The minimum length of a hash prefix.
const MIN_HASH_PREFIX: usize = 4;

/// A label set named on the command line.
pub(super) struct NamedSet {
    pub set: LabelSet,
    /// The database id, if the label set is stored.
    pub stored: Option<LabelSetId>,
}

/// The name and version of a label set named on the command line. A stored label set is not read, because it may be
/// damaged.
pub(super) struct NamedVersion {
    name: String,
    hash: String,
    /// The database id, if the label set is stored.
    pub stored: Option<LabelSetId>,
    /// The label set, if a pipeline file was named.
    from_file: Option<LabelSet>,
}

impl NamedVersion {
    /// Resolves `current`, a pipeline file, or the name or version prefix of a stored label set. A word that means both
    /// a file and a stored label set is rejected, because a file in the current folder may be there by chance.
    pub async fn find(
        app: &App,
        which: &WhichModel,
        store: &Store,
        word: &str,
    ) -> Result<Self, CliError> {
        let rows = store.labels().label_sets().await?;
        let is_named = |row: &&LabelSetRow| row.name == word || is_hash_prefix(word, &row.hash);
        let path = Path::new(word);
        let matches: Vec<&LabelSetRow> = if word == CURRENT {
            let target = store.labels().current_target().await?;
            let current = target.ok_or_else(no_labels_yet)?.label_set;
            rows.iter().filter(|row| row.id == current).collect()
        } else if path.is_file() {
            if let Some(row) = rows.iter().find(is_named) {
                return Err(CliError::Usage(format!(
                    "`{word}` is ambiguous: it is both a file in this folder and a stored label set; use `./{word}` for \
                     the file, or the version {} for the label set",
                    short_hash(&row.hash)
                )));
            }
            let set = which.label_set(app, Some(path))?;
            let hash = set.hash();
            return Ok(Self {
                name: set.name.clone(),
                stored: rows.iter().find(|row| row.hash == hash).map(|row| row.id),
                hash,
                from_file: Some(set),
            });
        } else {
            rows.iter().filter(is_named).collect()
        };
        match matches[..] {
            [row] => Ok(Self {
                name: row.name.clone(),
                hash: row.hash.clone(),
                stored: Some(row.id),
                from_file: None,
            }),
            [] => {
                let known = rows
                    .iter()
                    .map(|row| format!("{} ({})", short_hash(&row.hash), row.name));
                Err(CliError::Usage(format!(
                    "`{word}` is neither a pipeline file nor the name or version of a stored label set; stored label \
                     sets: {}",
                    join_or_none(known)
                )))
            }
            _ => Err(ambiguous(word, &matches)),
        }
    }

    /// Formats name and version.
    pub fn display(&self) -> String {
        format!("`{}` (version {})", self.name, short_hash(&self.hash))
    }
}

impl NamedSet {
    /// Like [`NamedSet::find`], with the model and mode of the settings.
    pub async fn stored(app: &App, store: &Store, word: &str) -> Result<Self, CliError> {
        Self::find(app, &WhichModel::default(), store, word).await
    }

    /// Reads the label set that [`NamedVersion::find`] finds.
    pub async fn find(
        app: &App,
        which: &WhichModel,
        store: &Store,
        word: &str,
    ) -> Result<Self, CliError> {
        let named = NamedVersion::find(app, which, store, word).await?;
        let stored = named.stored;
        let set = match (named.from_file, stored) {
            (Some(set), _) => set,
            (None, Some(id)) => store.labels().label_set(id).await?,
            (None, None) => unreachable!("a version without a file is stored"),
        };
        Ok(Self { set, stored })
    }
}

/// Returns the error for a name that matches several versions. It lists these versions.
fn ambiguous(word: &str, matches: &[&LabelSetRow]) -> CliError {
    let version = |row: &&LabelSetRow| {
        let (version, name) = (short_hash(&row.hash), &row.name);
        let date = row.created_at.as_datetime().format("%Y-%m-%d %H:%M");
        format!("{version} ({name}, first used {date})")
    };
    CliError::Usage(format!(
        "`{word}` is ambiguous: it matches several versions of label sets; use one of these versions: {}",
        join_or_none(matches.iter().map(version))
    ))
}

pub(in crate::cli) fn no_labels_yet() -> CliError {
    CliError::Usage("no posts are labelled yet: run `topicmill classify` first".into())
}

fn is_hash_prefix(word: &str, hash: &str) -> bool {
    word.len() >= MIN_HASH_PREFIX && hash.starts_with(word)
}

/// Finds the stored model with this name or hash prefix.
pub(in crate::cli) fn named_model<'a>(
    rows: &'a [(ModelId, ModelRow)],
    word: &str,
) -> Result<&'a (ModelId, ModelRow), CliError> {
    let is_named = |(_, row): &&(ModelId, ModelRow)| {
        row.name == word || is_hash_prefix(word, &row.manifest_hash)
    };
    let matches: Vec<_> = rows.iter().filter(is_named).collect();
    Err(CliError::Usage(match matches[..] {
        [model] => return Ok(model),
        [] => {
            let known = join_or_none(rows.iter().map(|(_, row)| model_display_name(row)));
            format!("no model `{word}` has stored labels; models with stored labels: {known}")
        }
        _ => {
            let known = join_or_none(matches.iter().map(|(_, row)| model_display_name(row)));
            format!(
                "`{word}` is ambiguous: use the first letters of the hash of one of these models: {known}"
            )
        }
    }))
}

pub(super) fn join_or_none(words: impl Iterator<Item = String>) -> String {
    match words.collect::<Vec<_>>().as_slice() {
        [] => "none".to_owned(),
        words => words.join(", "),
    }
}

/// Formats a model with its hash, because models in different folders may have the same name.
pub(in crate::cli) fn model_display_name(row: &ModelRow) -> String {
    let (name, precision) = (&row.name, &row.precision);
    format!("{} ({name}, {precision})", short_hash(&row.manifest_hash))
}

/// Returns the database id of a model, if it is stored.
pub(super) async fn find_stored_model(
    store: &Store,
    folder: &ModelFolder,
) -> Result<Option<ModelId>, CliError> {
    let sought = model_row(folder);
    let is_sought = |row: &ModelRow| {
        (&row.manifest_hash, &row.precision, row.max_tokens)
            == (&sought.manifest_hash, &sought.precision, sought.max_tokens)
    };
    let models = store.labels().models().await?;
    let found = models.iter().find(|(_, row)| is_sought(row));
    Ok(found.map(|(id, _)| *id))
}
