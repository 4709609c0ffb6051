//! Scheduled runs: executes the stages of schedules at their due times, exactly once across any number of machines.
//!
//! A `[[schedule]]` of a pipeline file is an [`ScheduleEntry`]: a cron line in a time zone ([`Timetable`]) and stages.
//! The [`Scheduler`] inserts a row for each due time, under a lease, and runs its stages. The caller executes a stage:
//! it receives the words of a command line.
//!
//! - A due time has at most one row, unique by schedule and time. Nothing runs twice, whatever the clocks show.
//! - The process that claims a run renews its lease and writes only under that lease's fencing token.

mod decide;
mod followed;
mod overdue;
mod scheduled_run;
mod scheduler;
mod timetable;

use std::time::Duration;

pub use self::decide::next_due;
pub use self::followed::{has_file_changed, record_followed};
pub use self::overdue::OverdueSchedule;
pub use self::scheduled_run::{StageEnd, StageOrder};
pub use self::scheduler::{Ended, Scheduler};
pub use self::timetable::Timetable;

/// A validated `[[schedule]]` of a pipeline file: what to run, and when.
#[derive(Debug, Clone, PartialEq)]
pub struct ScheduleEntry {
    /// The unique name.
    pub name: String,
    /// The due times.
    pub timetable: Timetable,
    /// The command lines, as words without the program's name, run one after another.
    pub stages: Vec<Vec<String>>,
    /// The maximum duration of a run.
    pub timeout: Option<Duration>,
}
