//! `topicmill model info`: shows the kind, labels, graph and hash of a model folder, without running it.

use std::path::PathBuf;

use clap::Args;
use serde_json::{Value, json};

use crate::cli::{CliError, Exit, OutputFormat, output};
use crate::engines::find_model;
use topicmill_core::{Mode, ModelKind, SHORT_HASH};
use topicmill_score::ModelFolder;

/// The maximum number of learned labels in the table, so that they fit a terminal line.
const SHOWN_LABELS: usize = 3;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  topicmill model info models/minilm-reddit-topics
  topicmill model info models/quality --format json")]
pub struct Info {
    /// Show the model in DIR
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// Show the graph with precision P
    #[arg(long, value_name = "P")]
    precision: Option<String>,
    /// Set the output format; json lists every label
    #[arg(long, value_enum, default_value_t)]
    format: OutputFormat,
}

impl Info {
    pub(super) fn run(self) -> Result<Exit, CliError> {
        let folder = find_model(&self.folder);
        let precision = self.precision.filter(|precision| precision != "auto");
        let model = ModelFolder::open(&folder, precision.as_deref())?;
        let for_table = self.format == OutputFormat::Table;
        let table = output::key_value_table("what", facts(&model, for_table));
        output::print_table(&table, self.format)?;
        Ok(Exit::Done)
    }
}

/// Returns the facts about a model; in the table, long values are abbreviated.
fn facts(model: &ModelFolder, for_table: bool) -> Vec<(&'static str, Value)> {
    // In the table, numbers are text, to be left-aligned like the other values.
    let number = |n: usize| {
        if for_table {
            json!(n.to_string())
        } else {
            json!(n)
        }
    };
    let shown = if for_table { SHORT_HASH } else { usize::MAX };
    let version: String = model.manifest_hash.chars().take(shown).collect();
    let graph = model.graph.strip_prefix(&model.dir).unwrap_or(&model.graph);
    let mut facts = vec![
        ("model", json!(model.name)),
        ("kind", json!(model.kind.as_str())),
        ("reads", json!(reads(&model.kind))),
    ];
    if let Some(head) = model.kind.head() {
        let labels = if for_table {
            json!(head.label_list())
        } else {
            json!(head.labels)
        };
        facts.push(("labels", labels));
        facts.push(("number of labels", number(head.labels.len())));
        facts.push(("default mode", json!(Mode::from(head.function).as_str())));
    }
    if let ModelKind::Gliclass(head) = &model.kind {
        facts.push(("max labels", head.max_labels.map_or(Value::Null, number)));
        if !head.task_prompt.is_empty() {
            facts.push(("task prompt", json!(head.task_prompt)));
        }
    }
    if let ModelKind::Embedding(head) = &model.kind
        && !head.learned.is_empty()
    {
        let template = model.template.as_deref();
        let hypotheses = head.learned.hypotheses();
        let labels: Vec<&str> = hypotheses
            .map(|hypothesis| strip_template(hypothesis, template))
            .collect();
        let shown = match labels.split_at_checked(SHOWN_LABELS) {
            _ if !for_table => json!(labels),
            Some((first, more)) if !more.is_empty() => {
                json!(format!("{} and {} more", first.join(", "), more.len()))
            }
            _ => json!(labels.join(", ")),
        };
        facts.push(("learned labels", shown));
        facts.push(("number of learned labels", number(labels.len())));
    }
    facts.extend([
        ("hypothesis template", json!(model.template)),
        ("graph", json!(graph.display().to_string())),
        ("precision", json!(model.precision)),
        ("max tokens", number(model.max_tokens)),
        ("manifest", json!(model.spec.is_some())),
        ("version", json!(version)),
        ("folder", json!(model.dir.display().to_string())),
    ]);
    facts.retain(|(_, value)| !value.is_null());
    facts
}

/// Returns the label of a hypothesis, by removing the text of the model's template.
fn strip_template<'h>(hypothesis: &'h str, template: Option<&str>) -> &'h str {
    let around = template.and_then(|template| template.split_once("{}"));
    let (before, after) = around.unwrap_or_default();
    hypothesis
        .strip_prefix(before)
        .and_then(|rest| rest.strip_suffix(after))
        .unwrap_or(hypothesis)
}

fn reads(kind: &ModelKind) -> &'static str {
    match kind {
        ModelKind::Nli(_) => "a text with each label in a sentence",
        ModelKind::Embedding(_) => "a text and a label separately",
        ModelKind::Classifier(_) => "a text",
        ModelKind::Gliclass(_) => "a text together with all labels",
    }
}
