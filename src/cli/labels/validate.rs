//! `topicmill labels validate`: checks a pipeline file, warns about likely mistakes, and shows the labels.

mod mistakes;
mod umbrella;

use clap::Args;
use serde_json::{Value, json};

use super::{CheckSchedules, Printout, WhichModel, settings, settings_json};
use crate::cli::app::PipelineFlags;
use crate::cli::{App, CliError, Exit, OutputFormat, output};
use topicmill_core::labels::hypothesis;
use topicmill_core::{LabelSet, ModelKind};
use topicmill_score::folder::ModelFolder;
use topicmill_score::labeler::{LabelerError, fits_window, prompt};
use topicmill_score::text::Encoder;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  topicmill labels validate
  topicmill labels validate --pipeline my-labels.toml")]
pub struct Validate {
    #[command(flatten)]
    pipeline: PipelineFlags,
    #[command(flatten)]
    which: WhichModel,
    /// Set the output format; json prints everything in one object
    #[arg(long, value_enum, default_value_t)]
    format: OutputFormat,
}

impl Validate {
    pub fn run(self, app: &App, check: CheckSchedules) -> Result<Exit, CliError> {
        let pipeline = app.pipeline(&self.pipeline)?;
        check(&pipeline.schedules)?;
        let set = app.label_set(&self.which.flags(), pipeline.label_set)?;
        let folder = match self.which.folder(app) {
            Err(error) if self.which.model.is_none() => {
                tracing::warn!(
                    "the lengths of the labels were not checked, because the model cannot be opened: {error}"
                );
                None
            }
            folder => Some(folder?),
        };
        let tokens = match &folder {
            Some(folder) => token_counts(folder, &set)?,
            None => vec![None; set.labels.len()],
        };
        if let Some(text) = mistakes::indistinguishable(&set, folder.as_ref()) {
            return Err(CliError::Usage(text));
        }
        let mut warnings = mistakes::nearly_same_labels(&set);
        warnings.extend(mistakes::shared_subreddits(&pipeline.topics));
        if let Some(folder) = &folder {
            warnings.extend(mistakes::model_mismatches(folder, &set));
            let flags = self.which.flags();
            warnings.extend(umbrella::warnings(app, &flags, &folder.kind, &set)?);
        }
        for warning in warnings {
            tracing::warn!("{warning}");
        }
        if set.background.is_none() && self.pipeline.pipeline.is_some() {
            tracing::info!(
                "a post that fits none of the labels still gets the nearest one: with `background = \"reddit\"` in the \
                 pipeline file it becomes `other`"
            );
        }
        for note in background_notes(&set, folder.as_ref()) {
            tracing::info!("{note}");
        }
        printout(&set, folder.as_ref(), &tokens).print(self.format)?;
        Ok(Exit::Done)
    }
}

/// Describes how the background is used, in sentences.
fn background_notes(set: &LabelSet, folder: Option<&ModelFolder>) -> Vec<String> {
    let Some(background) = &set.background else {
        return Vec::new();
    };
    let omitted = set.omitted_topics().into_iter();
    let omitted = omitted.map(|(topic, label)| format!("{topic} (for `{label}`)"));
    let omitted: Vec<String> = omitted.collect();
    let (tag, total, count) = (background.tag(), background.topics.len(), omitted.len());
    let consequence = if total == count {
        "; none is left, so no post can be `other`"
    } else {
        ""
    };
    let mut notes = vec![if omitted.is_empty() {
        format!("no topic of the background {tag} shares a word with a label: all {total} are used")
    } else {
        format!(
            "{count} of {total} topics of the background {tag} share a word with a label and are left out: \
             {}{consequence}",
            omitted.join(", ")
        )
    }];
    if let Some(folder) = folder {
        let read = set.background_for(&folder.kind).len();
        let cost = match folder.kind {
            ModelKind::Nli(_) => format!(": each text needs {read} more pairs of text and topic"),
            ModelKind::Embedding(_) | ModelKind::Classifier(_) => ", at no extra cost".to_owned(),
            ModelKind::Gliclass(_) => ", together with the labels".to_owned(),
        };
        notes.push(format!(
            "`{}` compares a post with {read} topics of the background{cost}",
            folder.name
        ));
    }
    notes
}

/// Returns the number of tokens in each label's longest text, or an error if one is too long for the model.
fn token_counts(folder: &ModelFolder, set: &LabelSet) -> Result<Vec<Option<usize>>, CliError> {
    let encoder = Encoder::load(folder).map_err(LabelerError::from)?;
    if let ModelKind::Gliclass(head) = &folder.kind {
        prompt(&encoder, folder, head, set)?;
    }
    let mut counts = Vec::with_capacity(set.labels.len());
    for label in &set.labels {
        let mut longest = 0;
        for text in hypothesis::texts(&folder.kind, set, label) {
            let ids = encoder.encode_whole(&text).map_err(LabelerError::from)?;
            longest = longest.max(ids.len());
        }
        if !fits_window(&folder.kind, &encoder, longest) {
            return Err(CliError::Labeler(LabelerError::TooLong {
                label: label.slug.clone(),
                tokens: longest,
                window: encoder.max_tokens(),
            }));
        }
        counts.push(Some(longest));
    }
    Ok(counts)
}

fn printout(set: &LabelSet, folder: Option<&ModelFolder>, tokens: &[Option<usize>]) -> Printout {
    let rows = set.labels.iter().zip(tokens).map(|(label, tokens)| {
        let hypothesis = match folder.map(|folder| &folder.kind) {
            Some(ModelKind::Gliclass(_)) => label.label.clone(),
            _ => set.hypothesis(label),
        };
        json!({
            "slug": label.slug, "hypothesis": hypothesis, "descriptions": label.descriptions.len(), "tokens": tokens,
        })
    });
    let labels: Vec<Value> = rows.collect();
    let table = output::table_from_objects("slug, hypothesis, descriptions, tokens", &labels);
    let model = json!(folder.map(|folder| &folder.name));
    let omitted = set.omitted_topics().into_iter();
    let mut json = settings_json(set);
    json["labels"] = json!(labels);
    json["model"] = model.clone();
    json["background_left_out"] = omitted
        .map(|(topic, label)| json!({ "topic": topic, "label": label }))
        .collect();
    let mut facts = settings(set);
    facts.push(("checked with the model", model));
    let mut printout = Printout::new(json).with("", output::key_value_table("what", facts));
    printout.add_csv("", table);
    printout
}
