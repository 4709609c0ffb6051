//! Values for dropping label sets and models.

use serde::Serialize;

use super::{LabelSetId, ModelId};

/// A label set or a model to drop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DropTarget {
    /// Key in `label_sets`.
    LabelSet(LabelSetId),
    /// Key in `models`.
    Model(ModelId),
}

/// Counts of the rows that belong to a label set or a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Dependents {
    /// Posts with a label under it.
    pub labels: u64,
    /// True if the views show it.
    pub is_current: bool,
    /// Gold labels that refer to the label set and are kept.
    pub gold: u64,
    /// The model's text vectors.
    pub vectors: u64,
    /// Posts that a worker has claimed under it.
    pub claimed: u64,
}
