//! Scheduled runs: what runs when, once, on however many machines.
//!
//! A `[[schedule]]` of a pipeline file is an [`Entry`]: a cron line in a time zone ([`Timetable`]) and stages. The
//! [`Scheduler`] writes each due time into the database, takes it under a lease, and runs its stages. EventKind a stage does
//! is its caller's matter: the caller receives the words of a command line.
//!
//! - A due time has one row, unique by schedule and time. Nothing runs twice, whatever clocks say.
//! - The process that takes it renews a lease, and writes only under the token of that lease.
//! - The lease of a process that crashes expires. The next process continues after the last stage that ended.

mod entry;
mod plan;
mod scheduled_run;
mod scheduler;
mod timetable;

use std::time::Duration;

use topicmill_core::{ScheduledRunStatus, Timestamp};

pub use self::entry::{Entry, STAGES, check_name, words};
pub use self::plan::next_due;
pub use self::scheduled_run::{StageEnd, StageOrder};
pub use self::scheduler::Scheduler;
pub use self::timetable::{Timetable, TimetableError};

/// Something that happened to a scheduled run, for logs, metrics and notifications.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event<'a> {
    /// The schedule.
    pub schedule: &'a str,
    /// When the run was due.
    pub due_at: Timestamp,
    /// EventKind happened.
    pub kind: EventKind<'a>,
}

/// EventKind happened to a scheduled run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventKind<'a> {
    /// No scheduler was there for this many runs, the first of them due at this time.
    Missed(u64, Timestamp),
    /// It does not run, for this reason.
    Skipped(&'a str),
    /// Its stages begin, or continue.
    Started {
        /// How much later than its due time it started first.
        late: Duration,
        /// Processes that crashed with it.
        deaths: u32,
    },
    /// Its stages ended; `waiting` if a signal stopped them, and the next scheduler continues.
    Ended {
        /// Key of its row.
        id: i64,
        /// How it ended.
        status: ScheduledRunStatus,
        /// How long it took in this process.
        took: Duration,
        /// EventKind went wrong.
        error: Option<&'a str>,
    },
    /// Another process took it over, or its end could not be recorded.
    Lost,
}
