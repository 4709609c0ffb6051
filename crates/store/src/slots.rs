//! Slots of schedules, as they go into the store and come out of it.

use std::time::Duration;

use serde_json::Value;

use topicmill_core::{ScheduledRunStatus, Timestamp};

/// Error of a scheduled run that was given up.
pub const DEADLY: &str =
    "each process that took it died: see its log, or the kernel's for one that ran out of memory";

/// The state of a schedule, as of one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScheduleState {
    /// The time of the database's clock.
    pub now: Timestamp,
    /// Time up to which it was planned, and the timetable; `None` before the first plan.
    pub planned: Option<Planned>,
    pub running: Option<RunningSlot>,
    pub waiting: u64,
}

/// Slots up to this time have rows, or were counted as missed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Planned {
    pub until: Timestamp,
    /// The cron line by which it was planned last.
    pub cron: String,
    pub timezone: String,
}

/// A slot that somebody took.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunningSlot {
    /// The worker, and the fencing token.
    pub lease: SlotLease,
    /// When it was due.
    pub due_at: Timestamp,
    pub started_at: Timestamp,
    pub worker: String,
    pub is_expired: bool,
}

/// A claim on a slot: its key, and the fencing token under which alone its holder may write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlotLease {
    pub slot: i64,
    /// Attempts so far.
    pub take: i64,
}

/// Slots to write, and how far they go.
#[derive(Debug, Clone)]
pub struct SlotPlan<'a> {
    pub name: &'a str,
    pub cron: &'a str,
    pub timezone: &'a str,
    /// Time up to which it was planned before.
    pub from: Option<Timestamp>,
    /// Time up to which it is planned now.
    pub until: Timestamp,
    pub slots: &'a [NewSlot],
}

/// A slot to write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewSlot {
    pub due_at: Timestamp,
    /// [`ScheduledRunStatus::Waiting`], or that it does not run.
    pub status: ScheduledRunStatus,
    /// Slots right before it that nobody ran and that have no rows, and the first of them; itself if it is missed.
    pub missed: Option<(u64, Timestamp)>,
    pub error: Option<String>,
}

/// The worker that takes a scheduled run.
#[derive(Debug, Clone, Copy)]
pub struct SlotTaker<'a> {
    pub worker: &'a str,
    /// For how long, unless it is renewed.
    pub lease: Duration,
}

/// A slot that was taken.
#[derive(Debug, Clone, PartialEq)]
pub struct TakenSlot {
    pub lease: SlotLease,
    pub due_at: Timestamp,
    pub started_at: Timestamp,
    /// Processes that died of it, or with it.
    pub deaths: u32,
    /// Slots right before it that nobody ran.
    pub missed: u64,
    /// Entries of the stages that ended before it was taken over.
    pub outcomes: Vec<Value>,
}

/// The end of a scheduled run.
#[derive(Debug, Clone, PartialEq)]
pub struct SlotEnd {
    /// Its new status; [`ScheduledRunStatus::Waiting`] releases it.
    pub status: ScheduledRunStatus,
    /// One entry a stage that ended.
    pub outcomes: Vec<Value>,
    pub error: Option<String>,
}

/// A slot, as it is shown.
#[derive(Debug, Clone, PartialEq)]
pub struct SlotRow {
    pub id: i64,
    pub schedule: String,
    pub due_at: Timestamp,
    pub status: ScheduledRunStatus,
    /// Slots right before it that nobody ran.
    pub missed: u64,
    pub worker: Option<String>,
    pub started_at: Option<Timestamp>,
    pub finished_at: Option<Timestamp>,
    pub outcomes: Value,
    pub error: Option<String>,
}

/// The number of scheduled runs with a status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlotCount {
    pub status: ScheduledRunStatus,
    pub slots: u64,
    /// Slots that have no rows, because nobody ran them.
    pub missed: u64,
}
