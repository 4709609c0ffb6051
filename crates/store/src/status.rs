//! Values that describe the state of the store: progress of labelling, backlogs and runs.

use serde::Serialize;

use super::{LabellingState, RunId};
use topicmill_core::{RunStatus, Stage, Timestamp};

/// Progress of labelling, counted or estimated.
#[derive(Debug, Clone, PartialEq)]
pub struct LabellingEstimate {
    pub state: LabellingState,
    /// True if the counts of a large database are estimates from a sample.
    pub is_estimate: bool,
}

/// Times of the newest posts, ignoring times in the future.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct NewestPost {
    /// When the last post was stored.
    pub collected_at: Option<Timestamp>,
    /// When the newest post was posted.
    pub created_at: Option<Timestamp>,
}

/// Totals over a stage's runs since a given time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StageRuns {
    pub stage: Stage,
    pub runs: i64,
    /// Runs that failed or crashed.
    pub failed: i64,
    /// Runs that finished, but with some failed rows or topics.
    pub partial: i64,
    /// Posts that were read, labelled or purged.
    pub posts: i64,
    pub new: i64,
}

/// The last ended run of a stage.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LastRun {
    pub stage: Stage,
    pub id: RunId,
    pub status: RunStatus,
    pub finished_at: Timestamp,
    pub error: Option<String>,
    /// When the latest good run ended. A good run finished at least some of its work.
    pub good_at: Option<Timestamp>,
    /// Number of partial runs after it, which therefore did nothing.
    pub idle: i64,
}

impl LastRun {
    /// Returns what a monitor reports about the run: that it failed or crashed, or was not the first one that did
    /// nothing, because a temporary failure may be over at the next run.
    pub fn problem(&self) -> Option<&'static str> {
        match self.status {
            RunStatus::Failed => Some("failed"),
            RunStatus::Crashed => Some("crashed"),
            RunStatus::Partial if self.idle > 1 => Some("did nothing, like the one before"),
            _ => None,
        }
    }
}
