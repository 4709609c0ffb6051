//! Reports what happens to scheduled runs: to the log, to monitors, and by notifications.

use std::sync::Arc;
use std::time::Duration;

use chrono::TimeDelta;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::cli::setup::Setup;
use crate::metrics::Metrics;
use crate::notify::EndedWork;
use crate::schedule::{Event, EventKind};
use topicmill_core::record::RunCounts;
use topicmill_core::{RunStatus, ScheduledRunStatus, Timestamp, format_duration};
use topicmill_store::Store;
use topicmill_store::worker_name;

/// A scheduled run that starts later than this is logged as late.
const LATE: Duration = Duration::from_mins(1);

/// Receives all events of a scheduler.
pub struct Reporter {
    metrics: Arc<Metrics>,
    ended: mpsc::UnboundedSender<EndedRun>,
    /// The task that sends notifications. Sending may take seconds, which must not delay scheduled runs.
    notifier: JoinHandle<()>,
}

struct EndedRun {
    id: i64,
    what: String,
    status: RunStatus,
    error: Option<String>,
}

impl Reporter {
    pub fn start(setup: &Setup, store: &Store) -> Self {
        let (sender, mut ended) = mpsc::unbounded_channel::<EndedRun>();
        let (store, clock, notify) = (store.clone(), setup.clock.clone(), setup.notify.clone());
        let notifier = tokio::spawn(async move {
            let worker = worker_name();
            while let Some(run) = ended.recv().await {
                let ended = EndedWork {
                    what: &run.what,
                    run: run.id,
                    status: run.status,
                    counts: &RunCounts::Unknown,
                    error: run.error.as_deref(),
                    worker: &worker,
                };
                notify.notify_ended(&store, &ended, clock.now()).await;
            }
        });
        Self {
            metrics: setup.metrics.clone(),
            ended: sender,
            notifier,
        }
    }

    pub fn report(&self, event: &Event<'_>) {
        log(event);
        let schedule = event.schedule;
        match event.kind {
            EventKind::Missed(runs, _) => {
                self.metrics.scheduled_runs_ended(schedule, "missed", runs);
            }
            EventKind::Skipped(_) => self.metrics.scheduled_runs_ended(schedule, "skipped", 1),
            EventKind::Started { late, .. } => self.metrics.scheduled_run_began(schedule, late),
            EventKind::Ended {
                id, status, error, ..
            } => {
                self.metrics
                    .scheduled_runs_ended(schedule, status.as_str(), 1);
                let status = match status {
                    ScheduledRunStatus::Failed => RunStatus::Failed,
                    ScheduledRunStatus::Done => RunStatus::Done,
                    ScheduledRunStatus::Partial => RunStatus::Partial,
                    _ => return,
                };
                // The receiver lives until `end`, so this cannot fail.
                let _ = self.ended.send(EndedRun {
                    id,
                    what: format!("schedule {schedule}"),
                    status,
                    error: error.map(str::to_owned),
                });
            }
            EventKind::Lost => {}
        }
    }

    /// Returns once all notifications have been sent.
    pub async fn end(self) {
        drop(self.ended);
        // The task ends when the channel closes. A panic in it has already been printed.
        let _ = self.notifier.await;
    }
}

fn log(event: &Event<'_>) {
    let utc = |time: Timestamp| time.as_datetime().format("%Y-%m-%d %H:%M UTC");
    let (schedule, due) = (event.schedule, utc(event.due_at));
    match event.kind {
        EventKind::Missed(runs, since) => {
            tracing::warn!(schedule, runs, since = %utc(since), "scheduled runs were missed: no scheduler was running");
        }
        EventKind::Skipped(why) => {
            tracing::warn!(schedule, %due, "a scheduled run is skipped: {why}");
        }
        EventKind::Started { late, crashes } => {
            let late = TimeDelta::from_std(late).ok().filter(|_| late > LATE);
            let late = late.map(format_duration);
            let crashes = Some(crashes).filter(|crashes| *crashes > 0);
            tracing::info!(schedule, %due, late, crashes, "a scheduled run starts");
        }
        EventKind::Ended {
            status,
            took,
            error,
            ..
        } => {
            let secs = took.as_secs();
            match (status, error.unwrap_or_default()) {
                (ScheduledRunStatus::Failed, error) => {
                    tracing::error!(schedule, %due, secs, "a scheduled run failed: {error}");
                }
                (ScheduledRunStatus::Waiting, _) => {
                    tracing::info!(schedule, %due, secs, "a scheduled run was stopped, and continues when a scheduler \
                                                          runs again");
                }
                (status, "") => {
                    tracing::info!(schedule, %due, secs, %status, "a scheduled run ended");
                }
                (status, error) => {
                    tracing::warn!(schedule, %due, secs, %status, "a scheduled run ended: {error}");
                }
            }
        }
        EventKind::Lost => {
            tracing::warn!(
                schedule,
                %due,
                "lost the lease of a scheduled run: another process is now running it, or its end could not be recorded"
            );
        }
    }
}
