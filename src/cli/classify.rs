//! `topicmill classify`

use clap::Args;
use serde_json::{Value, json};

use super::metrics::MetricsFlags;
use super::output::{self, OutputFormat};
use super::setup::{CurrentFlags, ModelFlags, PipelineFlags, RunFlags, Setup, SmallFlags};
use super::{CliError, Exit, labelling};
use crate::classify::{self, Options};
use crate::engines::estimate::{Estimate, EstimatedCost};
use crate::store::{Access, Missing, Table};

/// Flags of `classify`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:\n\
\x20 topicmill classify --dry-run\n\
\x20 topicmill classify --pipeline my-topics.toml --limit 1000")]
pub struct Classify {
    #[command(flatten)]
    pipeline: PipelineFlags,
    #[command(flatten)]
    model: ModelFlags,
    #[command(flatten)]
    small: SmallFlags,
    #[command(flatten)]
    current: CurrentFlags,
    /// Stop after this many posts
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
    /// Choose posts: with `failed`, also retry posts set aside after repeated failures
    #[arg(hide_short_help = true, long, value_name = "WHAT", value_enum)]
    select: Option<Select>,
    /// Wait for new posts when none is left, until a signal stops the run
    #[arg(long)]
    watch: bool,
    #[command(flatten)]
    metrics: MetricsFlags,
    /// Show what is missing and how long it would take, and write nothing
    #[arg(long, conflicts_with_all = ["watch", "select", "limit", "run_json", "shortlist", "make_current", "metrics_listen"])]
    dry_run: bool,
    /// Print the result of --dry-run in this format
    #[arg(
        hide_short_help = true,
        long,
        value_enum,
        default_value_t,
        requires = "dry_run"
    )]
    format: OutputFormat,
    #[command(flatten)]
    record: RunFlags,
}

/// Which posts are labelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Select {
    /// Posts without a label, except posts set aside after repeated failures
    Missing,
    /// Posts without a label, and posts set aside after repeated failures
    Failed,
}

impl Classify {
    /// Whether it waits for new posts until a signal comes.
    pub fn never_ends(&self) -> bool {
        self.watch
    }

    /// Whether it has an address of its own.
    pub fn listens(&self) -> bool {
        self.metrics.is_given()
    }

    pub async fn run(self, setup: &Setup) -> Result<Exit, CliError> {
        self.metrics.check()?;
        let pipeline = setup.pipeline(&self.pipeline)?;
        let set = setup.label_set(&self.model, pipeline.label_set)?;
        if self.dry_run {
            let models = setup.models(&self.model)?;
            let store = setup.store(Access::ReadOnly).await?;
            let told = classify::dry_run(&store, &setup.clock, models, &set).await?;
            output::print_reading(&table(&told), self.format)?;
            return Ok(Exit::Done);
        }
        let mut engines = setup.engines(&self.model)?;
        setup.put_small_before(&mut engines.models, &self.small, &self.model, &set)?;
        let options = Options {
            limit: self.limit,
            retry_failed: self.select == Some(Select::Failed),
            watch: self.watch,
            make_current: self.current.make_current(),
            ..setup.backlog()
        };
        self.record.check(setup)?;
        let context = setup.context(setup.store(Access::Existing).await?);
        let metrics = self.metrics.start(setup).await?;
        let labelled = labelling::label(&context, engines, &set, &options).await;
        if let Some(metrics) = metrics {
            metrics.close().await;
        }
        self.record.write(&context)?;
        context.store.close().await?;
        labelled
    }
}

/// What a dry run found, for people and programs.
fn table((missing, cost): &(Missing, EstimatedCost)) -> Table {
    let row = |what: &str, value: Value| vec![Value::from(what), value];
    let mut rows = vec![
        row("posts not labelled yet", json!(missing.posts)),
        row("their texts, equal ones once", json!(missing.texts)),
        row("pairs to compute", json!(missing.pairs)),
        row("pairs known already", json!(missing.known)),
        row("posts that need no inference", json!(missing.ready)),
    ];
    let mut estimated = |what: &str, of: Option<Estimate>| {
        let Some(Estimate { mean, low, high }) = of else {
            return;
        };
        for (end, value) in [("", mean), (", at least", low), (", at most", high)] {
            #[expect(clippy::cast_possible_truncation, reason = "rounded, for people")]
            rows.push(row(&format!("{what}{end}"), json!(value.ceil() as i64)));
        }
    };
    estimated("tokens to read", cost.tokens);
    estimated("seconds with this model and device", cost.seconds);
    rows.push(row("texts that were measured", json!(cost.measured_texts)));
    Table {
        columns: vec!["dry run".into(), "value".into()],
        rows,
    }
}
