//! Values of scheduled runs, as they are written to the store and read from it.

use std::time::Duration;

use serde_json::Value;

use topicmill_core::{ScheduledRunStatus, Timestamp};

/// Error of a scheduled run that crashed too many processes.
pub const CRASHED_TOO_OFTEN: &str =
    "each process that ran it crashed: see their logs, or the kernel log if memory ran out";

/// The state of a schedule at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScheduleState {
    /// The time by the database's clock.
    pub now: Timestamp,
    /// `None` before the first planning.
    pub planned: Option<PlanningState>,
    pub running: Option<RunningScheduledRun>,
    /// The number of runs that are waiting.
    pub waiting: u64,
}

/// The last planning of a schedule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlanningState {
    /// Due times up to this one have rows, or are counted as missed.
    pub until: Timestamp,
    /// The cron line of the last planning.
    pub cron: String,
    pub timezone: String,
}

/// A scheduled run that a process has claimed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunningScheduledRun {
    pub lease: ScheduledRunLease,
    pub due_at: Timestamp,
    pub started_at: Timestamp,
    pub worker: String,
    /// True if another process may reclaim it.
    pub is_expired: bool,
}

/// A lease on a scheduled run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScheduledRunLease {
    /// Key in `scheduled_runs`.
    pub id: i64,
    /// The fencing token: only the holder of the latest one may write.
    pub token: i64,
}

/// The runs to write for a schedule, and the time range that they cover.
#[derive(Debug, Clone)]
pub struct SchedulePlan<'a> {
    pub name: &'a str,
    pub cron: &'a str,
    pub timezone: &'a str,
    /// The end of the previous plan.
    pub from: Option<Timestamp>,
    /// The end of this plan.
    pub until: Timestamp,
    pub runs: &'a [PlannedRun],
}

/// A scheduled run to write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedRun {
    pub due_at: Timestamp,
    /// [`ScheduledRunStatus::Waiting`], or why it does not run.
    pub status: ScheduledRunStatus,
    /// The number of missed due times directly before this run that have no rows, and the first of them. If this run
    /// was itself missed, it counts as one of them.
    pub missed: Option<(u64, Timestamp)>,
    pub error: Option<String>,
}

/// The process that claims a scheduled run.
#[derive(Debug, Clone, Copy)]
pub struct ScheduledRunClaimant<'a> {
    pub worker: &'a str,
    /// Time until the lease expires, unless it is renewed.
    pub lease: Duration,
}

/// A scheduled run that was just claimed.
#[derive(Debug, Clone, PartialEq)]
pub struct ClaimedScheduledRun {
    pub lease: ScheduledRunLease,
    pub due_at: Timestamp,
    /// When a process first claimed it.
    pub started_at: Timestamp,
    /// The number of processes that crashed while running it.
    pub crashes: u32,
    /// The number of missed due times directly before it.
    pub missed: u64,
    /// Entries of the stages that ended before it was reclaimed.
    pub outcomes: Vec<Value>,
}

/// The end of a scheduled run.
#[derive(Debug, Clone, PartialEq)]
pub struct ScheduledRunEnd {
    /// Its new status; [`ScheduledRunStatus::Waiting`] releases the lease.
    pub status: ScheduledRunStatus,
    /// One entry for each stage that ended.
    pub outcomes: Vec<Value>,
    pub error: Option<String>,
}

/// A row of `scheduled_runs`.
#[derive(Debug, Clone, PartialEq)]
pub struct ScheduledRunRow {
    pub id: i64,
    pub schedule: String,
    pub due_at: Timestamp,
    pub status: ScheduledRunStatus,
    /// The number of missed due times directly before it.
    pub missed: u64,
    pub worker: Option<String>,
    pub started_at: Option<Timestamp>,
    pub finished_at: Option<Timestamp>,
    pub outcomes: Value,
    pub error: Option<String>,
}

/// The number of scheduled runs with a status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScheduledRunCount {
    pub status: ScheduledRunStatus,
    pub runs: u64,
    /// The number of missed due times that have no rows.
    pub missed: u64,
}
