//! The words of schedules: how a slot stands, and what becomes of slots that were missed or overlap.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::string_enum::UnknownVariant;

string_enum! {
    /// How a slot, a due time of a schedule, stands or ended.
    ScheduledRunStatus {
        /// It fell due, and nobody runs it yet.
        Waiting = "waiting",
        /// Its stages run.
        Running = "running",
        /// Every stage did all of its work.
        Done = "done",
        /// Every stage came to its end; some rows or topics failed.
        Partial = "partial",
        /// A stage failed, or the slot took longer than its timeout.
        Failed = "failed",
        /// A signal stopped it, and nobody goes on.
        Stopped = "stopped",
        /// The slot before it still ran.
        Skipped = "skipped",
        /// Nobody was there to run it.
        Missed = "missed",
    }
}

string_enum! {
    /// What becomes of slots that fell due while no scheduler ran.
    CatchUp {
        /// They are recorded as missed.
        None = "none",
        /// The latest runs, the others are recorded as missed.
        One = "one",
        /// Each of them runs, the earliest first.
        All = "all",
    }
}

string_enum! {
    /// What becomes of a slot that falls due while an earlier one of its schedule still runs.
    Overlap {
        /// It is recorded as skipped.
        Skip = "skip",
        /// It runs after the earlier one.
        Queue = "queue",
    }
}
