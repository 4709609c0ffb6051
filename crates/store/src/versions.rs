//! Models, versions of label sets, and labels under them, as the store returns them.

use serde::Serialize;

use topicmill_core::{Fullname, TextHash, Timestamp};

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

/// The cost of labelling every post under a model and a label set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Cost {
    /// Posts that are labelled under them already.
    pub labelled: u64,
    /// Posts that are not, and have a text.
    pub posts: u64,
    /// Their texts, equal ones once.
    pub texts: u64,
    /// Texts that need no inference: all of their pairs are stored.
    pub posts_without_inference: u64,
    /// Pairs of their texts and the labels that are stored.
    pub pairs_stored: u64,
    /// Pairs that the model would compute.
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
    /// `None` where its present text is not labelled under the target.
    pub labels: [Option<Prediction>; 2],
}

/// The label that a post has, and how sure it is.
#[derive(Debug, Clone, PartialEq)]
pub struct Prediction {
    /// Slug of the label with the best score.
    pub label: String,
    /// The best score.
    pub score: f64,
    /// The post got no label.
    pub abstained: bool,
}

/// The label of a stored post under a target, if it has one.
#[derive(Debug, Clone, PartialEq)]
pub enum LabelState {
    /// It is labelled, and its text is still the one that was scored.
    As(Prediction),
    /// It was labelled, and its text is another one by now.
    BeforeAnEdit,
    /// It is not labelled.
    Not,
    /// Its text was purged, or is only a placeholder.
    WithoutText,
}

/// A post that somebody named.
#[derive(Debug, Clone, PartialEq)]
pub struct LookedUp {
    /// Its key.
    pub fullname: Fullname,
    /// Title.
    pub title: String,
    /// Its label.
    pub labelled: LabelState,
}

/// Why posts were set aside.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Failure {
    /// The error of their last attempt.
    pub error: String,
    /// Posts.
    pub posts: i64,
}
