//! Reports what happens to scheduled runs: to the log and to monitors.

use std::time::Duration;

use chrono::TimeDelta;

use crate::metrics::Metrics;
use crate::schedule::{Event, EventKind};
use topicmill_core::{ScheduledRunStatus, Timestamp, format_duration};

/// A scheduled run that starts later than this is logged as late.
const LATE: Duration = Duration::from_mins(1);

/// Logs an event of the scheduler and counts it.
pub fn report(metrics: &Metrics, event: &Event<'_>) {
    log(event);
    let schedule = event.schedule;
    match event.kind {
        EventKind::Missed(runs, _) => metrics.scheduled_runs_ended(schedule, "missed", runs),
        EventKind::Skipped(_) => metrics.scheduled_runs_ended(schedule, "skipped", 1),
        EventKind::Started { late, .. } => metrics.scheduled_run_began(schedule, late),
        EventKind::Ended { status, .. } => {
            metrics.scheduled_runs_ended(schedule, status.as_str(), 1);
        }
        EventKind::Lost => {}
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
