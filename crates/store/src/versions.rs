//! Values of label set versions, and of labels under them.

use serde::Serialize;

use super::LabelSetId;
use topicmill_core::{Fullname, TextHash, Timestamp};

/// A label set as stored, without its labels.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LabelSetRow {
    /// Key in `label_sets`; later versions have larger keys.
    pub id: LabelSetId,
    /// Display name; several versions may share it.
    pub name: String,
    /// The version.
    pub hash: String,
    /// When the version was first used.
    pub created_at: Timestamp,
}

/// The cost of labelling every post under a model and a label set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Cost {
    /// Posts that are already labelled.
    pub labelled: u64,
    /// Posts that have text but are not labelled.
    pub posts: u64,
    /// Distinct texts of the unlabelled posts.
    pub texts: u64,
    /// Unlabelled posts that need no inference, because all pairs of their texts are stored.
    pub posts_without_inference: u64,
    /// Text-label pairs whose logits are stored.
    pub pairs_stored: u64,
    /// Pairs that the model has to compute.
    pub pairs_missing: u64,
}

/// A post with its labels under two targets.
#[derive(Debug, Clone, PartialEq)]
pub struct ComparedPost {
    /// Its key.
    pub fullname: Fullname,
    /// Hash of its text.
    pub text_hash: TextHash,
    /// Title.
    pub title: String,
    /// Labels under the two targets; `None` if the current text is not labelled under a target.
    pub labels: [Option<Prediction>; 2],
    /// False if its text was purged or is empty.
    pub has_text: bool,
}

/// The predicted label of a post.
#[derive(Debug, Clone, PartialEq)]
pub struct Prediction {
    /// Slug of the label with the best score.
    pub label: String,
    /// The best score.
    pub score: f64,
    /// True if the model abstained, so that the post was given no label.
    pub abstained: bool,
}

/// The label that a post gets from a fit without the post's answer.
#[derive(Debug, Clone, PartialEq)]
pub struct CrossFitted {
    /// Fullname of the post.
    pub fullname: Fullname,
    /// Hash of its text.
    pub text_hash: TextHash,
    /// The label.
    pub prediction: Prediction,
}

/// The state of a post's label under a target.
#[derive(Debug, Clone, PartialEq)]
pub enum LabelState {
    /// Labelled, and the text has not changed since.
    Labelled(Prediction),
    /// Labelled, but the text has changed since.
    Outdated,
    /// Not labelled.
    Unlabelled,
    /// Without text to label: it was purged, or is only a placeholder.
    WithoutText,
}

/// A post with the state of its label.
#[derive(Debug, Clone, PartialEq)]
pub struct PostLabel {
    /// Its key.
    pub fullname: Fullname,
    /// Title.
    pub title: String,
    /// State of its label.
    pub state: LabelState,
}

/// An error that caused posts to be parked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Failure {
    /// The error of their last attempt.
    pub error: String,
    /// Number of posts.
    pub posts: i64,
}
