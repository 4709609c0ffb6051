//! Values of scheduled runs, as they are written to the store and read from it.

use std::time::Duration;

use serde::Serialize;
use serde_json::Value;

use topicmill_core::{ScheduledRunStatus, Timestamp};

/// The state of a schedule at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScheduleState {
    /// The time by the database's clock.
    pub now: Timestamp,
    /// The latest due time that has a row; `None` for a new schedule.
    pub latest: Option<Timestamp>,
    pub running: Option<RunningScheduledRun>,
}

/// A scheduled run that a process has claimed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunningScheduledRun {
    pub lease: ScheduledRunLease,
    pub due_at: Timestamp,
    pub worker: String,
    pub lease_until: Timestamp,
    /// Entries of the stages that ended.
    pub outcomes: Vec<Value>,
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
    /// Entries of the stages that ended before it was reclaimed.
    pub outcomes: Vec<Value>,
}

/// The end of a scheduled run.
#[derive(Debug, Clone, PartialEq)]
pub struct ScheduledRunEnd {
    pub status: ScheduledRunStatus,
    /// One entry for each stage that ended.
    pub outcomes: Vec<Value>,
    pub error: Option<String>,
}

/// A row of `scheduled_runs`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ScheduledRunRow {
    pub schedule: String,
    pub due_at: Timestamp,
    pub status: ScheduledRunStatus,
    pub started_at: Timestamp,
    pub finished_at: Option<Timestamp>,
    pub error: Option<String>,
}
