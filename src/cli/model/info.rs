//! `topicmill model info`: what is known of a model folder before anything is computed.

use std::path::PathBuf;

use clap::Args;
use serde_json::{Value, json};

use super::super::{CliError, Exit, OutputFormat, output};
use crate::engines::find_model;
use topicmill_score::{Mode, ModelFolder, ModelKind};

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  topicmill model info models/minilm-reddit-topics
  topicmill model info models/quality --format json")]
pub struct Info {
    /// Show the model in this folder
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// Show the graph in this precision
    #[arg(long, value_name = "P")]
    precision: Option<String>,
    /// Print in this format; json has every label
    #[arg(long, value_enum, default_value_t)]
    format: OutputFormat,
}

impl Info {
    pub(super) fn run(self) -> Result<Exit, CliError> {
        let folder = find_model(&self.folder);
        let precision = self.precision.filter(|precision| precision != "auto");
        let model = ModelFolder::open(&folder, precision.as_deref())?;
        let people = self.format == OutputFormat::Table;
        let table = output::facts("what", facts(&model, people));
        output::print_table(&table, self.format)?;
        Ok(Exit::Done)
    }
}

fn facts(model: &ModelFolder, people: bool) -> Vec<(&'static str, Value)> {
    let listed = |labels: Vec<&str>| {
        if people {
            json!(labels.join(", "))
        } else {
            json!(labels)
        }
    };
    let graph = model.graph.strip_prefix(&model.dir).unwrap_or(&model.graph);
    let mut facts = vec![
        ("model", json!(model.name)),
        ("kind", json!(model.kind.as_str())),
        ("reads", json!(reads(&model.kind))),
    ];
    if let Some(head) = model.kind.head() {
        let labels = head.labels.iter().map(String::as_str);
        facts.push(("labels", listed(labels.collect())));
        facts.push(("number of labels", json!(head.labels.len())));
        facts.push(("default mode", json!(Mode::from(head.function).as_str())));
    }
    if let ModelKind::Embedding(head) = &model.kind
        && !head.learned.is_empty()
    {
        let learned = head.learned.hypotheses();
        let count = json!(learned.len());
        let labels = learned.map(|hypothesis| bare(hypothesis, model.template.as_deref()));
        facts.push(("learned labels", listed(labels.collect())));
        facts.push(("number of learned labels", count));
    }
    facts.extend([
        ("hypothesis template", json!(model.template)),
        ("graph", json!(graph.display().to_string())),
        ("precision", json!(model.precision)),
        ("max tokens", json!(model.max_tokens)),
        ("manifest", json!(model.made.is_some())),
        ("version", json!(model.manifest_hash)),
        ("folder", json!(model.dir.display().to_string())),
    ]);
    facts.retain(|(_, value)| !value.is_null());
    facts
}

/// A label in its own words: its hypothesis without what the model's template puts around it.
fn bare<'h>(hypothesis: &'h str, template: Option<&str>) -> &'h str {
    let around = template.and_then(|template| template.split_once("{}"));
    let (before, after) = around.unwrap_or_default();
    let rest = hypothesis.strip_prefix(before);
    let bare = rest.and_then(|rest| rest.strip_suffix(after));
    bare.unwrap_or(hypothesis)
}

fn reads(kind: &ModelKind) -> &'static str {
    match kind {
        ModelKind::Nli(_) => "a text with each label in a sentence",
        ModelKind::Embedding(_) => "a text and a label by themselves",
        ModelKind::Classifier(_) => "a text",
    }
}
