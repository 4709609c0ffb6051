//! `topicmill run`: collects posts, labels the backlog, and deletes old post text if `retention.hours` is set.

use clap::Args;

use super::app::{App, CurrentFlags, ModelFlags, PipelineFlags, RunFlags, SmallFlags};
use super::collect::{CollectFlags, Collector};
use super::error::first_error;
use super::{CliError, Exit, backlog, purge};
use crate::classify::{MakeCurrent, Options};
use crate::engines::EnginePool;
use crate::pipeline::Context;
use crate::purge::{PurgePlan, Retention};
use topicmill_core::{LabelSet, RunStatus};
use topicmill_store::Access;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  topicmill run
  topicmill run --pipeline my-topics.toml --topic climate --limit 50")]
pub struct Run {
    #[command(flatten)]
    pipeline: PipelineFlags,
    #[command(flatten)]
    pub(super) collect: CollectFlags,
    #[command(flatten)]
    current: CurrentFlags,
    #[command(flatten)]
    record: RunFlags,
    #[command(flatten)]
    model: ModelFlags,
    #[command(flatten)]
    small: SmallFlags,
}

/// The prepared parts of a run.
struct Prepared {
    collector: Collector,
    set: LabelSet,
    engines: EnginePool,
}

impl Run {
    pub async fn run(self, app: &App) -> Result<Exit, CliError> {
        if self.collect.dry_run {
            let pipeline = app.pipeline(&self.pipeline)?;
            let collector = Collector::open(app, &pipeline, &self.collect).await?;
            return collector
                .print_requests(app, self.collect.output.format)
                .await;
        }
        let prepared = match self.prepare(app).await {
            Ok(prepared) => prepared,
            // A promise to delete text depends neither on a source nor on a model.
            Err(error) => return first_error(Err(error), delete_old_text_only(app).await),
        };
        let make_current = self.current.make_current();
        let work = async |context: &Context| run_stages(app, context, prepared, make_current).await;
        let exit = self.record.record(app, Access::Create, work).await;
        if matches!(exit, Ok(Exit::Done)) {
            app.log_default_pipeline(&self.pipeline, make_current);
        }
        exit
    }

    /// Opens the source and the model, so that an error does not appear only after an hour of collecting.
    async fn prepare(&self, app: &App) -> Result<Prepared, CliError> {
        let pipeline = app.pipeline(&self.pipeline)?;
        let collector = Collector::open(app, &pipeline, &self.collect).await?;
        let set = app.label_set(&self.model, pipeline.label_set)?;
        let mut engines = app.engines(&self.model)?;
        app.add_small_model(&mut engines.models, &self.small, &self.model, &set)?;
        Ok(Prepared {
            collector,
            set,
            engines,
        })
    }
}

/// Collects, labels, and deletes old text. A stage runs even if an earlier one failed, unless the database did.
async fn run_stages(
    app: &App,
    context: &Context,
    prepared: Prepared,
    make_current: MakeCurrent,
) -> Result<Exit, CliError> {
    let collected = prepared.collector.run(app, context).await;
    let is_of_database = |error: &CliError| error.exit() == Exit::Database;
    if app.stop.is_cancelled() || collected.as_ref().is_err_and(is_of_database) {
        return collected;
    }
    let options = Options {
        make_current,
        ..app.backlog_options()
    };
    let labelled = backlog::label(context, prepared.engines, &prepared.set, &options).await;
    let retained = match retention(app) {
        Some(retention) => delete_old_text(context, retention).await,
        None => Ok(Exit::Done),
    };
    first_error(first_error(collected, labelled), retained)
}

/// Returns the retention to apply at the end of a run; `None` if `retention.hours` is not set or the run is stopped.
fn retention(app: &App) -> Option<Retention> {
    let retention = purge::retention_of(app, None).for_daily_runs();
    (retention.hours > 0 && !app.stop.is_cancelled()).then_some(retention)
}

/// Deletes old post text in a run that can neither collect nor label.
async fn delete_old_text_only(app: &App) -> Result<Exit, CliError> {
    // Without a database, nothing was ever stored.
    let Some(retention) = retention(app).filter(|_| !app.is_database_missing()) else {
        return Ok(Exit::Done);
    };
    let context = app.context(app.store(Access::Existing).await?);
    let deleted = delete_old_text(&context, retention).await;
    context.store.close().await?;
    deleted
}

/// Deletes old post text.
async fn delete_old_text(context: &Context, retention: Retention) -> Result<Exit, CliError> {
    let plan = PurgePlan {
        retention: Some(retention),
        ..PurgePlan::default()
    };
    let (report, status) = context.purge(&plan, None, &|_| {}).await?;
    context.log_summary(|| purge::log_result(&report));
    Ok(Exit::done_if(status == RunStatus::Done))
}
