//! Gold labels on their way into the store and out of it.

use serde::Serialize;

use topicmill_core::{Fullname, GoldSource, SampleReason, TextHash, Timestamp};

/// The answer of a person about a post.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GoldAnswer {
    pub fullname: Fullname,
    pub reviewer: String,
    /// Slug of the right label; `None` for none of those that were offered.
    pub label: Option<String>,
    /// The label set whose labels were offered.
    pub label_set: Option<i64>,
    /// Why this post.
    pub chosen: SampleReason,
    pub source: GoldSource,
    pub answered_at: Timestamp,
    /// Of the text that the person saw; `None` for the present one.
    pub text_hash: Option<TextHash>,
}

/// An answer as stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredGold {
    pub answer: GoldAnswer,
    /// True if the post is in the random sample that stands for all posts, however it was selected.
    pub in_random_sample: bool,
    /// True if the post still has the text that the person saw.
    pub is_of_present_text: bool,
}

/// The result of storing answers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct SavedGold {
    /// New ones.
    pub added: u64,
    /// Answers that differ from an earlier one of the same person.
    pub changed: u64,
    /// Answers that repeat an earlier one, or are older than the person's last.
    pub same: u64,
    /// Posts that are not stored.
    pub missing: Vec<Fullname>,
}

/// A post as the review page shows it, and its label.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ReviewPost {
    pub fullname: Fullname,
    pub subreddit: String,
    pub title: String,
    pub selftext: String,
    pub url: Option<String>,
    pub permalink: Option<String>,
    pub created_at: Timestamp,
    /// Of the text that people read.
    pub text_hash: TextHash,
    /// Slug of the label with the best score.
    pub label: String,
    pub score: f64,
    pub margin: f64,
    /// The post got no label.
    pub abstained: bool,
    /// A topic of the background fits better than every label.
    pub other: bool,
}
