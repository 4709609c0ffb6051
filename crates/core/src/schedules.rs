//! Defines the status of a scheduled run.

string_enum! {
    /// The status of a scheduled run.
    ScheduledRunStatus {
        /// Its stages are running, or a signal or a crash interrupted them and a scheduler will resume it.
        Running = "running",
        /// Every stage did all of its work.
        Done = "done",
        /// Some rows or topics failed, or a temporary failure ended a stage.
        Partial = "partial",
        /// A stage failed, or the timeout passed.
        Failed = "failed",
        /// Interrupted by a signal or a crash, and not resumed before the next due time.
        Stopped = "stopped",
        /// Not started.
        Skipped = "skipped",
    }
}
