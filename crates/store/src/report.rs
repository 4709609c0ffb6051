//! The input and the results of the report's queries: sums, and a few posts.

use chrono::{DateTime, TimeDelta, Utc};
use serde::Deserialize;
use serde_json::Value;

use super::Target;
use topicmill_core::{Fullname, SourceKind, ThingKind, Timestamp, subreddit_of_path};

/// The scope of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReportQuery {
    /// Posts or comments: the results, in which both are called posts, have only this kind.
    pub kind: ThingKind,
    pub target: Option<Target>,
    /// Start of the period.
    pub since: Timestamp,
    /// End of the period, exclusive.
    pub until: Timestamp,
}

/// The time step of one chart column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TimeStep {
    /// An hour.
    Hour,
    /// A day.
    #[default]
    Day,
    /// A calendar month.
    Month,
}

impl TimeStep {
    /// Returns the step that gives a period at most a few hundred columns.
    pub(super) fn for_span(first: DateTime<Utc>, last: DateTime<Utc>) -> Self {
        match last - first {
            span if span <= TimeDelta::days(4) => Self::Hour,
            span if span <= TimeDelta::days(400) => Self::Day,
            _ => Self::Month,
        }
    }

    /// Returns its name.
    pub fn word(self) -> &'static str {
        match self {
            Self::Hour => "hour",
            Self::Day => "day",
            Self::Month => "month",
        }
    }
}

/// The outcome of a post.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum PostOutcome {
    /// Labelled.
    Labelled,
    /// The background fits better than any label.
    Other,
    /// The best score is below the threshold.
    Unsure,
    /// Waiting for a label.
    Waiting,
    /// Without a label and without text to label: retention deleted it, or it is only a placeholder.
    WithoutText,
}

impl PostOutcome {
    /// Converts the number that the statements return.
    pub(super) fn from_code(code: i64) -> Self {
        match code {
            0 => Self::Labelled,
            1 => Self::Other,
            2 => Self::Unsure,
            3 => Self::Waiting,
            _ => Self::WithoutText,
        }
    }

    /// Returns true if the model scored the post.
    pub fn is_scored(self) -> bool {
        matches!(self, Self::Labelled | Self::Other | Self::Unsure)
    }
}

/// The number of posts with these properties.
#[derive(Debug, Clone, PartialEq)]
pub struct ReportCell {
    /// Time step in UTC: `2026-11-22T13`, `2026-11-22` or `2026-11`, depending on [`ReportSums::step`].
    pub time: String,
    pub topic: Option<String>,
    pub label: Option<String>,
    pub outcome: PostOutcome,
    pub posts: u64,
    pub score_sum: f64,
}

/// The posts of a subreddit from one source that were read in the order of time: from a file, an archive, or the `new`
/// listing. The other listings select posts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubredditSpan {
    pub subreddit: String,
    pub source: SourceKind,
    /// When the first of them was posted.
    pub first: Timestamp,
    /// When the last of them was posted.
    pub last: Timestamp,
    pub posts: i64,
}

/// The part of a subreddit that a topic has read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Watermark {
    pub source: SourceKind,
    pub subreddit: String,
    /// When the newest post that was read was posted; `None` if only time ranges were read.
    pub newest: Option<Timestamp>,
    /// From an archive: the posts since this time were read.
    pub read_from: Option<Timestamp>,
    /// When it was last read.
    pub updated_at: Timestamp,
}

/// Two periods: one ends where the next one begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TwoPeriods {
    /// Start of the first period.
    pub from: Timestamp,
    /// Start of the second period.
    pub split: Timestamp,
    /// End of the second period, exclusive.
    pub until: Timestamp,
}

/// The number of scored posts of a subreddit in one of two periods.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeriodCell {
    pub is_later: bool,
    pub subreddit: String,
    pub label: Option<String>,
    pub outcome: PostOutcome,
    pub posts: u64,
}

/// The number of posts in one of fifty score bins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScoreBin {
    pub label: Option<String>,
    pub outcome: PostOutcome,
    /// The bin, from 0; each is 0.02 wide.
    pub bin: usize,
    pub posts: u64,
}

/// A post that the report may quote.
#[derive(Debug, Clone, PartialEq)]
pub struct SamplePost {
    pub fullname: Fullname,
    /// The title of a post, or the start of a comment's body.
    pub text: String,
    pub subreddit: String,
    pub permalink: Option<String>,
    pub source: String,
    pub topic: Option<String>,
    pub label: Option<String>,
    pub score: f64,
    pub margin: f64,
}

/// A topic for which some subreddits were skipped because they could not be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkippedSubreddits {
    pub at: Timestamp,
    pub topic: String,
    /// Skipped subreddits with the reason: `missing`, `private`.
    pub passed: Vec<(String, String)>,
    /// The subreddit that was read instead, if any.
    pub read: Option<String>,
}

impl SkippedSubreddits {
    /// Reads the outcomes of reading posts or comments in a run, as stored in `runs`.
    pub(super) fn from_outcomes(at: Timestamp, kind: ThingKind, outcomes: &str) -> Vec<Self> {
        let subreddit_of_kind = |path: &str| {
            let (name, kind_of_path) = subreddit_of_path(path);
            (kind_of_path == kind).then(|| name.to_owned())
        };
        // A record that another version wrote may have another form.
        let outcomes: Vec<Value> = serde_json::from_str(outcomes).unwrap_or_default();
        let outcomes = outcomes.into_iter().map(TopicOutcome::deserialize);
        let of_kind = |(path, reason): (String, String)| Some((subreddit_of_kind(&path)?, reason));
        let skipped = outcomes.filter_map(Result::ok).map(|outcome| Self {
            at,
            topic: outcome.topic,
            passed: outcome.skipped.into_iter().filter_map(of_kind).collect(),
            read: subreddit_of_kind(&outcome.subreddit),
        });
        skipped
            .filter(|skipped| !skipped.passed.is_empty())
            .collect()
    }
}

/// The outcome of a run for a topic, as stored in `runs`; see [`TopicReport`](topicmill_core::TopicReport).
#[derive(Deserialize)]
struct TopicOutcome {
    topic: String,
    /// Path of the subreddit that was read, or the last one tried.
    subreddit: String,
    /// Paths of the skipped subreddits, each with the reason.
    skipped: Vec<(String, String)>,
}

/// The data for a report.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ReportSums {
    /// When the first post in the period was posted.
    pub first: Option<Timestamp>,
    /// When the last post in the period was posted.
    pub last: Option<Timestamp>,
    /// Time step of [`cells`](Self::cells).
    pub step: TimeStep,
    /// Posts by their properties.
    pub cells: Vec<ReportCell>,
    /// Distribution of scores.
    pub bins: Vec<ScoreBin>,
    /// Posts with the lowest margins, lowest first.
    pub closest: Vec<SamplePost>,
    /// Posts with the highest scores, highest first.
    pub most_confident: Vec<SamplePost>,
    /// Skipped subreddits, latest run first.
    pub skipped: Vec<SkippedSubreddits>,
}
