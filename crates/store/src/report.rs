//! Queries of the report, and their results: sums, and a few posts.

use chrono::{DateTime, TimeDelta, Utc};
use serde_json::Value;

use super::Target;
use topicmill_core::{Fullname, Timestamp};

/// Of what the report is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReportQuestion {
    pub target: Option<Target>,
    /// The first moment of the period.
    pub since: Timestamp,
    /// The first moment behind it.
    pub until: Timestamp,
    /// Start of the period to compare with; `None` compares the later half of the report's period with the earlier
    /// one.
    pub before: Option<Timestamp>,
}

impl ReportQuestion {
    /// Rows of the target; of none, rows that are not there.
    pub(super) fn keys(&self) -> (i64, i64) {
        self.target
            .map_or((0, 0), |target| (target.model, target.label_set))
    }

    /// The first moment that is read.
    pub(super) fn before(&self) -> Timestamp {
        self.before.unwrap_or(self.since)
    }

    /// Start of the later half.
    pub(super) fn split_of(&self, first: Timestamp, last: Timestamp) -> Option<Timestamp> {
        if self.before.is_some() {
            return Some(self.since);
        }
        let (first, last) = (first.as_datetime(), last.as_datetime());
        let half = first + (last - first) / 2;
        // Of posts of one second there are no halves.
        (half > first).then(|| half.into())
    }
}

/// The time range of one column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Step {
    /// An hour.
    Hour,
    /// A day.
    #[default]
    Day,
    /// A calendar month.
    Month,
}

impl Step {
    /// The one that makes between a few and some hundred columns.
    pub(super) fn for_span(first: DateTime<Utc>, last: DateTime<Utc>) -> Self {
        match last - first {
            span if span <= TimeDelta::days(4) => Self::Hour,
            span if span <= TimeDelta::days(400) => Self::Day,
            _ => Self::Month,
        }
    }

    /// Its name.
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
pub enum Fate {
    /// It has a label.
    Labelled,
    /// A topic of the background fits better than every label.
    Other,
    /// Its best score lies under the threshold.
    Unsure,
    /// It waits for a label.
    Waiting,
    /// It has no label and no text to give it one: retention purged it, or it is only a placeholder.
    WithoutText,
}

impl Fate {
    /// As the statements write it.
    pub(super) fn of(code: i64) -> Self {
        match code {
            0 => Self::Labelled,
            1 => Self::Other,
            2 => Self::Unsure,
            3 => Self::Waiting,
            _ => Self::WithoutText,
        }
    }

    /// True if the model scored it.
    pub fn is_scored(self) -> bool {
        matches!(self, Self::Labelled | Self::Other | Self::Unsure)
    }
}

/// Posts that have all of this in common.
#[derive(Debug, Clone, PartialEq)]
pub struct HeatCell {
    pub is_later: bool,
    /// When: `2026-11-22T13`, `2026-11-22` or `2026-11`, as [`Sums::step`] says, in UTC.
    pub time: String,
    pub topic: Option<String>,
    pub label: Option<String>,
    pub fate: Fate,
    pub posts: u64,
    pub score_sum: f64,
}

/// Posts of the period whose scores lie in one of fifty columns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bin {
    pub label: Option<String>,
    pub fate: Fate,
    /// The column, from 0: 0.02 each.
    pub bin: usize,
    pub posts: u64,
}

/// A post that the report may quote.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    pub fullname: Fullname,
    pub title: String,
    pub subreddit: String,
    pub permalink: Option<String>,
    pub source: String,
    pub topic: Option<String>,
    pub label: Option<String>,
    pub score: f64,
    pub margin: f64,
}

/// All scores of a post.
#[derive(Debug, Clone, PartialEq)]
pub struct Drawn {
    pub fullname: Fullname,
    /// One a label, in the order of the set.
    pub scores: Vec<f64>,
}

/// A topic whose first subreddits could not be read, so that another one was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skipped {
    pub at: Timestamp,
    pub topic: String,
    /// Subreddits that were passed over, and why: `missing`, `private`.
    pub passed: Vec<(String, String)>,
    /// The subreddit that was read instead, if any.
    pub read: Option<String>,
}

impl Skipped {
    /// From the outcomes of a run, as `runs` has them.
    pub(super) fn of_run(at: Timestamp, outcomes: &str) -> Vec<Self> {
        let outcomes: Vec<Value> = serde_json::from_str(outcomes).unwrap_or_default();
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let skipped = outcomes.iter().filter_map(|outcome| {
            let passed = outcome["skipped"].as_array()?.iter();
            let passed: Vec<_> = passed
                .filter_map(|pair| Some((text(&pair[0])?, text(&pair[1])?)))
                .collect();
            Some(Self {
                at,
                topic: text(&outcome["topic"])?,
                read: text(&outcome["subreddit"]),
                passed: Some(passed).filter(|passed| !passed.is_empty())?,
            })
        });
        skipped.collect()
    }
}

/// The data of a report.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Sums {
    /// When the first post of the period was posted.
    pub first: Option<Timestamp>,
    /// And the last one.
    pub last: Option<Timestamp>,
    /// Start of the later half; `None` if there is nothing to compare.
    pub split: Option<Timestamp>,
    /// Length of the time steps of [`cells`](Self::cells).
    pub step: Step,
    /// Posts, by what they have in common.
    pub cells: Vec<HeatCell>,
    /// Scores of the period.
    pub bins: Vec<Bin>,
    /// Posts whose best two labels are closest, the closest first.
    pub closest: Vec<Sample>,
    /// Posts of high scores, the highest first.
    pub surest: Vec<Sample>,
    /// Subreddits that were passed over, the latest run first.
    pub skipped: Vec<Skipped>,
}
