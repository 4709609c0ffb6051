//! `topicmill schedule run`: runs the stages of schedules when they are due, until a signal.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use clap::Args;

use super::{entries, reporter, stage};
use crate::cli::metrics::MetricsFlags;
use crate::cli::setup::{PipelineFlags, Setup};
use crate::cli::{CliError, Exit};
use crate::config::Origin;
use crate::schedule::{Entry, Event, Scheduler, StageOrder};
use topicmill_core::ScheduledRunStatus;
use topicmill_store::Access;
use topicmill_store::worker_name;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  topicmill schedule run --pipeline my-topics.toml
  topicmill schedule run --once --schedule nightly")]
pub struct Run {
    #[command(flatten)]
    pipeline: PipelineFlags,
    /// Run only the schedule NAME; repeatable
    #[arg(long = "schedule", value_name = "NAME")]
    schedules: Vec<String>,
    /// Run what is due now and exit; for timers of systemd, cron or Kubernetes
    #[arg(long)]
    once: bool,
    #[command(flatten)]
    metrics: MetricsFlags,
}

impl Run {
    pub async fn run(self, setup: &Setup) -> Result<Exit, CliError> {
        self.metrics.check()?;
        // Created before the pipeline file is read, so that every later change is detected.
        let mut file = WatchedFile::new(setup.pipeline_path(&self.pipeline));
        let followed = entries(setup, &self.pipeline, &self.schedules)?;
        let stages = self.stage_setup(setup)?;
        let store = setup.store(Access::Create).await?;
        let metrics = self.metrics.start(setup).await?;
        let lease = Duration::from_secs(setup.settings().classify.lease_secs);
        let clock = setup.clock.clone();
        let mut scheduler = Scheduler::new(store.clone(), clock, worker_name(), lease);
        let work = async |order: StageOrder<'_>| stage::run(&stages, order).await;
        let ended = {
            let on_event = |event: &Event<'_>| reporter::report(&setup.metrics, event);
            if self.once {
                scheduler = scheduler.started_when_due();
                let next = next_due(setup, &followed);
                scheduler.follow(followed);
                let ended = scheduler.run_due(&setup.stop, &work, &on_event).await;
                if ended.as_ref().is_ok_and(Vec::is_empty) && !setup.stop.is_cancelled() {
                    tracing::info!("nothing is due; next: {next}");
                }
                ended
            } else {
                log_schedules(setup, &followed);
                scheduler.follow(followed);
                let reload = || {
                    file.has_changed().then_some(())?;
                    self.reload(setup)
                };
                let kept = scheduler
                    .run_until_stopped(&setup.stop, reload, &work, &on_event)
                    .await;
                kept.map(|()| Vec::new())
            }
        };
        let is_good = |(_, status): &(String, Option<ScheduledRunStatus>)| {
            !matches!(
                status,
                Some(ScheduledRunStatus::Failed | ScheduledRunStatus::Partial)
            )
        };
        let exit = Exit::done_if(ended?.iter().all(is_good));
        if let Some(metrics) = metrics {
            metrics.close().await;
        }
        store.close().await?;
        Ok(exit)
    }

    /// Returns the settings for stages, with this command's pipeline file as the default.
    fn stage_setup(&self, setup: &Setup) -> Result<Setup, CliError> {
        let mut loaded = setup.loaded.clone();
        if let Some(path) = &self.pipeline.pipeline {
            let path = std::path::absolute(path).map_err(|error| {
                CliError::Usage(format!("cannot find `{}`: {error}", path.display()))
            })?;
            let shown = path.display().to_string();
            loaded
                .values
                .insert("pipeline".into(), (shown, Origin::Flag));
            loaded.settings.pipeline = path;
        }
        Ok(Setup {
            loaded,
            ..setup.clone()
        })
    }

    /// Reads the schedules of a changed file. Returns `None` if it is invalid; the previous schedules are then kept.
    fn reload(&self, setup: &Setup) -> Option<Vec<Entry>> {
        match entries(setup, &self.pipeline, &self.schedules) {
            Ok(entries) => {
                tracing::info!("the pipeline file changed: reloaded its schedules");
                log_schedules(setup, &entries);
                Some(entries)
            }
            Err(error) => {
                tracing::warn!(
                    "the pipeline file changed but is invalid: keeping the previous schedules: {error}"
                );
                None
            }
        }
    }
}

/// Returns the name and the time of the schedule that is due next.
fn next_due(setup: &Setup, entries: &[Entry]) -> String {
    let now = setup.clock.now();
    let next = entries
        .iter()
        .filter_map(|entry| Some((entry.timetable.after(now)?, &entry.name)))
        .min();
    next.map_or("nothing".to_owned(), |(at, name)| {
        format!("{name} at {} UTC", at.format("%Y-%m-%d %H:%M"))
    })
}

fn log_schedules(setup: &Setup, entries: &[Entry]) {
    for entry in entries {
        let next = entry.timetable.after(setup.clock.now());
        let next = next.map(|next| next.with_timezone(&entry.timetable.zone()));
        let next = next.map(|next| next.format("%Y-%m-%d %H:%M %Z").to_string());
        tracing::info!(schedule = %entry.name, cron = entry.timetable.line(), next, "following a schedule");
    }
}

struct WatchedFile {
    path: Option<PathBuf>,
    seen: Option<(SystemTime, u64)>,
}

impl WatchedFile {
    fn new(path: Option<&std::path::Path>) -> Self {
        let mut file = Self {
            path: path.map(PathBuf::from),
            seen: None,
        };
        file.seen = file.read_metadata();
        file
    }

    fn read_metadata(&self) -> Option<(SystemTime, u64)> {
        let found = std::fs::metadata(self.path.as_ref()?).ok()?;
        Some((found.modified().ok()?, found.len()))
    }

    /// Returns true if the file has changed since the last call.
    fn has_changed(&mut self) -> bool {
        let found = self.read_metadata();
        let changed = found != self.seen;
        self.seen = found;
        changed
    }
}
