//! Overdue schedules: a due time has passed, and it has no row.

use std::fmt;

use chrono::TimeDelta;
use serde::Serialize;

use super::ScheduleEntry;
use super::decide::utc;
use topicmill_core::Timestamp;
use topicmill_store::ScheduleState;

/// A due time without a row after this time shows that no scheduler is running.
const OVERDUE_AFTER: TimeDelta = TimeDelta::minutes(3);

/// A schedule whose due time no scheduler has handled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct OverdueSchedule {
    /// The schedule.
    pub schedule: String,
    /// The due time of the first run that no scheduler has started or skipped.
    pub due_at: Timestamp,
}

impl OverdueSchedule {
    /// Returns the schedule if it is overdue.
    pub fn find(entry: &ScheduleEntry, state: &ScheduleState) -> Option<Self> {
        let due = entry.timetable.after(state.latest?.as_datetime())?;
        (state.now.as_datetime() - due > OVERDUE_AFTER).then(|| Self {
            schedule: entry.name.clone(),
            due_at: due.into(),
        })
    }
}

impl fmt::Display for OverdueSchedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "`{}` was due at {}, but no scheduler is running: start `topicmill schedule run`, or check its log",
            self.schedule,
            utc(self.due_at)
        )
    }
}
