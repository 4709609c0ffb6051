//! Effects of dropping label sets and models, and of thinning.

use serde::Serialize;

/// An object to drop from the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dropped {
    /// A row of `label_sets`.
    LabelSet(i64),
    /// A row of `models`.
    Model(i64),
}

/// The rows that belong to it.
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

/// The rows that were removed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Thinned {
    /// Sightings that went.
    pub sightings: u64,
    /// Runs that were summed up.
    pub runs: u64,
}
