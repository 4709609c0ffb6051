//! Defines the stages of the pipeline, and the status of a run.

string_enum! {
    /// A stage of the pipeline; each run has one.
    Stage {
        /// Fetches posts from Reddit or an archive into the store.
        Collect = "collect",
        /// Reads posts from files into the store.
        Import = "import",
        /// Labels and scores stored posts.
        Classify = "classify",
        /// Removes posts that are gone from Reddit or past their retention.
        Purge = "purge",
    }
}

string_enum! {
    /// The status of a run.
    RunStatus {
        /// Not finished.
        Running = "running",
        /// Everything requested was done.
        Done = "done",
        /// Some rows or topics failed, or a temporary failure ended the run.
        Partial = "partial",
        /// Ended by an error.
        Failed = "failed",
        /// Cancelled by a signal, after draining.
        Stopped = "stopped",
        /// The process exited without recording an end, or its heartbeat expired.
        Crashed = "crashed",
    }
}
