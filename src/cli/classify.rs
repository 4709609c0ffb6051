//! `topicmill classify`: labels stored posts that have no label yet.

use std::path::Path;

use clap::Args;
use serde_json::json;

use super::app::{CurrentFlags, ModelFlags, PipelineFlags, RunFlags, SmallFlags};
use super::metrics::MetricsFlags;
use super::output::DryRunFormat;
use super::{App, CliError, Exit, backlog, output};
use crate::classify::{self, Options};
use crate::engines::estimate::{CostEstimate, EstimatedCost};
use crate::pipeline::Context;
use topicmill_core::LabelSet;
use topicmill_core::labels::hypothesis::Pass;
use topicmill_store::{Access, Table, WorkEstimate};

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  topicmill classify --dry-run
  topicmill classify --pipeline my-topics.toml --limit 1000")]
pub struct Classify {
    #[command(flatten)]
    pipeline: PipelineFlags,
    #[command(flatten)]
    current: CurrentFlags,
    /// Stop after N posts
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
    /// Choose posts: with `failed`, also retry posts parked after repeated failures
    #[arg(hide_short_help = true, long, value_name = "WHAT", value_enum)]
    select: Option<Select>,
    /// Keep running and label new posts as they arrive, until a signal
    ///
    /// Also ends, with exit code 75, when the pipeline file changes or another label set becomes current.
    #[arg(long)]
    pub watch: bool,
    #[command(flatten)]
    pub metrics: MetricsFlags,
    /// Show the number of unlabelled posts and the time to label them; write nothing
    #[arg(
        long,
        conflicts_with_all = ["watch", "select", "limit", "run_json", "shortlist", "make_current", "metrics_listen"]
    )]
    dry_run: bool,
    #[command(flatten)]
    output: DryRunFormat,
    #[command(flatten)]
    record: RunFlags,
    #[command(flatten)]
    model: ModelFlags,
    #[command(flatten)]
    small: SmallFlags,
}

/// The posts to label.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Select {
    /// Posts without a label, except posts parked after repeated failures
    Missing,
    /// Posts without a label, and posts parked after repeated failures
    Failed,
}

impl Classify {
    pub async fn run(self, app: &App) -> Result<Exit, CliError> {
        let pipeline_file = app.pipeline_path(&self.pipeline).map(Path::to_owned);
        // The text is read first, so that a change while the file is parsed is noticed too.
        let path = pipeline_file.as_ref();
        let text = path.and_then(|path| std::fs::read(path).ok());
        let pipeline = app.pipeline(&self.pipeline)?;
        let set = app.label_set(&self.model, pipeline.label_set)?;
        if self.dry_run {
            return self.print_estimate(app, &set).await;
        }
        let mut engines = app.engines(&self.model)?;
        app.add_small_model(&mut engines.models, &self.small, &self.model, &set)?;
        let options = Options {
            limit: self.limit,
            retry_failed: self.select == Some(Select::Failed),
            watch: self.watch,
            pipeline_file: pipeline_file.zip(text),
            make_current: self.current.make_current(),
            ..app.backlog_options()
        };
        let label = async |context: &Context| {
            let labelled = backlog::label(context, engines, &set, &options);
            self.metrics.during(app, labelled).await
        };
        let labelled = self.record.record(app, Access::Existing, label).await;
        if matches!(labelled, Ok(Exit::Done)) {
            app.log_default_pipeline(&self.pipeline, self.current.make_current());
        }
        labelled
    }

    /// Prints the number of posts without a label and the estimated cost of labelling them, unless stopped by a signal.
    async fn print_estimate(&self, app: &App, set: &LabelSet) -> Result<Exit, CliError> {
        let models = app.models(&self.model)?;
        let store = app.store(Access::ReadOnly).await?;
        let (folder, make_current) = (models.large.folder(), self.current.make_current());
        let fit = backlog::applicable_fit(&store, folder, set, make_current).await?;
        let set = fit.as_ref().unwrap_or(set);
        let pass = Pass::of(&folder.kind, set);
        let estimated = classify::dry_run(&store, &app.clock, models, set, &app.stop).await?;
        if let Some((missing, cost)) = estimated {
            let table = estimate_table(pass, &missing, &cost);
            output::print_wrapped_table(&table, self.output.format)?;
        }
        store.close().await?;
        Ok(Exit::Done)
    }
}

/// Formats an estimate, one figure per row. A figure of the cost has a row for each end of its interval.
fn estimate_table(pass: Pass, missing: &WorkEstimate, cost: &EstimatedCost) -> Table {
    let (unit, missing) = (pass.unit(), &missing.cost);
    let to_compute = pass.count(missing.pairs_missing);
    let computed = pass.count(missing.pairs_stored);
    let ready = missing.posts_without_inference;
    let mut rows = vec![
        ("posts without a label".to_owned(), json!(missing.posts)),
        ("distinct texts in these posts".into(), json!(missing.texts)),
        (format!("{unit} to compute"), json!(to_compute)),
        (format!("{unit} already computed"), json!(computed)),
        ("posts that need no inference".into(), json!(ready)),
    ];
    for (what, estimate) in [
        ("tokens to compute", cost.tokens),
        ("seconds with this model and device", cost.seconds),
    ] {
        let Some(CostEstimate { mean, low, high }) = estimate else {
            continue;
        };
        for (end, value) in [("", mean), (", at least", low), (", at most", high)] {
            #[expect(clippy::cast_possible_truncation, reason = "rounded for display")]
            rows.push((format!("{what}{end}"), json!(value.ceil() as i64)));
        }
    }
    let measured = "texts measured for the estimate".to_owned();
    rows.push((measured, json!(cost.measured_texts)));
    output::key_value_table("dry run", rows)
}
