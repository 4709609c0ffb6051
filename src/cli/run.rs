//! `topicmill run`: collects posts, labels the backlog, and deletes old post text if `retention.hours` is set.

use clap::Args;

use super::app::{App, CurrentFlags, ModelFlags, PipelineFlags, RunFlags, SmallFlags};
use super::collect::{CollectFlags, Collector};
use super::{CliError, Exit, backlog, purge};
use crate::classify::Options;
use crate::pipeline::Context;
use crate::purge::PurgePlan;
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
    flags: CollectFlags,
    #[command(flatten)]
    model: ModelFlags,
    #[command(flatten)]
    small: SmallFlags,
    #[command(flatten)]
    current: CurrentFlags,
    #[command(flatten)]
    record: RunFlags,
}

/// Deletes old post text if `retention.hours` is set.
///
/// Of each day, this is an hour early: otherwise a daily run that is a minute faster than the one before would keep
/// some texts for another day.
async fn retain(app: &App, context: &Context) -> Result<Exit, CliError> {
    let mut retention = purge::retention(app, None);
    retention.hours -= retention.hours / 24;
    if retention.hours == 0 || app.stop.is_cancelled() {
        return Ok(Exit::Done);
    }
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
        let prepared = async {
            let pipeline = app.pipeline(&self.pipeline)?;
            let collector = Collector::open(app, &pipeline, &self.flags).await?;
            let set = app.label_set(&self.model, pipeline.label_set)?;
            // Load the model first, so that an error does not appear only after an hour of collecting.
            let mut engines = app.engines(&self.model)?;
            app.add_small_model(&mut engines.models, &self.small, &self.model, &set)?;
            Ok::<_, CliError>((collector, set, engines))
        };
        let (collector, set, engines) = match prepared.await {
            Ok(prepared) => prepared,
            Err(error) => {
                // A promise to delete text depends neither on a source nor on a model.
                if let Ok(store) = app.store(Access::Existing).await {
                    let context = app.context(store);
                    retain(app, &context).await?;
                    context.store.close().await?;
                }
                return Err(error);
            }
        };
        let both = async |context: &Context| {
            let collected = collector.run(app, context).await;
            let of_database = |error: &CliError| error.exit() == Exit::Database;
            if app.stop.is_cancelled() || collected.as_ref().is_err_and(of_database) {
                return collected;
            }
            // Label the whole backlog, even if some topics failed.
            let options = Options {
                make_current: self.current.make_current(),
                ..app.backlog_options()
            };
            let labelled = backlog::label(context, engines, &set, &options).await;
            // After labelling, but also if it failed.
            let retained = retain(app, context).await?;
            let labelled = labelled?;
            let exits = [collected?, labelled, retained];
            let bad = exits.into_iter().find(|exit| *exit != Exit::Done);
            Ok(bad.unwrap_or(Exit::Done))
        };
        let exit = self.record.record(app, Access::Create, both).await;
        if matches!(exit, Ok(Exit::Done)) {
            app.log_default_pipeline(&self.pipeline, self.current.make_current());
        }
        exit
    }
}
