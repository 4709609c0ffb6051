//! The data for a report: counts, shares and examples, without any markup.

use super::time::Axis;
use topicmill_core::{Fullname, Timestamp};
use topicmill_review::drift::Drift;
use topicmill_review::quality::MeasuredQuality;
use topicmill_store::{Gap, PostOutcome, SkippedSubreddits, TopicKeywords};

/// Number of bins in a score histogram.
pub const BINS: usize = 50;

/// The two periods that a change is measured between.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Period {
    /// The earlier and the later half of the time range.
    Halves,
    /// The requested period and a period of the same length before it.
    SameLengthBefore,
}

impl Period {
    /// Returns the display names of the two periods.
    pub fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::Halves => ("the earlier half", "the later half"),
            Self::SameLengthBefore => ("the period before", "this period"),
        }
    }
}

/// The change in an outcome's share.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Change {
    /// Posts with the outcome in the first period.
    pub before: u64,
    /// Posts with the outcome in the second period.
    pub after: u64,
    /// Share in the first period, 0 to 1.
    pub from: f64,
    /// Share in the second period, 0 to 1.
    pub to: f64,
    /// True if the change is statistically significant.
    pub is_significant: bool,
}

impl Change {
    /// Returns the difference between the shares.
    pub fn difference(&self) -> f64 {
        self.to - self.from
    }
}

/// Statistics for an outcome: a label, `other` or `unsure`.
#[derive(Debug, Clone, PartialEq)]
pub struct OutcomeStats {
    /// The label's slug, or `other` or `unsure`.
    pub slug: String,
    /// Display name.
    pub name: String,
    /// The kind of outcome.
    pub outcome: PostOutcome,
    /// Posts with this outcome in the period.
    pub posts: u64,
    /// Share of these posts among all scored posts in the period.
    pub share: f64,
    /// Posts per column of the time axis.
    pub series: Vec<u64>,
    /// Mean of the posts' best scores. `None` if there are no posts, and for `other`: those posts were not assigned
    /// their best label.
    pub mean_score: Option<f64>,
    /// Posts per bin of the score histogram.
    pub bins: Vec<u64>,
    /// Change in the share; `None` if one of the periods has no posts.
    pub change: Option<Change>,
}

/// Statistics for a topic that posts were collected for.
#[derive(Debug, Clone, PartialEq)]
pub struct TopicStats {
    /// The topic's slug.
    pub slug: String,
    /// Text of the label with this slug, or the slug itself if there is none.
    pub name: String,
    /// Slug of the label that the topic names; `None` if it names none.
    pub label: Option<String>,
    /// Posts in the period, scored or not.
    pub posts: u64,
    /// Scored posts among them.
    pub scored: u64,
    /// Scored posts by outcome, in the order of [`Report::outcomes`].
    pub row: Vec<u64>,
    /// Posts per column of the time axis.
    pub series: Vec<u64>,
}

/// The agreement of labels with the topics that posts were collected for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Agreement {
    /// Posts labelled as their topic.
    pub agreed: u64,
    /// Scored posts whose topic is a label.
    pub comparable: u64,
}

/// A label set at one version.
#[derive(Debug, Clone, PartialEq)]
pub struct LabelSetVersion {
    /// Name of the label set.
    pub name: String,
    /// The first characters of its hash.
    pub version: String,
}

/// A label's score for a post.
#[derive(Debug, Clone, PartialEq)]
pub struct LabelScore {
    /// Text of the label, or `other`.
    pub label: String,
    /// The score.
    pub score: f64,
}

/// A quoted post.
#[derive(Debug, Clone, PartialEq)]
pub struct QuotedPost {
    /// The post's fullname.
    pub fullname: Fullname,
    /// Title, formatted for display.
    pub title: String,
    /// Subreddit, without `r/`.
    pub subreddit: String,
    /// URL on Reddit.
    pub link: Option<String>,
    /// Display name for the topic that the post was collected for.
    pub topic: Option<String>,
    /// The best labels with their scores, at most two; the second may be `other`.
    pub best: Vec<LabelScore>,
    /// True if the post has a label.
    pub is_labelled: bool,
}

/// The data for a report.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// Display name for the database, without a password.
    pub database: String,
    /// Time when the report was made.
    pub now: Timestamp,
    /// Name and number format of the model.
    pub model: Option<String>,
    /// The label set.
    pub label_set: Option<LabelSetVersion>,
    /// The threshold: a post whose best score is lower gets no label.
    pub threshold: f64,
    /// True if scores are between 0 and 1; raw scores are not.
    pub scores_are_shares: bool,
    /// Time of the first post in the period.
    pub first: Option<Timestamp>,
    /// Time of the last post in the period.
    pub last: Option<Timestamp>,
    /// The periods that are compared, if any.
    pub period: Option<Period>,
    /// The time axis.
    pub axis: Axis,
    /// True if the period was restricted.
    pub is_bounded: bool,
    /// Posts in the period.
    pub posts: u64,
    /// Posts that are not scored yet.
    pub waiting: u64,
    /// Posts whose text was purged by retention before they were scored.
    pub without_text: u64,
    /// Posts per column of the time axis: [labelled, `other` or `unsure`, not scored].
    pub totals: Vec<[u64; 3]>,
    /// Labels, largest first, then `other` and `unsure` if there are any.
    pub outcomes: Vec<OutcomeStats>,
    /// Topics: first the ones that are labels, in label order, then the rest, largest first.
    pub topics: Vec<TopicStats>,
    /// The agreement of labels with topics.
    pub agreement: Agreement,
    /// The labels' quality over all periods; `None` if there is no label set.
    pub quality: Option<MeasuredQuality>,
    /// The drift between the two periods.
    pub drift: Option<Drift>,
    /// Posts with the smallest margins between their two best labels.
    pub closest: Vec<QuotedPost>,
    /// Posts with the highest scores.
    pub most_confident: Vec<QuotedPost>,
    /// Time ranges with missing posts, latest first.
    pub gaps: Vec<Gap>,
    /// The keywords that posts were selected with.
    pub keywords: Vec<TopicKeywords>,
    /// Subreddits that could not be read, latest run first.
    pub skipped: Vec<SkippedSubreddits>,
    /// Time of the last complete check for deletions on Reddit.
    pub reconciled_at: Option<Timestamp>,
}

impl Report {
    /// Returns the number of scored posts.
    pub fn scored(&self) -> u64 {
        self.outcomes.iter().map(|line| line.posts).sum()
    }

    /// Returns the number of posts with this kind of outcome.
    pub fn posts_with(&self, outcome: PostOutcome) -> u64 {
        let lines = self.outcomes.iter().filter(|line| line.outcome == outcome);
        lines.map(|line| line.posts).sum()
    }

    /// Returns the labels, without `other` and `unsure`.
    pub fn labels(&self) -> impl Iterator<Item = &OutcomeStats> {
        self.outcomes
            .iter()
            .filter(|line| line.outcome == PostOutcome::Labelled)
    }
}
