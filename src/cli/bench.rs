//! `topicmill bench`: measures the speed, memory and labels of each precision and batch size on the user's own texts.
//! Suggests the settings to write.

mod measured;
mod memory;
mod workload;

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Value, json};

use self::measured::{FP32, MIN_TEXTS, Precision, rows, suggested};
use self::workload::Workload;
use super::app::{App, ModelFlags, PipelineFlags, run_blocking};
use super::output::Printout;
use super::{CliError, Exit, OutputFormat, output};
use topicmill_core::reddit::post_text;
use topicmill_store::{Access, ExistingTarget};

/// Texts whose labels are compared.
const COMPARED_TEXTS: u32 = 400;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  topicmill bench
  topicmill bench --texts texts.ndjson --posts 200 --model models/bart-large-mnli

The last lines are the settings to write: the fastest precision that gives at least 99 % of the texts the same label as \
float32, and its fastest batch size.")]
pub struct Bench {
    /// Measure the texts in FILE [default: a sample of the database's posts]
    ///
    /// FILE contains one JSON object per line, with text, or title and selftext.
    #[arg(long, value_name = "FILE")]
    texts: Option<PathBuf>,
    /// Measure N texts
    #[arg(long, value_name = "N", default_value_t = COMPARED_TEXTS, value_parser = clap::value_parser!(u32).range(1..))]
    posts: u32,
    #[command(flatten)]
    pipeline: PipelineFlags,
    /// Set the output format
    #[arg(long, value_enum, default_value_t)]
    format: OutputFormat,
    #[command(flatten)]
    model: ModelFlags,
}

impl Bench {
    pub async fn run(self, app: &App) -> Result<Exit, CliError> {
        let texts = match &self.texts {
            Some(path) => read_texts(path, self.posts as usize)?,
            None => stored_texts(app, self.posts).await?,
        };
        let mut workload = Workload {
            choice: app.model_choice(&self.model)?,
            set: app.label_set(&self.model, app.pipeline(&self.pipeline)?.label_set)?,
            texts,
            clock: app.clock.clone(),
            stop: app.stop.clone(),
        };
        run_blocking(move || {
            let Some(measured) = workload.measure_all()? else {
                tracing::warn!("stopped before the measurement was complete");
                return Ok(Exit::Done);
            };
            print_measured(&measured, &workload, self.format)
        })
        .await
    }
}

/// Prints the measurements and the settings that they suggest.
fn print_measured(
    measured: &[Precision],
    workload: &Workload,
    format: OutputFormat,
) -> Result<Exit, CliError> {
    let fp32 = measured.iter().find(|precision| precision.name == FP32);
    let fp32 = fp32.map(|precision| &precision.labels[..]);
    let rows = rows(measured, workload.timed_texts().len(), fp32);
    let columns = "precision, batch tokens, texts/s, peak MiB, labels as in fp32";
    let table = output::table_from_objects(columns, &rows);
    let Some(settings) = suggested(measured, fp32) else {
        output::print_table(&table, format)?;
        tracing::warn!(
            "no settings are suggested: a precision needs {MIN_TEXTS} texts that show labels like those of float32, \
             and memory for a batch"
        );
        return Ok(Exit::Partial);
    };
    let texts = workload.texts.len();
    let json = json!({"texts": texts, "measured": rows, "settings": settings});
    Printout::new(json).with("", table).print(format)?;
    if format == OutputFormat::Table {
        let (precision, batch_tokens) = (settings.precision, settings.batch_tokens);
        output::print(&format!(
            "[classify]\nprecision = \"{precision}\"\nbatch_tokens = {batch_tokens}\n"
        ))?;
    }
    Ok(Exit::Done)
}

/// Reads up to `most` texts from a file with one JSON object per line.
fn read_texts(path: &Path, most: usize) -> Result<Vec<String>, CliError> {
    let usage = |why: String| CliError::Usage(format!("cannot read `{}`: {why}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|error| usage(error.to_string()))?;
    let mut texts = Vec::new();
    for (number, line) in (1..).zip(text.lines()).take(most) {
        let value: Value =
            serde_json::from_str(line).map_err(|error| usage(format!("line {number}: {error}")))?;
        let field = |name: &str| value[name].as_str().unwrap_or_default();
        texts.push(match value["text"].as_str() {
            Some(text) => text.to_owned(),
            None => post_text(field("title"), field("selftext")),
        });
    }
    if texts.is_empty() {
        return Err(usage("the file contains no text".to_owned()));
    }
    Ok(texts)
}

/// Reads up to `most` distinct texts of stored posts, at random.
async fn stored_texts(app: &App, most: u32) -> Result<Vec<String>, CliError> {
    // Without a label set, no text counts as labelled.
    let no_target = ExistingTarget {
        model: None,
        label_set: None,
        hypotheses: Vec::new(),
    };
    let store = app.store(Access::ReadOnly).await?;
    let work = store.labels().estimate_work(&no_target, most).await?;
    let sample = work.sample;
    store.close().await?;
    if sample.is_empty() {
        return Err(CliError::Usage(
            "the database has no posts to measure: collect some, or name a file with --texts"
                .into(),
        ));
    }
    Ok(sample.into_iter().map(|(_, text)| text).collect())
}
