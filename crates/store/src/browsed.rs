//! Posts as the browsing pages show them: plain values, without a database.

use chrono::{DateTime, Utc};
use serde::Serialize;

use topicmill_core::{Fullname, Timestamp};

/// A post as a line of a list shows it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ListedPost {
    pub fullname: Fullname,
    pub subreddit: String,
    /// The topic that it was last collected for.
    pub topic: Option<String>,
    /// Title; empty where retention took it.
    pub title: String,
    pub excerpt: String,
    /// The slug of the label; `None` if the post has none.
    pub label: Option<String>,
    /// The label in words.
    pub label_name: Option<String>,
    /// A slug, `other` or `unsure`; none where it is not labelled yet.
    pub outcome: Option<String>,
    pub score: Option<f64>,
    pub margin: Option<f64>,
    pub reddit_score: Option<i64>,
    pub num_comments: Option<i64>,
    pub created_at: Timestamp,
    pub text_purged: bool,
}

/// A post with everything that is stored of it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WholePost {
    /// The entry in a list.
    #[serde(flatten)]
    pub listed: ListedPost,
    /// Body.
    pub selftext: String,
    pub url: Option<String>,
    pub permalink: Option<String>,
    /// Its author, hashed unless names are stored.
    pub author: Option<String>,
    pub flair: Option<String>,
    pub upvote_ratio: Option<f64>,
    pub over_18: bool,
    pub source: String,
    /// The hash of its text, as hexadecimal digits.
    pub text_hash: String,
    pub crosspost_parent: Option<String>,
    pub collected_at: Timestamp,
    pub updated_at: Timestamp,
    pub checked_at: Option<Timestamp>,
    pub removed_at: Option<Timestamp>,
    /// Its labels under every model and label set, the current ones first.
    pub verdicts: Vec<Verdict>,
    /// Its sightings, the latest first.
    pub sightings: Vec<Sighting>,
    /// Other posts with the same text that have a label, of whatever model.
    pub same_text: Vec<ListedPost>,
}

/// The label of a post under a model and a label set.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Verdict {
    pub label_set: String,
    pub version: String,
    pub model: String,
    pub precision: String,
    pub is_current: bool,
    /// A slug, `other` or `unsure`.
    pub outcome: String,
    /// The slug of the best label, even where the post has none.
    pub best: String,
    pub score: f64,
    pub margin: f64,
    /// True if the text is still the one that was scored.
    pub is_of_this_text: bool,
    pub run: Option<i64>,
    pub classified_at: Timestamp,
    /// Below which score the set gives no label.
    pub threshold: f64,
    /// Scores of all labels, the best first.
    pub scores: Vec<LabelScore>,
}

/// The score of a label.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LabelScore {
    pub label: String,
    pub label_name: String,
    pub score: f64,
}

/// That a run saw a post.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Sighting {
    pub run: i64,
    pub at: Timestamp,
    pub topic: String,
    pub listing: Option<String>,
    /// The place on it, from 0.
    pub rank: Option<i64>,
    pub reddit_score: Option<i64>,
}

/// Changes with whatever a run writes; equal ones mean that nothing was written in between.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct News(pub(super) Option<Marks>);

/// The latest run with its heartbeat and the latest end of any, how many ended, and the current target.
pub(super) type Marks = (
    Option<i64>,
    Option<DateTime<Utc>>,
    Option<DateTime<Utc>>,
    i64,
    Option<i64>,
    Option<i64>,
);
