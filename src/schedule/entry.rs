//! One `[[schedule]]` entry of a pipeline file, already validated.

use std::time::Duration;

use super::timetable::Timetable;

/// A schedule: what to run, and when.
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
