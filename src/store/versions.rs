//! What the store tells of models, versions of label sets, and labels under them.

use serde::Serialize;

use crate::domain::{TextHash, Timestamp};

/// A label set as stored, but for its labels.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LabelSetRow {
    /// Key in `label_sets`; later versions have greater ones.
    pub id: i64,
    /// For people; several versions may share it.
    pub name: String,
    /// The version.
    pub hash: String,
    /// When the version was first used.
    pub created_at: Timestamp,
}

/// What it takes to label every post under a model and a label set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Cost {
    /// Posts that are labelled under them already.
    pub labelled: u64,
    /// Posts that are not, and have a text.
    pub posts: u64,
    /// Their texts, equal ones once.
    pub texts: u64,
    /// How many of them need no inference: all of their pairs are stored.
    pub posts_without_inference: u64,
    /// Pairs of their texts and the labels that are stored.
    pub pairs_stored: u64,
    /// Pairs that the model would compute.
    pub pairs_missing: u64,
}

/// A post with what it is labelled as.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LabelledPost {
    /// Its key.
    pub fullname: String,
    /// Hash of its text.
    pub text_hash: TextHash,
    /// Title.
    pub title: String,
    /// The label it has: a slug, or `Some(None)` for none of these; `None` where it is not labelled.
    pub verdict: Option<Option<String>>,
}

/// Why posts were set aside.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Failure {
    /// The error of their last attempt.
    pub error: String,
    /// Posts.
    pub posts: i64,
}
