//! `topicmill run`: collects posts, labels the backlog, and deletes old post text if `retention.hours` is set.

use clap::Args;

use super::app::{App, CurrentFlags, ModelFlags, PipelineFlags, RunFlags, SmallFlags};
use super::collect::{CollectFlags, Collector};
use super::error::first_error;
use super::{CliError, Exit, backlog, purge};
use crate::classify::Options;
use crate::pipeline::Context;
use crate::purge::{PurgePlan, Retention};
use topicmill_core::RunStatus;
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

/// Returns the retention to apply at the end of a run; `None` if `retention.hours` is not set or the run is stopped.
fn retention(app: &App) -> Option<Retention> {
    let retention = purge::retention_of(app, None).for_daily_runs();
    (retention.hours > 0 && !app.stop.is_cancelled()).then_some(retention)
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

impl Run {
    pub async fn run(self, app: &App) -> Result<Exit, CliError> {
        if self.collect.dry_run {
            let pipeline = app.pipeline(&self.pipeline)?;
            let collector = Collector::open(app, &pipeline, &self.collect).await?;
            return collector
                .print_requests(app, self.collect.output.format)
                .await;
        }
        let prepared = async {
            let pipeline = app.pipeline(&self.pipeline)?;
            let collector = Collector::open(app, &pipeline, &self.collect).await?;
            let set = app.label_set(&self.model, pipeline.label_set)?;
            // The model is loaded first, so that an error does not appear only after an hour of collecting.
            let mut engines = app.engines(&self.model)?;
            app.add_small_model(&mut engines.models, &self.small, &self.model, &set)?;
            Ok::<_, CliError>((collector, set, engines))
        };
        let (collector, set, engines) = match prepared.await {
            Ok(prepared) => prepared,
            Err(error) => {
                // A promise to delete text depends neither on a source nor on a model.
                let retain = async {
                    // Without a database, nothing was ever stored.
                    let Some(retention) = retention(app).filter(|_| !app.is_database_missing())
                    else {
                        return Ok(Exit::Done);
                    };
                    let context = app.context(app.store(Access::Existing).await?);
                    let deleted = delete_old_text(&context, retention).await;
                    context.store.close().await?;
                    deleted
                };
                return first_error(Err(error), retain.await);
            }
        };
        let work = async |context: &Context| {
            let collected = collector.run(app, context).await;
            let is_of_database = |error: &CliError| error.exit() == Exit::Database;
            if app.stop.is_cancelled() || collected.as_ref().is_err_and(is_of_database) {
                return collected;
            }
            // The whole backlog is labelled, even if some topics failed.
            let options = Options {
                make_current: self.current.make_current(),
                ..app.backlog_options()
            };
            let labelled = backlog::label(context, engines, &set, &options).await;
            // Old text is deleted after labelling, but also if that failed.
            let retained = match retention(app) {
                Some(retention) => delete_old_text(context, retention).await,
                None => Ok(Exit::Done),
            };
            first_error(first_error(collected, labelled), retained)
        };
        let exit = self.record.record(app, Access::Create, work).await;
        if matches!(exit, Ok(Exit::Done)) {
            app.log_default_pipeline(&self.pipeline, self.current.make_current());
        }
        exit
    }
}
