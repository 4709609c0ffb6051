//! Scheduled runs: executes the stages of schedules at their due times, exactly once across any number of machines.
//!
//! A `[[schedule]]` of a pipeline file is an [`ScheduleEntry`]: a cron line in a time zone ([`Timetable`]) and stages. The
//! [`Scheduler`] inserts a row for each due time, under a lease, and runs its stages. The caller executes a stage: it
//! receives the words of a command line.
//!
//! - A due time has at most one row, unique by schedule and time. Nothing runs twice, whatever the clocks show.
//! - The process that claims a run renews its lease and writes only under that lease's fencing token.

mod decide;
mod entry;
mod followed;
mod overdue;
mod scheduled_run;
mod scheduler;
mod timetable;

pub use self::decide::next_due;
pub use self::entry::ScheduleEntry;
pub use self::followed::{has_file_changed, record_followed};
pub use self::overdue::OverdueSchedule;
pub use self::scheduled_run::{StageEnd, StageOrder};
pub use self::scheduler::{Ended, Scheduler};
pub use self::timetable::Timetable;
