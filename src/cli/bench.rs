//! `topicmill bench`: measures how fast this machine scores, and searches for faster settings.

mod agreement;
mod autotune;
mod sweep;

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::setup::{ModelFlags, PipelineFlags, Setup, run_blocking};
use super::{CliError, Exit};
use crate::engines::OpenedModel;
use topicmill_score::LabelSet;
use topicmill_score::labeler::PreparedLabels;
use topicmill_score::reddit::post_text;
use topicmill_score::text::EncodedText;
use topicmill_sources::sample;

#[derive(Debug, Subcommand)]
#[command(after_help = "Examples:
  topicmill bench autotune
  topicmill bench sweep --model models/bart-large-mnli --posts 20")]
pub enum Bench {
    /// Measure posts per second for batch sizes in posts and batch sizes in tokens
    Sweep(sweep::Sweep),
    /// Search for the fastest number of tokens per batch, and store the result
    Autotune(autotune::Autotune),
    /// Measure each engine's and precision's speed and agreement with float32, and store the result
    Agreement(agreement::AgreementBench),
}

/// Flags that select the model and the texts to measure.
#[derive(Debug, Args)]
struct BenchFlags {
    /// Score the texts in FILE [default: the sample posts]
    ///
    /// FILE contains one JSON object per line, with text, or title and selftext.
    #[arg(long, value_name = "FILE")]
    texts: Option<PathBuf>,
    /// Score N texts
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    posts: Option<u32>,
    #[command(flatten)]
    pipeline: PipelineFlags,
    #[command(flatten)]
    model: ModelFlags,
}

/// A loaded model, and encoded texts for it.
struct Workload {
    model: OpenedModel,
    set: LabelSet,
    prepared: PreparedLabels,
    texts: Vec<String>,
    encoded: Vec<EncodedText>,
}

impl BenchFlags {
    fn load(&self, setup: &Setup, posts: u32) -> Result<Workload, CliError> {
        let posts = self.posts.unwrap_or(posts) as usize;
        let texts = if let Some(path) = &self.texts {
            read_texts(path, posts)?
        } else {
            let all = sample::texts();
            all.iter().cycle().take(posts).cloned().collect()
        };
        let set = setup.label_set(&self.model, setup.pipeline(&self.pipeline)?.label_set)?;
        let choice = setup.model_choice(&self.model)?;
        let mut model = choice.open_one(choice.devices[0])?;
        let prepared = model.labeler.prepare(&set)?;
        let encoded = model.labeler.encoder().encode(&texts);
        let encoded = encoded.map_err(topicmill_score::LabelerError::Tokenize)?;
        Ok(Workload {
            model,
            set,
            prepared,
            texts,
            encoded,
        })
    }
}

impl Workload {
    /// Describes the workload, so that later readers of the figures know what was measured.
    fn facts(&self) -> Value {
        let folder = self.model.labeler.folder();
        let rows = self.model.labeler.rows(&self.prepared, &self.encoded);
        json!({
            "topicmill": env!("CARGO_PKG_VERSION"),
            "model": folder.name, "precision": folder.precision, "manifest_hash": folder.manifest_hash,
            "device": self.model.chosen.device.to_string(), "runtime": self.model.runtime,
            "threads": self.model.threads, "cores": std::thread::available_parallelism().map_or(1, usize::from),
            "posts": self.texts.len(), "labels": self.set.labels.len(), "rows": rows.len(),
            "tokens": rows.iter().map(|row| row.len).sum::<usize>(),
        })
    }
}

/// Reads up to `most` texts from a file with one JSON object per line.
pub(super) fn read_texts(path: &Path, most: usize) -> Result<Vec<String>, CliError> {
    let wrong = |what: String| CliError::Usage(format!("cannot read `{}`: {what}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
    let mut texts = Vec::new();
    for (i, line) in text.lines().enumerate().take(most) {
        let value: Value = serde_json::from_str(line)
            .map_err(|error| wrong(format!("line {}: {error}", i + 1)))?;
        let field = |name: &str| value[name].as_str().unwrap_or_default();
        texts.push(match value["text"].as_str() {
            Some(text) => text.to_owned(),
            None => post_text(field("title"), field("selftext")),
        });
    }
    if texts.is_empty() {
        return Err(wrong("the file contains no text".to_owned()));
    }
    Ok(texts)
}

impl Bench {
    pub async fn run(self, setup: &Setup) -> Result<Exit, CliError> {
        let (clock, stop) = (setup.clock.clone(), setup.stop.clone());
        let measured: Box<dyn FnOnce() -> Result<Exit, CliError> + Send> = match self {
            Self::Sweep(sweep) => {
                let workload = sweep.flags.load(setup, 200)?;
                Box::new(move || sweep.run(workload, &clock, &stop))
            }
            Self::Autotune(autotune) => {
                let workload = autotune.flags.load(setup, 2_000)?;
                Box::new(move || autotune.run(workload, &clock))
            }
            Self::Agreement(agreement) => {
                let work = agreement.load(setup)?;
                Box::new(move || agreement.run(&work, &clock, &stop))
            }
        };
        run_blocking(measured).await
    }
}

fn min_and_median(times: &[f64]) -> (f64, f64) {
    let mut sorted = times.to_vec();
    sorted.sort_by(f64::total_cmp);
    (sorted[0], sorted[sorted.len() / 2])
}

fn round_to(number: f64, decimals: i32) -> f64 {
    let power = 10_f64.powi(decimals);
    (number * power).round() / power
}
