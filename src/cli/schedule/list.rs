//! `topicmill schedule list`: shows the last and next run of each schedule, and late, missed and failed runs.

use chrono::TimeDelta;
use clap::Args;
use serde_json::json;

use super::entries;
use crate::cli::setup::PipelineFlags;
use crate::cli::{CliError, Exit, OutputFormat, Setup, output};
use crate::schedule::{Entry, OverdueSchedule, next_due};
use topicmill_core::{MAX_CLOCK_SETBACK, ScheduledRunStatus, Timestamp, format_duration};
use topicmill_store::{Access, ScheduleState, ScheduledRunCount, ScheduledRunRow, Store, Table};

/// The number of days over which failed and missed runs are counted.
const COUNTED_DAYS: i64 = 7;
/// Maximum number of scheduled runs searched for the last one that started; later ones were skipped or are waiting.
const LATEST_RUNS: u32 = 1_000;

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

struct ScheduleOutlook {
    entry: Entry,
    state: ScheduleState,
    last: Option<ScheduledRunRow>,
    counts: Vec<ScheduledRunCount>,
}

impl List {
    pub async fn run(self, setup: &Setup) -> Result<Exit, CliError> {
        let entries = entries(setup, &self.pipeline, &[])?;
        let store = setup.store(Access::ReadOnly).await?;
        let mut all = Vec::with_capacity(entries.len());
        for entry in entries {
            all.push(ScheduleOutlook::read(entry, &store, setup).await?);
        }
        store.close().await?;
        if self.format != OutputFormat::Table {
            output::print_table(&full_table(&all), self.format)?;
            return Ok(Exit::Done);
        }
        output::print_table(&summary_table(&all), self.format)?;
        for note in all.iter().filter_map(ScheduleOutlook::note) {
            output::print(&format!("\n{}", output::wrap(&note)))?;
        }
        Ok(Exit::Done)
    }
}

impl ScheduleOutlook {
    async fn read(entry: Entry, store: &Store, setup: &Setup) -> Result<Self, CliError> {
        let state = store
            .schedules()
            .schedule_state(&entry.name, setup.clock.now().into())
            .await?;
        let now = state.now.as_datetime();
        // Ignore runs far in the future, which were recorded while the clock was wrong.
        let until = (now + MAX_CLOCK_SETBACK).into();
        let latest = store
            .schedules()
            .latest_scheduled_runs(&entry.name, until, LATEST_RUNS)
            .await?;
        let since = (now - TimeDelta::days(COUNTED_DAYS)).into();
        let counts = store
            .schedules()
            .count_scheduled_runs(&entry.name, since, until)
            .await?;
        Ok(Self {
            last: latest.into_iter().find(|run| run.started_at.is_some()),
            entry,
            state,
            counts,
        })
    }

    fn next_due(&self) -> Option<Timestamp> {
        next_due(&self.entry, &self.state)
    }

    fn overdue(&self) -> Option<OverdueSchedule> {
        OverdueSchedule::find(&self.entry, &self.state)
    }

    fn count(&self, status: ScheduledRunStatus) -> u64 {
        let of_status = self.counts.iter().filter(|count| count.status == status);
        of_status.map(|count| count.runs).sum()
    }

    fn missed(&self) -> u64 {
        self.counts.iter().map(|count| count.missed).sum()
    }

    fn seconds_late(&self) -> Option<u64> {
        let last = self.last.as_ref()?;
        let late = last.started_at?.as_datetime() - last.due_at.as_datetime();
        Some(late.num_seconds().max(0).unsigned_abs())
    }

    fn last_status(&self) -> Option<&'static str> {
        let last = self.last.as_ref()?;
        let running = self.state.running.as_ref();
        let crashed = running.is_some_and(|held| held.is_expired);
        Some(match last.status {
            ScheduledRunStatus::Running if crashed => "crashed",
            // The run was stopped, and its lease released.
            ScheduledRunStatus::Waiting => "to resume",
            status => status.as_str(),
        })
    }

    /// Returns the status and how late the run started.
    fn last_status_text(&self) -> Option<String> {
        let ended = self.last_status()?;
        let late = TimeDelta::seconds(self.seconds_late().unwrap_or_default().cast_signed());
        if late < TimeDelta::minutes(1) {
            return Some(ended.to_owned());
        }
        Some(format!("{ended}, {} late", format_duration(late)))
    }

    fn note(&self) -> Option<String> {
        if let Some(overdue) = self.overdue() {
            return Some(overdue.to_string());
        }
        let name = &self.entry.name;
        let last = self.last.as_ref()?;
        let error = last.error.as_ref()?;
        Some(format!(
            "`{name}`, {} UTC, {}: {error}",
            format_time(last.due_at),
            last.status
        ))
    }
}

fn format_time(time: Timestamp) -> String {
    time.as_datetime().format("%Y-%m-%d %H:%M").to_string()
}

fn summary_table(all: &[ScheduleOutlook]) -> Table {
    // 80 columns have no room for the year; the other formats show it.
    let short = |time: Timestamp| time.as_datetime().format("%m-%d %H:%M").to_string();
    let rows = all.iter().map(|schedule| {
        let last = schedule.last.as_ref();
        let last = last.map_or("never".to_owned(), |last| short(last.due_at));
        json!({
            "schedule": schedule.entry.name, "next (UTC)": schedule.next_due().map(short), "last (UTC)": last,
            "ended": schedule.last_status_text(), "failed": schedule.count(ScheduledRunStatus::Failed),
            "missed": schedule.missed(),
        })
    });
    output::table_from_objects(&rows.collect::<Vec<_>>())
}

fn full_table(all: &[ScheduleOutlook]) -> Table {
    let rows = all.iter().map(|schedule| {
        let (entry, last) = (&schedule.entry, schedule.last.as_ref());
        let stages: Vec<String> = entry.stages.iter().map(|words| words.join(" ")).collect();
        json!({
            "schedule": entry.name, "cron": entry.timetable.line(), "timezone": entry.timetable.zone().name(),
            "stages": stages, "catch_up": entry.catch_up, "overlap": entry.overlap,
            "timeout_secs": entry.timeout.map(|timeout| timeout.as_secs()),
            "next_due_at": schedule.next_due(), "last_due_at": last.map(|last| last.due_at),
            "last_status": schedule.last_status(),
            "last_started_at": last.and_then(|last| last.started_at),
            "last_finished_at": last.and_then(|last| last.finished_at),
            "last_late_secs": schedule.seconds_late(), "last_error": last.and_then(|last| last.error.as_ref()),
            "waiting": schedule.state.waiting, "failed_7_days": schedule.count(ScheduledRunStatus::Failed),
            "skipped_7_days": schedule.count(ScheduledRunStatus::Skipped), "missed_7_days": schedule.missed(),
            "behind_since": schedule.overdue().map(|overdue| overdue.due_at),
        })
    });
    output::table_from_objects(&rows.collect::<Vec<_>>())
}
