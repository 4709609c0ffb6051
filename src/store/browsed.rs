//! What people who look through posts are shown: plain values, without a database.

use chrono::{DateTime, Utc};
use serde::Serialize;

use crate::domain::Timestamp;

/// A post as a line of a list shows it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ListedPost {
    /// Its key.
    pub fullname: String,
    /// Where it was posted.
    pub subreddit: String,
    /// The topic that it was last collected for.
    pub topic: Option<String>,
    /// Title; empty where retention took it.
    pub title: String,
    /// The beginning of its body.
    pub excerpt: String,
    /// The label in words; none where the post has none.
    pub label: Option<String>,
    /// A slug, `other` or `unsure`; none where it is not labelled yet.
    pub outcome: Option<String>,
    /// The best score.
    pub score: Option<f64>,
    /// The best score less the second best.
    pub margin: Option<f64>,
    /// Upvotes less downvotes.
    pub reddit_score: Option<i64>,
    /// Number of comments.
    pub num_comments: Option<i64>,
    /// When it was posted.
    pub created_at: Timestamp,
    /// Whether retention took its text.
    pub text_purged: bool,
}

/// A post with everything that is stored of it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WholePost {
    /// What a list shows.
    #[serde(flatten)]
    pub listed: ListedPost,
    /// Body.
    pub selftext: String,
    /// What a link points to.
    pub url: Option<String>,
    /// Its path on Reddit.
    pub permalink: Option<String>,
    /// Its author, hashed unless names are stored.
    pub author: Option<String>,
    /// Text of the link flair.
    pub flair: Option<String>,
    /// Share of upvotes.
    pub upvote_ratio: Option<f64>,
    /// Not safe for work.
    pub over_18: bool,
    /// Where it came from.
    pub source: String,
    /// The hash of its text, as hexadecimal digits.
    pub text_hash: String,
    /// The post that a crosspost shows.
    pub crosspost_parent: Option<String>,
    /// When it was first stored.
    pub collected_at: Timestamp,
    /// When it was last seen.
    pub updated_at: Timestamp,
    /// When Reddit last showed it.
    pub checked_at: Option<Timestamp>,
    /// When Reddit first showed it as removed.
    pub removed_at: Option<Timestamp>,
    /// Its labels under every model and label set, the current ones first.
    pub verdicts: Vec<Verdict>,
    /// Who saw it when, the latest first.
    pub sightings: Vec<Sighting>,
    /// Other posts with the same text that have a label, of whatever model.
    pub same_text: Vec<ListedPost>,
}

/// What a post is labelled as under a model and a label set.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Verdict {
    /// Name of the label set.
    pub label_set: String,
    /// Its version.
    pub version: String,
    /// Name of the model.
    pub model: String,
    /// Its precision.
    pub precision: String,
    /// Whether the views show it.
    pub is_current: bool,
    /// A slug, `other` or `unsure`.
    pub outcome: String,
    /// The slug of the best label, even where the post has none.
    pub best: String,
    /// Its score.
    pub score: f64,
    /// Less the second best.
    pub margin: f64,
    /// Whether the text is still the one that was scored.
    pub is_of_this_text: bool,
    /// The run that labelled it.
    pub run: Option<i64>,
    /// When.
    pub classified_at: Timestamp,
    /// Below which score the set gives no label.
    pub threshold: f64,
    /// Scores of all labels, the best first.
    pub scores: Vec<LabelScore>,
}

/// The score of a label.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LabelScore {
    /// Slug.
    pub label: String,
    /// In words.
    pub words: String,
    /// 0 to 1.
    pub score: f64,
}

/// That a run saw a post.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Sighting {
    /// The run.
    pub run: i64,
    /// When the run began.
    pub at: Timestamp,
    /// The topic it read.
    pub topic: String,
    /// The listing it read.
    pub listing: Option<String>,
    /// The place on it, from 0.
    pub rank: Option<i64>,
    /// Reddit's score then.
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
