//! Scheduled runs: executes the stages of schedules at their due times, exactly once across any number of machines.
//!
//! A `[[schedule]]` of a pipeline file is an [`Entry`]: a cron line in a time zone ([`Timetable`]) and stages. The
//! [`Scheduler`] writes each due time into the database, claims it under a lease, and runs its stages. The caller
//! executes a stage: it receives the words of a command line.
//!
//! - A due time has one row, unique by schedule and time. Nothing runs twice, whatever the clocks show.
//! - The process that claims a run renews its lease and writes only under that lease's fencing token.

mod entry;
mod overdue;
mod plan;
mod scheduled_run;
mod scheduler;
mod timetable;

use std::time::Duration;

use topicmill_core::{ScheduledRunStatus, Timestamp};

pub use self::entry::{Entry, STAGES, check_name, words};
pub use self::overdue::OverdueSchedule;
pub use self::plan::next_due;
pub use self::scheduled_run::{StageEnd, StageOrder};
pub use self::scheduler::Scheduler;
pub use self::timetable::{Timetable, TimetableError};

/// Something that happened to a scheduled run, for logs, metrics and notifications.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event<'a> {
    /// The schedule.
    pub schedule: &'a str,
    /// The time at which the run was due.
    pub due_at: Timestamp,
    /// The kind of event.
    pub kind: EventKind<'a>,
}

/// The kinds of events of a scheduled run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventKind<'a> {
    /// This many runs were missed because no scheduler was running; the first of them was due at this time.
    Missed(u64, Timestamp),
    /// It is skipped, for this reason.
    Skipped(&'a str),
    /// It starts or resumes.
    Started {
        /// The delay of its first start after the due time.
        late: Duration,
        /// The number of processes that crashed while running it.
        crashes: u32,
    },
    /// Its stages ended. The status is `waiting` if a signal stopped them, and the next scheduler resumes the run.
    Ended {
        /// The key of its row.
        id: i64,
        /// The status that it ended with.
        status: ScheduledRunStatus,
        /// Its duration in this process.
        took: Duration,
        /// Its error.
        error: Option<&'a str>,
    },
    /// Another process reclaimed it, or its end could not be recorded.
    Lost,
}
