//! Values of the browse pages.

use chrono::{DateTime, Utc};

use super::{LabelSetId, ModelId, RunId};
use topicmill_core::score::LabelOutcome;
use topicmill_core::{Fullname, ThingKind, Timestamp};

/// A condition on the current outcome of a post.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OutcomeFilter {
    /// The label with this slug.
    Label(String),
    /// Any label.
    Labelled,
    Other,
    Unsure,
    /// No outcome yet.
    Unlabelled,
}

/// The order of a list. A page begins after the position of the previous page's last post, so that new posts do not
/// shift later pages.
#[derive(Debug, Clone, PartialEq)]
pub enum PostOrder {
    /// Newest first; the position is (time, fullname).
    Newest(Option<(Timestamp, Fullname)>),
    /// Highest score of the best label first; the position is (score, fullname).
    Score(Option<(f64, Fullname)>),
}

/// The posts of a list, and their order.
#[derive(Debug, Clone, PartialEq)]
pub struct PostFilter {
    /// Posts or comments.
    pub kind: ThingKind,
    pub outcome: Option<OutcomeFilter>,
    /// The topic that the posts were last collected for.
    pub topic: Option<String>,
    /// A subreddit, in upper or lower case.
    pub subreddit: Option<String>,
    /// Earliest time, inclusive.
    pub since: Option<Timestamp>,
    /// Latest time, exclusive.
    pub until: Option<Timestamp>,
    /// Strings that must all occur in the title or the body, in upper or lower case.
    pub words: Vec<String>,
    pub order: PostOrder,
}

/// Numbers of posts or comments, largest first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PostCounts {
    pub posts: u64,
    /// By slug, `other` or `unsure`; posts that are not labelled are missing. Empty for comments.
    pub outcomes: Vec<(String, u64)>,
    pub topics: Vec<(String, u64)>,
}

impl PostCounts {
    /// Returns the outcomes that posts have, labels first: any label (`labelled`), the labels, `other`, `unsure`, and
    /// `unlabelled`.
    pub fn all_outcomes(&self) -> Vec<(String, u64)> {
        let (none, labels): (Vec<_>, Vec<_>) =
            self.outcomes.iter().cloned().partition(|(outcome, _)| {
                matches!(
                    outcome.parse(),
                    Ok(LabelOutcome::Other | LabelOutcome::Unsure)
                )
            });
        let sum = |counts: &[(String, u64)]| counts.iter().map(|(_, posts)| posts).sum::<u64>();
        let labelled = sum(&labels);
        let waiting = self.posts.saturating_sub(sum(&self.outcomes));
        std::iter::once(("labelled".to_owned(), labelled))
            .chain(labels)
            .chain(none)
            .chain([("unlabelled".to_owned(), waiting)])
            .filter(|(_, posts)| *posts > 0)
            .collect()
    }
}

/// A post as an entry in a list.
#[derive(Debug, Clone, PartialEq)]
pub struct PostSummary {
    pub fullname: Fullname,
    pub subreddit: String,
    /// The topic that it was last collected for.
    pub topic: Option<String>,
    /// Title; empty after retention.
    pub title: String,
    pub excerpt: String,
    /// The slug of the label; `None` if the post has none.
    pub label: Option<String>,
    /// The label in words.
    pub label_name: Option<String>,
    /// `None` if the post is not labelled.
    pub outcome: Option<LabelOutcome>,
    pub score: Option<f64>,
    pub margin: Option<f64>,
    pub reddit_score: Option<i64>,
    pub num_comments: Option<i64>,
    pub created_at: Timestamp,
    pub text_purged: bool,
}

/// A post with everything that is stored about it.
#[derive(Debug, Clone, PartialEq)]
pub struct PostDetails {
    /// The entry in a list.
    pub listed: PostSummary,
    /// Body.
    pub selftext: String,
    pub url: Option<String>,
    pub permalink: Option<String>,
    /// The author, hashed unless names are stored.
    pub author: Option<String>,
    pub flair: Option<String>,
    pub upvote_ratio: Option<f64>,
    pub over_18: bool,
    pub source: String,
    /// Hash of its text, in hexadecimal.
    pub text_hash: String,
    pub crosspost_parent: Option<String>,
    /// The post and the comment or post that a comment replies to.
    pub post: Option<String>,
    pub parent: Option<String>,
    pub collected_at: Timestamp,
    pub updated_at: Timestamp,
    pub checked_at: Option<Timestamp>,
    pub removed_at: Option<Timestamp>,
    /// Its labels under all targets, the current one first.
    pub verdicts: Vec<Verdict>,
    /// The runs that saw it, latest first.
    pub sightings: Vec<Sighting>,
    /// Other labelled posts with the same text, under any model.
    pub same_text: Vec<PostSummary>,
}

/// The label of a post under a target.
#[derive(Debug, Clone, PartialEq)]
pub struct Verdict {
    pub label_set: String,
    pub version: String,
    pub model: String,
    pub precision: String,
    pub is_current: bool,
    pub outcome: LabelOutcome,
    /// The slug of the best label, even if the model abstained.
    pub best: String,
    pub score: f64,
    pub margin: f64,
    /// True if the scored text is the current one.
    pub is_of_this_text: bool,
    pub classified_at: Timestamp,
    /// The score below which the label set abstains.
    pub threshold: f64,
    /// Scores of all labels, highest first.
    pub scores: Vec<LabelScore>,
}

/// The score of a label.
#[derive(Debug, Clone, PartialEq)]
pub struct LabelScore {
    pub label: String,
    pub label_name: String,
    pub score: f64,
}

/// A day on which runs saw a post.
#[derive(Debug, Clone, PartialEq)]
pub struct Sighting {
    pub day: String,
    pub topic: String,
    /// Number of runs that saw the post.
    pub times_seen: i64,
    pub listing: Option<String>,
    /// The best position on the listing, from 0.
    pub best_rank: Option<i64>,
    pub reddit_score: Option<i64>,
}

/// A marker for the last write of any run: equal markers mean that nothing was written in between.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangeMarker {
    pub(super) last_run: Option<RunId>,
    // Not `Timestamp`, which has a resolution of one second.
    pub(super) last_heartbeat: Option<DateTime<Utc>>,
    pub(super) last_end: Option<DateTime<Utc>>,
    pub(super) ended_runs: i64,
    pub(super) model: Option<ModelId>,
    pub(super) label_set: Option<LabelSetId>,
}
