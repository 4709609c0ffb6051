//! `topicmill labels`: creates, validates, compares, calibrates, fits, evaluates, lists, exports and drops label sets.
//!
//! The version of a label set is a hash of everything that determines a label: labels, template, mode, threshold,
//! temperature, background and fit.

mod calibrate;
mod diff;
mod estimates;
mod evaluate;
mod evaluation_tables;
mod export;
mod figures;
mod fit;
mod gold;
mod groups;
mod list;
mod named;
mod new;
mod rescoring;
mod side;
mod validate;

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::app::{App, ModelFlags, PipelineFlags};
use super::drop_labels::{self, DropFlags};
use super::output::Printout;
use super::{CliError, Exit};
use crate::atomic_file::{self, IfExists, is_full};
use crate::schedule::ScheduleEntry;
use topicmill_core::{Background, LabelSet, Mode, Provenance, ThingKind, short_hash};
use topicmill_review::gold::GoldLabels;
use topicmill_review::hypotheses;
use topicmill_score::folder::ModelFolder;
use topicmill_store::{Access, DropTarget, Store};

pub(super) use self::fit::{FitLabels, FitVerdict};
pub(super) use self::gold::login;
pub(super) use self::list::LabelsFlags;
use self::named::{NamedSet, NamedVersion, find_stored_model, join_or_none};
pub(super) use self::named::{model_display_name, named_model, no_labels_yet};

/// Checks schedules, in particular their stages.
type CheckSchedules = fn(&[ScheduleEntry]) -> Result<(), CliError>;

/// Shown in place of a label for posts that no label fits.
const NONE: &str = topicmill_review::evaluate::NO_LABEL;
/// The file name that means stdout.
const STDOUT: &str = "-";

#[derive(Debug, Subcommand)]
#[command(after_help = "Examples:
  topicmill labels validate --pipeline my-labels.toml
  topicmill labels diff current my-labels.toml")]
pub enum Labels {
    /// Write a new pipeline file, with a comment on each key
    New(new::New),
    /// Check a pipeline file, and show its labels
    Validate(validate::Validate),
    /// Compare two label sets or models: the differences, the cost, and the posts that change
    Diff(diff::Diff),
    /// Fit the temperature and the threshold to gold labels
    Calibrate(calibrate::Calibrate),
    /// Improve labels by learning from gold labels, without running the model
    Fit(fit::FitLabels),
    /// Measure accuracy, precision and recall on gold labels, or compare two label runs
    Evaluate(evaluate::Evaluate),
    /// Import, list, export and remove gold labels
    #[command(subcommand)]
    Gold(gold::GoldCommand),
    /// List the stored label sets and the current one
    List(list::List),
    /// Make a stored label set the current one, which the views show
    Use(list::Use),
    /// Print a label set as a pipeline file, with its background and what `labels fit` learned
    Export(export::Export),
    /// Delete a stored label set with its labels, scores, and logits that no other set needs
    #[command(after_help = "Examples:
  topicmill labels drop trial
  topicmill labels drop 3fa9c1d20b7e --yes")]
    Drop {
        /// Drop the label set SET: its name or version prefix, as shown by `labels list`
        #[arg(value_name = "SET")]
        set: String,
        #[command(flatten)]
        flags: DropFlags,
    },
}

/// Flags of commands that score stored posts.
#[derive(Debug, Clone, Args, Default)]
struct WhichModel {
    /// Use the model in DIR
    #[arg(long, value_name = "DIR")]
    model: Option<PathBuf>,
    /// Score in MODE: single, multi or raw
    ///
    /// single assigns one label per text, multi scores each label independently, and raw returns the logits of a
    /// classifier.
    #[arg(long, value_name = "MODE")]
    mode: Option<Mode>,
}

/// Flags of commands that read gold labels.
#[derive(Debug, Clone, Args, Default)]
struct ResolveFlags {
    /// Let NAME decide posts on which annotators disagree
    ///
    /// By default, the answer of more than half of the annotators decides. If none decides, proportions are bounds.
    #[arg(long, value_name = "NAME")]
    decides: Option<String>,
    /// Count gold labels outside the label set as out of scope
    #[arg(long)]
    others_out_of_scope: bool,
}

impl ResolveFlags {
    /// Reads the gold labels of posts for one label set, from a file or the database.
    async fn read(
        &self,
        store: &Store,
        gold: &str,
        set: &LabelSet,
    ) -> Result<GoldLabels, CliError> {
        let (source, decides) = ((gold, ThingKind::Post), self.decides.as_deref());
        Ok(GoldLabels::read(store, source, decides, &[set], |_, _| false).await?)
    }
}

/// Writes a label file. `advice` says what else to do if the file exists.
fn write_file(
    path: &Path,
    text: impl AsRef<[u8]>,
    if_exists: IfExists,
    advice: &str,
) -> Result<(), CliError> {
    atomic_file::write(path, text, if_exists).map_err(|source| {
        let shown = path.display();
        match source.kind() {
            ErrorKind::AlreadyExists => CliError::Usage(format!(
                "`{shown}` already exists: choose a different name{advice}"
            )),
            _ if is_full(&source) => CliError::writing(path)(source),
            _ => CliError::Usage(format!(
                "cannot write `{shown}`: {source}; choose a different path"
            )),
        }
    })
}

impl Labels {
    /// Runs the command. `check` is the check of the stages of schedules, which are commands that use this module.
    pub async fn run(self, app: &App, check: CheckSchedules) -> Result<Exit, CliError> {
        match self {
            Self::New(command) => command.run(app).await,
            Self::Validate(command) => command.run(app, check),
            Self::Diff(command) => command.run(app).await,
            Self::Calibrate(command) => command.run(app).await,
            Self::Evaluate(command) => command.run(app).await,
            Self::Fit(command) => command.run(app).await,
            Self::Gold(command) => command.run(app).await,
            Self::List(command) => command.run(app).await,
            Self::Use(command) => command.run(app).await,
            Self::Export(command) => command.run(app).await,
            Self::Drop { set, flags } => drop_set(app, &set, &flags).await,
        }
    }
}

async fn drop_set(app: &App, word: &str, flags: &DropFlags) -> Result<Exit, CliError> {
    let store = app.store(Access::Existing).await?;
    // The label set itself may be damaged, so it is not read.
    let named = NamedVersion::find(app, &WhichModel::default(), &store, word).await?;
    let name = format!("the label set {}", named.display());
    let Some(id) = named.stored else {
        return Err(CliError::Usage(format!(
            "drop {name}: it is not stored in this database; `topicmill labels list` shows the stored label sets"
        )));
    };
    let hypotheses = hypotheses::used_only_by(&store, id).await?;
    let what = DropTarget::LabelSet(id);
    let ended = drop_labels::run(app, &store, what, &name, &hypotheses, flags).await;
    store.close().await?;
    ended
}

impl WhichModel {
    fn flags(&self) -> ModelFlags {
        ModelFlags::new(self.model.clone(), self.mode)
    }

    fn folder(&self, app: &App) -> Result<ModelFolder, CliError> {
        Ok(app.model_choice(&self.flags())?.folder()?)
    }

    /// Returns the label set of a pipeline file, in the mode of the flag or setting.
    fn label_set(&self, app: &App, file: Option<&Path>) -> Result<LabelSet, CliError> {
        let flags = PipelineFlags {
            pipeline: file.map(Path::to_owned),
        };
        app.label_set(&self.flags(), app.pipeline(&flags)?.label_set)
    }
}

/// Returns a name, with a number if it is not free.
fn free_name(name: &str, is_free: impl Fn(&str) -> bool) -> String {
    let numbered = (2..).map(|number| format!("{name}-{number}"));
    let mut names = std::iter::once(name.to_owned()).chain(numbered);
    names
        .find(|name| is_free(name))
        .expect("only finitely many names are taken")
}

/// Returns the settings of a label set for display.
fn settings(set: &LabelSet) -> Vec<(&'static str, Value)> {
    let fitted_to = set.fitted.as_ref().map(|fitted| {
        let Provenance { answers, at, .. } = &fitted.provenance;
        let day = at.get(..10).unwrap_or_default();
        format!("{answers} gold labels, {day}")
    });
    let background = set.background.as_ref().map(Background::tag);
    vec![
        ("name", json!(set.name)),
        ("version", json!(short_hash(&set.hash()))),
        ("template", json!(set.template)),
        ("mode", json!(set.mode)),
        ("threshold", json!(set.threshold)),
        ("temperature", json!(set.temperature)),
        ("labels", json!(set.labels.len())),
        ("background", json!(background)),
        ("fitted_to", json!(fitted_to)),
    ]
}

fn settings_json(set: &LabelSet) -> Value {
    json!({
        "name": set.name, "hash": set.hash(), "template": set.template, "mode": set.mode,
        "threshold": set.threshold, "temperature": set.temperature, "labels": set.labels.len(),
        "background": set.background.as_ref().map(Background::tag),
        "fitted_to": set.fitted.as_ref().map(|fitted| json!(fitted.provenance)),
    })
}

/// Returns a label for a table: `NONE` if there is none, or it is empty.
fn or_none(label: Option<&str>) -> &str {
    label.filter(|label| !label.is_empty()).unwrap_or(NONE)
}
