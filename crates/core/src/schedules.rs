//! Defines the status of a scheduled run, and the policies for missed and overlapping runs.

string_enum! {
    /// The status of a scheduled run.
    ScheduledRunStatus {
        /// Due, and not started yet.
        Waiting = "waiting",
        /// Its stages are running.
        Running = "running",
        /// Every stage did all of its work.
        Done = "done",
        /// Every stage finished, but some rows or topics failed.
        Partial = "partial",
        /// A stage failed, or the timeout passed.
        Failed = "failed",
        /// Cancelled by a signal, and not resumed.
        Stopped = "stopped",
        /// Not started, because the previous run of the schedule was still running.
        Skipped = "skipped",
        /// Not started, because no scheduler was running.
        Missed = "missed",
    }
}

string_enum! {
    /// The policy for scheduled runs that fell due while no scheduler was running.
    CatchUp {
        /// All are recorded as missed.
        None = "none",
        /// The latest one runs; the others are recorded as missed.
        One = "one",
        /// All run, the earliest first.
        All = "all",
    }
}

string_enum! {
    /// The policy for a scheduled run that falls due while an earlier one is still running.
    Overlap {
        /// The later run is recorded as skipped.
        Skip = "skip",
        /// The later run starts after the earlier one.
        Queue = "queue",
    }
}
