//! Values that describe the state of the store.

use serde::Serialize;

use super::LabellingState;
use topicmill_core::{RunStatus, Stage, Timestamp};

/// Progress of labelling, counted or estimated.
#[derive(Debug, Clone, PartialEq)]
pub struct About {
    pub standing: LabellingState,
    /// True if the counts of a large database are estimates from a sample.
    pub is_estimate: bool,
}

/// The newest of the stored posts whose dates can be right.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Newest {
    /// When the last new one was stored.
    pub collected_at: Option<Timestamp>,
    /// When the latest of all was posted.
    pub created_at: Option<Timestamp>,
}

/// A label, or one of the two ways to have none, among the newest posts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MixPart {
    /// Its slug, `other` or `unsure`.
    pub label: String,
    /// Posts among the newest.
    pub newer: u64,
    /// Posts among those before them.
    pub older: u64,
}

/// A label set that posts wait for beside the current one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Beside {
    pub model: String,
    pub label_set: String,
    pub label_set_hash: String,
    /// Posts that wait; beyond a hundred thousand nobody counts.
    pub posts: i64,
}

/// Labels beside the current ones that posts have which wait for a current one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LabelledBeside {
    pub model: String,
    /// The hash of its files, by which models of one name are told apart.
    pub model_hash: String,
    pub label_set: String,
    pub label_set_hash: String,
}

/// The runs of a stage since some time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StageRuns {
    pub stage: Stage,
    pub runs: i64,
    /// Runs that ended with an error, or crashed.
    pub failed: i64,
    /// Runs that finished, but not with all rows or topics.
    pub partial: i64,
    /// Posts that they read, labelled, or took out.
    pub posts: i64,
    pub new: i64,
}

/// The last end of a stage.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LastRun {
    pub stage: Stage,
    pub id: i64,
    pub status: RunStatus,
    pub finished_at: Timestamp,
    pub error: Option<String>,
    /// When the latest good run ended: one that did everything, or some of it.
    pub good_at: Option<Timestamp>,
}

impl LastRun {
    /// True if it failed or crashed.
    pub fn is_bad(&self) -> bool {
        matches!(self.status, RunStatus::Failed | RunStatus::Crashed)
    }
}
