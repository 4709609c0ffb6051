//! `topicmill schedule run`: runs the stages of schedules when they are due, until a signal.

use std::time::Duration;

use clap::Args;

use super::{checked_schedules, stage};
use crate::cli::app::{App, PipelineFlags};
use crate::cli::metrics::MetricsFlags;
use crate::cli::{CliError, Exit};
use crate::config::{Origin, WithOrigin};
use crate::schedule::{Ended, ScheduleEntry, Scheduler, StageOrder, record_followed};
use topicmill_store::Access;
use topicmill_store::worker_name;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  topicmill schedule run --pipeline my-topics.toml
  topicmill schedule run --once")]
pub struct Run {
    #[command(flatten)]
    pipeline: PipelineFlags,
    /// Run what is due now and exit; for timers of systemd or cron
    #[arg(long)]
    once: bool,
    #[command(flatten)]
    metrics: MetricsFlags,
}

impl Run {
    pub async fn run(self, app: &App) -> Result<Exit, CliError> {
        let followed = checked_schedules(app, &self.pipeline)?;
        let stages = self.stage_setup(app)?;
        let store = app.store(Access::Create).await?;
        let lease = Duration::from_secs(app.settings().classify.lease_secs);
        let clock = app.clock.clone();
        let work = async |order: StageOrder<'_>| stage::run(&stages, order).await;
        // Only once the metrics have their port: a second scheduler that finds it taken must not be recorded.
        let scheduling = async {
            if !self.once {
                if let Some(file) = app.pipeline_path(&self.pipeline) {
                    record_followed(&store, file, &followed).await?;
                }
                log_schedules(app, &followed);
            }
            let mut scheduler =
                Scheduler::new(store.clone(), clock, worker_name(), lease, followed);
            let ended = scheduler.run(self.once, &app.stop, &work).await;
            ended.map_err(CliError::from)
        };
        let ended = self.metrics.during(app, scheduling).await?;
        store.close().await?;
        if self.once && ended == Ended::default() && !app.stop.is_cancelled() {
            tracing::info!("nothing is due");
        }
        Ok(Exit::done_if(ended.failed == 0 || !self.once))
    }

    /// Returns the settings for stages, with this command's pipeline file as the default.
    fn stage_setup(&self, app: &App) -> Result<App, CliError> {
        let mut loaded = app.loaded.clone();
        if let Some(path) = &self.pipeline.pipeline {
            let absolute = std::path::absolute(path).map_err(|error| {
                CliError::Usage(format!("cannot find `{}`: {error}", path.display()))
            })?;
            let (value, origin) = (absolute.display().to_string(), Origin::Flag);
            let pipeline = WithOrigin { value, origin };
            loaded.values.insert("pipeline".into(), pipeline);
            loaded.settings.pipeline = Some(absolute);
        }
        Ok(App {
            loaded,
            ..app.clone()
        })
    }
}

fn log_schedules(app: &App, entries: &[ScheduleEntry]) {
    for entry in entries {
        let zone = entry.timetable.zone();
        let next = entry.timetable.after(app.clock.now()).map(|next| {
            let local = next.with_timezone(&zone);
            local.format("%Y-%m-%d %H:%M %Z").to_string()
        });
        tracing::info!(schedule = %entry.name, cron = entry.timetable.line(), next, "following a schedule");
    }
}
