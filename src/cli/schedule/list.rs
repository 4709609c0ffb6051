//! `topicmill schedule list`: shows the last and next run of each schedule.

use clap::Args;
use serde_json::{Value, json};

use super::checked_schedules;
use crate::cli::app::PipelineFlags;
use crate::cli::{App, CliError, Exit, OutputFormat, output};
use crate::schedule::{OverdueSchedule, ScheduleEntry, next_due};
use topicmill_core::{MAX_CLOCK_SETBACK, ScheduledRunStatus};
use topicmill_store::{Access, ScheduleState, ScheduledRunRow};

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  topicmill schedule list --pipeline my-topics.toml
  topicmill schedule list --format json")]
pub struct List {
    #[command(flatten)]
    pipeline: PipelineFlags,
    /// Set the output format
    #[arg(long, value_enum, default_value_t)]
    format: OutputFormat,
}

impl List {
    pub async fn run(self, app: &App) -> Result<Exit, CliError> {
        let entries = checked_schedules(app, &self.pipeline)?;
        let store = app.store(Access::ReadOnly).await?;
        let now = app.clock.now();
        let until = (now + MAX_CLOCK_SETBACK).into();
        let schedules = store.schedules();
        let last_runs = schedules.last_scheduled_runs(until).await?;
        let mut rows = Vec::with_capacity(entries.len());
        for entry in &entries {
            let state = schedules.schedule_state(&entry.name, now.into()).await?;
            let last = last_runs.iter().find(|last| last.schedule == entry.name);
            rows.push(row(entry, &state, last));
        }
        store.close().await?;
        output::print_table(&output::table_from_objects(COLUMNS, &rows), self.format)?;
        Ok(Exit::Done)
    }
}

const COLUMNS: &str = "schedule, next_due_at, last_due_at, last_started_at, last_finished_at, last_status, last_error, \
                       overdue_since";

fn row(entry: &ScheduleEntry, state: &ScheduleState, last: Option<&ScheduledRunRow>) -> Value {
    let is_lost = state.running.as_ref().is_some_and(|held| held.is_expired);
    let status = last.map(|last| match last.status {
        ScheduledRunStatus::Running if is_lost => "interrupted",
        status => status.as_str(),
    });
    json!({
        "schedule": entry.name, "next_due_at": next_due(entry, state),
        "last_due_at": last.map(|last| last.due_at), "last_started_at": last.map(|last| last.started_at),
        "last_finished_at": last.and_then(|last| last.finished_at), "last_status": status,
        "last_error": last.and_then(|last| last.error.as_ref()),
        "overdue_since": OverdueSchedule::find(entry, state).map(|overdue| overdue.due_at),
    })
}
