//! Defines the run record: the [`RunCounts`] of a stage, stored in the database as JSON.

mod classify;
mod counts;
mod traffic;

pub use self::classify::{ClassifyCounts, ComputeStats, LabelAgreement, RunSettings, StageTimes};
pub use self::counts::{CollectCounts, ImportCounts, PurgeCounts, RunCounts, Upserted};
pub use self::traffic::{QuotaLeft, Traffic, WaitTotal, Waits};
