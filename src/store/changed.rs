//! What taking label sets and models out, renaming a topic and thinning change.

use serde::Serialize;

/// What is taken out of the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dropped {
    /// A row of `label_sets`.
    LabelSet(i64),
    /// A row of `models`.
    Model(i64),
}

/// What belongs to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Hanging {
    /// Posts with a label under it.
    pub labels: u64,
    /// The views show it.
    pub is_current: bool,
    /// Answers of people about its labels; they stay.
    pub gold: u64,
    /// Vectors of texts that a model made.
    pub vectors: u64,
    /// Posts that a worker labels under it just now.
    pub held: u64,
}

/// What has another slug now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Renamed {
    /// Posts that were collected for the topic.
    pub posts: u64,
    /// Sightings for the topic.
    pub sightings: u64,
    /// Places up to which it was read, and gaps.
    pub watermarks: u64,
    /// Label sets that have it as a label.
    pub label_sets: u64,
    /// Posts that have it as their label.
    pub labels: u64,
    /// Answers of people.
    pub gold: u64,
}

/// What became less.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Thinned {
    /// Sightings that went.
    pub sightings: u64,
    /// Runs that were summed up.
    pub runs: u64,
}
